// Attention as lines from queries on the left to keys on the right, for one or several heads.

import { HEAD_COLOURS, fullOf, theme } from "./colour.js";
import { clamp, make, roomBelow, roomWhole } from "./dom.js";
import { FONT, INK, shorten, widest, write } from "./map.js";
import { isResting } from "./pointer.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {{name: string, view: View}} Shown */
/** @typedef {{row: number, column: number, weight: number, head: number}} Line */
/** @typedef {{axis: "rows" | "columns", at: number}} End  a token on the left or on the right */

export const MOST_LINES = 3000;
export const LESS_LINE = { light: "#b5591a", dark: "#eba468" };
const FONT_SIZE = 13, LONGEST = 170, TOP = 26, WIDEST = 760, LEAST = 0.004;  // smallest line drawn, as a share of the end of the colour scale

/** The largest weights of all heads, the largest last so that they are drawn on top. @param {Shown[]} shown @returns {Line[]} */
export function largestLines(shown) {
  const counts = new Uint32Array(256), { full } = shown[0].view.lens;
  const bin = (/** @type {number} */ weight) => Math.min(255, Math.floor(255 * Math.sqrt(Math.abs(weight) / full)));
  for (const { view } of shown) for (const weight of view.weights) counts[bin(weight)] += 1;
  let floor = 255;
  for (let sum = counts[255]; floor > 0 && sum + counts[floor - 1] <= MOST_LINES; sum += counts[--floor]);
  /** @type {Line[]} */
  const result = [];
  shown.forEach(({ view }, head) => view.weights.forEach((weight, at) => {
    if (Math.abs(weight) >= LEAST * full && bin(weight) >= floor) result.push({ row: Math.floor(at / view.K), column: at % view.K, weight, head });
  }));
  return result.sort((one, two) => Math.abs(one.weight) - Math.abs(two.weight));
}

/** All lines of one token. @param {Shown[]} shown @param {End} end @returns {Line[]} */
export function linesOf(shown, { axis, at }) {
  return shown.flatMap(({ view }, head) => {
    const count = axis === "rows" ? view.K : view.Q;
    return Array.from({ length: count }, (_, other) => {
      const [row, column] = axis === "rows" ? [at, other] : [other, at];
      return { row, column, head, weight: view.weights[row * view.K + column] };
    }).filter(({ weight }) => Math.abs(weight) >= (LEAST / 4) * view.lens.full);
  });
}

/** @param {Shown[]} shown @param {number} room */
export function arcGeometry(shown, room) {
  const { rows, columns, Q, K } = shown[0].view, pitch = Math.max(Q, K) > 40 ? 18 : 24;
  const most = Math.min(LONGEST, room * 0.32), width = Math.min(room, WIDEST);
  const left = Math.ceil(widest(rows.labels, FONT_SIZE, most)) + 12, right = Math.ceil(widest(columns.labels, FONT_SIZE, most)) + 12;
  return { pitch, width, left, right: width - right, most, height: TOP + Math.max(Q, K) * pitch + 8 };
}

/** The opacity and width of a line, 0 to 1, on the same scale as the colours of the map. @param {number} weight @param {View} view */
export function strength(weight, view) {
  const size = Math.abs(weight) / fullOf(view);
  return clamp(state.scale === "root" ? Math.sqrt(size) : size, 0, 1);
}

/** The Bézier curve of a line. @param {ReturnType<typeof arcGeometry>} geo @param {Line} line @param {number} scrolled */
export function bend(geo, { row, column }, scrolled) {
  const y = (/** @type {number} */ at) => TOP + (at + 0.5) * geo.pitch - scrolled, bow = (geo.right - geo.left) * 0.4;
  return { x1: geo.left, y1: y(row), c1: geo.left + bow, c2: geo.right - bow, x2: geo.right, y2: y(column) };
}

/** @param {Shown[]} shown @param {ReturnType<typeof arcGeometry>} geo @param {number} scrolled @param {number} seen @param {End | null} lit */
export function arcMarks(shown, geo, scrolled, seen, lit) {
  const { rows, columns } = shown[0].view;
  /** @type {import("./map.js").Mark[]} */
  const result = [];
  for (const [name, axis] of /** @type {["rows" | "columns", typeof rows][]} */ ([["rows", rows], ["columns", columns]])) {
    const first = Math.max(0, Math.floor((scrolled - TOP) / geo.pitch)), last = Math.min(axis.labels.length - 1, Math.ceil((scrolled + seen) / geo.pitch));
    for (let at = first; at <= last; at++) {
      const kind = lit?.axis === name && lit.at === at ? "lit" : axis.special[at] ? "special" : "label";
      const y = TOP + (at + 0.5) * geo.pitch - scrolled;
      if (y < TOP + 4) continue;
      result.push({
        kind, text: shorten(axis.labels[at], FONT_SIZE, geo.most), size: FONT_SIZE, middle: true, y,
        x: name === "rows" ? geo.left - 7 : geo.right + 7, anchor: name === "rows" ? "end" : "start",
      });
    }
  }
  result.push({ kind: "title", x: geo.left - 7, y: 13, text: "from", anchor: "end" }, { kind: "title", x: geo.right + 7, y: 13, text: "to", anchor: "start" });
  return result;
}

/**
 * @param {CanvasRenderingContext2D} context @param {Shown[]} shown @param {ReturnType<typeof arcGeometry>} geo @param {Line[]} lines
 * @param {{scrolled: number, seen: number, lit: End | null, theme: "light" | "dark"}} how
 */
export function drawArcs(context, shown, geo, lines, { scrolled, seen, lit, theme: name }) {
  context.save();
  context.beginPath();
  context.rect(0, TOP - 4, geo.width, seen);
  context.clip();
  for (const line of lines) {
    const { x1, y1, c1, c2, x2, y2 } = bend(geo, line, scrolled);
    if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > seen) continue;
    const force = strength(line.weight, shown[line.head].view);
    context.globalAlpha = clamp(force, 0.02, 1);
    context.strokeStyle = line.weight < 0 ? LESS_LINE[name] : HEAD_COLOURS[name][line.head % HEAD_COLOURS[name].length];
    context.lineWidth = 0.75 + 2.5 * force;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(c1, y1, c2, y2, x2, y2);
    context.stroke();
  }
  context.restore();
  context.font = `${FONT_SIZE}px ${FONT}`;
  for (const mark of arcMarks(shown, geo, scrolled, seen, lit)) write(context, mark, INK[name]);
}

export class ArcsPane {
  /** @type {Shown[]} */ shown = [];
  /** @type {Line[]} */ lines = [];
  /** @type {End | null} */ hovered = null;
  /** @type {ReturnType<typeof arcGeometry> | null} */ geo = null;
  isRequested = false;

  /** @param {HTMLElement} holder @param {{choose: (end: End) => void, chosen: () => End | null, hover: (end: End | null) => void}} callbacks */
  constructor(holder, callbacks) {
    this.callbacks = callbacks;
    this.scroller = make("div", "scroller");
    this.canvas = make("canvas");
    this.spacer = make("div", "spacer");
    this.canvas.setAttribute("role", "img");
    this.canvas.tabIndex = 0;
    this.scroller.append(this.canvas, this.spacer);
    holder.append(this.scroller);
    this.canvas.addEventListener("pointermove", (event) => { if (!isResting()) this.hover(this.endAt(event)); });
    for (const event of ["pointerleave", "blur"]) this.canvas.addEventListener(event, () => this.hover(null));
    this.canvas.addEventListener("click", (event) => { const end = this.endAt(event); if (end) callbacks.choose(end); });
    this.canvas.addEventListener("keydown", (event) => this.move(event));
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
  }

  /** @param {Shown[]} shown */
  show(shown) {
    this.shown = shown;
    this.lines = shown.length ? largestLines(shown) : [];
    this.hovered = null;
    this.scroller.hidden = !shown.length;
    this.canvas.setAttribute("aria-label", `attention arcs of ${shown.map(({ name }) => name).join(", ")}; arrow keys move from token to token`);
    this.layout();
  }

  layout() {
    const { scroller, canvas } = this;
    if (!this.shown.length || !this.shown[0].view.Q || !this.shown[0].view.K || !scroller.parentElement) return;
    const geo = (this.geo = arcGeometry(this.shown, scroller.parentElement.clientWidth - 14));
    const height = Math.min(geo.height, Math.max(roomBelow(scroller), roomWhole())), pixelRatio = devicePixelRatio || 1, spills = geo.height > height + 1;
    scroller.style.height = `${height}px`;
    scroller.style.overflow = spills ? "auto" : "hidden";
    this.spacer.style.height = `${spills ? geo.height - height : 0}px`;
    canvas.width = Math.round(geo.width * pixelRatio);
    canvas.height = Math.round(height * pixelRatio);
    canvas.style.width = `${geo.width}px`;
    canvas.style.height = `${height}px`;
    this.redraw();
  }

  /** The token to whose lines the drawing is restricted, if any. */
  lit() {
    return this.hovered ?? this.callbacks.chosen();
  }

  redraw() {
    if (this.isRequested) return;
    this.isRequested = true;
    requestAnimationFrame(() => {
      this.isRequested = false;
      const context = this.canvas.getContext("2d"), { geo, shown } = this, pixelRatio = devicePixelRatio || 1;
      if (!context || !geo || !shown.length) return;
      context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      const lit = this.lit(), lines = lit ? linesOf(shown, lit) : this.lines;
      drawArcs(context, shown, geo, lines, { scrolled: this.scroller.scrollTop, seen: parseFloat(this.canvas.style.height), lit, theme: theme() });
    });
  }

  /** @param {MouseEvent} event @returns {End | null} */
  endAt(event) {
    const { geo, shown } = this;
    if (!geo || !shown.length) return null;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left;
    const at = Math.floor((event.clientY - box.top + this.scroller.scrollTop - TOP) / geo.pitch);
    const axis = x <= geo.left + 20 ? "rows" : x >= geo.right - 20 ? "columns" : null;
    return axis && at >= 0 && at < shown[0].view[axis].labels.length ? { axis, at } : null;
  }

  /** @param {End | null} end */
  hover(end) {
    if (end?.axis === this.hovered?.axis && end?.at === this.hovered?.at) return;
    this.hovered = end;
    this.canvas.style.cursor = end ? "pointer" : "default";
    this.callbacks.hover(end);
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const now = this.hovered ?? { axis: /** @type {"rows"} */ ("rows"), at: -1 };
    if (!this.geo || !this.shown.length) return;
    if (event.key === "Enter" && this.hovered) return this.callbacks.choose(this.hovered);
    /** @type {End["axis"]} */
    const axis = event.key === "ArrowLeft" ? "rows" : event.key === "ArrowRight" ? "columns" : now.axis;
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : axis !== now.axis ? 0 : null;
    if (by === null) return;
    event.preventDefault();
    const at = clamp(now.at + by, 0, this.shown[0].view[axis].labels.length - 1), y = TOP + at * this.geo.pitch;
    this.scroller.scrollTop = clamp(this.scroller.scrollTop, y + 2 * this.geo.pitch - this.scroller.clientHeight, y - TOP);
    this.hover({ axis, at });
  }
}
