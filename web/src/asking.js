// Requests to the models, and the latest answers.

import { everyHead, written } from "./heads.js";
import { Refused } from "./refused.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {"a" | "b" | "base"} Purpose */

/** @type {Record<Purpose, Answer | null>}  base: model a with all heads on */
export const answers = { a: null, b: null, base: null };
/** trouble: the last error. isAsking: a request is running. isTyped: a typed text was not sent yet. took: duration of the last answer in ms.
 * @type {{trouble: string | null, isAsking: boolean, isTyped: boolean, took: number}} */
export const asking = { trouble: null, isAsking: false, isTyped: false, took: 0 };

/** Whether the displayed answer is older than the current input. */
export const isPending = () => asking.isAsking || asking.isTyped;
/** @type {Record<Purpose, string>}  the latest question of each purpose, as JSON; empty after an error */
const latestQuestion = { a: "", b: "", base: "" };

/** The heads that are off and that this model has. @param {Model} model */
const offIn = (model) => written(model, everyHead(model).filter((head) => state.off.has(head)));

/** @param {Model[]} models @returns {[Purpose, import("./types.js").Question][]} */
function questions([a, b]) {
  const input = { text: state.text, second: state.second?.trim() ? state.second : null, lens: state.lens };
  /** @type {[Purpose, import("./types.js").Question][]} */
  const result = [["a", { ...input, model: a.id, off: offIn(a) }]];
  if (b) result.push(["b", { ...input, model: b.id, off: offIn(b) }]);
  if (state.show === "change") result.push(["base", { ...input, model: a.id, off: "" }]);
  return result;
}

/**
 * Send the questions that have no answer yet. `arrived` is called when requests start and when answers arrive.
 * @param {Model[]} models @param {import("./types.js").Attend | null} attend  null: there is no text @param {() => void} arrived
 */
export async function ask(models, attend, arrived) {
  if (!attend) {
    Object.assign(answers, { a: null, b: null, base: null });
    Object.assign(latestQuestion, { a: "", b: "", base: "" });
    Object.assign(asking, { trouble: null, isAsking: false });
    return arrived();
  }
  const missing = questions(models).filter(([purpose, question]) => latestQuestion[purpose] !== JSON.stringify(question));
  if (!missing.length) return arrived();
  const began = performance.now();
  for (const [purpose, question] of missing) latestQuestion[purpose] = JSON.stringify(question);
  asking.isAsking = true;
  arrived();
  await Promise.all(missing.map(async ([purpose, question]) => {
    const name = JSON.stringify(question);
    try {
      const answer = await attend(question, purpose);
      if (latestQuestion[purpose] !== name) return;
      answers[purpose] = answer;
      Object.assign(asking, { trouble: null, took: performance.now() - began });
      performance.mark("answered");
    } catch (reason) {
      if (latestQuestion[purpose] !== name) return;
      latestQuestion[purpose] = "";
      if (!(reason instanceof Refused) || reason.status !== 409) asking.trouble = /** @type {Error} */ (reason).message;
    }
  }));
  const waits = (/** @type {Purpose} */ purpose) => latestQuestion[purpose] !== "" && latestQuestion[purpose] !== JSON.stringify(answers[purpose]?.question);
  asking.isAsking = questions(models).some(([purpose]) => waits(purpose));
  arrived();
}

/** The sources of the displayed maps; none while a required answer is missing. @returns {import("./types.js").Source[]} */
export function sources() {
  const { a, b, base } = answers;
  const plain = (/** @type {(Answer | null)[]} */ ...candidates) => candidates.flatMap((answer) => (answer ? [{ answer, against: null }] : []));
  if (state.show === "b") return plain(b);
  if (state.show === "both") return plain(a, b);
  if (state.show === "difference") return a && b ? [{ answer: b, against: a }] : [];
  if (state.show === "change" && state.off.size) return a && base ? [{ answer: a, against: base }] : [];
  return plain(a);
}
