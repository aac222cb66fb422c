// All heads of a stack at once, each a small picture; with a switch, where the model can be asked.

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
/** @typedef {{image: ImageData, isSame: boolean}} Picture  `isSame`: a difference that is none */

/** @typedef {{title: string, label: string, cells: string[]}} Row  heads in a row, as stack.layer.head; empty: there is none; CUT: there was one */

const MOST_PIXELS = 96, SLICE_MS = 14, MOST_ABREAST = 12;
const LARGEST = 92, SMALLEST = 56, GAP = 5, BELOW = 10;  // pixels: the side of a cell, what is between two, what is left free below all
const MOST_WITH_SWITCH = 20;  // heads in a row: the switches of more would hide their maps
const NOTHING = 0.00005;  // of the most there can be: what is written as < 0.0001
/** In a row of cells: a head that was cut out of the model. */
export const CUT = "pruned";
const BOTH_WAYS = "layer ↓ head →";

export class Grid {
  /** @type {Map<string, Cell>} */ cells = new Map();
  /** @type {Row[]} how they stand, for pictures of all of them */ rows = [];
  /** @type {string[]} what stands above them */ columns = [];
  /** what its rows and columns are */
  corner = "";
  /** @type {Map<string, string>} what stands below each */ tags = new Map();
  run = 0;
  built = "";
  /** its maps are of tokens over all heads: there is nothing to switch off */
  isOfTokens = false;

  /**
   * @param {HTMLElement} holder
   * @param {{open: (place: Place, isAdded: boolean) => void, toggle: ((heads: string[]) => void) | null, name: (place: Place) => string}} told
   */
  constructor(holder, told) {
    this.told = told;
    this.root = make("div", "overview");
    holder.append(this.root);
    this.root.addEventListener("keydown", (event) => this.move(event));
  }

  /** Rows are layers. @param {import("./types.js").StackShape} stack */
  buildLayers(stack) {
    const width = 1 + Math.max(...stack.layers.flatMap(({ heads }) => heads), 0);
    if (!this.begin(`layers ${stack.name} ${JSON.stringify(stack.layers)}`, width + 1, false)) return;
    this.root.append(make("span", "label corner", BOTH_WAYS));
    for (let head = 0; head < width; head++) {
      const column = stack.layers.filter(({ heads }) => heads.includes(head)).map(({ layer }) => full(stack.name, layer, head));
      this.root.append(this.label("label", String(head), `head ${head} of every layer`, column));
    }
    this.root.append(make("span", "label mean", "mean"));
    this.columns = [...Array.from({ length: width }, (_, head) => String(head)), "mean"];
    this.corner = BOTH_WAYS;
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

  /** The number of a row or column: it switches all of its heads, if the model can be asked. @param {string} kind @param {string} text @param {string} what @param {string[]} heads */
  label(kind, text, what, heads) {
    const act = this.told.toggle;
    if (!act || !heads.length) return make("span", kind, text);
    const label = button(`${kind} all`, text, () => act(heads));
    label.setAttribute("aria-label", `switch ${what} off or on`);
    label.title = `Switch ${what} off, or on`;
    label.tabIndex = -1;
    return label;
  }

  /** Cells as large as lets all rows end with the window; if they would be too small for that, as large as can be. */
  fit() {
    if (!this.root.offsetParent || this.root.classList.contains("flowing")) return;
    const first = this.cells.values().next().value, rows = this.rows.length;
    if (!first || !rows) return;
    const room = innerHeight - (first.cell.getBoundingClientRect().top + scrollY) - BELOW, size = Math.floor(room / rows) - GAP;
    const side = size < SMALLEST || this.isOfTokens ? "" : `${Math.min(LARGEST, size)}px`;
    if (this.root.style.getPropertyValue("--cell") !== side) this.root.style.setProperty("--cell", side);
  }

  /** Maps over all heads: columns are layers, rows are what stands beside each other. @param {string} stack @param {import("./types.js").Answer} answer */
  buildForms(stack, { lens, summary }) {
    const forms = lens.forms ?? [], layers = [...new Set([...summary.values()].filter((one) => one.stack === stack).map(({ layer }) => layer))];
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

  /** Heads that have something in common stand together. @param {string} stack @param {Group[]} groups */
  buildGroups(stack, groups) {
    if (!this.begin(`groups ${stack} ${JSON.stringify(groups)}`, MOST_ABREAST, true)) return;
    for (const { title, places, notes } of groups) {
      const bundle = make("div", "bundle"), members = make("div", "members"), heading = `${title} (${places.length})`;
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

  /** False where this very grid is there already. @param {string} name @param {number} columns @param {boolean} isFlow */
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
    const name = this.told.name(place), cell = make("div", "cell"), canvas = make("canvas"), head = full(stack, place.layer, place.head);
    const thumb = button("thumb", "", () => {});
    thumb.addEventListener("click", (event) => this.told.open(place, event.shiftKey || event.ctrlKey || event.metaKey));
    thumb.tabIndex = -1;
    const same = make("span", "same", "=");
    same.title = "no difference";
    same.hidden = true;
    thumb.append(canvas, same);
    cell.append(thumb);
    const act = this.told.toggle;
    let toggle = null;
    if (act && place.head !== "mean" && !this.isOfTokens) {
      toggle = button("switch", "", () => act([head]));
      toggle.setAttribute("role", "switch");
      toggle.setAttribute("aria-label", `${name} on`);
      toggle.title = "Switch this head off, or on";
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

  /** What is off, chosen, and changed. @param {import("./types.js").Answer | undefined} answer */
  mark(answer) {
    for (const [head, { cell, thumb, toggle, place }] of this.cells) {
      const isOff = !this.isOfTokens && state.off.has(head), told = answer?.summary.get(head), moved = isOff || state.show === "difference" ? 0 : told?.change ?? 0;
      const chosen = state.heads.findIndex((one) => samePlace(one, place));
      cell.classList.toggle("off", isOff);
      cell.classList.toggle("moved", moved >= 0.005);
      cell.style.setProperty("--moved", String(Math.min(1, Math.sqrt(moved))));
      toggle?.setAttribute("aria-checked", String(!isOff));
      thumb.title = [
        thumb.getAttribute("aria-label"),
        isOff ? "switched off" : "",
        told ? `largest ${answer?.lens.name === "raw" ? "weight" : "number"} ${digits(told.largest, !answer?.lens.shares)}` : "",
        told && told.entropy !== null ? `mean entropy ${told.entropy.toFixed(2)} nats` : "",
        moved >= 0.0005 ? `${(100 * moved).toFixed(1)} % of ${answer?.lens.name === "raw" ? "its attention moved" : "the map changed"} since heads are off` : "",
      ].filter(Boolean).join("\n");
      if (chosen >= 0) thumb.setAttribute("aria-current", "true");
      else thumb.removeAttribute("aria-current");
      if (chosen === 0) this.grabTab({ thumb });
    }
  }

  /** All pictures, ready to be shown at once. @param {Source} source @returns {Promise<(() => void) | null>} null: another drawing was begun since */
  async draw(source) {
    const run = ++this.run, found = await this.picturesOf(source, theme(), () => run === this.run);
    return found && (() => { for (const [head, one] of found) this.show(head, one); });
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

  /** The pictures of all heads for a sheet, on white. @param {Source} source @returns {Promise<Map<string, {canvas: HTMLCanvasElement, isSame: boolean}>>} */
  async pictures(source) {
    const found = await this.picturesOf(source, "light", () => true);
    return new Map([...found ?? []].map(([head, { image, isSame }]) => {
      const canvas = make("canvas");
      paint(canvas, image);
      return [head, { canvas, isSame }];
    }));
  }

  /**
   * @param {Source} source @param {"light" | "dark"} ink @param {() => boolean} isWanted  still
   * @returns {Promise<Map<string, Picture> | null>}
   */
  async picturesOf(source, ink, isWanted) {
    const { stack } = state, sides = source.answer.sides[stack];
    if (!sides) return null;
    const lens = await lensOf(source, stack);
    const isPlain = state.level === "tokens" && !state.special && !state.punctuation && !state.itself && !source.against;
    const small = source.against || !source.answer.thumbnails ? null : await source.answer.thumbnails(stack);
    if (!isWanted()) return null;
    const least = source.against ? NOTHING * source.answer.lens.full : -1;
    const isWhole = small !== null && small.rows === sides.query.tokens.length && small.columns === sides.key.tokens.length;
    const axes = axesOf(sides, stack !== "cross", state);
    if (small && (isPlain || isWhole)) {
      const shown = isWhole ? axes : { rows: blockAxis(small.rows), columns: blockAxis(small.columns), self: false };
      return this.paintCells(async () => small, shown, lens, ink, least, isWanted);
    }
    return this.paintCells((layer) => layerOf(source, stack, layer), axes, lens, ink, least, isWanted);
  }

  /**
   * @param {(layer: number) => Promise<import("./types.js").Maps>} mapsOf @param {import("./types.js").Axes} axes
   * @param {import("./types.js").Lens} lens @param {"light" | "dark"} ink @param {number} least  what is below it is no difference @param {() => boolean} isWanted
   * @returns {Promise<Map<string, Picture> | null>}
   */
  async paintCells(mapsOf, axes, lens, ink, least, isWanted) {
    /** @type {Map<string, Picture>} */
    const found = new Map();
    let rested = performance.now();
    for (const [head, { place }] of [...this.cells].sort(([, one], [, two]) => one.place.layer - two.place.layer)) {
      const maps = await mapsOf(place.layer);
      if (!isWanted()) return null;
      const view = viewOf(maps, indices(maps, place), axes, state, lens);
      found.set(head, { image: pixels(view, MOST_PIXELS, ink), isSame: view.largest < least });
      if (performance.now() - rested > SLICE_MS) {
        await pause();
        if (!isWanted()) return null;
        rested = performance.now();
      }
    }
    return found;
  }

  /** To the nearest thumbnail in the direction of an arrow. @param {KeyboardEvent} event */
  move(event) {
    const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    const cells = [...this.cells.values()], from = cells.find(({ cell }) => cell.contains(/** @type {Node} */ (event.target)));
    if (!by || !from || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const here = from.thumb.getBoundingClientRect(), off = here.width / 2;
    let goal = null, least = Infinity;
    for (const one of cells) {
      const there = one.thumb.getBoundingClientRect(), x = there.x - here.x, y = there.y - here.y;
      const ahead = x * by[0] + y * by[1], aside = Math.abs(x * by[1]) + Math.abs(y * by[0]);
      if (ahead < off || (by[1] === 0 && aside > off)) continue;  // a row is left upwards or downwards only
      if (ahead + 3 * aside < least) [goal, least] = [one, ahead + 3 * aside];
    }
    if (!goal) return;
    this.grabTab(goal);
    goal.thumb.focus();
  }

  /** One thumbnail can be reached by Tab; arrows lead on from there. @param {Pick<Cell, "thumb"> | undefined} goal */
  grabTab(goal) {
    for (const { thumb } of this.cells.values()) thumb.tabIndex = thumb === goal?.thumb ? 0 : -1;
  }

  /** The head whose thumbnail has the focus. */
  focused() {
    if (this.isOfTokens) return null;
    for (const [head, { cell }] of this.cells) if (cell.contains(document.activeElement)) return head;
    return null;
  }
}

/** Where a head's map is among these; for a mean, all of its layer that are on. @param {import("./types.js").Maps} maps @param {Place} place */
export function indices(maps, { layer, head }) {
  const all = maps.places.map((one, at) => ({ ...one, at })).filter((one) => one.layer === layer);
  if (head !== "mean") return all.filter((one) => one.head === head).map(({ at }) => at);
  const on = all.filter((one) => !state.off.has(full(state.stack, layer, one.head)));
  return (on.length ? on : all).map(({ at }) => at);
}
