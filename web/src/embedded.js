// A saved page's own answers: what a server would tell, kept in the page. Maps are deflated, and unpacked when asked for.

import { inflate } from "./inflate.js";
import { summaryOf, unpack } from "./unpack.js";

/** @typedef {{lens: import("./types.js").Lens, summary: import("./types.js").HeadSummary[], maps: Record<string, (string | null)[]>}} Kept */
/** @typedef {{model: import("./types.js").Model, sides: Record<string, import("./types.js").Sides>, answers: Kept[]}} Embedded */

/** @param {Embedded} data @returns {import("./types.js").Attend} */
export function attendIn({ sides, answers }) {
  return async (question) => {
    const kept = answers.find(({ lens }) => lens.name === question.lens);
    if (!kept) throw new Error(`This page has no lens ${question.lens}.`);
    const { lens, summary, maps } = kept;
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
