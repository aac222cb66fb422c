// What is on show as SVG, PNG or CSV: always on white, always with the numbers' meaning below.

import { LESS_LINE, MOST_LINES, arcGeometry, arcMarks, bend, drawArcs, largestLines, linesOf, strength } from "./arcs.js";
import { HEAD_COLOURS, fullOf, hex, legendTexts, paint, pixels, shade } from "./colour.js";
import { clamp, download, make, svgTag } from "./dom.js";
import { FONT, INK, bars, drawMap, geometry, marks, ruler, write } from "./map.js";
import { state } from "./state.js";

/** @typedef {import("./types.js").View} View */
/** @typedef {{name: string, file: string, line: string, views: {name: string, view: View}[], lit: import("./arcs.js").End | null}} Shown */

const FOOT = 58, CELLS_AS_SHAPES = 20000, ARC_ROOM = 720;

/** The line below a picture, and the marks of its colour scale. @param {Shown} shown @param {number} height @returns {import("./map.js").Mark[]} */
function foot({ line, views }, height) {
  const texts = legendTexts(views[0].view.signed, fullOf(views[0].view));
  const scale = state.view === "arcs" ? [] : /** @type {const} */ ([[12, texts[0], "start"], [92, texts[2], "middle"], [172, texts[4], "end"]]);
  return [
    { kind: "title", x: 12, y: height - 10, text: line, anchor: "start" },
    ...scale.map(([x, text, anchor]) => ({ kind: /** @type {const} */ ("title"), size: 10, x, y: height - 38, text, anchor })),
  ];
}

/** @param {string} line @param {number} least */
function widthOf(line, least) {
  ruler.font = `12px ${FONT}`;
  return Math.ceil(Math.max(least, ruler.measureText(line).width + 24, 260)) + 10;
}

/** @param {Shown} shown */
function mapPicture(shown) {
  const { view } = shown.views[0], geo = geometry(view, clamp(Math.floor(1700 / Math.max(view.Q, view.K)), 3, 26));
  const part = { x: 0, y: 0, width: geo.width, height: geo.height };
  return { view, geo, part, width: widthOf(shown.line, geo.left + geo.width + geo.right), height: geo.top + geo.height + geo.bottom + FOOT };
}

/** @param {Shown} shown */
function arcPicture(shown) {
  const geo = arcGeometry(shown.views, ARC_ROOM), lines = shown.lit ? linesOf(shown.views, shown.lit) : largestLines(shown.views);
  return { geo, lines: lines.slice(-MOST_LINES), width: widthOf(shown.line, geo.width), height: geo.height + FOOT };
}

/** @param {Shown} shown */
export function savePng(shown) {
  const isArcs = state.view === "arcs", picture = isArcs ? arcPicture(shown) : mapPicture(shown), { width, height } = picture;
  const canvas = make("canvas"), grain = Math.min(2, 8000 / Math.max(width, height));
  canvas.width = width * grain;
  canvas.height = height * grain;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(grain, grain);
  context.fillStyle = INK.light.paper;
  context.fillRect(0, 0, width, height);
  if ("lines" in picture) {
    drawArcs(context, shown.views, picture.geo, picture.lines, { scrolled: 0, seen: picture.geo.height, lit: shown.lit, theme: "light" });
  } else {
    const heat = make("canvas");
    paint(heat, pixels(picture.view, 4096, "light"));
    drawMap(context, picture.view, picture.geo, heat, INK.light, picture.part, null);
    for (const { x, fill } of scale(picture.view)) {
      context.fillStyle = fill;
      context.fillRect(x, height - 33, 3, 8);
    }
  }
  for (const mark of foot(shown, height)) write(context, mark, INK.light);
  canvas.toBlob((blob) => { if (blob) download(blob, `${shown.file}.png`); }, "image/png");
}

/** The colour scale in 64 steps. @param {View} view */
function scale({ signed }) {
  const from = signed ? 0 : 255;
  return Array.from({ length: 64 }, (_, at) => ({ x: 12 + at * 2.5, fill: hex(from + Math.round((at / 63) * (510 - from))) }));
}

/** @param {Shown} shown */
export function saveSvg(shown) {
  const picture = state.view === "arcs" ? arcPicture(shown) : mapPicture(shown), { width, height } = picture;
  const svg = svgTag("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
  svg.append(svgTag("title", {}, shown.line), svgTag("rect", { width, height, fill: INK.light.paper }));
  if ("lines" in picture) {
    svg.append(arcShapes(shown, picture));
    writeMarks(svg, arcMarks(shown.views, picture.geo, 0, picture.geo.height, shown.lit));
  } else {
    svg.append(cellShapes(picture));
    for (const bar of bars(picture.view, picture.geo, picture.part)) {
      const { x, y, width: wide, height: tall } = bar;
      svg.append(svgTag("rect", { x, y, width: wide, height: tall, fill: bar.less ? INK.light.less : INK.light.bar }));
    }
    for (const { x, fill } of scale(picture.view)) svg.append(svgTag("rect", { x, y: height - 33, width: 3, height: 8, fill }));
    writeMarks(svg, marks(picture.view, picture.geo, picture.part, null));
  }
  writeMarks(svg, foot(shown, height));
  download(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), `${shown.file}.svg`);
}

/** @param {ReturnType<typeof mapPicture>} picture */
function cellShapes({ view, geo }) {
  const { left, top, size } = geo, gap = size >= 9 ? 1 : 0, colourOf = shade(view);
  if (view.Q * view.K > CELLS_AS_SHAPES) {  // too many for one shape each: the map as a picture, the words still as words
    const heat = make("canvas");
    paint(heat, pixels(view, 4096, "light"));
    return svgTag("image", {
      x: left, y: top, width: geo.width, height: geo.height, preserveAspectRatio: "none", href: heat.toDataURL("image/png"), "image-rendering": "pixelated",
    });
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

/** @param {Shown} shown @param {ReturnType<typeof arcPicture>} picture */
function arcShapes(shown, { geo, lines }) {
  const group = svgTag("g", { fill: "none" });
  for (const line of lines) {
    const { x1, y1, c1, c2, x2, y2 } = bend(geo, line, 0), force = strength(line.weight, shown.views[line.head].view);
    group.append(svgTag("path", {
      d: `M${x1} ${y1}C${c1} ${y1} ${c2} ${y2} ${x2} ${y2}`, "stroke-opacity": clamp(force, 0.02, 1).toFixed(3), "stroke-width": (0.75 + 2.5 * force).toFixed(2),
      stroke: line.weight < 0 ? LESS_LINE.light : HEAD_COLOURS.light[line.head % HEAD_COLOURS.light.length],
    }));
  }
  return group;
}

/** @param {Element} svg @param {import("./map.js").Mark[]} found */
function writeMarks(svg, found) {
  for (const mark of found) {
    svg.append(svgTag("text", {
      fill: INK.light[mark.kind], "font-size": mark.size ?? 12, "text-anchor": mark.anchor,
      transform: `translate(${mark.x} ${mark.y})${mark.turn ? ` rotate(${mark.turn})` : ""}`,
      ...(mark.middle ? { "dominant-baseline": "central" } : {}),
    }, mark.text));
  }
}

/** One field of a table; text that a spreadsheet would take for a formula is marked as text by an apostrophe. @param {string} text */
function field(text) {
  const safe = text.length > 1 && /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {Shown} shown */
export function saveCsv(shown) {
  const lines = ["head,query,query_text,key,key_text,weight"];
  for (const { name, view } of shown.views) {
    const from = view.rows.labels.map((label, at) => `${field(name)},${view.rows.units[at]},${field(label)}`);
    const to = view.columns.labels.map((label, at) => `${view.columns.units[at]},${field(label)}`);
    for (let row = 0; row < view.Q; row++) {
      for (let column = 0; column < view.K; column++) lines.push(`${from[row]},${to[column]},${Number(view.weights[row * view.K + column].toPrecision(3))}`);
    }
  }
  download(new Blob([`${lines.join("\n")}\n`], { type: "text/csv;charset=utf-8" }), `${shown.file}.csv`);
}
