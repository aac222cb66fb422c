// The state in the address of the page: whoever gets the address sees the same.

import { CHOICES, SWITCHES, state } from "./state.js";
import { address, isOfTokens, parsed, written } from "./heads.js";

/** @typedef {import("./types.js").Model} Model */

/** @param {Model} model @param {string} given @param {string} lens @returns {{stack: string, place: import("./types.js").Place} | null} */
function placeIn(model, given, lens) {
  const match = /^(?:([a-z]+)\.)?(\d+)\.(\d+|mean)$/.exec(given);
  const stack = match && model.stacks.find(({ name }) => name === (match[1] ?? (model.stacks.length === 1 ? name : null)));
  const layer = stack && match && stack.layers.find((one) => one.layer === Number(match[2]));
  if (!stack || !match || !layer) return null;
  const head = match[3] === "mean" ? "mean" : Number(match[3]);
  return head === "mean" || layer.heads.includes(head) || isOfTokens(model, lens) ? { stack: stack.name, place: { layer: layer.layer, head } } : null;
}

/** What an address says; what it does not say, or says wrongly, is as at the start. @param {string} hash @param {Model} model */
export function readHash(hash, model) {
  const given = new URLSearchParams(hash.slice(1));
  /** @type {Record<string, any>} */
  const found = { text: given.get("text") ?? model.example.text, second: given.get("second") };
  if (!given.has("text")) found.second = model.example.second;
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = given.get(option);
    found[option] = value !== null && values.includes(value) ? value : values[0];
  }
  found.order = given.get("order") ?? "layer";
  const hidden = (given.get("hide") ?? "").split(",");
  for (const name of SWITCHES) found[name] = hidden.includes(name);
  const lenses = [...model.lenses.heads, ...model.lenses.tokens];
  found.lens = lenses.includes(given.get("lens") ?? "") ? given.get("lens") : lenses[0];
  found.off = parsed(model, given.get("off") ?? "");
  const places = (given.get("heads") ?? "").split(",").map((one) => placeIn(model, one, found.lens)).filter((one) => one !== null);
  const stack = places[0]?.stack ?? given.get("stack");
  found.stack = model.stacks.some(({ name }) => name === stack) ? stack : model.stacks[0].name;
  found.heads = places.filter((one) => one.stack === found.stack).map((one) => one.place);
  found.token = /^\d+$/.test(given.get("token") ?? "") ? Number(given.get("token")) : null;
  return /** @type {import("./state.js").State} */ (found);
}

/** @param {Model} model */
export function hashOf(model) {
  const given = new URLSearchParams();
  given.set("text", state.text);
  if (state.second !== null) given.set("second", state.second);
  if (state.off.size) given.set("off", written(model, state.off));
  if (state.heads.length) given.set("heads", state.heads.map((one) => address(model, state.stack, one.layer, one.head)).join(","));
  else if (state.stack !== model.stacks[0].name) given.set("stack", state.stack);
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = state[/** @type {"show"} */ (option)];
    if (value !== values[0]) given.set(option, value);
  }
  if (state.order !== "layer") given.set("order", state.order);
  const hidden = SWITCHES.filter((name) => state[/** @type {"special"} */ (name)]);
  if (hidden.length) given.set("hide", hidden.join(","));
  if (state.lens !== model.lenses.heads[0]) given.set("lens", state.lens);
  if (state.heads.length && state.token !== null) given.set("token", String(state.token));
  return `#${given}`;
}

/** @param {Model} model @param {boolean} isNewPage  the back button leads to what was there before */
export function writeHash(model, isNewPage) {
  const hash = hashOf(model);
  if (hash !== location.hash) history[isNewPage ? "pushState" : "replaceState"](null, "", hash);
}
