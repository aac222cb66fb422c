// Exported sheets, as SVG or PNG on white: drawings side by side with titles above, and below them a colour scale and a caption.

import { hex, legendTexts } from "./colour.js";
import { quoteField } from "./csv.js";
import { download, make, svgTag } from "./dom.js";
import { FONT, INK, ruler, write } from "./map.js";

/**
 * @typedef {{width: number, height: number, paint: (context: CanvasRenderingContext2D) => void, shapes: () => Element[]}} Drawing
 * @typedef {{title: string, drawing: Drawing}} Panel
 * @typedef {{colour: string, text: string}} Key  an entry of the legend of arc colours
 * @typedef {object} Sheet
 * @property {string} file  name without extension
 * @property {string} line  caption
 * @property {Panel[]} panels
 * @property {Key[]} keys
 * @property {{signed: boolean, full: number | null} | null} scale  colour scale, or null
 */
/** @typedef {import("./map.js").Mark} Mark */

const GAP = 28, TITLE = 26, LINE = 26, SCALE = 32, KEY = 20, EDGE = 12, STEPS = 64;

/** @param {string} text @param {number} [size] */
function widthOf(text, size = 12) {
  ruler.font = `${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

/** The layout of a sheet. @param {Sheet} sheet */
function plan({ line, panels, keys, scale }) {
  const titled = panels.some(({ title }) => title), top = EDGE + (titled ? TITLE : 0);
  let x = EDGE;
  const placed = panels.map(({ title, drawing }) => {
    const here = { title, drawing, x, y: top };
    x += Math.max(drawing.width, widthOf(title, 14) + 2 * EDGE) + GAP;
    return here;
  });
  const width = Math.ceil(Math.max(x - GAP + EDGE, widthOf(line) + 2 * EDGE, 260)) + 10;
  /** @type {(Key & {x: number, y: number})[]} */
  const dots = [];
  let y = top + Math.max(...panels.map(({ drawing }) => drawing.height)) + 6, at = EDGE;
  for (const key of keys) {
    const wide = widthOf(key.text) + 30;
    if (at + wide > width && at > EDGE) [at, y] = [EDGE, y + KEY];
    dots.push({ ...key, x: at, y });
    at += wide;
  }
  if (keys.length) y += KEY + 4;
  const bar = y + 14, height = Math.ceil((scale ? y + SCALE : y) + LINE);
  return { placed, dots, bar, width, height };
}

/** @param {Sheet} sheet @param {ReturnType<typeof plan>} layout @returns {Mark[]} */
function marks({ line, scale }, { placed, dots, bar, height }) {
  const texts = scale ? legendTexts(scale.signed, scale.full) : [];
  const ends = /** @type {const} */ ([[EDGE, texts[0], "start"], [EDGE + 80, texts[2], "middle"], [EDGE + 160, texts[4], "end"]]);
  return [
    ...placed.filter(({ title }) => title).map(({ title, x }) => ({ kind: /** @type {const} */ ("lit"), size: 14, x: x + EDGE, y: EDGE + 18, text: title, anchor: /** @type {const} */ ("start") })),
    ...dots.map(({ text, x, y }) => ({ kind: /** @type {const} */ ("label"), x: x + 16, y: y + 10, text, anchor: /** @type {const} */ ("start") })),
    ...(scale ? ends.map(([x, text, anchor]) => ({ kind: /** @type {const} */ ("title"), size: 10, x, y: bar - 5, text: text ?? "", anchor })) : []),
    { kind: "title", x: EDGE, y: height - 10, text: line, anchor: "start" },
  ];
}

/** The colour scale as rectangles. @param {Sheet} sheet */
function steps({ scale }) {
  const from = scale?.signed ? 0 : 255;
  return scale ? Array.from({ length: STEPS }, (_, at) => ({ x: EDGE + at * 2.5, fill: hex(from + Math.round((at / (STEPS - 1)) * (510 - from))) })) : [];
}

/** @param {Sheet} sheet */
export function savePng(sheet) {
  const layout = plan(sheet), { width, height } = layout, canvas = make("canvas"), pixelRatio = Math.min(2, 8000 / Math.max(width, height));
  canvas.width = width * pixelRatio;
  canvas.height = height * pixelRatio;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(pixelRatio, pixelRatio);
  context.fillStyle = INK.light.paper;
  context.fillRect(0, 0, width, height);
  for (const { drawing, x, y } of layout.placed) {
    context.save();
    context.translate(x, y);
    drawing.paint(context);
    context.restore();
  }
  for (const { colour, x, y } of layout.dots) {
    context.fillStyle = colour;
    context.fillRect(x, y, 10, 10);
  }
  for (const { x, fill } of steps(sheet)) {
    context.fillStyle = fill;
    context.fillRect(x, layout.bar, 3, 8);
  }
  for (const mark of marks(sheet, layout)) write(context, mark, INK.light);
  canvas.toBlob((blob) => { if (blob) download(blob, `${sheet.file}.png`); }, "image/png");
}

/** @param {Sheet} sheet */
export function saveSvg(sheet) {
  const layout = plan(sheet), { width, height } = layout, svg = svgTag("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
  svg.append(svgTag("title", {}, sheet.line), svgTag("rect", { width, height, fill: INK.light.paper }));
  for (const { drawing, x, y } of layout.placed) {
    const group = svgTag("g", { transform: `translate(${x} ${y})` });
    group.append(...drawing.shapes());
    svg.append(group);
  }
  for (const { colour, x, y } of layout.dots) svg.append(svgTag("rect", { x, y, width: 10, height: 10, fill: colour }));
  for (const { x, fill } of steps(sheet)) svg.append(svgTag("rect", { x, y: layout.bar, width: 3, height: 8, fill }));
  svg.append(...written(marks(sheet, layout)));
  download(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), `${sheet.file}.svg`);
}

/** @param {Mark[]} textMarks */
export const written = (textMarks) => textMarks.map((mark) => svgTag("text", {
  fill: INK.light[mark.kind], "font-size": mark.size ?? 12, "text-anchor": mark.anchor, ...(mark.kind === "lit" ? { "font-weight": 650 } : {}),
  transform: `translate(${mark.x} ${mark.y})${mark.turn ? ` rotate(${mark.turn})` : ""}`,
  ...(mark.middle ? { "dominant-baseline": "central" } : {}),
}, mark.text));

/** One field of a CSV table. Text that a spreadsheet would run as a formula gets an apostrophe in front. @param {string | number} value */
function field(value) {
  const text = String(value), safe = typeof value === "string" && text.length > 1 && /^[=+\-@]/.test(text) ? `'${text}` : text;
  return quoteField(safe);
}

/** @param {string} file @param {Iterable<(string | number)[]>} rows  the first row has the column names */
export function saveTable(file, rows) {
  /** @type {Map<string | number, string>} */
  const quoted = new Map();  // cache of quoted fields: the same few texts occur in thousands of rows
  const lines = [];
  for (const row of rows) {
    lines.push(row.map((value) => {
      const there = typeof value === "string" ? quoted.get(value) : String(value);
      if (there !== undefined) return there;
      const made = field(value);
      quoted.set(value, made);
      return made;
    }).join(","));
  }
  download(new Blob([`${lines.join("\n")}\n`], { type: "text/csv;charset=utf-8" }), `${file}.csv`);
}
