// The view in the address of the page: whoever gets the address sees the same.

import { CHOICES, SWITCHES, state } from "./state.js";
import { address, isOfTokens, unknownIn } from "./heads.js";

/** @typedef {import("./types.js").Model} Model */

/** What a written head names, as far as that is known without an answer. @param {Model} model @param {string} given @param {string} lens @returns {{stack: string, place: import("./types.js").Place} | null} */
function placeIn(model, given, lens) {
  const match = /^(?:([a-z]+)\.)?(\d+)\.(\d+|mean)$/.exec(given);
  const stack = match && model.stacks.find(({ name }) => name === (match[1] ?? (model.stacks.length === 1 ? name : null)));
  if (!stack || !match) return null;
  const layer = Number(match[2]), head = match[3] === "mean" ? "mean" : Number(match[3]), heads = stack.layers.find((one) => one.layer === layer)?.heads ?? [];
  const isThere = head === "mean" ? heads.length > 0 : isOfTokens(model, lens) || heads.includes(head);
  return isThere ? { stack: stack.name, place: { layer, head } } : null;
}

/** What an address says of the view; what it does not say, or says wrongly, is as at the start. @param {URLSearchParams} given @param {Model} model */
export function readView(given, model) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = given.get(option);
    found[option] = value !== null && values.includes(value) ? value : values[0];
  }
  const hidden = (given.get("hide") ?? "").split(",");
  for (const name of SWITCHES) found[name] = hidden.includes(name);
  const lens = given.get("lens") ?? "";
  found.lens = [...model.lenses.heads, ...model.lenses.tokens].includes(lens) ? lens : model.example.lens;
  const places = (given.get("heads") ?? "").split(",").map((one) => placeIn(model, one, found.lens)).filter((one) => one !== null);
  const stack = places[0]?.stack ?? given.get("stack");
  found.stack = model.stacks.some(({ name }) => name === stack) ? stack : model.stacks[0].name;
  found.heads = places.filter((one) => one.stack === found.stack).map((one) => one.place);
  found.token = /^\d+$/.test(given.get("token") ?? "") ? Number(given.get("token")) : null;
  return /** @type {Partial<import("./state.js").State>} */ (found);
}

/** What an address names that is not here, in words. @param {URLSearchParams} given @param {Model} model @param {boolean} isLive  heads can be switched off */
export function unknownParts(given, model, isLive) {
  const lens = given.get("lens"), known = [...model.lenses.heads, ...model.lenses.tokens], through = lens && known.includes(lens) ? lens : model.example.lens;
  const stack = given.get("stack"), places = (given.get("heads") ?? "").split(",").filter(Boolean);
  const first = places.map((one) => placeIn(model, one, through)).find((one) => one !== null)?.stack;
  /** @type {[string, string[]][]} */
  const found = [
    ["stack", stack !== null && !model.stacks.some(({ name }) => name === stack) ? [stack] : []],
    ["heads", places.filter((one) => { const place = placeIn(model, one, through); return !place || place.stack !== first; })],
    ["lens", lens !== null && !known.includes(lens) ? [lens] : []],
    ["off", isLive ? unknownIn(model, given.get("off") ?? "") : []],
  ];
  return found.filter(([, some]) => some.length).map(([name, some]) => `${name} ${some.join(", ")}`);
}

/** @param {URLSearchParams} given @param {Model} model */
export function writeView(given, model) {
  if (state.heads.length) given.set("heads", state.heads.map((one) => address(model, state.stack, one.layer, one.head)).join(","));
  else if (state.stack !== model.stacks[0].name) given.set("stack", state.stack);
  for (const [option, values] of Object.entries(CHOICES)) {
    const value = state[/** @type {"level"} */ (option)];
    if (value !== values[0]) given.set(option, value);
  }
  const hidden = SWITCHES.filter((name) => state[/** @type {"special"} */ (name)]);
  if (hidden.length) given.set("hide", hidden.join(","));
  if (state.lens !== model.example.lens) given.set("lens", state.lens);
  if (state.heads.length && state.token !== null) given.set("token", String(state.token));
}

/** @param {URLSearchParams} given @param {boolean} isNewPage  the back button leads to what was there before */
export function writeHash(given, isNewPage) {
  if (`#${given}` === (location.hash || "#")) return;
  try {
    history[isNewPage ? "pushState" : "replaceState"](null, "", `#${given}`);
  } catch { /* a sandboxed frame in a notebook has no address to keep it in */ }
}
