// The bar of display options. It is built from the model's stacks and lenses, and updated from the state.

import { answers } from "./asking.js";
import { $, make } from "./dom.js";
import { isOfTokens } from "./heads.js";
import { CHOICES, SWITCHES, change, state } from "./state.js";

/** @typedef {keyof import("./state.js").State} Name */
/** @typedef {import("./types.js").Model} Model */

const RADIOS = ["level", "direction", "view", "stack", "show"];
/** Names of stacks as the page writes them. @type {Record<string, string>} */
const STACK_NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross-attention", query: "Query stream" };
/** Names of lenses on the page, if they differ from the option of the command line. @type {Record<string, string>} */
const LENS_NAMES = { raw: "attention weights", norm: "norm-weighted attention", effective: "effective attention", gradient: "attention × gradient" };
/** How to read attention weights: in the grid, in the grid with heads off, in an open map, in arcs, and changes of them. */
const HOW_WEIGHTS = {
  grid: "One map per head. Row: the token that attends; column: the token attended to. Click a map to open it.",
  off: "Rows attend to columns. Hatched: head is off. Line below a map, in the explorer only: how much of its attention moved.",
  map: "Rows attend to columns. Bars: sums of the rows (right) and of the columns (below).",
  arcs: "Left: tokens that attend; right: tokens attended to. Point at a token to see its lines only.",
};
const HOW_CHANGE = "Weight now minus weight with all heads on. Blue: increased; brown: decreased; =: no change.";
const HOW_DIFFERENCE = "Difference between the models’ weights. Blue: positive; brown: negative; =: no difference.";

/** @param {string} holder @param {string} name @param {[string, string][]} values  pairs of value and label */
export function radios(holder, name, values) {
  for (const [value, text] of values) {
    const label = make("label"), input = make("input"), span = make("span", "", text);
    Object.assign(input, { type: "radio", name, value });
    label.append(input, span);
    $(holder).append(label);
  }
}

/** @param {Model} model */
export function startControls(model) {
  radios("stacks", "stack", model.stacks.map(({ name }) => [name, STACK_NAMES[name] ?? name]));
  $("stacks").hidden = model.stacks.length < 2;
  startLenses(model);
  startColours();
  $("fold").addEventListener("click", () => {  // on a narrow screen the options are folded: they would fill the first screen
    const isFolded = $("controls").classList.toggle("folded");
    $("fold").setAttribute("aria-expanded", String(!isFolded));
  });
  document.addEventListener("change", (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement)) return;
    if (SWITCHES.includes(input.name)) change({ [input.name]: input.checked });
    else if (input.name === "stack") change({ stack: input.value, heads: [], token: null });
    else if (input.name === "direction") change({ direction: input.value, ...(state.stack === "cross" ? { token: null } : {}) });
    else if (RADIOS.includes(input.name)) change({ [input.name]: input.value });
  });
}

/** @param {Model} model */
function startLenses(model) {
  for (const [title, names] of /** @type {[string, string[]][]} */ ([["Per head", model.lenses.heads], ["Over all heads (token maps)", model.lenses.tokens]])) {
    const group = make("optgroup");
    group.label = title;
    group.append(...names.map((name) => Object.assign(make("option", "", (LENS_NAMES[name] ?? name).replace(/ attention$/, "")), { value: name })));
    if (names.length) $("lens").append(group);
  }
  $("lens-box").hidden = model.lenses.heads.length + model.lenses.tokens.length < 2;
  $("lens").addEventListener("change", () => change({ lens: $("lens").value, heads: headsThrough(model, $("lens").value) }));
}

/** One list of colour scales: each option combines a range and a curve. */
function startColours() {
  for (const range of CHOICES.range) {
    for (const scale of CHOICES.scale) $("colours").append(Object.assign(make("option"), { value: `${range} ${scale}` }));
  }
  $("colours").addEventListener("change", () => {
    const [range, scale] = $("colours").value.split(" ");
    change({ range, scale });
  });
}

/** @param {string} whole  text of the range that all heads share */
function drawColours(whole) {
  for (const option of $("colours").options) {
    const [range, scale] = option.value.split(" ");
    option.textContent = `${range === "one" ? whole : "per head"}, ${scale === "root" ? "square root" : "linear"}`;
  }
  $("colours").value = `${state.range} ${state.scale}`;
}

/** @type {import("./types.js").Place[]} the heads that were open when a token map was chosen, to open them again later */
let parked = [];

/** The heads to open after a change of lens: the same layer and, if the lens is per head, the same head. @param {Model} model @param {string} lens */
function headsThrough(model, lens) {
  const { heads, stack } = state, isTokens = isOfTokens(model, lens);
  if (!heads.length || isTokens === isOfTokens(model, state.lens)) return heads;
  const { layer } = heads[0];
  if (isTokens) {
    parked = heads;
    return [{ layer, head: 0 }];
  }
  if (parked[0]?.layer === layer) return parked;
  const numbers = model.stacks.find(({ name }) => name === stack)?.layers.find((one) => one.layer === layer)?.heads ?? [];
  const head = numbers.find((number) => number === parked[0]?.head) ?? numbers[0];
  return head === undefined ? [] : [{ layer, head }];
}

/** @param {string} selector @returns {HTMLInputElement[]} */
const inputs = (selector) => [...document.querySelectorAll(`input${selector}`)].map((node) => /** @type {HTMLInputElement} */ (node));

/** Explain how to read the displayed maps. Called when new maps are drawn, so that text and maps match. @param {import("./types.js").Lens | null} lens */
export function explain(lens) {
  $("how").textContent = lens?.name === "raw" ? howWeights() : lens?.how ?? "";
}

function howWeights() {
  if (isChange()) return HOW_CHANGE;
  if (state.show === "difference") return HOW_DIFFERENCE;
  if (state.heads.length) return HOW_WEIGHTS[state.view === "arcs" ? "arcs" : "map"];
  return HOW_WEIGHTS[state.off.size ? "off" : "grid"];
}

/** Whether the maps show the change since heads were switched off. */
const isChange = () => state.show === "change" && state.off.size > 0;

/** What the numbers of the colour scale are. @param {import("./types.js").Lens} lens */
export function legendName(lens) {
  if (isChange()) return "change";
  if (state.show === "difference") return "difference";
  return lens.name === "raw" ? "attention weight" : LENS_NAMES[lens.name] ?? lens.name;
}

/** @param {boolean} lacksTarget  a translation model has no target, so some stacks have no maps yet */
export function drawControls(lacksTarget) {
  const lens = answers.a?.lens, sides = answers.a?.sides[state.stack];
  $("lens").value = state.lens;
  const isDifference = state.show === "difference" || isChange();
  drawColours(isDifference ? "± largest" : lens && !lens.shares ? (lens.signed ? "± largest" : "0 to largest") : "0 to 1");
  [$("to").textContent, $("by").textContent] = lens?.forms || lens?.shares === false ? ["Receives from", "Contributes to"] : ["Attends to", "Attended to by"];
  const isWithoutChange = state.show === "change" && !state.off.size;
  for (const name of RADIOS) {
    for (const radio of inputs(`[name="${name}"]`)) radio.checked = radio.value === (name === "show" && isWithoutChange ? "a" : state[/** @type {Name} */ (name)]);
  }
  for (const name of SWITCHES) {
    for (const box of inputs(`[name="${name}"]`)) {
      box.checked = Boolean(state[/** @type {Name} */ (name)]);
      if (name === "itself" && box.parentElement) box.parentElement.hidden = state.stack === "cross";  // queries and keys are different texts, so there is no diagonal
      if (name === "special" || name === "punctuation") box.disabled = Boolean(sides) && ![sides?.query, sides?.key].some((side) => side?.[name].some(Boolean));
    }
  }
  const isSigned = state.show === "difference" || state.show === "change" || Boolean(lens?.signed), hides = state.special || state.punctuation || state.itself;
  $("stretch").disabled = !hides || isSigned;
  for (const radio of inputs('[name="stack"]')) {
    const isMissing = Boolean(answers.a) && !(radio.value in (answers.a?.sides ?? {}));
    radio.parentElement?.classList.toggle("missing", isMissing);
    radio.disabled = isMissing && !lacksTarget;
  }
}
