// The main part of the page: the grids, and the open head with its panes.

import { ArcsPane } from "./arcs.js";
import { asking, isPending, sources } from "./asking.js";
import { axesOf, viewOf } from "./axes.js";
import { HEAD_COLOURS, drawLegend, fullOf, theme } from "./colour.js";
import { explain, legendName } from "./controls.js";
import { $, button, digits, isolated, make } from "./dom.js";
import { indices } from "./grid.js";
import { Grids } from "./grids.js";
import { isOfTokens } from "./heads.js";
import { MapPane } from "./map_pane.js";
import { layerOf, lensOf } from "./maps.js";
import { caption, isRenormalised, meanOf, modelOf, nameOf } from "./naming.js";
import { lit, showCell, showReading, startReading, tokenOf } from "./reading.js";
import { change, samePlace, state } from "./state.js";

/** @typedef {import("./types.js").Place} Place */
/** @typedef {import("./map_pane.js").Cell} Cell */

export class Stage {
  /** @type {import("./naming.js").Shown[]} the maps in the panes; exports use them, too */ shown = [];
  headRun = 0;
  drawnHead = "";

  /** @param {import("./types.js").Model[]} models @param {import("./types.js").Live | null} live @param {(reason: unknown) => void} failed */
  constructor(models, live, failed) {
    this.models = models;
    this.live = live;
    this.failed = failed;
    this.grids = new Grids(models, live, { open: (place, isAdded) => this.open(place, isAdded), failed });
    this.panes = [0, 1].map((at) => {
      const { figure, title } = boxIn($("maps"));
      const pane = new MapPane(figure, {
        cell: (cell, x, y) => this.showCell(at, cell, x, y), choose: (cell) => change({ token: tokenOf(cell) }), lit,
      });
      return { figure, title, pane };
    });
    this.arcs = [0, 1].map((at) => {
      const { figure, title } = boxIn($("arcs"));
      const pane = new ArcsPane(figure, {
        choose: (end) => change({ direction: end.axis === "rows" ? "to" : "by", token: this.inPane(at)[0].view[end.axis].first[end.at] }),
        chosen: () => this.chosenEnd(at),
        hover: () => {},
      });
      return { figure, title, pane };
    });
    startReading(() => { for (const { pane } of this.panes) pane.redraw(); });
  }

  get model() {
    return this.models[state.show === "b" && this.models[1] ? 1 : 0];
  }

  get isOfTokens() {
    return isOfTokens(this.model, state.lens);
  }

  /** The sources of the displayed maps; none while waiting for an answer if the lens changed between heads and token maps. */
  sources() {
    return sources().filter(({ answer }) => (answer.lens.forms !== null) === this.isOfTokens);
  }

  /** The maps in one of the panes. @param {number} at */
  inPane(at) {
    return this.shown.filter((map) => map.at === at);
  }

  /** @param {Place} place @param {boolean} isAdded */
  open(place, isAdded) {
    if (!isAdded || !state.heads.length) return change({ heads: [place] });
    const others = state.heads.filter((other) => !samePlace(other, place));
    change({ heads: others.length < state.heads.length ? others : [...state.heads, place], view: "arcs" });
  }

  /** @param {number} by */
  step(by) {
    const next = state.heads.length ? this.grids.beside(state.heads[0], by) : undefined;
    if (next) change({ heads: [next] });
  }

  render() {
    const shownSources = this.sources(), isOpen = state.heads.length > 0;
    $("main").dataset.view = isOpen ? "head" : "overview";
    $("head").hidden = !isOpen;
    const isThere = shownSources.length > 0 && Boolean(shownSources[0].answer.sides[state.stack]);
    $("over").classList.toggle("unseen", isOpen || !isThere);
    $("refused").hidden = isThere || asking.trouble === null || asking.isAsking;
    $("refused").textContent = asking.trouble ?? "";
    if (!isThere && !isPending()) explain(null);
    this.grids.render(shownSources);
    const run = ++this.headRun;
    if (isOpen) this.renderHead(shownSources, run).catch(this.failed);
    else {
      this.shown = [];
      $("tip").hidden = true;
      delete document.documentElement.dataset.head;
      this.renderLegend(shownSources[0], run).catch(this.failed);
    }
  }

  /** Draw the colour scale of the grid. @param {import("./types.js").Source | undefined} source @param {number} run */
  async renderLegend(source, run) {
    const lens = source && source.answer.sides[state.stack] ? await lensOf(source, state.stack) : null;
    if (run !== this.headRun) return;
    $("legend-name").textContent = source ? legendName(source.answer.lens) : "";
    drawLegend($("legend"), Boolean(lens?.signed), state.range === "head" ? null : lens?.full ?? 1);
  }

  /** @param {import("./types.js").Source[]} shownSources @param {number} run */
  async renderHead(shownSources, run) {
    const { stack, heads } = state, isArcs = state.view === "arcs";
    this.renderBar();
    this.live?.drawOpen(this.model, heads[0], this.isOfTokens);
    const isThere = shownSources.length > 0 && Boolean(shownSources[0].answer.sides[stack]), isNothing = !isThere && !isPending();
    $("head").classList.toggle("waiting", !isThere && !isNothing);
    $("head").classList.toggle("nothing", isNothing);
    if (!isThere) {
      this.shown = [];
      showReading([]);
      return drawLegend($("legend"), false, 1);
    }
    const maps = shownSources.flatMap((source, at) => (isArcs ? heads : heads.slice(0, 1)).filter((place) => isIn(source, place)).map((place) => ({ source, place, at })));
    const content = JSON.stringify([maps.map(({ source, place }) => [source.against?.id, source.answer.id, place]), stack]);
    $("head").classList.toggle("behind", this.drawnHead !== content);
    const views = await Promise.all(maps.map(async ({ source, place, at }) => {
      const [maps, lens] = await Promise.all([layerOf(source, stack, place.layer), lensOf(source, stack)]);
      const axes = axesOf(source.answer.sides[stack], stack !== "cross", state);
      return { name: nameOf(this.model, place), model: modelOf(this.models, at), at, view: viewOf(maps, indices(maps, place), axes, state, lens) };
    }));
    if (run !== this.headRun) return;
    this.shown = views;
    this.drawnHead = content;
    $("head").classList.remove("behind");
    explain(shownSources[0].answer.lens);
    this.showViews(isArcs, shownSources.length);
    showReading(shownSources.map((_, at) => this.inPane(at)[0]).filter((map) => map !== undefined));
    if (!views.length) return;
    $("caption").textContent = caption(this.models, views);
    $("legend-name").textContent = legendName(shownSources[0].answer.lens);
    drawLegend($("legend"), views[0].view.signed, fullOf(views[0].view));
    document.documentElement.dataset.head = `${shownSources.map(({ answer }) => answer.id).join(" ")} ${caption(this.models, views)}`;  // signal for tests: the open head is drawn
  }

  /** @param {boolean} isArcs @param {number} count  number of panes */
  showViews(isArcs, count) {
    $("tip").hidden = true;
    $("maps").hidden = $("zoom").hidden = isArcs;
    $("arcs").hidden = !isArcs;
    $("maps").dataset.count = $("arcs").dataset.count = String(count);
    [this.panes, this.arcs].forEach((panes, kind) => panes.forEach(({ figure, title, pane }, at) => {
      const shown = this.inPane(at);
      figure.hidden = isArcs !== (kind === 1) || at >= count;
      title.textContent = state.show !== "both" ? "" : `${modelOf(this.models, at)}${shown.length ? "" : ": this head is pruned"}`;
      title.hidden = !title.textContent;
      if (figure.hidden) return;
      if (pane instanceof ArcsPane) pane.show(shown);
      else pane.show(shown[0]?.view ?? null, shown[0]?.name ?? "");
    }));
  }

  renderBar() {
    const { heads, view } = state, [place] = heads, name = (/** @type {Place} */ head) => nameOf(this.model, head);
    $("name").textContent = place.head === "mean" ? `${this.model.stacks.length > 1 ? `${state.stack} ` : ""}layer ${place.layer}, mean ${meanOf(this.model, place)}`.trim() : name(place);
    $("close").textContent = this.isOfTokens ? "← All maps" : "← All heads";
    $("chips").hidden = view !== "arcs";
    const colours = HEAD_COLOURS[theme()];
    $("chips").replaceChildren(...heads.map((head, at) => {
      const drop = () => change({ heads: heads.length > 1 ? heads.filter((other) => other !== head) : heads });
      const chip = button("chip", name(head), drop), dot = make("i");
      dot.style.background = colours[at % colours.length];
      chip.prepend(dot);
      chip.setAttribute("aria-label", `remove ${name(head)} from the arcs`);
      chip.disabled = heads.length === 1;
      return chip;
    }), make("span", "remark", heads.length > 1 ? "" : "Shift-click other heads in the grid to add them."));
  }

  /** The selected token as an end of arcs; null if it is hidden or none is selected. @param {number} pane @returns {import("./arcs.js").End | null} */
  chosenEnd(pane) {
    const axis = state.direction === "to" ? "rows" : "columns", view = this.inPane(pane)[0]?.view;
    const at = state.token === null || !view ? -1 : view[axis].of[state.token] ?? -1;
    return at >= 0 ? { axis, at } : null;
  }

  /** @param {number} which  pane @param {Cell | null} cell @param {number} x @param {number} y */
  showCell(which, cell, x, y) {
    const [shown] = this.inPane(which), tip = $("tip"), [other] = this.inPane(1 - which);
    tip.hidden = cell === null || !shown;
    if (cell && shown) {
      const { view } = shown, at = cell.row * view.K + cell.column, format = (/** @type {number} */ weight) => digits(weight, !view.lens.shares);
      const [pair, value, sums] = tip.children;
      pair.textContent = `${isolated(view.rows.labels[cell.row])} → ${isolated(view.columns.labels[cell.column])}`;
      value.textContent = format(view.weights[at]);
      const beside = other && state.show === "both" && other.view.weights.length === view.weights.length ? `${other.model} ${format(other.view.weights[at])} · ` : "";
      const isStretched = isRenormalised(view.signed) && view.rowSums[cell.row] > 0;
      sums.textContent = `${beside}row sum ${isStretched ? `1 (${format(view.rowSums[cell.row])} before renormalising)` : format(view.rowSums[cell.row])} · column sum ${format(view.columnSums[cell.column])}`;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16)}px`;
      tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
    }
    showCell(cell);
    for (const { pane } of this.panes) pane.redraw();
  }

  layout() {
    for (const { pane } of [...this.panes, ...this.arcs]) pane.layout();
    this.grids.fit();
    this.grids.render(this.sources());
  }
}

/** @param {HTMLElement} holder */
function boxIn(holder) {
  const figure = make("div", "figure-box"), title = make("h3");
  figure.append(title);
  holder.append(figure);
  return { figure, title };
}

/** Whether the answers of a source have this head; a pruned model may lack it. @param {import("./types.js").Source} source @param {Place} place */
function isIn({ answer, against }, { layer, head }) {
  const has = (/** @type {import("./types.js").Answer | null} */ answer) => !answer || [...answer.summary.values()].some((row) => row.stack === state.stack && row.layer === layer && (head === "mean" || row.head === head));
  return has(answer) && has(against);
}

