// One large map on the screen. It scrolls and zooms, and reports the cell under the pointer or chosen by arrow keys.

import { pixels, theme } from "./colour.js";
import { clamp, make, roomBelow, roomWhole } from "./dom.js";
import { INK, PITCH, drawMap, geometry } from "./map.js";
import { isResting } from "./pointer.js";
import { paint } from "./ramp.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {{row: number, column: number}} Cell */

const LARGEST_CELL = 44, SMALLEST_CELL = 0.1;
const WORTH_SCROLLING = 24;  // pixels: cells may grow to this size even if the map then needs scrolling

export class MapPane {
  /** @type {View | null} */ view = null;
  /** @type {import("./map.js").Geometry | null} */ geo = null;
  /** @type {HTMLCanvasElement | null} */ heat = null;
  /** @type {number} the limit of pixels per side for which `heat` was drawn */ fine = 0;
  /** @type {number | null} */ zoom = null;
  /** whether “Fit” was pressed: the map fits the window, however small its cells become */
  isFitted = false;
  isRequested = false;

  /**
   * @param {HTMLElement} holder
   * @param {{cell: (cell: Cell | null, x: number, y: number) => void, choose: (cell: Cell) => void,
   *   lit: () => import("./map.js").Lit | null}} callbacks  cell: the cell under the pointer; choose: a click; lit: asked for the row and column to highlight
   */
  constructor(holder, callbacks) {
    this.callbacks = callbacks;
    this.scroller = make("div", "scroller");
    this.canvas = make("canvas");
    this.spacer = make("div", "spacer");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.scroller.append(this.canvas, this.spacer);
    holder.append(this.scroller);
    this.canvas.addEventListener("pointermove", (event) => { if (!isResting()) callbacks.cell(this.cellAt(event), event.clientX, event.clientY); });
    for (const event of ["pointerleave", "blur"]) this.canvas.addEventListener(event, () => callbacks.cell(null, 0, 0));
    this.canvas.addEventListener("click", (event) => { const cell = this.cellAt(event); if (cell) callbacks.choose(cell); });
    this.canvas.addEventListener("keydown", (event) => this.move(event));
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
  }

  /** @param {View | null} view @param {string} name  for screen readers */
  show(view, name) {
    this.view = view;
    this.heat = null;
    this.canvas.setAttribute("aria-label", `attention map of ${name}; arrow keys move from cell to cell`);
    this.scroller.hidden = view === null;
    this.layout();
  }

  layout() {
    const { view, scroller, canvas } = this;
    if (!view || !scroller.parentElement) return;
    const room = scroller.parentElement.clientWidth, below = roomBelow(scroller), tall = Math.max(below, roomWhole());
    let size = LARGEST_CELL;
    for (let tries = 0; tries < 3; tries++) {  // the space for labels depends on the cell size and vice versa: iterate
      const trial = geometry(view, size), cellIn = (/** @type {number} */ height) => (height - trial.top - trial.bottom) / view.Q;
      size = Math.min((room - trial.left - trial.right) / view.K, Math.max(cellIn(below), Math.min(WORTH_SCROLLING, cellIn(tall))));
      size = clamp(size, !this.isFitted && Math.max(view.Q, view.K) <= 64 ? PITCH : SMALLEST_CELL, LARGEST_CELL);
    }
    if (this.zoom) size = clamp(size * this.zoom, SMALLEST_CELL, 60);
    const pixelRatio = devicePixelRatio || 1;
    if (size >= 4) size = Math.floor(size * pixelRatio) / pixelRatio;
    const geo = (this.geo = geometry(view, size));
    const wide = geo.left + geo.width + geo.right, high = geo.top + geo.height + geo.bottom, height = Math.ceil(Math.min(tall, high));
    const spills = wide > room + 1 || high > height + 1;
    scroller.style.height = `${height}px`;
    scroller.style.overflow = spills ? "auto" : "hidden";
    this.spacer.style.width = `${spills ? wide : 0}px`;
    this.spacer.style.height = `${spills ? high - scroller.clientHeight : 0}px`;
    const seen = { width: Math.min(room, wide, scroller.clientWidth), height: Math.min(height, scroller.clientHeight) };
    canvas.width = Math.round(seen.width * pixelRatio);
    canvas.height = Math.round(seen.height * pixelRatio);
    canvas.style.width = `${seen.width}px`;
    canvas.style.height = `${seen.height}px`;
    this.redraw();
  }

  redraw() {
    if (this.isRequested) return;
    this.isRequested = true;
    requestAnimationFrame(() => {
      this.isRequested = false;
      const context = this.canvas.getContext("2d"), { view, geo } = this;
      if (!view || !geo || !context) return;
      const pixelRatio = devicePixelRatio || 1, fine = geo.size * pixelRatio >= 1 ? 4096 : Math.ceil(Math.max(view.Q, view.K) * geo.size * pixelRatio);
      if (!this.heat || this.fine !== fine) {  // if several cells share a pixel, it shows the largest
        this.heat = make("canvas");
        this.fine = fine;
        paint(this.heat, pixels(view, fine));
      }
      const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper");
      context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      drawMap(context, view, geo, this.heat, { ...INK[theme()], paper }, this.part(), this.callbacks.lit());
    });
  }

  /** The visible part of the map. */
  part() {
    const geo = /** @type {import("./map.js").Geometry} */ (this.geo);
    return {
      x: this.scroller.scrollLeft, y: this.scroller.scrollTop,
      width: Math.min(geo.width, parseFloat(this.canvas.style.width) - geo.left - Math.min(geo.right, 32)),
      height: Math.min(geo.height, parseFloat(this.canvas.style.height) - geo.top - geo.bottom),
    };
  }

  /** @param {PointerEvent | MouseEvent} event @returns {Cell | null} */
  cellAt(event) {
    const { geo, view } = this;
    if (!geo || !view) return null;
    const box = this.canvas.getBoundingClientRect(), seen = this.part();
    const x = event.clientX - box.left - geo.left, y = event.clientY - box.top - geo.top;
    if (x < 0 || y < 0 || x >= seen.width || y >= seen.height) return null;
    const row = Math.floor((y + seen.y) / geo.size), column = Math.floor((x + seen.x) / geo.size);
    return row < view.Q && column < view.K ? { row, column } : null;
  }

  /** The position of a cell's centre on the screen. @param {Cell} cell */
  placeOf({ row, column }) {
    const { geo } = this, box = this.canvas.getBoundingClientRect();
    if (!geo) return { x: box.left, y: box.top };
    return {
      x: box.left + geo.left + (column + 0.5) * geo.size - this.scroller.scrollLeft,
      y: box.top + geo.top + (row + 0.5) * geo.size - this.scroller.scrollTop,
    };
  }

  /** @type {Cell | null} */ at = null;
  /** @param {KeyboardEvent} event */
  move(event) {
    const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const { view, geo, scroller } = this;
    if (event.key === "Enter" && this.at) return this.callbacks.choose(this.at);
    if (!by || !view || !geo || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const row = clamp((this.at?.row ?? -by[0]) + by[0], 0, view.Q - 1), column = clamp((this.at?.column ?? -by[1]) + by[1], 0, view.K - 1);
    this.at = { row, column };
    const seen = this.part();
    scroller.scrollTo(
      clamp(scroller.scrollLeft, (column + 1) * geo.size - seen.width, column * geo.size),
      clamp(scroller.scrollTop, (row + 1) * geo.size - seen.height, row * geo.size),
    );
    const { x, y } = this.placeOf(this.at);
    this.callbacks.cell(this.at, x, y);
  }

  /** @param {number | null} by  factor; null: fit to the window */
  zoomBy(by) {
    if (!this.geo) return;
    const before = this.geo.size, seen = this.part(), middle = [seen.x + seen.width / 2, seen.y + seen.height / 2];
    this.isFitted ||= by === null;
    this.zoom = by === null ? null : clamp((this.zoom ?? 1) * by, 0.5, 40);
    this.layout();
    const [x, y] = middle.map((at) => (at * /** @type {any} */ (this.geo).size) / before), now = this.part();
    this.scroller.scrollTo(x - now.width / 2, y - now.height / 2);
  }
}
