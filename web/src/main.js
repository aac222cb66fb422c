// Everything together.

import * as api from "./api.js";
import { answers, ask, asking } from "./asking.js";
import { onTheme, theme } from "./colour.js";
import { startControls, drawControls } from "./controls.js";
import { $, make } from "./dom.js";
import { saveCsv, savePng, saveSvg } from "./export.js";
import { everyHead, full, isOfTokens, shortName, written } from "./heads.js";
import { startKeys } from "./keys.js";
import { drawPrediction } from "./prediction.js";
import { Stage } from "./stage.js";
import { change, listen, samePlace, state } from "./state.js";
import { loadStudy } from "./study.js";
import { drawSwitches, redo, startSwitches, toggle, undo } from "./switches.js";
import { drawTexts, startTexts } from "./texts.js";
import { readHash, writeHash } from "./url.js";

const ASKED_AGAIN = ["text", "second", "off", "lens", "show"];

/** @param {import("./types.js").About} about */
function start(about) {
  const { models } = about, [model] = models, stage = new Stage(about, failed);
  let heads = state.heads, isReading = false;

  /** @param {unknown} reason */
  function failed(reason) {
    if (reason instanceof api.Refused && reason.status === 409) return;
    asking.trouble = reason instanceof Error ? reason.message : String(reason);
    drawStatus();
  }

  function drawStatus() {
    const { trouble, isAsking, took } = asking, sides = answers.a?.sides, isEmpty = !state.text.trim();
    $("error").hidden = trouble === null || isEmpty;
    $("error").textContent = trouble ?? "";
    $("empty").hidden = !isEmpty;
    document.body.classList.toggle("asking", isAsking && !isEmpty);
    document.body.classList.toggle("stale", trouble !== null);
    const counts = sides ? Object.values(sides)[0].query.tokens.length : 0;
    $("status").textContent = isEmpty ? "" : isAsking && !answers.a ? `asking ${shortName(model)} …` : sides ? `${counts} tokens of at most ${model.max_tokens} · ${Math.round(took)} ms` : "";
    const missing = sides && !sides[state.stack];
    $("missing").hidden = !missing || isEmpty;
  }

  function render() {
    drawTexts(model);
    drawControls(about);
    drawSwitches(model, everyHead(model).length);
    const shown = [answers.a, answers.b];
    $("answers").replaceChildren(...models.flatMap((one, at) => {
      const answer = shown[at], holder = make("div", "answer");
      if (!answer) return at === 0 ? [make("p", "remark", asking.isAsking ? "…" : "What the model says will stand here.")] : [];
      const translate = () => api.translate({ model: one.id, text: state.text, off: written(one, state.off) });
      drawPrediction(holder, one, answer, models.length > 1 ? shortName(one) : "", translate);
      return [holder];
    }));
    if (answers.a && !asking.isAsking) document.documentElement.dataset.answer = answers.a.id;
    drawStatus();
    stage.render();
  }

  listen((changed) => {
    if (!isReading) {
      const isNewPage = changed.has("heads") && !(heads.length === state.heads.length && heads.every((one, at) => samePlace(one, state.heads[at])));
      writeHash(model, isNewPage);
    }
    heads = state.heads;
    if (ASKED_AGAIN.some((name) => changed.has(name))) ask(models, render);
    else render();
  });
  const read = () => {
    isReading = true;
    const found = readHash(location.hash, model);
    if (models.length < 2 && found.show !== "change") found.show = "a";
    change(found);
    isReading = false;
  };
  for (const event of ["popstate", "hashchange"]) addEventListener(event, read);
  addEventListener("resize", () => stage.layout());

  startTexts(model);
  startControls(about);
  startSwitches(model, about.study?.unimportant ?? []);
  startButtons(stage);
  startTheme(() => stage.render());
  startKeys(keysOf(stage));
  read();
}

/** @param {Stage} stage */
function startButtons(stage) {
  const save = (/** @type {(shown: import("./export.js").Shown) => void} */ how) => () => {
    const shown = stage.picture();
    if (shown) how(shown);
  };
  const acts = {
    close: () => change({ heads: [], token: null }), previous: () => stage.step(-1), next: () => stage.step(1), power: () => switchOpen(stage.model),
    png: save(savePng), svg: save(saveSvg), csv: save(saveCsv),
    in: () => stage.panes.forEach(({ pane }) => pane.zoomBy(1.6)), out: () => stage.panes.forEach(({ pane }) => pane.zoomBy(1 / 1.6)),
    fit: () => stage.panes.forEach(({ pane }) => pane.zoomBy(null)),
  };
  for (const [id, act] of Object.entries(acts)) $(id).addEventListener("click", act);
}

/** @param {import("./types.js").Model} model */
function switchOpen(model) {
  const [place] = state.heads;
  if (place && place.head !== "mean" && !isOfTokens(model, state.lens)) toggle(full(state.stack, place.layer, place.head));
}

/** Dark or light: as the system says, or as chosen here. @param {() => void} redraw */
function startTheme(redraw) {
  const root = document.documentElement;
  try {
    const kept = localStorage.getItem("headscope-theme");
    if (kept) root.dataset.theme = kept;
  } catch { /* a browser without storage follows the system */ }
  const turn = () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("headscope-theme", root.dataset.theme);
    } catch { /* it then lasts as long as the page */ }
    redraw();
  };
  $("theme").addEventListener("click", turn);
  onTheme(redraw);
}

/** @param {Stage} stage @returns {import("./keys.js").Key[]} */
function keysOf(stage) {
  const focused = () => stage.frames.map(({ grid }) => grid.focused()).find((head) => head !== null);
  const off = () => {
    const head = focused();
    if (head && !head.endsWith(".mean")) toggle(head);
    else switchOpen(stage.model);
  };
  const flip = (/** @type {keyof import("./state.js").State} */ name, /** @type {any[]} */ ...values) => () =>
    change({ [name]: values[(values.indexOf(state[name]) + 1) % values.length] });
  return [
    { key: "/", shown: "/", what: "type another text (Esc leaves the box)", act: () => $("text").focus() },
    { key: "o", shown: "O", what: "switch a head off, or on: the one that has the focus, else the open one", act: off },
    { key: "u", shown: "U", what: "undo the last switch", act: undo },
    { key: "Ctrl+z", shown: "Ctrl Z", what: "the same", act: undo },
    { key: "U", shown: "Shift U", what: "redo it", act: redo },
    { key: "Escape", shown: "Esc", what: "back to all heads", act: () => { if (state.heads.length) leave(stage); } },
    { key: "[", shown: "[", what: "previous head", act: () => { if (state.heads.length) stage.step(-1); } },
    { key: "]", shown: "]", what: "next head", act: () => { if (state.heads.length) stage.step(1); } },
    { key: "a", shown: "A", what: "map or arcs", act: flip("view", "map", "arcs") },
    { key: "w", shown: "W", what: "tokens or words", act: flip("level", "tokens", "words") },
    { key: "s", shown: "S", what: "hide special tokens, or show them", act: flip("special", false, true) },
    { key: "d", shown: "D", what: "where a token looks, or who looks at it", act: flip("direction", "to", "by") },
    { key: "t", shown: "T", what: "dark or light", act: () => $("theme").click() },
    { key: "?", shown: "?", what: "this list", act: () => $("show-help").click() },
  ];
}

/** Back to the grid, with the focus on the head one came from. @param {Stage} stage */
function leave(stage) {
  const [place] = state.heads;
  change({ heads: [], token: null });
  stage.frames[0].grid.cells.get(full(state.stack, place.layer, place.head))?.thumb.focus();
}

try {
  const about = await api.about();
  $("model").textContent = about.models.map(shortName).join(" and ");
  $("model").title = about.models.map(({ name }) => name).join(" and ");
  document.title = `${shortName(about.models[0])}: headscope explorer`;
  if (about.study) await loadStudy();
  start(about);
} catch (reason) {
  $("error").textContent = reason instanceof Error ? reason.message : String(reason);
  $("error").hidden = false;
}
