// Drawings for exported sheets: one map, the arcs of several heads, or the grid of all heads.

import { LESS_LINE, MOST_LINES, arcGeometry, arcMarks, bend, drawArcs, largestLines, linesOf, strength } from "./arcs.js";
import { HEAD_COLOURS, hex, pixels, shade } from "./colour.js";
import { clamp, make, svgTag } from "./dom.js";
import { CUT } from "./grid.js";
import { INK, bars, drawMap, geometry, marks, shorten, write } from "./map.js";
import { paint } from "./ramp.js";
import { written } from "./sheet.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./sheet.js").Drawing} Drawing */
/** @typedef {import("./map.js").Mark} Mark */

const CELLS_AS_SHAPES = 20000, ARC_ROOM = 720;

/** @param {View} view @returns {Drawing} */
export function mapDrawing(view) {
  const geo = geometry(view, clamp(Math.floor(1700 / Math.max(view.Q, view.K)), 3, 26)), part = { x: 0, y: 0, width: geo.width, height: geo.height };
  return {
    width: geo.left + geo.width + geo.right, height: geo.top + geo.height + geo.bottom,
    paint: (context) => {
      const heat = make("canvas");
      paint(heat, pixels(view, 4096, "light"));
      drawMap(context, view, geo, heat, INK.light, part, null);
    },
    shapes: () => [
      cellShapes(view, geo),
      ...bars(view, geo, part).map(({ x, y, width, height, less }) => svgTag("rect", { x, y, width, height, fill: less ? INK.light.less : INK.light.bar })),
      ...written(marks(view, geo, part, null)),
    ],
  };
}

/** @param {View} view @param {import("./map.js").Geometry} geo */
function cellShapes(view, geo) {
  const { left, top, size } = geo, gap = size >= 9 ? 1 : 0, colourOf = shade(view);
  if (view.Q * view.K > CELLS_AS_SHAPES) {  // too many for one shape per cell: embed the map as an image, and keep the labels as text
    const heat = make("canvas");
    paint(heat, pixels(view, 4096, "light"));
    return picture(heat, left, top, geo.width, geo.height);
  }
  const cells = svgTag("g", { "shape-rendering": "crispEdges" });
  cells.append(svgTag("rect", { x: left, y: top, width: geo.width, height: geo.height, fill: hex(255) }));
  view.weights.forEach((weight, at) => {
    const colour = colourOf(weight);
    if (colour === 255) return;
    const x = left + (at % view.K) * size, y = top + Math.floor(at / view.K) * size;
    cells.append(svgTag("rect", { x, y, width: size - gap, height: size - gap, fill: hex(colour) }));
  });
  return cells;
}

/** @param {HTMLCanvasElement} canvas @param {number} x @param {number} y @param {number} width @param {number} height @param {number} [opacity] */
const picture = (canvas, x, y, width, height, opacity = 1) => svgTag("image", {
  x, y, width, height, preserveAspectRatio: "none", href: canvas.toDataURL("image/png"), "image-rendering": "pixelated", ...(opacity < 1 ? { opacity } : {}),
});

/** @param {import("./arcs.js").Shown[]} shown @param {import("./arcs.js").End | null} lit  whose lines alone are shown @returns {Drawing} */
export function arcsDrawing(shown, lit) {
  const geo = arcGeometry(shown, ARC_ROOM), lines = (lit ? linesOf(shown, lit) : largestLines(shown)).slice(-MOST_LINES);
  return {
    width: geo.width, height: geo.height,
    paint: (context) => drawArcs(context, shown, geo, lines, { scrolled: 0, seen: geo.height, lit, theme: "light" }),
    shapes: () => {
      const group = svgTag("g", { fill: "none" });
      for (const line of lines) {
        const { x1, y1, c1, c2, x2, y2 } = bend(geo, line, 0), force = strength(line.weight, shown[line.head].view);
        group.append(svgTag("path", {
          d: `M${x1} ${y1}C${c1} ${y1} ${c2} ${y2} ${x2} ${y2}`, "stroke-opacity": clamp(force, 0.02, 1).toFixed(3), "stroke-width": (0.75 + 2.5 * force).toFixed(2),
          stroke: line.weight < 0 ? LESS_LINE.light : HEAD_COLOURS.light[line.head % HEAD_COLOURS.light.length],
        }));
      }
      return [group, ...written(arcMarks(shown, geo, 0, geo.height, lit))];
    },
  };
}

const CELL = 72, APART = 6, SIDE = 46, CORNER = 18, HEADER = 22, GROUP = 26, TAG = 14;

/**
 * The thumbnails of all heads, in the layout of the grid.
 * @param {import("./grid.js").Grid} grid @param {Map<string, {canvas: HTMLCanvasElement, isSame: boolean}>} pictures @param {Set<string>} off @returns {Drawing}
 */
export function gridDrawing({ rows, columns, corner, tags }, pictures, off) {
  const tagged = tags.size > 0, wide = Math.max(...rows.map(({ cells }) => cells.length), 1), left = rows.some(({ label }) => label) ? SIDE : 12;
  /** @type {Mark[]} */
  const texts = columns.map((text, at) => ({ kind: "title", x: left + at * (CELL + APART) + CELL / 2, y: CORNER + 15, text: shorten(text, 12, CELL), anchor: "middle" }));
  /** @type {{head: string, x: number, y: number}[]} */
  const cells = [];
  if (corner) texts.push({ kind: "title", x: 12, y: 13, text: corner, anchor: "start" });
  let y = columns.length ? CORNER + HEADER : 4;
  for (const row of rows) {
    if (row.title) {
      texts.push({ kind: "label", x: left, y: y + 17, text: row.title, anchor: "start" });
      y += GROUP;
    }
    texts.push({ kind: "title", x: left - 8, y: y + CELL / 2, text: shorten(row.label, 12, SIDE - 10), anchor: "end", middle: true });
    row.cells.forEach((head, at) => {
      const x = left + at * (CELL + APART);
      if (!head) return;
      cells.push({ head, x, y });
      const said = head === CUT ? CUT : off.has(head) ? "off" : pictures.get(head)?.isSame ? "=" : "";
      if (said) texts.push({ kind: head === CUT ? "title" : "label", x: x + CELL / 2, y: y + CELL / 2, text: said, anchor: "middle", middle: true });
      if (tagged) texts.push({ kind: "title", size: 10, x: x + CELL / 2, y: y + CELL + 11, text: shorten(tags.get(head) ?? "", 10, CELL), anchor: "middle" });
    });
    y += CELL + APART + (tagged ? TAG : 0);
  }
  return {
    width: left + wide * (CELL + APART) + 12, height: y,
    paint: (context) => {
      context.imageSmoothingEnabled = false;
      for (const { head, x, y: top } of cells) {
        const canvas = pictures.get(head)?.canvas;
        context.globalAlpha = off.has(head) ? 0.18 : 1;
        if (canvas) context.drawImage(canvas, x, top, CELL, CELL);
        context.globalAlpha = 1;
        context.strokeStyle = "#d5dade";
        context.strokeRect(x, top, CELL, CELL);
      }
      for (const mark of texts) write(context, mark, INK.light);
    },
    shapes: () => [
      ...cells.flatMap(({ head, x, y: top }) => {
        const canvas = pictures.get(head)?.canvas, frame = svgTag("rect", { x, y: top, width: CELL, height: CELL, fill: "none", stroke: "#d5dade" });
        return canvas ? [picture(canvas, x, top, CELL, CELL, off.has(head) ? 0.18 : 1), frame] : [frame];
      }),
      ...written(texts.filter(({ text }) => text)),
    ],
  };
}
