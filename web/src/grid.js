// The grid: all heads of a stack as thumbnails, each with a switch in the explorer.

import { axesOf, blockAxis, viewOf } from "./axes.js";
import { pixels, theme } from "./colour.js";
import { button, digits, make, pause } from "./dom.js";
import { full } from "./heads.js";
import { layerOf, lensOf } from "./maps.js";
import { paint } from "./ramp.js";
import { samePlace, state } from "./state.js";

/** @typedef {import("./types.js").Place} Place */
/** @typedef {import("./types.js").Source} Source */
/** @typedef {import("./types.js").Group} Group */
/** @typedef {{cell: HTMLElement, thumb: HTMLButtonElement, canvas: HTMLCanvasElement, same: HTMLElement, toggle: HTMLButtonElement | null,
 *   place: Place}} Cell */
/** @typedef {{image: ImageData, isSame: boolean}} Picture  `isSame`: a map of differences that are all negligible */

/** @typedef {{title: string, label: string, cells: string[]}} Row  `cells`: heads as stack.layer.head; "" is an empty cell, CUT a pruned head */

const MOST_PIXELS = 96, SLICE_MS = 14, MOST_ABREAST = 12;
const LARGEST = 92, SMALLEST = 56, GAP = 5, BELOW = 10;  // pixels: side of a cell (largest, smallest), space between cells, space below the grid
const MOST_WITH_SWITCH = 20;  // columns; in a wider grid, switches would cover too much of the thumbnails
const NEGLIGIBLE = 0.00005;  // difference, as a share of the end of the colour scale; numbers below it are shown as < 0.0001
/** Marks a pruned head in a row of cells, and is the text shown in its place. */
export const CUT = "pruned";
const CORNER_LABEL = "layer ↓ head →";

export class Grid {
  /** @type {Map<string, Cell>} */ cells = new Map();
  /** @type {Row[]} the layout of the cells, for exported sheets */ rows = [];
  /** @type {string[]} column headings */ columns = [];
  /** label of the corner: what rows and columns are */
  corner = "";
  /** @type {Map<string, string>} the text below each cell */ tags = new Map();
  run = 0;
  built = "";
  /** whether the cells are token maps, over all heads, so that nothing can be switched off */
  isOfTokens = false;

  /**
   * @param {HTMLElement} holder
   * @param {{open: (place: Place, isAdded: boolean) => void, toggle: ((heads: string[]) => void) | null, name: (place: Place) => string}} callbacks
   */
  constructor(holder, callbacks) {
    this.callbacks = callbacks;
    this.root = make("div", "overview");
    holder.append(this.root);
    this.root.addEventListener("keydown", (event) => this.move(event));
  }

  /** Build a grid with a row for each layer. @param {import("./types.js").StackShape} stack */
  buildLayers(stack) {
    const width = 1 + Math.max(...stack.layers.flatMap(({ heads }) => heads), 0);
    if (!this.begin(`layers ${stack.name} ${JSON.stringify(stack.layers)}`, width + 1, false)) return;
    this.root.append(make("span", "label corner", CORNER_LABEL));
    for (let head = 0; head < width; head++) {
      const column = stack.layers.filter(({ heads }) => heads.includes(head)).map(({ layer }) => full(stack.name, layer, head));
      this.root.append(this.label("label", String(head), `head ${head} of every layer`, column));
    }
    const mean = make("span", "label mean", "mean");
    mean.title = "Mean of the maps of each layer’s heads that are on";
    this.root.append(mean);
    this.columns = [...Array.from({ length: width }, (_, head) => String(head)), "mean"];
    this.corner = CORNER_LABEL;
    for (const { layer, heads } of stack.layers) {
      const every = Array.from({ length: width }, (_, head) => (heads.includes(head) ? full(stack.name, layer, head) : CUT));
      this.rows.push({ title: "", label: String(layer), cells: [...every, heads.length ? full(stack.name, layer, "mean") : ""] });
      this.root.append(this.label("label layer", String(layer), `layer ${layer}`, heads.map((head) => full(stack.name, layer, head))));
      for (let head = 0; head < width; head++) {
        if (heads.includes(head)) this.add({ layer, head }, stack.name, this.root, false);
        else this.root.append(make("span", "gone", CUT));
      }
      if (heads.length) this.add({ layer, head: "mean" }, stack.name, this.root, false);
      else this.root.append(make("span"));
    }
    this.grabTab(this.cells.values().next().value);
  }

  /** The number of a row or column; in the explorer, a button that switches all of its heads. @param {string} kind @param {string} text @param {string} what @param {string[]} heads */
  label(kind, text, what, heads) {
    const act = this.callbacks.toggle;
    if (!act || !heads.length) return make("span", kind, text);
    const label = button(`${kind} all`, text, () => act(heads));
    label.setAttribute("aria-label", `switch ${what} off or on`);
    label.title = `Switch ${what} off or on`;
    label.tabIndex = -1;
    return label;
  }

  /** Choose the cell size so that all rows fit in the window; if cells became too small, let them fill the width. */
  fit() {
    if (!this.root.offsetParent || this.root.classList.contains("flowing")) return;
    const first = this.cells.values().next().value, rows = this.rows.length;
    if (!first || !rows) return;
    const room = innerHeight - (first.cell.getBoundingClientRect().top + scrollY) - BELOW, size = Math.floor(room / rows) - GAP;
    const side = size < SMALLEST || this.isOfTokens ? "" : `${Math.min(LARGEST, size)}px`;
    if (this.root.style.getPropertyValue("--cell") !== side) this.root.style.setProperty("--cell", side);
  }

  /** Build a grid of token maps: columns are layers, rows are forms. @param {string} stack @param {import("./types.js").Answer} answer */
  buildForms(stack, { lens, summary }) {
    const forms = lens.forms ?? [], layers = [...new Set([...summary.values()].filter((row) => row.stack === stack).map(({ layer }) => layer))];
    if (!this.begin(`forms ${stack} ${lens.name} ${layers}`, layers.length, false)) return;
    this.isOfTokens = true;
    this.root.classList.add("of-tokens");
    this.corner = "layer →";
    this.root.append(make("span", "label corner", this.corner));
    this.columns = layers.map((layer) => lens.layers?.[layer] ?? String(layer));
    for (const layer of this.columns) this.root.append(make("span", "label", layer));
    forms.forEach((form, head) => {
      this.rows.push({ title: "", label: forms.length > 1 ? form : "", cells: layers.map((layer) => full(stack, layer, head)) });
      this.root.append(make("span", "label layer", forms.length > 1 ? form : ""));
      for (const layer of layers) this.add({ layer, head }, stack, this.root, false);
    });
    this.grabTab(this.cells.values().next().value);
  }

  /** Build a grid of titled groups of heads. @param {string} stack @param {Group[]} groups */
  buildGroups(stack, groups) {
    if (!this.begin(`groups ${stack} ${JSON.stringify(groups)}`, MOST_ABREAST, true)) return;
    for (const { title, places, notes } of groups) {
      const bundle = make("div", "bundle"), members = make("div", "members"), heading = `${title} (${places.length} ${places.length === 1 ? "head" : "heads"})`;
      members.style.setProperty("--heads", String(Math.min(MOST_ABREAST, places.length)));
      places.forEach((place, at) => this.add(place, stack, members, true, notes?.[at]));
      for (let at = 0; at < places.length; at += MOST_ABREAST) {
        const some = places.slice(at, at + MOST_ABREAST).map(({ layer, head }) => full(stack, layer, head));
        this.rows.push({ title: at ? "" : heading, label: "", cells: some });
      }
      bundle.append(make("span", "group", heading), members);
      this.root.append(bundle);
    }
    this.grabTab(this.cells.values().next().value);
  }

  /** Empty the grid to build another one; false if the requested grid is already there. @param {string} name @param {number} columns @param {boolean} isFlow */
  begin(name, columns, isFlow) {
    if (this.built === name) return false;
    this.built = name;
    this.isOfTokens = false;
    this.cells.clear();
    this.tags.clear();
    this.rows = [];
    this.columns = [];
    this.corner = "";
    this.root.replaceChildren();
    this.root.classList.toggle("flowing", isFlow);
    this.root.classList.remove("of-tokens");
    this.root.classList.toggle("crowded", columns > MOST_WITH_SWITCH);
    this.root.style.setProperty("--heads", String(columns));
    return true;
  }

  /** @param {Place} place @param {string} stack @param {HTMLElement} holder @param {boolean} isTagged @param {string} [note] */
  add(place, stack, holder, isTagged, note = "") {
    const name = this.callbacks.name(place), cell = make("div", "cell"), canvas = make("canvas"), head = full(stack, place.layer, place.head);
    const thumb = button("thumb", "", () => {});
    thumb.addEventListener("click", (event) => this.callbacks.open(place, event.shiftKey || event.ctrlKey || event.metaKey));
    thumb.tabIndex = -1;
    const same = make("span", "same", "=");
    same.title = "no difference";
    same.hidden = true;
    thumb.append(canvas, same);
    cell.append(thumb);
    const act = this.callbacks.toggle;
    let toggle = null;
    if (act && place.head !== "mean" && !this.isOfTokens) {
      toggle = button("switch", "", () => act([head]));
      toggle.setAttribute("role", "switch");
      toggle.setAttribute("aria-label", `${name} on`);
      toggle.title = "Switch this head off or on";
      toggle.tabIndex = -1;
      cell.append(toggle);
    }
    if (isTagged) {
      this.tags.set(head, note ? `${name}: ${note}` : name);
      cell.append(make("span", "tag", name));
      if (note) cell.append(make("span", "tag note", note));
    }
    thumb.setAttribute("aria-label", place.head === "mean" ? `mean of layer ${place.layer}` : name);
    holder.append(cell);
    this.cells.set(head, { cell, thumb, canvas, same, toggle, place });
  }

  /** Mark the heads that are off, open, and changed. @param {import("./types.js").Answer | undefined} answer */
  mark(answer) {
    for (const [head, { cell, thumb, toggle, place }] of this.cells) {
      const isOff = !this.isOfTokens && state.off.has(head), summary = answer?.summary.get(head), moved = isOff || state.show === "difference" ? 0 : summary?.change ?? 0;
      const chosen = state.heads.findIndex((open) => samePlace(open, place));
      cell.classList.toggle("off", isOff);
      cell.classList.toggle("moved", moved >= 0.005);
      cell.style.setProperty("--moved", String(Math.min(1, Math.sqrt(moved))));
      toggle?.setAttribute("aria-checked", String(!isOff));
      thumb.title = [
        thumb.getAttribute("aria-label"),
        isOff ? "switched off" : "",
        summary ? `largest ${answer?.lens.name === "raw" ? "weight" : "number"} ${digits(summary.largest, !answer?.lens.shares)}` : "",
        summary && summary.entropy !== null ? `mean entropy ${summary.entropy.toFixed(2)} nats` : "",
        moved >= 0.0005 ? `${(100 * moved).toFixed(1)} % of ${answer?.lens.name === "raw" ? "its attention moved" : "the map changed"} since heads were switched off` : "",
      ].filter(Boolean).join("\n");
      if (chosen >= 0) thumb.setAttribute("aria-current", "true");
      else thumb.removeAttribute("aria-current");
      if (chosen === 0) this.grabTab({ thumb });
    }
  }

  /** Compute all thumbnails, and return a function that shows them together. @param {Source} source @returns {Promise<(() => void) | null>} null if a later call has started */
  async draw(source) {
    const run = ++this.run, pictures = await this.picturesOf(source, theme(), () => run === this.run);
    return pictures && (() => { for (const [head, picture] of pictures) this.show(head, picture); });
  }

  /** @param {string} head @param {Picture} picture */
  show(head, { image, isSame }) {
    const cell = this.cells.get(head);
    if (!cell) return;
    paint(cell.canvas, image);
    cell.canvas.className = image.width > 60 ? "fine" : image.width > 22 ? "middle" : "";
    cell.same.hidden = !isSame;
    if (isSame) cell.thumb.setAttribute("aria-description", "no difference");
    else cell.thumb.removeAttribute("aria-description");
  }

  /** The thumbnails of all heads for an exported sheet, in light colours. @param {Source} source @returns {Promise<Map<string, {canvas: HTMLCanvasElement, isSame: boolean}>>} */
  async pictures(source) {
    const pictures = await this.picturesOf(source, "light", () => true);
    return new Map([...pictures ?? []].map(([head, { image, isSame }]) => {
      const canvas = make("canvas");
      paint(canvas, image);
      return [head, { canvas, isSame }];
    }));
  }

  /**
   * @param {Source} source @param {"light" | "dark"} ink @param {() => boolean} isCurrent  false once the result is no longer needed
   * @returns {Promise<Map<string, Picture> | null>}
   */
  async picturesOf(source, ink, isCurrent) {
    const { stack } = state, sides = source.answer.sides[stack];
    if (!sides) return null;
    const lens = await lensOf(source, stack);
    const isPlain = state.level === "tokens" && !state.special && !state.punctuation && !state.itself && !source.against;
    const small = source.against || !source.answer.thumbnails ? null : await source.answer.thumbnails(stack);
    if (!isCurrent()) return null;
    const negligible = source.against ? NEGLIGIBLE * source.answer.lens.full : -1;
    const isWhole = small !== null && small.rows === sides.query.tokens.length && small.columns === sides.key.tokens.length;
    const axes = axesOf(sides, stack !== "cross", state);
    if (small && (isPlain || isWhole)) {
      const shown = isWhole ? axes : { rows: blockAxis(small.rows), columns: blockAxis(small.columns), self: false };
      return this.paintCells(async () => small, shown, lens, ink, negligible, isCurrent);
    }
    return this.paintCells((layer) => layerOf(source, stack, layer), axes, lens, ink, negligible, isCurrent);
  }

  /**
   * @param {(layer: number) => Promise<import("./types.js").Maps>} mapsOf @param {import("./types.js").Axes} axes
   * @param {import("./types.js").Lens} lens @param {"light" | "dark"} ink @param {number} negligible  maps whose largest number is below it show “=” @param {() => boolean} isCurrent
   * @returns {Promise<Map<string, Picture> | null>}
   */
  async paintCells(mapsOf, axes, lens, ink, negligible, isCurrent) {
    /** @type {Map<string, Picture>} */
    const pictures = new Map();
    let lastPause = performance.now();
    for (const [head, { place }] of [...this.cells].sort(([, a], [, b]) => a.place.layer - b.place.layer)) {
      const maps = await mapsOf(place.layer);
      if (!isCurrent()) return null;
      const view = viewOf(maps, indices(maps, place), axes, state, lens);
      pictures.set(head, { image: pixels(view, MOST_PIXELS, ink), isSame: view.largest < negligible });
      if (performance.now() - lastPause > SLICE_MS) {
        await pause();
        if (!isCurrent()) return null;
        lastPause = performance.now();
      }
    }
    return pictures;
  }

  /** Move the focus to the nearest thumbnail in the direction of an arrow key. @param {KeyboardEvent} event */
  move(event) {
    const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const cells = [...this.cells.values()], from = cells.find(({ cell }) => cell.contains(/** @type {Node} */ (event.target)));
    if (!by || !from || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const fromBox = from.thumb.getBoundingClientRect(), off = fromBox.width / 2;
    let target = null, nearest = Infinity;
    for (const candidate of cells) {
      const box = candidate.thumb.getBoundingClientRect(), x = box.x - fromBox.x, y = box.y - fromBox.y;
      const ahead = x * by[0] + y * by[1], aside = Math.abs(x * by[1]) + Math.abs(y * by[0]);
      if (ahead < off || (by[1] === 0 && aside > off)) continue;  // left and right stay within the row
      if (ahead + 3 * aside < nearest) [target, nearest] = [candidate, ahead + 3 * aside];
    }
    if (!target) return;
    this.grabTab(target);
    target.thumb.focus();
  }

  /** Make one thumbnail the only one that Tab reaches; arrow keys lead to the others. @param {Pick<Cell, "thumb"> | undefined} target */
  grabTab(target) {
    for (const { thumb } of this.cells.values()) thumb.tabIndex = thumb === target?.thumb ? 0 : -1;
  }

  /** The head whose thumbnail has the focus, or null. */
  focused() {
    if (this.isOfTokens) return null;
    for (const [head, { cell }] of this.cells) if (cell.contains(document.activeElement)) return head;
    return null;
  }
}

/** The indices of a head's map in packed maps; for a mean, those of all heads of the layer that are on. @param {import("./types.js").Maps} maps @param {Place} place */
export function indices(maps, { layer, head }) {
  const all = maps.places.map((map, at) => ({ ...map, at })).filter((map) => map.layer === layer);
  if (head !== "mean") return all.filter((map) => map.head === head).map(({ at }) => at);
  const activeMaps = all.filter((map) => !state.off.has(full(state.stack, layer, map.head)));
  return (activeMaps.length ? activeMaps : all).map(({ at }) => at);
}
