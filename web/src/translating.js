// The model's own translation. Once requested, it is updated with the text and the switches; the last one stays until a newer one arrives.

import * as api from "./api.js";
import { everyHead, written } from "./heads.js";
import { Refused } from "./refused.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").LiveModel} LiveModel */
/** @typedef {{before: string, after: string | null}} Said */
/** @typedef {{said: Said | null, trouble: string | null, isStale: boolean}} Translation  isStale: it is of another text or other heads, and a newer one is on its way */

const REST_MS = 350;
/** @type {Map<string, {said: Said | null, trouble: string | null, of: string, asked: string, later: number | undefined}>} by model */
const translations = new Map();

/** The model's latest translation. If it is stale, a new one is requested once typing and switching pause. @param {LiveModel} model @param {() => void} arrived @returns {Translation} */
export function translationOf(model, arrived) {
  const entry = translations.get(model.id) ?? { said: null, trouble: null, of: "", asked: "", later: undefined };
  translations.set(model.id, entry);
  const question = { model: model.id, text: state.text, off: written(model, everyHead(model).filter((head) => state.off.has(head))) };
  const name = JSON.stringify(question);
  if (entry.asked !== name) {
    entry.asked = name;
    clearTimeout(entry.later);
    entry.later = setTimeout(async () => {
      try {
        const texts = await api.translate(question);
        if (entry.asked !== name) return;
        Object.assign(entry, { said: texts, trouble: null, of: name });
      } catch (reason) {
        if (entry.asked !== name || (reason instanceof Refused && reason.status === 409)) return;
        Object.assign(entry, { trouble: /** @type {Error} */ (reason).message, of: name });
      }
      arrived();
    }, REST_MS);
  }
  return { said: entry.said, trouble: entry.trouble, isStale: entry.of !== name };
}

/** Cancel pending requests; running ones still arrive. */
export function stopTranslating() {
  for (const entry of translations.values()) {
    clearTimeout(entry.later);
    entry.asked = entry.of;
  }
}
