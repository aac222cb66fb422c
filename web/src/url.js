// Stores the view in the address of the page, so that a copied link shows the same view.

import { CHOICES, SWITCHES, state } from "./state.js";
import { address, isOfTokens, unknownIn } from "./heads.js";

/** @typedef {import("./types.js").Model} Model */

/** The place that a head in an address names, checked against the model alone, without an answer. @param {Model} model @param {string} text @param {string} lens @returns {{stack: string, place: import("./types.js").Place} | null} */
function placeIn(model, text, lens) {
  const match = /^(?:([a-z]+)\.)?(\d+)\.(\d+|mean)$/.exec(text);
  const stack = match && model.stacks.find(({ name }) => name === (match[1] ?? (model.stacks.length === 1 ? name : null)));
  if (!stack || !match) return null;
  const layer = Number(match[2]), head = match[3] === "mean" ? "mean" : Number(match[3]), heads = stack.layers.find((one) => one.layer === layer)?.heads ?? [];
  const isThere = head === "mean" ? heads.length > 0 : isOfTokens(model, lens) || heads.includes(head);
  return isThere ? { stack: stack.name, place: { layer, head } } : null;
}

/** The view in an address; what is missing or invalid gets its default. @param {URLSearchParams} parameters @param {Model} model */
export function readView(parameters, model) {
  /** @type {Record<string, any>} */
  const result = {};
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = parameters.get(option);
    result[option] = value !== null && values.includes(value) ? value : values[0];
  }
  const hidden = (parameters.get("hide") ?? "").split(",");
  for (const name of SWITCHES) result[name] = hidden.includes(name);
  const lens = parameters.get("lens") ?? "";
  result.lens = [...model.lenses.heads, ...model.lenses.tokens].includes(lens) ? lens : model.example.lens;
  const places = (parameters.get("heads") ?? "").split(",").map((one) => placeIn(model, one, result.lens)).filter((one) => one !== null);
  const stack = places[0]?.stack ?? parameters.get("stack");
  result.stack = model.stacks.some(({ name }) => name === stack) ? stack : model.stacks[0].name;
  result.heads = places.filter((one) => one.stack === result.stack).map((one) => one.place);
  result.token = /^\d+$/.test(parameters.get("token") ?? "") ? Number(parameters.get("token")) : null;
  return /** @type {Partial<import("./state.js").State>} */ (result);
}

/** Descriptions of the parameters of an address that this model does not have. @param {URLSearchParams} parameters @param {Model} model @param {boolean} isLive  heads can be switched off */
export function unknownParts(parameters, model, isLive) {
  const lens = parameters.get("lens"), lenses = [...model.lenses.heads, ...model.lenses.tokens], through = lens && lenses.includes(lens) ? lens : model.example.lens;
  const stack = parameters.get("stack"), places = (parameters.get("heads") ?? "").split(",").filter(Boolean);
  const first = places.map((one) => placeIn(model, one, through)).find((one) => one !== null)?.stack;
  /** @type {[string, string[]][]} */
  const result = [
    ["stack", stack !== null && !model.stacks.some(({ name }) => name === stack) ? [stack] : []],
    ["heads", places.filter((one) => { const place = placeIn(model, one, through); return !place || place.stack !== first; })],
    ["lens", lens !== null && !lenses.includes(lens) ? [lens] : []],
    ["off", isLive ? unknownIn(model, parameters.get("off") ?? "") : []],
  ];
  return result.filter(([, some]) => some.length).map(([name, some]) => `${name} ${some.join(", ")}`);
}

/** @param {URLSearchParams} parameters @param {Model} model */
export function writeView(parameters, model) {
  if (state.heads.length) parameters.set("heads", state.heads.map((one) => address(model, state.stack, one.layer, one.head)).join(","));
  else if (state.stack !== model.stacks[0].name) parameters.set("stack", state.stack);
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = state[/** @type {"level"} */ (option)];
    if (value !== values[0]) parameters.set(option, value);
  }
  const hidden = SWITCHES.filter((name) => state[/** @type {"special"} */ (name)]);
  if (hidden.length) parameters.set("hide", hidden.join(","));
  if (state.lens !== model.example.lens) parameters.set("lens", state.lens);
  if (state.heads.length && state.token !== null) parameters.set("token", String(state.token));
}

/** @param {URLSearchParams} parameters @param {boolean} isNewPage  add an entry to the browser's history, so that the back button returns here */
export function writeHash(parameters, isNewPage) {
  if (`#${parameters}` === (location.hash || "#")) return;
  try {
    history[isNewPage ? "pushState" : "replaceState"](null, "", `#${parameters}`);
  } catch { /* a sandboxed frame in a notebook cannot change its address */ }
}
