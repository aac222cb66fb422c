// What is on show: the grids, and the head that is open.

import { ArcsPane } from "./arcs.js";
import { answers, asking, sources } from "./asking.js";
import { axesOf, viewOf } from "./axes.js";
import { HEAD_COLOURS, drawLegend, fullOf, theme } from "./colour.js";
import { $, button, digits, isolated, make } from "./dom.js";
import { Grid, indices } from "./grid.js";
import { address, common, full, isOfTokens, shortName } from "./heads.js";
import { MapPane } from "./map_pane.js";
import { layerOf, lensOf } from "./maps.js";
import { lit, showCell, showReading, startReading, tokenOf } from "./reading.js";
import { change, samePlace, state } from "./state.js";
import { drawCard, groups, rolesOf } from "./study.js";
import { toggle } from "./switches.js";

/** @typedef {import("./types.js").Place} Place */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./map_pane.js").Cell} Cell */

export class Stage {
  /** @type {{name: string, view: View}[]} what the panes show, for exports */ shown = [];
  drawnGrids = "";
  headRun = 0;

  /** @param {import("./types.js").About} about @param {(reason: unknown) => void} failed */
  constructor(about, failed) {
    this.about = about;
    this.failed = failed;
    const told = {
      open: (/** @type {Place} */ place, /** @type {boolean} */ isAdded) => this.open(place, isAdded),
      toggle,
      name: (/** @type {Place} */ place) => this.nameOf(place),
    };
    this.frames = [0, 1].map((at) => {
      const frame = make("div", "frame"), title = make("h3");
      frame.append(title);
      $("grids").append(frame);
      return { frame, title, grid: new Grid(frame, told), at };
    });
    this.panes = [0, 1].map((at) => {
      const figure = make("div", "figure-box"), title = make("h3");
      figure.append(title);
      $("maps").append(figure);
      const pane = new MapPane(figure, {
        cell: (cell, x, y) => this.showCell(at, cell, x, y), choose: (cell) => change({ token: tokenOf(cell) }), lit,
      });
      return { figure, title, pane };
    });
    this.arcs = new ArcsPane($("arcs"), {
      choose: ({ axis, at }) => change({ direction: axis === "rows" ? "to" : "by", token: this.shown[0].view[axis].first[at] }),
      chosen: () => this.chosenEnd(),
      hover: () => {},
    });
    startReading(() => { for (const { pane } of this.panes) pane.redraw(); });
  }

  get model() {
    return this.about.models[state.show === "b" && this.about.models[1] ? 1 : 0];
  }

  get isOfTokens() {
    return isOfTokens(this.model, state.lens);
  }

  /** @param {Place} place */
  nameOf({ layer, head }) {
    const lens = answers.a?.lens;
    if (this.isOfTokens && lens?.forms) {
      const stack = this.model.stacks.length > 1 ? `${state.stack} ` : "", form = lens.forms.length > 1 ? `, ${lens.forms[Number(head)]}` : "";
      return `${lens.name}: ${stack}${lens.layers?.[layer] ?? `layer ${layer}`}${form}`;
    }
    return address(this.model, state.stack, layer, head);
  }

  /** @param {Place} place @param {boolean} isAdded */
  open(place, isAdded) {
    if (!isAdded || !state.heads.length) return change({ heads: [place] });
    const others = state.heads.filter((one) => !samePlace(one, place));
    change({ heads: others.length < state.heads.length ? others : [...state.heads, place], view: "arcs" });
  }

  /** @param {number} by */
  step(by) {
    const every = [...this.frames[0].grid.cells.values()].map(({ place }) => place).filter(({ head }) => head !== "mean");
    const at = every.findIndex((one) => samePlace(one, state.heads[0]));
    if (every.length) change({ heads: [every[(at + by + every.length) % every.length]] });
  }

  render() {
    const found = sources(), isOpen = state.heads.length > 0;
    $("main").dataset.view = isOpen ? "head" : "overview";
    $("head").hidden = !isOpen;
    this.renderGrids(found);
    if (isOpen) this.renderHead(found).catch(this.failed);
    else {
      this.headRun += 1;
      this.shown = [];
      $("tip").hidden = true;
      delete document.documentElement.dataset.head;
      const lens = found[0] && lensOf(found[0]);
      drawLegend($("legend"), Boolean(lens?.signed), state.range === "head" ? null : lens?.full ?? 1);
    }
  }

  /** @param {import("./types.js").Source[]} found */
  renderGrids(found) {
    const isMissing = found.length > 0 && !found[0].answer.sides[state.stack], models = this.about.models;
    $("grids").classList.toggle("waiting", found.length === 0);
    $("grids").hidden = isMissing || !state.text.trim() || (found.length === 0 && !asking.isAsking);
    $("grids").dataset.count = String(Math.max(1, found.length));
    this.frames.forEach(({ frame, title, grid, at }) => {
      const source = found[at], model = models[state.show === "b" ? 1 : state.show === "both" ? at : 0] ?? models[0];
      frame.hidden = at > 0 && !source;
      title.textContent = state.show === "both" ? shortName(model) : "";
      title.hidden = !title.textContent;
      const stack = common(model, state.show === "difference" ? models[1] : undefined, state.stack), order = groups(state.stack, stack);
      if (frame.hidden || !stack) return;
      if (this.isOfTokens) {
        if (source?.answer.lens.forms) grid.buildForms(state.stack, source.answer);
      } else if (order) grid.buildGroups(state.stack, order);
      else grid.buildLayers(stack);
      grid.mark(source?.answer);
    });
    if (!found.length || isMissing) return;
    const now = JSON.stringify([
      found.map(({ answer, against }) => [answer.id, against?.id]), state.stack, state.level, state.special, state.punctuation, state.itself,
      state.renormalise, state.scale, state.range, this.frames[0].grid.built, theme(),
    ]);
    if (now === this.drawnGrids || !$("grids").checkVisibility()) return;
    this.drawnGrids = now;
    const drawn = found.map((source, at) => this.frames[at].grid.draw(source));
    Promise.all(drawn).then((whole) => {
      if (!whole.every(Boolean) || now !== this.drawnGrids) return;
      performance.mark("overview");
      document.documentElement.dataset.drawn = found[0].answer.id;  // says to whoever waits: all thumbnails are there
    }, (reason) => {
      this.drawnGrids = "";
      this.failed(reason);
    });
  }

  /** @param {import("./types.js").Source[]} found */
  async renderHead(found) {
    const run = ++this.headRun, { stack, heads } = state, isArcs = state.view === "arcs";
    this.renderBar();
    drawCard(this.model, this.isOfTokens ? null : this.about.study, heads[0]);
    const isThere = found.length > 0 && Boolean(found[0].answer.sides[stack]);
    $("head").classList.toggle("waiting", !isThere);
    if (!isThere) {
      this.shown = [];
      showReading(null);
      return drawLegend($("legend"), false, 1);
    }
    const wanted = isArcs ? found.slice(0, 1).flatMap((source) => heads.map((place) => ({ source, place }))) : found.map((source) => ({ source, place: heads[0] }));
    const views = await Promise.all(wanted.map(async ({ source, place }) => {
      const maps = await layerOf(source, stack, place.layer), chosen = indices(maps, place);
      return { name: this.nameOf(place), view: viewOf(maps, chosen, axesOf(source.answer.sides[stack], stack !== "cross", state), state, lensOf(source)) };
    }));
    if (run !== this.headRun) return;
    this.shown = views;
    $("tip").hidden = true;
    $("maps").hidden = isArcs;
    $("arcs").hidden = !isArcs;
    $("zoom").hidden = isArcs;
    $("maps").dataset.count = String(views.length);
    const names = this.about.models.map(shortName);
    this.panes.forEach(({ figure, title, pane }, at) => {
      figure.hidden = isArcs || !views[at];
      title.textContent = state.show === "both" ? names[at] : "";
      title.hidden = !title.textContent;
      if (!figure.hidden) pane.show(views[at].view, views[at].name);
    });
    if (isArcs) this.arcs.show(views);
    showReading(views[0].view);
    $("caption").textContent = this.caption();
    drawLegend($("legend"), views[0].view.signed, fullOf(views[0].view));
    document.documentElement.dataset.head = `${found.map(({ answer }) => answer.id).join(" ")} ${this.caption()}`;  // and here: the open head is
  }

  renderBar() {
    const { heads, stack, view } = state, [place] = heads, head = full(stack, place.layer, place.head), isOff = state.off.has(head);
    $("name").textContent = place.head === "mean" ? `layer ${place.layer}, mean` : this.nameOf(place);
    $("power").hidden = place.head === "mean" || this.isOfTokens;
    $("power").setAttribute("aria-checked", String(!isOff));
    $("power").setAttribute("aria-label", `${this.nameOf(place)} on`);
    $("power").lastElementChild.textContent = isOff ? "off" : "on";
    $("close").textContent = this.isOfTokens ? "← All maps" : "← All heads";
    $("role").textContent = this.isOfTokens ? "" : rolesOf(head).slice(0, 2).join(", ");
    $("chips").hidden = view !== "arcs";
    const colours = HEAD_COLOURS[theme()];
    $("chips").replaceChildren(...heads.map((one, at) => {
      const drop = () => change({ heads: heads.length > 1 ? heads.filter((other) => other !== one) : heads });
      const chip = button("chip", this.nameOf(one), drop), dot = make("i");
      dot.style.background = colours[at % colours.length];
      chip.prepend(dot);
      chip.setAttribute("aria-label", `take ${this.nameOf(one)} out of the arcs`);
      chip.disabled = heads.length === 1;
      return chip;
    }), make("span", "remark", heads.length > 1 ? "" : "Shift-click more heads on the left to see them together."));
  }

  caption() {
    const hidden = ["special", "punctuation", "itself"].filter((name) => state[/** @type {"special"} */ (name)]), { view } = this.shown[0];
    const most = fullOf(view), top = most === 1 ? "1" : digits(most, !view.lens.shares);
    const what = { a: "", b: "", both: "", difference: this.about.models.map(shortName).reverse().join(" minus "), change: "change since heads are off" }[state.show] ?? "";
    const hides = hidden.length ? `${hidden.map((name) => ({ special: "special tokens", punctuation: "punctuation", itself: "itself" })[name]).join(", ")} hidden` : "all tokens shown";
    return [
      this.shown.length > 1 && state.view === "arcs" ? this.shown.map(({ name }) => name).join(", ") : this.shown[0].name,
      ...(state.lens !== "raw" && !this.isOfTokens ? [state.lens] : []),
      ...(what ? [what] : []),
      state.level,
      hides + (hidden.length && state.renormalise && !view.signed ? ", renormalised" : ""),
      `colour: ${state.scale === "root" ? "square root" : "linear"}, ${view.signed ? `−${top}` : "0"}\u00a0to\u00a0${top}`,
    ].join(" · ");
  }

  /** The chosen token, as an end of lines. @returns {import("./arcs.js").End | null} */
  chosenEnd() {
    const axis = state.direction === "to" ? "rows" : "columns", view = this.shown[0]?.view;
    const at = state.token === null || !view ? -1 : view[axis].of[state.token] ?? -1;
    return at >= 0 ? { axis, at } : null;
  }

  /** @param {number} which  pane @param {Cell | null} cell @param {number} x @param {number} y */
  showCell(which, cell, x, y) {
    const shown = this.shown[which], tip = $("tip"), other = this.shown[1 - which];
    tip.hidden = cell === null || !shown;
    if (cell && shown) {
      const { view } = shown, at = cell.row * view.K + cell.column;
      const [pair, value, sums] = tip.children;
      pair.textContent = `${isolated(view.rows.labels[cell.row])} → ${isolated(view.columns.labels[cell.column])}`;
      value.textContent = digits(view.weights[at], !view.lens.shares);
      const beside = other && state.show === "both" && other.view.weights.length === view.weights.length ? `other model ${digits(other.view.weights[at], !view.lens.shares)} · ` : "";
      sums.textContent = `${beside}row ${digits(view.left[cell.row], !view.lens.shares)} · column ${digits(view.got[cell.column], !view.lens.shares)}`;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16)}px`;
      tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
    }
    showCell(cell);
    for (const { pane } of this.panes) pane.redraw();
  }

  layout() {
    for (const { pane } of this.panes) pane.layout();
    this.arcs.layout();
    this.renderGrids(sources());
  }

  /** For exports: the view with its name and caption. @returns {import("./export.js").Shown | null} */
  picture() {
    if (!this.shown.length || !answers.a) return null;
    const line = `${shortName(this.model)} · ${this.caption()}`, hidden = ["special", "punctuation", "itself"].some((name) => state[/** @type {"special"} */ (name)]);
    const file = [this.shown[0].name, state.view, state.level, ...(state.lens === "raw" || this.isOfTokens ? [] : [state.lens]), ...(hidden ? [state.renormalise ? "renormalised" : "hidden"] : []), ...(["difference", "change"].includes(state.show) ? [state.show] : [])].join("-").replace(/[^\w.]+/g, "-");
    return { name: this.shown[0].name, file, line, views: this.shown, lit: state.view === "arcs" ? this.chosenEnd() : null };
  }
}
