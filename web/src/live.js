// The parts of the page that need a running server: text boxes, switches, predictions, results of a study.

import { answers, asking, isPending } from "./asking.js";
import { radios } from "./controls.js";
import { $, make } from "./dom.js";
import { everyHead, full, isOfTokens, parsed, shortName, written } from "./heads.js";
import { drawPrediction } from "./prediction.js";
import { SHOWS, change, state } from "./state.js";
import { drawCard, groups, orders, rolesOf } from "./study.js";
import { drawSwitches, redo, startSwitches, toggle, undo } from "./switches.js";
import { drawTexts, startTexts } from "./texts.js";
import { together } from "./together.js";
import { stopTranslating, translationOf } from "./translating.js";

/** @typedef {import("./types.js").About} About */
/** @typedef {import("./types.js").LiveModel} LiveModel */
/** @typedef {import("./types.js").Place} Place */

const MOST_ROLES = 2;  // shown next to the name of the open head

const isEmpty = () => !state.text.trim();

/** @param {About} about @returns {import("./types.js").Live} */
export function startLive(about) {
  const { models, study } = about, [model] = models;
  startTexts(model);
  startSwitches(model, study?.unimportant ?? []);
  startChoices(about);
  $("power").addEventListener("click", () => switchOpen(model));
  return {
    isEmpty, toggle, groups,
    lacksTarget: () => !state.second?.trim() && model.stacks.some(({ name }) => name === "cross"),
    read: (parameters) => read(about, parameters),
    write: (parameters) => write(model, parameters),
    draw: () => {
      drawTexts(model);
      drawSwitches(model, everyHead(model).length);
      drawChoices(about);
      drawStatus(model);
      drawAnswers(models);
    },
    drawOpen: (shown, place, isTokens) => {
      const head = full(state.stack, place.layer, place.head), isOff = state.off.has(head);
      $("power").hidden = place.head === "mean" || isTokens;
      $("power").setAttribute("aria-checked", String(!isOff));
      $("power").setAttribute("aria-label", `${$("name").textContent} on`);
      $("power").lastElementChild.textContent = isOff ? "off" : "on";
      const roles = isTokens ? [] : rolesOf(head), more = roles.length - MOST_ROLES;
      $("role").textContent = roles.slice(0, MOST_ROLES).join(", ") + (more > 0 ? ` +${more}` : "");
      $("role").title = more > 0 ? roles.join(", ") : "";
      drawCard(shown, isTokens ? null : study, place, models.length > 1);
    },
    keys: (grids) => [
      { key: "/", shown: "/", what: "edit the text (Esc leaves the box)", act: () => $("text").focus() },
      { key: "o", shown: "O", what: "switch the focused or open head off or on", act: () => switchHead(model, grids.focused()) },
      { key: "l", shown: "L", what: "switch all heads of its layer off or on", act: () => switchLayer(model, grids.focused()) },
      { key: "u", shown: "U", what: "undo the last switch", act: undo },
      { key: "Ctrl+z", shown: "Ctrl Z", what: "undo", act: undo },
      { key: "U", shown: "Shift U", what: "redo", act: redo },
    ],
  };
}

/** Its parameters of the address: texts, heads that are off, answers shown, order of the grid. @param {About} about @param {URLSearchParams} parameters */
function read({ models }, parameters) {
  const [{ example }] = models, show = parameters.get("show") ?? "", possible = models.length > 1 ? SHOWS : ["a", "change"];
  return {
    text: parameters.get("text") ?? example.text, second: parameters.has("text") ? parameters.get("second") : example.second, off: parsed(models[0], parameters.get("off") ?? ""),
    show: possible.includes(show) ? show : "a", order: parameters.get("order") ?? "layer", translates: parameters.get("translate") === "1",
  };
}

/** @param {LiveModel} model @param {URLSearchParams} parameters */
function write(model, parameters) {
  parameters.set("text", state.text);
  if (state.second !== null) parameters.set("second", state.second);
  if (state.off.size) parameters.set("off", written(model, state.off));
  if (state.show !== "a") parameters.set("show", state.show);
  if (state.order !== "layer") parameters.set("order", state.order);
  if (state.translates) parameters.set("translate", "1");
}

/** @param {LiveModel} model @param {string | null} head  the focused one, if any */
function switchHead(model, head) {
  if (head && !head.endsWith(".mean")) toggle([head]);
  else switchOpen(model);
}

/** @param {LiveModel} model */
function switchOpen(model) {
  const [place] = state.heads;
  if (place && place.head !== "mean" && !isOfTokens(model, state.lens)) toggle([full(state.stack, place.layer, place.head)]);
}

/** Switch all heads in the layer of the focused head or, without a focus, of the open head. @param {LiveModel} model @param {string | null} head */
function switchLayer(model, head) {
  const layer = head ? Number(head.split(".")[1]) : state.heads[0]?.layer;
  if (layer === undefined || isOfTokens(model, state.lens)) return;
  const heads = model.stacks.find(({ name }) => name === state.stack)?.layers.find((one) => one.layer === layer)?.heads ?? [];
  if (heads.length) toggle(heads.map((one) => full(state.stack, layer, one)));
}

/** @param {About} about */
function startChoices({ models, study }) {
  const [a, b] = models, available = orders(study);
  radios("shows", "show", [
    ["a", b ? shortName(a) : "Attention"],
    .../** @type {[string, string][]} */ (b ? [["b", shortName(b)], ["both", "Both"], ["difference", "Difference"]] : []),
    ["change", "Change"],
  ]);
  const changeLabel = document.querySelector('input[name="show"][value="change"]')?.parentElement;
  if (changeLabel) changeLabel.title = "Weights now, minus weights with all heads on. Available when heads are off.";
  for (const title of ["Heads", "Ablation", "Importance estimates"]) {
    const options = available.filter(([value]) => groupOf(study, value) === title), group = make("optgroup");
    group.label = title;
    group.append(...options.map(([value, text]) => Object.assign(make("option", "", text), { value })));
    if (options.length) $("order").append(group);
  }
  $("order-box").hidden = available.length < 2;
  $("order").addEventListener("change", () => change({ order: $("order").value }));
}

/** The heading of an order in the list. @param {About["study"]} study @param {string} order */
const groupOf = (study, order) => (!study?.importances.includes(order) ? "Heads" : order.startsWith("ablation") ? "Ablation" : "Importance estimates");

/** @param {About} about */
function drawChoices({ study }) {
  if (!orders(study).some(([value]) => value === state.order)) state.order = "layer";
  $("order").value = state.order;
  $("shows").hidden = false;
  const changed = document.querySelector('input[name="show"][value="change"]');
  if (changed instanceof HTMLInputElement) changed.disabled = !state.off.size;  // disabled, not hidden, so that the grid does not move
}

/** @param {LiveModel} model */
function drawStatus(model) {
  const sides = answers.a?.sides, count = sides ? Object.values(sides)[0].query.tokens.length : 0;
  $("empty").hidden = !isEmpty();
  $("missing").hidden = isEmpty() || !sides || Boolean(sides[state.stack]);
  if (isEmpty() || (!sides && !asking.isAsking)) $("status").textContent = "";
  else $("status").textContent = isPending() || !sides ? `running ${shortName(model)} …` : `${count} tokens (max. ${model.max_tokens}) · ${Math.round(asking.took)} ms`;
}

/** The predictions of all models. @param {LiveModel[]} models */
function drawAnswers(models) {
  const shown = [answers.a, answers.b];
  $("answers").replaceChildren(...models.flatMap((model, at) => {
    const answer = shown[at], holder = make("div", "answer");
    if (!answer) return at === 0 ? [make("p", "remark", asking.isAsking ? "…" : "The model’s prediction appears here.")] : [];
    const isTranslated = state.translates && answer.prediction.kind === "translation";
    drawPrediction(holder, model, answer, models.length > 1 ? shortName(model) : "", isTranslated ? translationOf(model, () => drawAnswers(models)) : null, at === 0);
    const lacking = written(models[0], [...state.off].filter((head) => !everyHead(model).includes(head)));
    if (lacking) holder.append(make("p", "remark", `${shortName(model)} does not have ${lacking.replaceAll(",", ", ")} (already pruned).`));
    return [holder];
  }), ...together(models, answers.a, answers.b, () => drawAnswers(models)));
  if (!state.translates) stopTranslating();
}
