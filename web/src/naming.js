// Names of maps: in the grid, above and below a drawing, and in file names.

import { answers } from "./asking.js";
import { fullOf } from "./colour.js";
import { digits } from "./dom.js";
import { address, full, isOfTokens, shortName } from "./heads.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {{name: string, model: string, at: number, view: import("./types.js").View}} Shown  a displayed map; `at` is the index of its pane */

/** The address of a head, or the layer (and form, if there are several) of a token map. @param {Model} model @param {import("./types.js").Place} place */
export function nameOf(model, { layer, head }) {
  const lens = answers.a?.lens;
  if (!isOfTokens(model, state.lens) || !lens?.forms) return address(model, state.stack, layer, head);
  const stack = model.stacks.length > 1 ? `${state.stack} ` : "", form = lens.forms.length > 1 ? `, ${lens.forms[Number(head)]}` : "";
  return `${lens.name}: ${stack}${lens.layers?.[layer] ?? `layer ${layer}`}${form}`;
}

/** The model whose maps pane `at` shows, or “b minus a”. @param {Model[]} models @param {number} at */
export function modelOf(models, at) {
  if (state.show === "difference") return models.map(shortName).reverse().join(" minus ");
  return shortName(models[state.show === "both" ? at : state.show === "b" ? 1 : 0] ?? models[0]);
}

/** A note on the mean of a layer if some of its heads are off: over how many heads it is. @param {Model} model @param {import("./types.js").Place} place */
export function meanOf(model, { layer, head }) {
  if (head !== "mean") return "";
  const heads = model.stacks.find(({ name }) => name === state.stack)?.layers.find((entry) => entry.layer === layer)?.heads ?? [];
  const on = heads.filter((entry) => !state.off.has(full(state.stack, layer, entry)));
  return on.length < heads.length && on.length ? `of the ${on.length} of ${heads.length} heads that are on` : "";
}

const HIDDEN = { special: "special tokens", punctuation: "punctuation", itself: "diagonal" };
const hidden = () => Object.entries(HIDDEN).filter(([name]) => state[/** @type {"special"} */ (name)]).map(([, text]) => text);

/** The parts of a caption after the head: lens, units, hidden tokens, colour scale. @param {import("./types.js").Lens} lens @param {boolean} signed @param {string} scale */
function howShown(lens, signed, scale) {
  const hides = hidden();
  return [
    ...(lens.name !== "raw" && !lens.forms ? [lens.name] : []),
    ...(state.show === "change" ? ["change from all heads on"] : []),
    state.level,
    hides.length ? `${hides.join(", ")} hidden${isRenormalised(signed) ? ", renormalised" : ""}` : "all tokens shown",
    `${state.heads.length && state.view === "arcs" ? "line strength" : "colour"}: ${state.scale === "root" ? "square root" : "linear"}, ${scale}`,
  ];
}

/** @param {Model[]} models @param {Shown[]} shown */
export function caption(models, shown) {
  const { view } = shown[0], most = fullOf(view), top = most === 1 ? "1" : digits(most, !view.lens.shares || view.signed);
  const names = [...new Set(shown.map((map) => map.name))], mean = meanOf(models[0], state.heads[0]);
  return [
    ...(models.length > 1 ? [[...new Set(shown.map((map) => map.model))].join(" and ")] : []),
    (state.view === "arcs" ? names.join(", ") : names[0]) + (mean ? ` ${mean}` : ""),
    ...howShown(view.lens, view.signed, `${view.signed ? `−${top}` : "0"}\u00a0to\u00a0${top}`),
  ].join(" · ");
}

/** The caption of a sheet of all heads. @param {Model[]} models @param {number} count  of panes @param {import("./types.js").Lens} lens */
export function captionOfAll(models, count, lens) {
  const top = lens.full === 1 ? "1" : digits(lens.full, !lens.shares || lens.signed), names = Array.from({ length: count }, (_, at) => modelOf(models, at));
  const scale = state.range === "head" ? "0 to the largest weight of each map" : `${lens.signed ? `−${top}` : "0"}\u00a0to\u00a0${top}`;
  const text = `“${[...state.text].slice(0, 60).join("")}${[...state.text].length > 60 ? "…" : ""}”`;
  return [names.join(" and "), `${lens.forms ? "all maps" : "all heads"}${models[0].stacks.length > 1 ? ` of the ${state.stack}` : ""}`, text, ...howShown(lens, lens.signed, scale)].join(" · ");
}

/** Whether rows are renormalised to 1 because something is hidden. @param {boolean} signed */
export const isRenormalised = (signed) => hidden().length > 0 && state.renormalise && !signed;

/** The name of a table of all heads, without extension. Display options are not part of it, since they do not change the table. @param {string[]} models @param {string} name */
export const fileOfTable = (models, name) => fileSafe([...models.map((model) => model.slice(0, 40)), name, ...(state.lens === "raw" ? [] : [state.lens])]);

/** @param {string[]} parts */
const fileSafe = (parts) => parts.join("-").replace(/[^\w.]+/g, "-").replace(/^-+|-+$/g, "");

/** The name of a saved drawing, without extension. @param {string[]} models  empty in a saved page, which is about one model @param {string} name @param {boolean} isOfForms */
export function fileOf(models, name, isOfForms) {
  const parts = [...models.map((model) => model.slice(0, 40)), name, ...(state.heads.length ? [state.view] : []), state.level];
  if (state.lens !== "raw" && (!isOfForms || !state.heads.length)) parts.push(state.lens);
  if (hidden().length) parts.push(state.renormalise ? "renormalised" : "hidden");
  if (state.show === "change") parts.push(state.show);
  return fileSafe(parts);
}
