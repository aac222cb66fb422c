// One grid of all heads or token maps, or two grids if two models are shown side by side.

import { asking } from "./asking.js";
import { theme } from "./colour.js";
import { explain } from "./controls.js";
import { $, make } from "./dom.js";
import { Grid } from "./grid.js";
import { common, full, isOfTokens, shortName } from "./heads.js";
import { modelOf, nameOf } from "./naming.js";
import { samePlace, state } from "./state.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Place} Place */

export class Grids {
  drawn = "";

  /**
   * @param {Model[]} models @param {import("./types.js").Live | null} live
   * @param {{open: (place: Place, isAdded: boolean) => void, failed: (reason: unknown) => void}} callbacks
   */
  constructor(models, live, callbacks) {
    this.models = models;
    this.live = live;
    this.failed = callbacks.failed;
    const gridCallbacks = { open: callbacks.open, toggle: live?.toggle ?? null, name: (/** @type {Place} */ place) => nameOf(models[0], place) };
    this.frames = [0, 1].map((at) => {
      const frame = make("div", "frame"), title = make("h3");
      frame.append(title);
      $("grids").append(frame);
      return { frame, title, grid: new Grid(frame, gridCallbacks), at };
    });
  }

  /** @param {import("./types.js").Source[]} sources */
  render(sources) {
    const isMissing = sources.length > 0 && !sources[0].answer.sides[state.stack], isTokens = isOfTokens(this.models[0], state.lens);
    $("grids").classList.toggle("waiting", sources.length === 0);
    $("grids").hidden = isMissing || (sources.length === 0 && !asking.isAsking);
    $("grids").setAttribute("aria-label", isTokens ? "all maps" : "all heads");
    $("grids").dataset.count = String(Math.max(1, sources.length));
    for (const { frame, title, grid, at } of this.frames) {
      const source = sources[at], model = this.models[state.show === "b" ? 1 : state.show === "both" ? at : 0] ?? this.models[0];
      frame.hidden = at > 0 && !source;
      title.textContent = state.show === "both" ? shortName(model) : state.show === "difference" ? modelOf(this.models, at) : source?.against ? "Change: now minus all heads on" : "";
      title.hidden = !title.textContent;
      const stack = common(model, state.show === "difference" ? this.models[1] : undefined, state.stack);
      if (frame.hidden || !stack) continue;
      const order = isTokens ? null : this.live?.groups(state.stack, stack);
      if (isTokens && source) grid.buildForms(state.stack, source.answer);
      else if (order) grid.buildGroups(state.stack, order);
      else if (!isTokens) grid.buildLayers(stack);
      grid.mark(source?.answer);
    }
    if (sources.length && !isMissing) this.draw(sources);
  }

  /** @param {import("./types.js").Source[]} sources */
  draw(sources) {
    const content = JSON.stringify([
      sources.map(({ answer, against }) => [answer.id, against?.id]), state.stack, state.level, state.special, state.punctuation, state.itself,
      state.renormalise, state.scale, state.range, this.frames[0].grid.built, theme(),
    ]);
    if (!$("grids").checkVisibility()) return;
    if (content === this.drawn) {
      if (!state.heads.length && !$("grids").classList.contains("behind")) explain(sources[0].answer.lens);
      return;
    }
    this.drawn = content;
    $("grids").classList.add("behind");
    Promise.all(sources.map((source, at) => this.frames[at].grid.draw(source))).then((ready) => {
      if (!ready.every(Boolean) || content !== this.drawn) return;
      for (const show of ready) show?.();
      this.fit();
      $("grids").classList.remove("behind");
      if (!state.heads.length) explain(sources[0].answer.lens);
      performance.mark("overview");
      document.documentElement.dataset.drawn = sources[0].answer.id;  // signal for tests: all thumbnails are drawn
    }, (reason) => {
      this.drawn = "";
      this.failed(reason);
    });
  }

  fit() {
    for (const { grid } of this.frames) grid.fit();
  }

  /** The map `by` positions after another, wrapping around; means are skipped. @param {Place} from @param {number} by @returns {Place | undefined} */
  beside(from, by) {
    const every = [...this.frames[0].grid.cells.values()].map(({ place }) => place).filter(({ head }) => head !== "mean");
    return every[(every.findIndex((one) => samePlace(one, from)) + by + every.length) % every.length];
  }

  /** The head whose thumbnail has the focus, or null. */
  focused() {
    return this.frames.map(({ grid }) => grid.focused()).find((head) => head !== null) ?? null;
  }

  /** @param {Place} place */
  focus(place) {
    this.frames[0].grid.cells.get(full(state.stack, place.layer, place.head))?.thumb.focus();
  }
}
