// The layout of a large map: cells, labels and sums, as positions. Screen, PNG and SVG draw the same layout.

import { clamp } from "./dom.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {{size: number, font: number, slanted: boolean, step: number, left: number, top: number, right: number,
 *   bottom: number, width: number, height: number}} Geometry */
/** @typedef {{x: number, y: number, width: number, height: number}} Part  the visible part of the map, in pixels of the map */
/** @typedef {{rows: number | null, columns: number | null}} Lit */
/** @typedef {{kind: "label" | "special" | "lit" | "title", x: number, y: number, text: string, anchor: "start" | "middle" | "end",
 *   size?: number, turn?: number, middle?: boolean}} Mark */
/** @typedef {{label: string, special: string, lit: string, title: string, paper: string, bar: string, less: string}} Ink */

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif';
export const PITCH = 9.5;
const LONGEST = 132, TITLE = 20, TITLE_LENGTH = 172, BARS = 22, GAP = 6;

/** @type {Record<"light" | "dark", Ink>} */
export const INK = {
  light: { label: "#1d2329", special: "#66717c", lit: "#0d4787", title: "#66717c", paper: "#ffffff", bar: "#b4cce4", less: "#e9bf98" },
  dark: { label: "#dfe4e8", special: "#8a95a0", lit: "#a9d6f5", title: "#8a95a0", paper: "#13171c", bar: "#31557a", less: "#8a5a2b" },
};

export const ruler = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
/** @type {Map<string, string>} */
const shortened = new Map();

/** @param {string} text @param {number} size @param {number} [most]  pixels */
export function shorten(text, size, most = LONGEST) {
  const name = `${size} ${most} ${text}`, cachedText = shortened.get(name);
  if (cachedText !== undefined) return cachedText;
  ruler.font = `${size}px ${FONT}`;
  let result = text;
  if (ruler.measureText(text).width > most) {
    const characters = [...text];
    while (characters.length > 1 && ruler.measureText(`${characters.join("")}…`).width > most) characters.pop();
    result = `${characters.join("")}…`;
  }
  if (shortened.size > 20000) shortened.clear();
  shortened.set(name, result);
  return result;
}

/** The width of the longest of these labels, in pixels, at most `most`. @param {string[]} labels @param {number} font @param {number} [most] */
export function widest(labels, font, most = LONGEST) {
  ruler.font = `${font}px ${FONT}`;
  let result = 0;
  for (const label of labels) result = Math.max(result, ruler.measureText(label.slice(0, 60)).width);
  return Math.min(most, result);
}

/** @param {View} view @param {number} size  pixels per cell @returns {Geometry} */
export function geometry(view, size) {
  const font = clamp(size - 0.5, 9.5, 13), slanted = size >= 17, wide = widest(view.columns.labels, font), isSampled = size < PITCH;
  const numbered = (/** @type {import("./types.js").Axis} */ { units }) => (isSampled ? Math.ceil(widest([` ${units.at(-1) ?? 0}`], font)) : 0);
  return {
    size, font, slanted,
    step: Math.max(1, Math.ceil(PITCH / size)),
    left: Math.ceil(widest(view.rows.labels, font)) + numbered(view.rows) + TITLE + 8,
    top: Math.ceil(slanted ? wide * 0.72 + font : wide + numbered(view.columns)) + TITLE + 8,
    right: Math.max(BARS + GAP, Math.ceil(slanted ? wide * 0.72 + 4 : 2), TITLE_LENGTH - view.K * size),
    bottom: Math.max(BARS + GAP + 2, TITLE_LENGTH - view.Q * size),
    width: view.K * size,
    height: view.Q * size,
  };
}

/** The titles and labels around the visible part of a map. @param {View} view @param {Geometry} geo @param {Part} part @param {Lit | null} lit @returns {Mark[]} */
export function marks(view, geo, { x, y, width, height }, lit) {
  const { size, font, left, top, slanted } = geo;
  /** @type {Mark[]} */
  const result = [
    { kind: "title", x: left, y: 13, text: view.lens.forms ? "to: contributing tokens (keys)" : "to: tokens attended to (keys)", anchor: "start" },
    { kind: "title", x: 12, y: top, text: view.lens.forms ? "from: receiving tokens (queries)" : "from: tokens that attend (queries)", anchor: "end", turn: -90 },
  ];
  /** @param {"rows" | "columns"} axis @param {number} at @param {number} index */
  const label = (axis, at, index) => {
    /** @type {Mark["kind"]} */
    const kind = index === lit?.[axis] ? "lit" : view[axis].special[index] ? "special" : "label";
    const name = shorten(view[axis].labels[index], font), text = geo.step > 1 ? `${name} ${view[axis].units[index]}` : name;
    if (axis === "rows") result.push({ kind, text, size: font, x: left - 7, y: top + at, anchor: "end", middle: true });
    else if (slanted) result.push({ kind, text, size: font, x: left + at, y: top - 7, anchor: "start", turn: -45 });
    else result.push({ kind, text, size: font, x: left + at, y: top - 6, anchor: "start", turn: -90, middle: true });
  };
  for (const [axis, offset, extent] of /** @type {["rows" | "columns", number, number][]} */ ([["rows", y, height], ["columns", x, width]])) {
    const count = axis === "rows" ? view.Q : view.K, chosen = lit?.[axis] ?? null;
    const first = Math.max(0, Math.floor(offset / size)), last = Math.min(count - 1, Math.floor((offset + extent) / size));
    for (let index = first; index <= last; index++) {
      const at = (index + 0.5) * size - offset;
      if (at < 0 || at > extent) continue;
      const crowded = chosen !== null && index !== chosen && Math.abs(index - chosen) * size < PITCH;
      if (index === chosen || (index % geo.step === 0 && !crowded)) label(axis, at, index);
    }
  }
  return result;
}

/** Sums of rows (right) and columns (below) as bars. @param {View} view @param {Geometry} geo @param {Part} part */
export function bars(view, geo, part) {
  const { size, left, top } = geo, result = [], thick = size >= 9 ? size - 1 : Math.max(1, size + 0.5);
  let most = 0;
  for (const sum of view.columnSums) most = Math.max(most, Math.abs(sum));
  const longest = view.lens.shares ? 1 : Math.max(...view.rowSums) || 1;
  const right = left + Math.min(part.width, geo.width - part.x) + GAP, below = top + Math.min(part.height, geo.height - part.y) + GAP;
  for (let row = Math.floor(part.y / size); row < view.Q && row * size < part.y + part.height; row++) {
    if (!view.signed) result.push({ x: right, y: top + row * size - part.y, width: Math.min(1, view.rowSums[row] / longest) * BARS, height: thick, less: false });
  }
  for (let column = Math.floor(part.x / size); column < view.K && column * size < part.x + part.width; column++) {
    const tall = most > 0 ? (Math.abs(view.columnSums[column]) / most) * BARS : 0;
    result.push({ x: left + column * size - part.x, y: below, width: thick, height: tall, less: view.columnSums[column] < 0 });
  }
  return result;
}

/** @param {CanvasRenderingContext2D} context @param {Mark} mark @param {Ink} ink */
export function write(context, mark, ink) {
  context.save();
  context.translate(mark.x, mark.y);
  if (mark.turn) context.rotate((mark.turn * Math.PI) / 180);
  context.font = `${mark.kind === "lit" ? "650 " : ""}${mark.size ?? 12}px ${FONT}`;
  context.textAlign = /** @type {CanvasTextAlign} */ ({ start: "left", middle: "center", end: "right" }[mark.anchor]);
  context.textBaseline = mark.middle ? "middle" : "alphabetic";
  context.fillStyle = ink[mark.kind];
  context.fillText(mark.text, 0, 0);
  context.restore();
}

/**
 * Draw a part of a map with its labels and sums.
 * @param {CanvasRenderingContext2D} context @param {View} view @param {Geometry} geo @param {CanvasImageSource} image
 * @param {Ink} ink @param {Part} part @param {Lit | null} lit
 */
export function drawMap(context, view, geo, image, ink, part, lit) {
  const { left, top, size } = geo;
  context.imageSmoothingEnabled = false;
  context.save();
  context.beginPath();
  context.rect(left, top, part.width, part.height);
  context.clip();
  context.drawImage(image, left - part.x, top - part.y, geo.width, geo.height);
  if (size >= 9) drawLines(context, geo, ink, part);
  if (lit) drawLit(context, geo, ink, part, lit);
  context.restore();
  for (const bar of bars(view, geo, part)) {
    context.fillStyle = bar.less ? ink.less : ink.bar;
    context.fillRect(bar.x, bar.y, bar.width, bar.height);
  }
  for (const mark of marks(view, geo, part, lit)) write(context, mark, ink);
}

/** @param {CanvasRenderingContext2D} context @param {Geometry} geo @param {Ink} ink @param {Part} part */
function drawLines(context, { left, top, size }, ink, part) {
  context.fillStyle = ink.paper;
  for (let at = size - (part.y % size); at < part.height; at += size) context.fillRect(left, top + at - 0.5, part.width, 1);
  for (let at = size - (part.x % size); at < part.width; at += size) context.fillRect(left + at - 0.5, top, 1, part.height);
}

/** @param {CanvasRenderingContext2D} context @param {Geometry} geo @param {Ink} ink @param {Part} part @param {Lit} lit */
function drawLit(context, geo, ink, part, { rows, columns }) {
  const { left, top, size } = geo, y = top + (rows ?? 0) * size - part.y, x = left + (columns ?? 0) * size - part.x;
  const wide = Math.min(geo.width - part.x, part.width), tall = Math.min(geo.height - part.y, part.height);
  context.strokeStyle = context.fillStyle = ink.lit;
  context.lineWidth = 1.25;
  if (size < 6) {  // in small cells a frame would hide the cell, so fill instead
    context.globalAlpha = 0.3;
    if (rows !== null) context.fillRect(left, y, wide, Math.max(1, size));
    if (columns !== null) context.fillRect(x, top, Math.max(1, size), tall);
  } else {
    if (rows !== null) context.strokeRect(left + 0.5, y, wide - 1, size);
    if (columns !== null) context.strokeRect(x, top + 0.5, size, tall - 1);
  }
}
