// The cosine similarity of two sentence encoders' embeddings of the same text.

import * as api from "./api.js";
import { fixed, make } from "./dom.js";
import { shortName } from "./heads.js";

/** @typedef {import("./types.js").Answer} Answer */

/** @type {{of: string, cosines: number[] | null | undefined}}  of: the questions; cosines: undefined while the request runs */
let latest = { of: "", cosines: undefined };

/** @param {import("./types.js").LiveModel[]} models @param {Answer | null} a @param {Answer | null} b @param {() => void} arrived @returns {HTMLElement[]} */
export function together(models, a, b, arrived) {
  if (!a || !b || a.prediction.kind !== "encoder" || b.prediction.kind !== "encoder") return [];
  if (a.question.text !== b.question.text || a.question.second !== b.question.second) return [];  // one of the answers is still missing
  const of = `${JSON.stringify(a.question)} ${JSON.stringify(b.question)}`;
  if (latest.of !== of) {
    latest = { of, cosines: undefined };
    api.alike(a, b).then((cosines) => {
      if (latest.of !== of) return;
      latest.cosines = cosines;
      arrived();
    }, () => { if (latest.of === of) latest.of = ""; });
  }
  const holder = make("div", "answer together"), numbers = latest.cosines, names = models.map(shortName).join(" and ");
  holder.append(make("h3", "", "Both models"), make("p", "said", `Cosine similarity of the embeddings of ${names}`));
  if (numbers === undefined) holder.append(make("p", "remark", "…"));
  else if (numbers === null) holder.append(make("p", "remark", "The embeddings have different dimensions, so they cannot be compared."));
  else {
    for (const [at, number] of numbers.entries()) {
      const line = make("p", "figure");
      line.append(make("b", "", fixed(number, 3)), ...(numbers.length > 1 ? [make("span", "remark", at ? "second text" : "first text")] : []));
      holder.append(line);
    }
  }
  return [holder];
}
