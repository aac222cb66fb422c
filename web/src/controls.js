// The bar of choices: built from what the server offers, drawn from the state.

import { answers } from "./asking.js";
import { $, make } from "./dom.js";
import { isOfTokens, shortName } from "./heads.js";
import { CHOICES, SWITCHES, change, state } from "./state.js";
import { orders } from "./study.js";

/** @typedef {import("./types.js").About} About */
/** @typedef {keyof import("./state.js").State} Name */

/** @param {string} holder @param {string} name @param {[string, string][]} values  with what is written on them */
function radios(holder, name, values) {
  for (const [value, text] of values) {
    const label = make("label"), input = make("input"), span = make("span", "", text);
    Object.assign(input, { type: "radio", name, value });
    label.append(input, span);
    $(holder).append(label);
  }
}

/** @param {About} about */
export function startControls({ models, study }) {
  const [a, b] = models;
  radios("stacks", "stack", a.stacks.map(({ name }) => [name, name]));
  $("stacks").hidden = a.stacks.length < 2;
  startLenses(a);
  radios("shows", "show", [
    ["a", b ? shortName(a) : "Attention"],
    .../** @type {[string, string][]} */ (b ? [["b", shortName(b)], ["both", "Both"], ["difference", "Difference"]] : []),
    ["change", "Change"],
  ]);
  const found = orders(study);
  for (const [value, text] of found) $("order").append(Object.assign(make("option", "", text), { value }));
  $("order-box").hidden = found.length < 2;
  $("order").addEventListener("change", () => change({ order: $("order").value }));
  const names = [...Object.keys(CHOICES), "stack"];
  document.addEventListener("change", (event) => {
    const input = event.target;
    if (!(input instanceof HTMLInputElement)) return;
    if (SWITCHES.includes(input.name)) change({ [input.name]: input.checked });
    else if (input.name === "stack") change({ stack: input.value, heads: [], token: null });
    else if (input.name === "direction") change({ direction: input.value, ...(state.stack === "cross" ? { token: null } : {}) });
    else if (names.includes(input.name)) change({ [input.name]: input.value });
  });
}

/** @param {import("./types.js").Model} model */
function startLenses(model) {
  for (const [title, names] of /** @type {[string, string[]][]} */ ([["of each head", model.lenses.heads], ["of tokens, over all heads", model.lenses.tokens]])) {
    const group = make("optgroup");
    group.label = title;
    group.append(...names.map((name) => Object.assign(make("option", "", name), { value: name })));
    $("lens").append(group);
  }
  $("lens").addEventListener("change", () => {
    const lens = $("lens").value, isOther = isOfTokens(model, lens) !== isOfTokens(model, state.lens);
    change({ lens, ...(isOther ? { heads: [], token: null } : {}) });
  });
}

/** @param {About} about */
export function drawControls({ models, study }) {
  if (!orders(study).some(([value]) => value === state.order)) state.order = "layer";
  $("order").value = state.order;
  $("lens").value = state.lens;
  const lens = answers.a?.lens;
  $("how").textContent = lens?.how ?? "";
  $("how").hidden = !lens?.how;
  $("full").textContent = lens && !lens.shares ? "all maps’ largest" : "1";
  const isWithoutChange = state.show === "change" && !state.off.size;
  for (const name of [...Object.keys(CHOICES), "stack"]) {
    for (const input of document.querySelectorAll(`input[name="${name}"]`)) {
      const radio = /** @type {HTMLInputElement} */ (input);
      radio.checked = radio.value === (name === "show" && isWithoutChange ? "a" : state[/** @type {Name} */ (name)]);
    }
  }
  for (const name of SWITCHES) /** @type {HTMLInputElement} */ (document.querySelector(`input[name="${name}"]`)).checked = Boolean(state[/** @type {Name} */ (name)]);
  const isSigned = state.show === "difference" || state.show === "change" || Boolean(lens?.signed), hides = state.special || state.punctuation || state.itself;
  $("stretch").disabled = !hides || isSigned;
  const itself = document.querySelector('input[name="itself"]')?.parentElement;
  if (itself) itself.hidden = state.stack === "cross";  // its two sides are different texts
  $("shows").hidden = models.length < 2 && !state.off.size;
  const changed = document.querySelector('input[name="show"][value="change"]');
  if (changed?.parentElement) changed.parentElement.hidden = !state.off.size;
  for (const input of document.querySelectorAll('input[name="stack"]')) {
    const radio = /** @type {HTMLInputElement} */ (input), isThere = !answers.a || radio.value in answers.a.sides;
    radio.parentElement?.classList.toggle("missing", !isThere);
  }
}
