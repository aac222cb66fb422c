// What maps are called: in the grid, above a drawing, below it, and as a file.

import { answers } from "./asking.js";
import { fullOf } from "./colour.js";
import { digits } from "./dom.js";
import { address, isOfTokens, shortName } from "./heads.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {{name: string, view: import("./types.js").View}} Shown */

/** A head by its address, a token map by its layer and, where there are several, its form. @param {Model} model @param {import("./types.js").Place} place */
export function nameOf(model, { layer, head }) {
  const lens = answers.a?.lens;
  if (!isOfTokens(model, state.lens) || !lens?.forms) return address(model, state.stack, layer, head);
  const stack = model.stacks.length > 1 ? `${state.stack} ` : "", form = lens.forms.length > 1 ? `, ${lens.forms[Number(head)]}` : "";
  return `${lens.name}: ${stack}${lens.layers?.[layer] ?? `layer ${layer}`}${form}`;
}

const HIDDEN = { special: "special tokens", punctuation: "punctuation", itself: "itself" };
const hidden = () => Object.entries(HIDDEN).filter(([name]) => state[/** @type {"special"} */ (name)]).map(([, text]) => text);

/** @param {Model[]} models @param {Shown[]} shown */
export function caption(models, shown) {
  const { name, view } = shown[0], hides = hidden(), most = fullOf(view), top = most === 1 ? "1" : digits(most, !view.lens.shares);
  const what = { difference: models.map(shortName).reverse().join(" minus "), change: "change since heads are off" }[state.show] ?? "";
  return [
    shown.length > 1 && state.view === "arcs" ? shown.map((one) => one.name).join(", ") : name,
    ...(state.lens !== "raw" && !view.lens.forms ? [state.lens] : []),
    ...(what ? [what] : []),
    state.level,
    hides.length ? `${hides.join(", ")} hidden${state.renormalise && !view.signed ? ", renormalised" : ""}` : "all tokens shown",
    `colour: ${state.scale === "root" ? "square root" : "linear"}, ${view.signed ? `−${top}` : "0"}\u00a0to\u00a0${top}`,
  ].join(" · ");
}

/** Of what is saved, without its ending. @param {Shown} shown */
export function fileOf({ name, view }) {
  const parts = [name, state.view, state.level];
  if (state.lens !== "raw" && !view.lens.forms) parts.push(state.lens);
  if (hidden().length) parts.push(state.renormalise ? "renormalised" : "hidden");
  if (state.show === "difference" || state.show === "change") parts.push(state.show);
  return parts.join("-").replace(/[^\w.]+/g, "-");
}
