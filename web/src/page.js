// Starts a page: display options, keyboard, address bar. Answers come from a server (explorer) or from the page itself (saved page).

import { answers, ask, asking, isPending } from "./asking.js";
import { onTheme, theme } from "./colour.js";
import { drawControls, startControls } from "./controls.js";
import { $, controlsHeight } from "./dom.js";
import { saveAll, saveOpen } from "./export.js";
import { full, parsed, shortName } from "./heads.js";
import { startKeys } from "./keys.js";
import { hold } from "./pointer.js";
import { Refused } from "./refused.js";
import { Stage } from "./stage.js";
import { change, listen, samePlace, state } from "./state.js";
import { readView, unknownParts, writeHash, writeView } from "./url.js";

/** @typedef {import("./types.js").Live} Live */

const REQUEST_FIELDS = ["text", "second", "off", "lens", "show"];  // a change of one of these requires new answers

/**
 * @param {import("./types.js").Model[]} models @param {import("./types.js").Attend} attend
 * @param {Live | null} live  the parts of the page that need a running server; null in a saved page
 */
export function startPage(models, attend, live) {
  const [model] = models, stage = new Stage(models, live, failed);
  let heads = state.heads, isReading = false, isSettling = false;

  /** @param {unknown} reason */
  function failed(reason) {
    if (reason instanceof Refused && reason.status === 409) return;
    asking.trouble = reason instanceof Error ? reason.message : String(reason);
    render();
  }

  function render() {
    const correction = correctionOf(live);
    if (correction) {
      isSettling = true;
      change(correction);
      isSettling = false;
      return;
    }
    const isEmpty = live?.isEmpty() ?? false;
    document.body.classList.toggle("asking", isPending() && !isEmpty);
    document.body.classList.toggle("stale", asking.trouble !== null);
    drawControls(live?.lacksTarget() ?? false);
    live?.draw();
    if (answers.a && !asking.isAsking) document.documentElement.dataset.answer = answers.a.id;
    stage.render();
    $("error").hidden = asking.trouble === null || isEmpty || !$("refused").hidden;
    $("error").textContent = asking.trouble ?? "";
  }

  /** @param {boolean} isNewPage */
  function write(isNewPage) {
    const parameters = new URLSearchParams();
    live?.write(parameters);
    writeView(parameters, model);
    writeHash(parameters, isNewPage);
  }

  listen((changed) => {
    hold();
    if (!isReading) {
      if (!isSettling && changed.size) $("ignored").hidden = true;
      write(!isSettling && changed.has("heads") && !(heads.length === state.heads.length && heads.every((place, at) => samePlace(place, state.heads[at]))));
    }
    heads = state.heads;
    if (REQUEST_FIELDS.some((name) => changed.has(name))) ask(models, live?.isEmpty() ? null : attend, render);
    else render();
  });
  const read = () => {
    const parameters = new URLSearchParams(location.hash.slice(1)), unknown = unknownParts(parameters, model, live !== null);
    isReading = true;
    change({ ...readView(parameters, model), text: model.example.text, second: model.example.second, off: parsed(model, model.off ?? ""), ...live?.read(parameters) });
    isReading = false;
    $("ignored").hidden = !unknown.length;
    $("ignored").textContent = unknown.length ? `Ignored in the address, because ${shortName(model)} does not have them: ${unknown.join("; ")}.` : "";
    if (unknown.length) write(false);
  };
  for (const event of ["popstate", "hashchange"]) addEventListener(event, read);
  addEventListener("resize", () => stage.layout());
  new ResizeObserver(() => document.documentElement.style.setProperty("--controls", `${controlsHeight()}px`)).observe($("controls"));
  startControls(model);
  startButtons(stage, failed);
  startTheme(() => stage.render());
  startKeys([...(live?.keys(stage.grids) ?? []), ...keysOf(stage)]);
  read();
}

/** The change of state needed because the answer lacks the chosen stack or some chosen heads; null if it has all of them. @param {Live | null} live */
function correctionOf(live) {
  const answer = state.show === "b" ? answers.b : answers.a;
  if (!answer || asking.isAsking || answer.question.lens !== state.lens || live?.lacksTarget()) return null;
  const [first] = Object.keys(answer.sides);
  if (first && !(state.stack in answer.sides)) return { stack: first, heads: [], token: null };
  const heads = state.heads.filter(({ layer, head }) => (head === "mean" ? answer.lens.forms === null : answer.summary.has(full(state.stack, layer, head))));
  return heads.length < state.heads.length ? { heads } : null;
}

/** @param {Stage} stage @param {(reason: unknown) => void} failed */
function startButtons(stage, failed) {
  for (const as of /** @type {const} */ (["png", "svg", "csv"])) {
    $(as).addEventListener("click", () => saveOpen(stage, as));
    $(`all-${as}`).addEventListener("click", () => saveAll(stage, as).catch(failed));
  }
  const zoom = (/** @type {number | null} */ by) => () => { for (const { pane } of stage.panes) pane.zoomBy(by); };
  const acts = {
    close: () => change({ heads: [], token: null }), previous: () => stage.step(-1), next: () => stage.step(1),
    in: zoom(1.6), out: zoom(1 / 1.6), fit: zoom(null),
  };
  for (const [id, act] of Object.entries(acts)) $(id).addEventListener("click", act);
}

/** Dark or light theme: the system's, until the user chooses one. @param {() => void} redraw */
function startTheme(redraw) {
  const root = document.documentElement;
  try {
    const stored = localStorage.getItem("headscope-theme");
    if (stored) root.dataset.theme = stored;
  } catch { /* a browser without storage follows the system */ }
  const switchTheme = () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("headscope-theme", root.dataset.theme);
    } catch { /* without storage the choice lasts as long as the page */ }
    redraw();
  };
  $("theme").addEventListener("click", switchTheme);
  onTheme(redraw);
}

/** @param {Stage} stage @returns {import("./keys.js").Key[]} */
function keysOf(stage) {
  const flip = (/** @type {keyof import("./state.js").State} */ name, /** @type {any[]} */ ...values) => () =>
    change({ [name]: values[(values.indexOf(state[name]) + 1) % values.length] });
  return [
    { key: "Escape", shown: "Esc", what: "back to all heads", act: () => { if (state.heads.length) leave(stage); } },
    { key: "[", shown: "[", what: "previous head", act: () => stage.step(-1) },
    { key: "]", shown: "]", what: "next head", act: () => stage.step(1) },
    { key: "a", shown: "A", what: "switch between map and arcs", act: flip("view", "map", "arcs") },
    { key: "w", shown: "W", what: "switch between tokens and words", act: flip("level", "tokens", "words") },
    { key: "s", shown: "S", what: "hide or show special tokens", act: flip("special", false, true) },
    { key: "d", shown: "D", what: "switch between what a token attends to and what attends to it", act: flip("direction", "to", "by") },
    { key: "t", shown: "T", what: "switch between dark and light theme", act: () => $("theme").click() },
    { key: "?", shown: "?", what: "this help", act: () => $("show-help").click() },
  ];
}

/** Close the open head; the focus goes to its thumbnail in the grid. @param {Stage} stage */
function leave(stage) {
  const [place] = state.heads;
  change({ heads: [], token: null });
  stage.grids.focus(place);
}
