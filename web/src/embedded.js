// Answers from the data in a saved page, in the form of a server's answers. Maps are stored deflated, and unpacked on demand.

import { inflate } from "./inflate.js";
import { summaryOf, unpack } from "./unpack.js";

/** @typedef {{lens: import("./types.js").Lens, summary: import("./types.js").HeadSummary[], maps: Record<string, (string | null)[]>}} Kept */
/** @typedef {{model: import("./types.js").Model, sides: Record<string, import("./types.js").Sides>, answers: Kept[]}} Embedded */

/** @param {Embedded} data @returns {import("./types.js").Attend} */
export function attendIn({ sides, answers }) {
  return async (question) => {
    const stored = answers.find(({ lens }) => lens.name === question.lens);
    if (!stored) throw new Error(`This page has no lens ${question.lens}.`);
    const { lens, summary, maps } = stored;
    return {
      id: lens.name, question, lens, summary: summaryOf(summary), prediction: null,
      sides: Object.fromEntries(Object.entries(sides).filter(([stack]) => stack in maps)),
      maps: async (stack, layer) => unpack(await inflate(maps[stack][layer] ?? "")),
      thumbnails: null,
      difference: null,
      largestDifference: null,
    };
  };
}
