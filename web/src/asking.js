// Questions to the models, and the latest answers.

import { everyHead, written } from "./heads.js";
import { Refused } from "./refused.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {"a" | "b" | "base"} Purpose */

/** @type {Record<Purpose, Answer | null>}  base: model a with all heads on */
export const answers = { a: null, b: null, base: null };
/** What went wrong, whether something was typed that is not asked yet, and how long the last answer took.
 * @type {{trouble: string | null, isAsking: boolean, isTyped: boolean, took: number}} */
export const asking = { trouble: null, isAsking: false, isTyped: false, took: 0 };

/** What is on show is not what was asked for last. */
export const isPending = () => asking.isAsking || asking.isTyped;
/** @type {Record<Purpose, string>}  the question each answer belongs to, or will */
const asked = { a: "", b: "", base: "" };

/** Heads of another model that are off as well, as far as it has them. @param {Model} model */
const offOf = (model) => written(model, everyHead(model).filter((head) => state.off.has(head)));

/** @param {Model[]} models @returns {[Purpose, import("./types.js").Question][]} */
function questions([a, b]) {
  const about = { text: state.text, second: state.second?.trim() ? state.second : null, lens: state.lens };
  /** @type {[Purpose, import("./types.js").Question][]} */
  const found = [["a", { ...about, model: a.id, off: offOf(a) }]];
  if (b) found.push(["b", { ...about, model: b.id, off: offOf(b) }]);
  if (state.show === "change") found.push(["base", { ...about, model: a.id, off: "" }]);
  return found;
}

/**
 * Ask whatever is not known. `arrived` is called when something begins or has come.
 * @param {Model[]} models @param {import("./types.js").Attend | null} attend  null: there is nothing to ask @param {() => void} arrived
 */
export async function ask(models, attend, arrived) {
  if (!attend) {
    Object.assign(answers, { a: null, b: null, base: null });
    Object.assign(asked, { a: "", b: "", base: "" });
    Object.assign(asking, { trouble: null, isAsking: false });
    return arrived();
  }
  const open = questions(models).filter(([purpose, question]) => asked[purpose] !== JSON.stringify(question));
  if (!open.length) return arrived();
  const began = performance.now();
  for (const [purpose, question] of open) asked[purpose] = JSON.stringify(question);
  asking.isAsking = true;
  arrived();
  await Promise.all(open.map(async ([purpose, question]) => {
    const name = JSON.stringify(question);
    try {
      const answer = await attend(question, purpose);
      if (asked[purpose] !== name) return;
      answers[purpose] = answer;
      Object.assign(asking, { trouble: null, took: performance.now() - began });
      performance.mark("answered");
    } catch (reason) {
      if (asked[purpose] !== name) return;
      asked[purpose] = "";
      if (!(reason instanceof Refused) || reason.status !== 409) asking.trouble = /** @type {Error} */ (reason).message;
    }
  }));
  const waits = (/** @type {Purpose} */ purpose) => asked[purpose] !== "" && asked[purpose] !== JSON.stringify(answers[purpose]?.question);
  asking.isAsking = questions(models).some(([purpose]) => waits(purpose));
  arrived();
}

/** The maps on show; none while an answer that they need is missing. @returns {import("./types.js").Source[]} */
export function sources() {
  const { a, b, base } = answers;
  const plain = (/** @type {(Answer | null)[]} */ ...some) => some.flatMap((answer) => (answer ? [{ answer, against: null }] : []));
  if (state.show === "b") return plain(b);
  if (state.show === "both") return plain(a, b);
  if (state.show === "difference") return a && b ? [{ answer: b, against: a }] : [];
  if (state.show === "change" && state.off.size) return a && base ? [{ answer: a, against: base }] : [];
  return plain(a);
}
