// The model's own translation: once wanted, it follows the text and the switches. The last one stays until a newer one is there.

import * as api from "./api.js";
import { everyHead, written } from "./heads.js";
import { Refused } from "./refused.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").LiveModel} LiveModel */
/** @typedef {{before: string, after: string | null}} Said */
/** @typedef {{said: Said | null, trouble: string | null, isStale: boolean}} Translation  stale: of another text, or other heads; a newer one is made */

const REST_MS = 350;
/** @type {Map<string, {said: Said | null, trouble: string | null, of: string, asked: string, later: number | undefined}>} by model */
const known = new Map();

/** What there is of a model's translation now; what is missing is asked for when switching and typing rest. @param {LiveModel} model @param {() => void} arrived @returns {Translation} */
export function translationOf(model, arrived) {
  const one = known.get(model.id) ?? { said: null, trouble: null, of: "", asked: "", later: undefined };
  known.set(model.id, one);
  const question = { model: model.id, text: state.text, off: written(model, everyHead(model).filter((head) => state.off.has(head))) };
  const name = JSON.stringify(question);
  if (one.asked !== name) {
    one.asked = name;
    clearTimeout(one.later);
    one.later = setTimeout(async () => {
      try {
        const said = await api.translate(question);
        if (one.asked !== name) return;
        Object.assign(one, { said, trouble: null, of: name });
      } catch (reason) {
        if (one.asked !== name || (reason instanceof Refused && reason.status === 409)) return;
        Object.assign(one, { trouble: /** @type {Error} */ (reason).message, of: name });
      }
      arrived();
    }, REST_MS);
  }
  return { said: one.said, trouble: one.trouble, isStale: one.of !== name };
}

/** Nothing more is asked; what comes is kept. */
export function stopTranslating() {
  for (const one of known.values()) {
    clearTimeout(one.later);
    one.asked = one.of;
  }
}
