"use strict";
(() => {
// Tokens are text from anywhere: they reach the page by textContent, by canvas, or by an XML serialiser. Nothing else.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const make = (tag, className = "", text = "") => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
};
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

for (const stack of data.stacks) stack.self = stack.key === null;
for (const stack of data.stacks) stack.key ??= stack.query;
const has = (lens, stack) => data.stacks[stack].stack in data.lenses[lens].maps;

// ---- State, and its place in the address of the page -------------------------------------------------------------

const CHOICES = {
  level: ["tokens", "words"],
  special: ["show", "hide", "renormalise"],
  scale: ["root", "linear"],
  range: ["one", "head"],
  direction: ["to", "by"],
};
const state = { lens: 0, stack: 0, head: null, token: null, zoom: null };  // head: {layer, head}; token: a token's index
for (const [option, values] of Object.entries(CHOICES)) state[option] = values[0];

const lens = () => data.lenses[state.lens];
const grid = (stack = state.stack) => lens().maps[data.stacks[stack].stack];

// encoder.3.2, or 3.2 where there is one stack: as the study writes it
const isOneStack = data.stacks.length === 1;
const address = (stack, layer, head) => `${isOneStack ? "" : `${data.stacks[stack].stack}.`}${layer}.${head}`;

/** What a map is called: a head by its address, a token map by its layer and, where there are several, its form. */
function nameOf(layer, head) {
  const { forms, layers, name } = lens();
  if (!forms) return address(state.stack, layer, head);
  const stack = isOneStack ? "" : `${data.stacks[state.stack].stack} `;
  return `${name}: ${stack}${layers ? layers[layer] : `layer ${layer}`}${forms.length > 1 ? `, ${forms[head]}` : ""}`;
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [option, values] of Object.entries(CHOICES)) {
    state[option] = values.includes(given.get(option)) ? given.get(option) : values[0];
  }
  state.lens = Math.max(0, data.lenses.findIndex((one) => one.name === given.get("lens")));
  const match = /^(?:(.+)\.)?(\d+)\.(\d+)$/.exec(given.get("head") ?? "");
  const name = match ? match[1] ?? (isOneStack ? data.stacks[0].stack : null) : given.get("stack");
  state.stack = data.stacks.findIndex((stack, at) => stack.stack === name && has(state.lens, at));
  if (state.stack < 0) state.stack = data.stacks.findIndex((_, at) => has(state.lens, at));
  const known = match && data.stacks[state.stack].stack === name && grid()[+match[2]]?.[+match[3]];
  state.head = known ? { layer: +match[2], head: +match[3] } : null;
  state.token = /^\d+$/.test(given.get("token") ?? "") ? +given.get("token") : null;
}

function writeHash(newPage = false) {
  const given = new URLSearchParams();
  if (state.lens) given.set("lens", lens().name);
  if (state.head) given.set("head", address(state.stack, state.head.layer, state.head.head));
  else if (state.stack) given.set("stack", data.stacks[state.stack].stack);
  for (const [option, values] of Object.entries(CHOICES)) {
    if (state[option] !== values[0]) given.set(option, state[option]);
  }
  if (state.head && state.token !== null) given.set("token", state.token);
  try {
    history[newPage ? "pushState" : "replaceState"](null, "", `#${given}`);
  } catch { /* a sandboxed frame in a notebook has no address to keep it in */ }
}

// ---- Maps: unpacked when asked for, the latest ones kept ---------------------------------------------------------

const SQUARES = Float64Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
const SIGNED_SQUARES = Float64Array.from({ length: 256 }, (_, code) => Math.sign(code - 128) * ((code - 128) / 127) ** 2);
const KEPT_BYTES = 96e6;
const unpacked = new Map();
let unpackedBytes = 0;

async function unpack(stackIndex, layer, head) {
  const name = `${state.lens} ${address(stackIndex, layer, head)}`;
  const kept = unpacked.get(name);
  if (kept) {
    unpacked.delete(name);
    unpacked.set(name, kept);
    return kept;
  }
  const stack = data.stacks[stackIndex], squares = lens().signed ? SIGNED_SQUARES : SQUARES;
  const text = atob(grid(stackIndex)[layer][head]);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter();
  writer.write(bytes);
  writer.close();
  const buffer = await new Response(stream.readable).arrayBuffer();
  const rows = stack.query.tokens.length;
  const view = new DataView(buffer);
  const map = {
    top: Float32Array.from({ length: rows }, (_, row) => view.getFloat32(4 * row, true)),
    codes: new Uint8Array(buffer, 4 * rows),
    squares,
  };
  unpacked.set(name, map);
  unpackedBytes += buffer.byteLength;
  for (const [oldest, old] of unpacked) {
    if (unpackedBytes <= KEPT_BYTES) break;
    unpackedBytes -= old.codes.byteLength + 4 * old.top.length;
    unpacked.delete(oldest);
  }
  return map;
}

/** What one axis shows: `of` gives each token's place among the shown units (-1: hidden), `size` its pieces. */
function axis(side, level, special) {
  const words = level === "words";
  const isSpecial = words ? side.word_special : side.special;
  const place = new Map();
  isSpecial.forEach((yes, unit) => { if (special === "show" || !yes) place.set(unit, place.size); });
  const units = [...place.keys()];
  const of = Int32Array.from(side.tokens, (_, token) => place.get(words ? side.unit[token] : token) ?? -1);
  const size = new Uint32Array(units.length);
  for (const at of of) if (at >= 0) size[at] += 1;
  const labels = units.map((unit) => (words ? side.words : side.tokens)[unit]);
  return {
    of, size, labels, units,
    special: units.map((unit) => Boolean(isSpecial[unit])),
    joined: units.map((unit) => !words && unit > 0 && side.unit[unit] === side.unit[unit - 1]),
    first: units.map((_, at) => of.indexOf(at)),
    printed: units.map((_, at) => side.printed.filter((_, token) => of[token] === at).join(" ")),
    rtl: side.rtl,
  };
}

const axesKept = new Map();
function axes(stackIndex) {
  const name = `${stackIndex} ${state.level} ${state.special === "show"}`;
  if (!axesKept.has(name)) {
    const { query, key, self } = data.stacks[stackIndex];
    const rows = axis(query, state.level, state.special);
    axesKept.set(name, { rows, columns: self ? rows : axis(key, state.level, state.special) });
  }
  return axesKept.get(name);
}

/** The numbers on view: sums over the pieces of a key, means over those of a query, then hidden, then renormalised.
 *  `whole` is what a row sums to with all its keys, `left` with those that are shown. */
function viewOf(map, { rows, columns }) {
  const Q = rows.labels.length, K = columns.labels.length, keys = columns.of.length;
  const weights = new Float32Array(Q * K), left = new Float32Array(Q), whole = new Float32Array(Q);
  for (let query = 0; query < rows.of.length; query++) {
    const row = rows.of[query];
    if (row < 0) continue;
    const scale = map.top[query] / rows.size[row], from = query * keys, into = row * K;
    for (let key = 0; key < keys; key++) {
      const column = columns.of[key], weight = map.squares[map.codes[from + key]] * scale;
      whole[row] += weight;
      if (column >= 0) weights[into + column] += weight;
    }
  }
  let largest = 0, total = 0;
  for (let row = 0; row < Q; row++) {
    let sum = 0;
    for (let at = row * K; at < (row + 1) * K; at++) sum += weights[at];
    left[row] = sum;
    const divisor = state.special === "renormalise" && sum > 0 && !lens().signed ? sum : 1;
    for (let at = row * K; at < (row + 1) * K; at++) {
      weights[at] /= divisor;
      total += weights[at];
      if (Math.abs(weights[at]) > largest) largest = Math.abs(weights[at]);
    }
  }
  return { rows, columns, Q, K, weights, left, whole, largest, mean: total / K };
}

/** A weight with the digits it is stored to: two that count, at most four after the point. */
function digits(weight) {
  if (weight === 0) return "0";
  if (weight < 0) return `−${digits(-weight)}`;
  if (!lens().shares) return weight < 0.001 || weight >= 1000 ? weight.toExponential(1).replace("e-", "e−") : weight.toPrecision(weight < 1 ? 2 : 3);
  if (weight < 0.00005) return "< 0.0001";
  return weight >= 0.095 ? weight.toFixed(2) : weight.toFixed(weight >= 0.0095 ? 3 : 4);
}

// ---- Colour: one hue, lightness strictly monotone, so it reads the same for every eye and in grey ----------------

const RAMPS = {
  light: ["#f4f7fa", "#d3e2f1", "#9fc6e4", "#5a9fd0", "#2470b3", "#0d4787", "#08264f"],
  dark: ["#1d242d", "#1c3a5c", "#24568a", "#3a7fbb", "#6aaee0", "#a9d6f5", "#f0f9ff"],
};
const BELOW = {  // for numbers below 0: another hue, the same lightness
  light: ["#f4f7fa", "#f7dfc8", "#efbd90", "#d98a4b", "#b05e1c", "#7d3a0b", "#482005"],
  dark: ["#1d242d", "#4a301c", "#74461f", "#ab692f", "#dd9a58", "#f5cba0", "#fff5ea"],
};
for (const theme of ["light", "dark"]) RAMPS[`${theme} signed`] = [...BELOW[theme].toReversed(), ...RAMPS[theme].slice(1)];
const colours = Object.fromEntries(Object.entries(RAMPS).map(([theme, stops]) => {
  const rgb = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return [theme, Array.from({ length: 256 }, (_, at) => {
    const place = (at / 255) * (rgb.length - 1), low = Math.min(Math.floor(place), rgb.length - 2);
    return rgb[low].map((value, channel) => Math.round(value + (rgb[low + 1][channel] - value) * (place - low)));
  })];
}));
const inked = Object.fromEntries(Object.entries(colours).map(([name, list]) =>
  [name, new Uint32Array(new Uint8Array(list.flatMap((rgb) => [...rgb, 255])).buffer)]));
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => (dark.matches ? "dark" : "light");
const ramp = (of = theme()) => (lens().signed ? `${of} signed` : of);
const zero = () => (lens().signed ? 128 : 0);  // the colour that stands for nothing
const css = (rgb) => `rgb(${rgb.join(" ")})`;

/** From weight to one of the 256 colours. */
function shade(largest) {
  const full = state.range === "head" ? largest || 1 : lens().full, middle = zero(), room = 255 - middle;
  const strength = (weight) => Math.min(1, state.scale === "root" ? Math.sqrt(Math.abs(weight) / full) : Math.abs(weight) / full);
  return (weight) => Math.round(middle + Math.sign(weight) * room * strength(weight));
}

/** Pixels of a map, at most `most` a side; where cells share a pixel, it shows the one farthest from 0. */
function pixels(view, most, ink) {
  const block = Math.max(1, Math.ceil(Math.max(view.Q, view.K) / most));
  const width = Math.ceil(view.K / block), height = Math.ceil(view.Q / block);
  const peaks = block === 1 ? view.weights : new Float32Array(width * height);
  for (let row = 0; block > 1 && row < view.Q; row++) {
    const into = Math.floor(row / block) * width;
    for (let column = 0; column < view.K; column++) {
      const at = into + Math.floor(column / block), weight = view.weights[row * view.K + column];
      if (Math.abs(weight) > Math.abs(peaks[at])) peaks[at] = weight;
    }
  }
  const image = new ImageData(width, height), cells = new Uint32Array(image.data.buffer), colourOf = shade(view.largest);
  for (let at = 0; at < cells.length; at++) cells[at] = ink[colourOf(peaks[at])];
  return image;
}

function paint(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawLegend() {
  const strip = $("legend").querySelector("canvas");
  const image = new ImageData(256, 1);
  new Uint32Array(image.data.buffer).set(inked[ramp()]);
  paint(strip, image);
  const texts = legendTexts(state.range === "head" && current ? current.largest : null);
  $("legend").querySelectorAll("span").forEach((span, at) => { span.textContent = texts[at]; });
  $("legend").setAttribute("aria-label", `colour scale, ${texts.join(", ")}`);
}

function legendTexts(full) {
  const { signed, shares } = lens();
  if (state.range === "head" && full === null) return signed ? ["−largest", "", "0", "", "largest"] : ["0", "", state.scale === "root" ? "¼" : "½", "", "largest"];
  full ??= lens().full;
  if (signed) return [digits(-full), "", "0", "", digits(full)];
  if (!shares) return ["0", "", digits(full * (state.scale === "root" ? 0.25 : 0.5)), "", digits(full)];
  return [0, 0.25, 0.5, 0.75, 1].map((t) => {
    if (full !== 1 && (t === 0.25 || t === 0.75)) return "";  // longer numbers, less room
    const weight = (state.scale === "root" ? t * t : t) * full;
    return weight === 0 || weight === 1 ? String(weight) : weight < 0.0095 ? weight.toFixed(4) : weight.toFixed(weight < 0.055 ? 3 : 2);
  });
}

// ---- Overview ----------------------------------------------------------------------------------------------------

let thumbs = [];          // [layer][head] → button
let overviewOf = null;    // the lens and the stack the thumbnails belong to
let overviewRun = 0;      // a newer run stops an older one
const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

function buildOverview() {
  if (overviewOf === `${state.lens} ${state.stack}`) return;
  overviewOf = `${state.lens} ${state.stack}`;
  overviewRun += 1;
  overviewState = "";
  const maps = grid(), { forms, layers } = lens(), holder = $("overview");
  const across = forms ? maps.map((_, layer) => (layers ? layers[layer] : String(layer))) : maps[0].map((_, head) => String(head));
  const down = forms ? (forms.length > 1 ? forms : [""]) : maps.map((_, layer) => String(layer));
  holder.style.setProperty("--heads", across.length);
  holder.dataset.kind = forms ? "tokens" : "heads";
  holder.setAttribute("aria-label", forms ? "all maps" : "all heads");
  holder.replaceChildren(make("span", "label corner", forms ? "layer →" : "layer ↓ head →"), ...across.map((label) => make("span", "label", label)));
  thumbs = maps.map((row, layer) => row.map((packed, head) => thumb(packed, layer, head)));
  down.forEach((label, at) => {
    holder.append(make("span", "label layer", label), ...(forms ? thumbs.map((row) => row[at]) : thumbs[at]));
  });
  const first = holder.querySelector(".thumb:not(:disabled)");
  if (first) first.tabIndex = 0;
}

function thumb(packed, layer, head) {
  const button = make("button", "thumb"), name = nameOf(layer, head);
  button.type = "button";
  button.title = packed === null ? `${name} was cut` : name;
  button.setAttribute("aria-label", button.title);
  button.disabled = packed === null;
  button.tabIndex = -1;
  button.append(make("canvas"));
  button.addEventListener("click", () => open(layer, head));
  button.addEventListener("keydown", (event) => moveFocus(event, layer, head));
  return button;
}

function moveFocus(event, layer, head) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (!step) return;
  event.preventDefault();
  if (lens().forms) step.reverse();  // there the layers run across
  let goal;
  do {
    layer += step[0];
    head += step[1];
    goal = thumbs[layer]?.[head];
  } while (goal?.disabled);
  if (!goal) return;
  grabTab(goal);
  goal.focus();
}

function grabTab(goal) {
  for (const button of thumbs.flat()) button.tabIndex = button === goal ? 0 : -1;
}

async function drawOverview() {
  const run = ++overviewRun;
  if (!$("overview").checkVisibility()) return;
  const stack = state.stack, shown = axes(stack), ink = inked[ramp()];
  let rested = performance.now();
  for (const [layer, row] of thumbs.entries()) {
    const maps = row.map((button, head) => (button.disabled ? null : unpack(stack, layer, head)));  // all under way at once
    for (const [head, button] of row.entries()) {
      if (button.disabled) continue;
      const map = await maps[head];
      if (run !== overviewRun) return;
      paint(button.firstChild, pixels(viewOf(map, shown), 96, ink));
      button.firstChild.className = button.firstChild.width > 60 ? "fine" : button.firstChild.width > 22 ? "middle" : "";
      if (performance.now() - rested > 14) {
        await pause();
        rested = performance.now();
      }
    }
  }
  document.documentElement.dataset.drawn = overviewState;  // says to whoever waits: all thumbnails are there
}

// ---- One head ----------------------------------------------------------------------------------------------------

let current = null;   // the view of the enlarged head
let cell = null;      // {row, column} under the pointer or the arrow keys
let hovered = null;   // a place on the source axis, while the pointer is over the text
let headRun = 0;

function open(layer, head) {
  state.head = { layer, head };
  writeHash(true);
  show();
}

function step(by) {
  const every = thumbs.flatMap((row, layer) => row.map((button, head) => ({ layer, head, button }))).filter((it) => !it.button.disabled);
  const at = every.findIndex((it) => it.layer === state.head.layer && it.head === state.head.head);
  const { layer, head } = every[(at + by + every.length) % every.length];
  open(layer, head);
}

async function drawHead() {
  const run = ++headRun;
  const { layer, head } = state.head;
  const map = await unpack(state.stack, layer, head);
  if (run !== headRun) return;
  current = viewOf(map, axes(state.stack));
  cell = hovered = null;
  $("tip").hidden = true;
  $("name").textContent = nameOf(layer, head);
  $("caption").textContent = caption();
  heat = null;
  layout();
  buildTexts();
  drawReading();
  drawLegend();
  document.documentElement.dataset.head = caption();  // and here: the enlarged head is
}

function caption() {
  const special = { show: "special tokens shown", hide: "special tokens hidden", renormalise: `special tokens hidden${lens().signed ? "" : ", renormalised"}` };
  const anySpecial = [data.stacks[state.stack].query, data.stacks[state.stack].key].some((side) => side.special.some(Boolean));
  return [
    nameOf(state.head.layer, state.head.head),
    ...(data.lenses.length > 1 && !lens().forms ? [lens().name] : []),
    state.level,
    anySpecial ? special[state.special] : "no special tokens",
    `colour: ${state.scale === "root" ? "square root" : "linear"}, ${scaleText()}`,
  ].join(" · ");
}

function scaleText() {
  const full = state.range === "one" ? (lens().shares ? "1" : digits(lens().full)) : digits(current.largest);
  return `${lens().signed ? `−${full}` : "0"}\u00a0to\u00a0${full}`;
}

// Geometry is shared by the screen, PNG and SVG: marks are computed once and drawn by either.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif';
const ruler = document.createElement("canvas").getContext("2d");
const LONGEST = 132, PITCH = 9.5, TITLE = 20;

const shortened = new Map();
function shorten(text, size, most) {
  const name = `${size} ${text}`;
  if (!shortened.has(name)) shortened.set(name, cut(text, size, most));
  return shortened.get(name);
}

function cut(text, size, most) {
  ruler.font = `${size}px ${FONT}`;
  if (ruler.measureText(text).width <= most) return text;
  const characters = [...text];
  while (characters.length > 1 && ruler.measureText(`${characters.join("")}…`).width > most) characters.pop();
  return `${characters.join("")}…`;
}

function geometry(view, size) {
  const font = clamp(size - 0.5, 9.5, 13);
  ruler.font = `${font}px ${FONT}`;
  const longest = (labels) => Math.min(LONGEST, Math.max(...labels.map((label) => ruler.measureText(label).width)));
  const slanted = size >= 17;
  const wide = longest(view.columns.labels);
  return {
    size, font, slanted,
    step: Math.max(1, Math.ceil(PITCH / size)),
    left: Math.ceil(longest(view.rows.labels)) + TITLE + 8,
    top: Math.ceil(slanted ? wide * 0.72 + font : wide) + TITLE + 8,
    right: Math.ceil(slanted ? wide * 0.72 + 4 : 2),
    width: view.K * size,
    height: view.Q * size,
  };
}

/** The words around a map: axis titles and token labels, for the part of it that is seen. */
function marks(view, geo, { x = 0, y = 0, width = geo.width, height = geo.height } = {}, lit = null) {
  const { size, font, left, top } = geo, found = [];
  found.push({ kind: "title", x: left, y: 13, text: lens().forms ? "to: what is drawn on (key)" : "to: what is attended to (key)", anchor: "start" });
  found.push({ kind: "title", x: 12, y: top, text: lens().forms ? "from: what draws on it (query)" : "from: what attends (query)", anchor: "end", turn: -90 });
  const label = (axisShown, at, lies) => {
    const chosen = lies === lit?.[axisShown];
    return {
      kind: chosen ? "lit" : view[axisShown].special[lies] ? "special" : "label", size: font,
      text: shorten(view[axisShown].labels[lies], font, LONGEST),
      ...(axisShown === "rows"
        ? { x: left - 7, y: top + at, anchor: "end", middle: true }
        : geo.slanted
          ? { x: left + at, y: top - 7, anchor: "start", turn: -45 }
          : { x: left + at, y: top - 6, anchor: "start", turn: -90, middle: true }),
    };
  };
  for (const [axisShown, offset, extent] of [["rows", y, height], ["columns", x, width]]) {
    const count = axisShown === "rows" ? view.Q : view.K;
    const last = lit?.[axisShown] ?? null;
    for (let lies = 0; lies < count; lies++) {
      const at = (lies + 0.5) * size - offset;
      if (at < 0 || at > extent) continue;
      const crowded = last !== null && lies !== last && Math.abs(lies - last) * size < PITCH;
      if (lies === last || (lies % geo.step === 0 && !crowded)) found.push(label(axisShown, at, lies));
    }
  }
  return found;
}

const INK = {
  light: { label: "#1d2329", special: "#7a858f", lit: "#0d4787", title: "#7a858f", paper: "#ffffff" },
  dark: { label: "#dfe4e8", special: "#8a95a0", lit: "#a9d6f5", title: "#8a95a0", paper: "#13171c" },
};

function write(context, mark, ink) {
  context.save();
  context.translate(mark.x, mark.y);
  if (mark.turn) context.rotate((mark.turn * Math.PI) / 180);
  context.font = `${mark.kind === "lit" ? "650 " : ""}${mark.size ?? 12}px ${FONT}`;
  context.textAlign = { start: "left", middle: "center", end: "right" }[mark.anchor];
  context.textBaseline = mark.middle ? "middle" : "alphabetic";
  context.fillStyle = ink[mark.kind];
  context.fillText(mark.text, 0, 0);
  context.restore();
}

function heatOf(view, ink) {
  const canvas = document.createElement("canvas");
  paint(canvas, pixels(view, 4096, ink));
  return canvas;
}

/** Draw a part of a map with its labels; `part` is in map pixels. */
function drawMap(context, view, geo, image, ink, part, lit = null) {
  const { left, top, size } = geo;
  context.imageSmoothingEnabled = false;
  context.save();
  context.beginPath();
  context.rect(left, top, part.width, part.height);
  context.clip();
  context.drawImage(image, left - part.x, top - part.y, geo.width, geo.height);
  if (size >= 9) {
    context.fillStyle = ink.paper;
    for (let row = 1; row < view.Q; row++) context.fillRect(left, top + row * size - part.y - 0.5, part.width, 1);
    for (let column = 1; column < view.K; column++) context.fillRect(left + column * size - part.x - 0.5, top, 1, part.height);
  }
  if (lit) {
    const y = top + (lit.rows ?? 0) * size - part.y, x = left + (lit.columns ?? 0) * size - part.x;
    const wide = Math.min(geo.width - part.x, part.width), tall = Math.min(geo.height - part.y, part.height);
    context.strokeStyle = context.fillStyle = ink.lit;
    context.lineWidth = 1.25;
    if (size < 6) {  // two edges would hide what they frame
      context.globalAlpha = 0.3;
      if (lit.rows !== null) context.fillRect(left, y, wide, size);
      if (lit.columns !== null) context.fillRect(x, top, size, tall);
    } else {
      if (lit.rows !== null) context.strokeRect(left + 0.5, y, wide - 1, size);
      if (lit.columns !== null) context.strokeRect(x, top + 0.5, size, tall - 1);
    }
  }
  context.restore();
  for (const mark of marks(view, geo, part, lit)) write(context, mark, ink);
}

let geo = null, heat = null, asked = false;

function layout() {
  if (!current) return;
  const scroller = $("scroller"), canvas = $("map");
  const room = scroller.parentElement.clientWidth;
  const tall = Math.max(420, innerHeight - 270, room * 0.6);
  let size = 44;
  for (let tries = 0; tries < 3; tries++) {  // the labels' room depends on the cell, and the cell on it
    const trial = geometry(current, size);
    size = Math.min((room - trial.left - trial.right) / current.K, (tall - trial.top) / current.Q);
    size = clamp(size, Math.max(current.Q, current.K) <= 64 ? PITCH : 1, 44);
  }
  if (state.zoom) size = clamp(size * state.zoom, 1, 60);
  const grain = devicePixelRatio || 1;
  if (size >= 4) size = Math.floor(size * grain) / grain;
  geo = geometry(current, size);
  const width = Math.min(room, geo.left + geo.width + geo.right), height = Math.min(tall, geo.top + geo.height + 2);
  scroller.style.height = `${Math.ceil(height)}px`;
  const spills = geo.left + geo.width + geo.right > room + 1 || geo.top + geo.height + 2 > height + 1;
  scroller.style.overflow = spills ? "auto" : "hidden";
  $("spacer").style.width = `${spills ? geo.left + geo.width + geo.right : 0}px`;
  $("spacer").style.height = `${spills ? geo.top + geo.height + 2 - scroller.clientHeight : 0}px`;
  const seen = { width: Math.min(width, scroller.clientWidth), height: Math.min(Math.ceil(height), scroller.clientHeight) };
  canvas.width = Math.round(seen.width * grain);
  canvas.height = Math.round(seen.height * grain);
  canvas.style.width = `${seen.width}px`;
  canvas.style.height = `${seen.height}px`;
  redraw();
}

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!current || !geo) return;
    heat ??= heatOf(current, inked[ramp()]);
    const canvas = $("map"), context = canvas.getContext("2d"), grain = devicePixelRatio || 1;
    context.setTransform(grain, 0, 0, grain, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    drawMap(context, current, geo, heat, { ...INK[theme()], paper: getComputedStyle(document.documentElement).getPropertyValue("--paper") }, part(), litAxes());
  });
}

function part() {
  const canvas = $("map"), scroller = $("scroller");
  return {
    x: scroller.scrollLeft, y: scroller.scrollTop,
    width: Math.min(geo.width, parseFloat(canvas.style.width) - geo.left), height: Math.min(geo.height, parseFloat(canvas.style.height) - geo.top),
  };
}

function litAxes() {
  if (cell) return { rows: cell.row, columns: cell.column };
  const source = sourcePlace();
  if (source === null) return null;
  return state.direction === "to" ? { rows: source, columns: null } : { rows: null, columns: source };
}

function cellAt(event) {
  const box = $("map").getBoundingClientRect(), seen = part();
  const x = event.clientX - box.left - geo.left, y = event.clientY - box.top - geo.top;
  if (x >= seen.width || y >= seen.height) return null;
  const row = y < 0 ? null : Math.floor((y + seen.y) / geo.size), column = x < 0 ? null : Math.floor((x + seen.x) / geo.size);
  if (row === null || column === null || row >= current.Q || column >= current.K) return null;
  return { row, column };
}

function showCell(next, x, y) {
  cell = next;
  const tip = $("tip");
  tip.hidden = cell === null;
  if (cell) {
    tip.querySelector(".pair").textContent = `${isolated(current.rows.labels[cell.row])} → ${isolated(current.columns.labels[cell.column])}`;
    tip.querySelector("b").textContent = digits(current.weights[cell.row * current.K + cell.column]);
    const box = tip.getBoundingClientRect();
    tip.style.left = `${x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
  }
  redraw();
  shadeTexts();
}

/** Right-to-left text stays on its side of the arrow. */
const isolated = (text) => `\u2068${text}\u2069`;

function moveCell(event) {
  const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (event.key === "Enter" && cell) return pin(cell);
  if (!by || !current) return;
  event.preventDefault();
  const row = clamp((cell?.row ?? -by[0]) + by[0], 0, current.Q - 1), column = clamp((cell?.column ?? -by[1]) + by[1], 0, current.K - 1);
  const scroller = $("scroller"), seen = part();
  scroller.scrollTo(
    clamp(scroller.scrollLeft, (column + 1) * geo.size - seen.width, column * geo.size),
    clamp(scroller.scrollTop, (row + 1) * geo.size - seen.height, row * geo.size),
  );
  const box = $("map").getBoundingClientRect();
  showCell({ row, column }, box.left + geo.left + (column + 0.5) * geo.size - scroller.scrollLeft, box.top + geo.top + (row + 0.5) * geo.size - scroller.scrollTop);
}

function pin({ row, column }) {
  const axisShown = state.direction === "to" ? current.rows : current.columns;
  state.token = axisShown.first[state.direction === "to" ? row : column];
  writeHash();
  drawReading();
}

// ---- The text beside the map -------------------------------------------------------------------------------------

let spans = { rows: [], columns: [] };

const sourceAxis = () => (state.direction === "to" ? current.rows : current.columns);
const targetAxis = () => (state.direction === "to" ? current.columns : current.rows);

/** The unit whose weights the text shows: under the pointer, else the chosen one, else the first that is a word. */
function sourcePlace() {
  if (cell) return state.direction === "to" ? cell.row : cell.column;
  if (hovered !== null) return hovered;
  const axisShown = sourceAxis();
  const chosen = state.token === null ? -1 : axisShown.of[state.token] ?? -1;
  if (chosen >= 0) return chosen;
  return axisShown.labels.length ? Math.max(0, axisShown.special.indexOf(false)) : null;
}

function buildTexts() {
  const { self } = data.stacks[state.stack], holder = $("texts");
  holder.replaceChildren();
  const block = (axisName, title) => {
    const box = make("div", "side"), flow = make("div", "flow"), shown = current[axisName];
    if (title) box.append(make("h3", "", title));
    flow.dir = shown.rtl ? "rtl" : "ltr";
    spans[axisName] = shown.labels.map((label, at) => {
      const continues = shown.joined[at];
      const span = make("span", "unit", continues ? label.replace(/^(##|·)/, "") || label : label);
      span.classList.toggle("special", shown.special[at]);
      span.classList.toggle("joined", continues);
      span.dir = "auto";
      span.title = shown.printed[at];
      span.dataset.place = at;
      flow.append(span);
      return span;
    });
    flow.dataset.axis = axisName;
    box.append(flow);
    flow.classList.toggle("fixed", !self && (axisName === "rows") !== (state.direction === "to"));
    holder.append(box);
  };
  if (self) {
    block("rows", "");
    spans.columns = spans.rows;
  } else {
    block("rows", "from (query)");
    block("columns", "to (key)");
  }
}

function weightsFrom(source) {
  const { Q, K, weights } = current;
  if (state.direction === "to") return weights.subarray(source * K, (source + 1) * K);
  return Float32Array.from({ length: Q }, (_, row) => weights[row * K + source]);
}

function shadeTexts() {
  const source = sourcePlace(), palette = colours[ramp()], nothing = zero();
  const self = data.stacks[state.stack].self;
  const sources = state.direction === "to" ? spans.rows : spans.columns, targets = state.direction === "to" ? spans.columns : spans.rows;
  for (const span of self ? sources : [...sources, ...targets]) {
    span.style.background = span.style.color = "";
    span.classList.remove("source");
  }
  $("asked").replaceChildren();
  const body = $("ranking").tBodies[0];
  if (source === null) {
    $("asked").textContent = "Nothing but special tokens here: show them to see where they attend.";
    body.replaceChildren();
    $("remark").textContent = "";
    return;
  }
  const weights = weightsFrom(source), colourOf = shade(current.largest);
  weights.forEach((weight, at) => {
    const colour = colourOf(weight);
    if (colour === nothing) return;
    const strength = (Math.abs(colour - nothing) * 255) / (255 - nothing);
    targets[at].style.background = css(palette[colour]);
    targets[at].style.color = theme() === "light" ? (strength > 130 ? "#fff" : "#1d2329") : (strength > 150 ? "#0c1218" : "#e4e8ec");
  });
  sources[source].classList.add("source");
  if (cell) reveal(sources[source]);

  const name = make("b", "", isolated(sourceAxis().labels[source]));
  const verb = lens().forms ? "draws on" : "attends to";
  if (state.direction === "to") $("asked").append(name, ` ${verb}`);
  else $("asked").append(`Who ${verb} `, name, "?");

  const size = (at) => Math.abs(weights[at]);
  const order = Array.from(weights.keys()).sort((a, b) => size(b) - size(a)).slice(0, 8).filter((at) => size(at) > 0);
  while (body.rows.length > order.length) body.deleteRow(-1);
  while (body.rows.length < order.length) {
    const row = body.insertRow();
    row.insertCell().dir = "auto";
    row.insertCell();
    row.insertCell().append(make("i"));
    row.insertCell();
  }
  order.forEach((at, place) => {
    const [label, position, bar, number] = body.rows[place].cells;
    label.textContent = targetAxis().labels[at];
    position.textContent = String(targetAxis().units[at]);
    bar.firstChild.style.width = `${(100 * size(at)) / size(order[0])}%`;
    bar.firstChild.className = weights[at] < 0 ? "below" : "";
    number.textContent = digits(weights[at]);
  });
  $("remark").textContent = remark(source, weights);
}

/** Bring a word of a long text into its box, without moving the page. */
function reveal(span) {
  const flow = span.parentElement, box = flow.getBoundingClientRect(), word = span.getBoundingClientRect();
  if (word.top < box.top || word.bottom > box.bottom) flow.scrollTop += word.top - box.top - box.height / 2;
}

function remark(source, weights) {
  const percent = (share) => (share > 0 && share < 0.005 ? "less than 1 %" : `${Math.round(100 * share)} %`);
  const { shares, signed, forms } = lens(), sumText = (sum) => (shares ? sum.toFixed(2) : digits(sum));
  if (state.direction === "by") {
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return `Together ${sumText(sum)}, from ${weights.length} ${state.level}; on average a ${state.level.slice(0, -1)} gets ${sumText(current.mean)}.`;
  }
  const whole = current.whole[source], left = current.left[source];
  const isOne = shares && Math.abs(whole - 1) < 0.02;  // what rounding leaves of a row that sums to 1
  const sum = isOne ? "" : `Its row sums to ${sumText(whole)}. `;
  if (state.special === "show") return sum.trim();
  if (signed) return `${sum}Special tokens, which are hidden, have ${sumText(whole - left)} of it.`;
  const gone = clamp(1 - left / (isOne ? 1 : whole || 1), 0, 1), what = forms ? "what it draws on" : "its attention";
  const goes = forms ? "is special tokens" : "goes to special tokens";
  if (state.special === "hide") return `${sum}${percent(gone)} of ${what} ${goes}, which are hidden.`;
  if (left === 0) return `All of ${what} ${goes}; nothing is left to renormalise.`;
  return `${sum}${percent(gone)} of ${what} ${goes}; the rest, ${percent(1 - gone)}, is stretched to 1` +
    (gone > 0.9 ? ", and its rounding with it." : ".");
}

function drawReading() {
  shadeTexts();
  redraw();
}

// ---- Export ------------------------------------------------------------------------------------------------------

function download(blob, ending) {
  const link = make("a"), url = URL.createObjectURL(blob);
  const special = { show: "", hide: "-hidden", renormalise: "-renormalised" }[state.special];
  link.href = url;
  const through = data.lenses.length > 1 ? `-${lens().name}` : "";
  link.download = `${address(state.stack, state.head.layer, state.head.head)}${through}-${state.level}${special}.${ending}`;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const FOOT = 58;
function picture() {
  const drawn = geometry(current, clamp(Math.floor(1700 / Math.max(current.Q, current.K)), 3, 26));
  ruler.font = `12px ${FONT}`;
  const line = `${data.model} · ${caption()}`;
  const needed = Math.max(drawn.left + drawn.width + drawn.right, ruler.measureText(line).width + 24, drawn.left + 250);
  return { drawn, line, width: Math.ceil(needed) + 10, height: drawn.top + drawn.height + FOOT };
}

function foot(line, height) {
  const texts = legendTexts(state.range === "head" ? current.largest : null);
  return [
    { kind: "title", x: 12, y: height - 10, text: line, anchor: "start" },
    { kind: "title", size: 10, x: 12, y: height - 38, text: texts[0], anchor: "start" },
    { kind: "title", size: 10, x: 92, y: height - 38, text: texts[2], anchor: "middle" },
    { kind: "title", size: 10, x: 172, y: height - 38, text: texts[4], anchor: "end" },
  ];
}

function savePng() {
  const { drawn, line, width, height } = picture(), canvas = document.createElement("canvas"), grain = 2;
  canvas.width = width * grain;
  canvas.height = height * grain;
  const context = canvas.getContext("2d");
  context.scale(grain, grain);
  context.fillStyle = INK.light.paper;
  context.fillRect(0, 0, width, height);
  drawMap(context, current, drawn, heatOf(current, inked[ramp("light")]), INK.light, { x: 0, y: 0, width: drawn.width, height: drawn.height });
  colours[ramp("light")].forEach((rgb, at) => {
    context.fillStyle = css(rgb);
    context.fillRect(12 + (at * 160) / 256, height - 33, 1, 8);
  });
  for (const mark of foot(line, height)) write(context, mark, INK.light);
  canvas.toBlob((blob) => download(blob, "png"), "image/png");
}

function saveSvg() {
  const { drawn, line, width, height } = picture();
  const tag = (name, attributes, text = null) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [attribute, value] of Object.entries(attributes)) node.setAttribute(attribute, value);
    if (text !== null) node.textContent = text;
    return node;
  };
  const hex = (rgb) => `#${rgb.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
  const svg = tag("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
  svg.append(tag("title", {}, line), tag("rect", { width, height, fill: INK.light.paper }));
  const { left, top, size } = drawn;
  if (current.Q * current.K <= 20000) {
    const gap = size >= 9 ? 1 : 0, colourOf = shade(current.largest), palette = colours[ramp("light")], nothing = zero();
    const cells = tag("g", { "shape-rendering": "crispEdges" });
    cells.append(tag("rect", { x: left, y: top, width: drawn.width, height: drawn.height, fill: hex(palette[nothing]) }));
    current.weights.forEach((weight, at) => {
      const colour = colourOf(weight);
      if (colour === nothing) return;
      const x = left + (at % current.K) * size, y = top + Math.floor(at / current.K) * size;
      cells.append(tag("rect", { x, y, width: size - gap, height: size - gap, fill: hex(palette[colour]) }));
    });
    svg.append(cells);
  } else {  // too many cells for one shape each: the map as a picture, the words still as words
    svg.append(tag("image", {
      x: left, y: top, width: drawn.width, height: drawn.height, preserveAspectRatio: "none",
      href: heatOf(current, inked[ramp("light")]).toDataURL("image/png"), "image-rendering": "pixelated",
    }));
  }
  for (let at = 0; at < 256; at += 4) {
    svg.append(tag("rect", { x: 12 + (at * 160) / 256, y: height - 33, width: 3, height: 8, fill: hex(colours[ramp("light")][at]) }));
  }
  for (const mark of [...marks(current, drawn), ...foot(line, height)]) {
    const attributes = { fill: INK.light[mark.kind], "font-size": mark.size ?? 12, "text-anchor": mark.anchor };
    if (mark.middle) attributes["dominant-baseline"] = "central";
    attributes.transform = `translate(${mark.x} ${mark.y})${mark.turn ? ` rotate(${mark.turn})` : ""}`;
    svg.append(tag("text", attributes, mark.text));
  }
  const text = new XMLSerializer().serializeToString(svg);
  download(new Blob([text], { type: "image/svg+xml" }), "svg");
}

/** One field of a table; text that a spreadsheet would take for a formula is marked as text by an apostrophe. */
function field(text) {
  const safe = text.length > 1 && /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function saveCsv() {
  const lines = ["query,query_text,key,key_text,weight"];
  const from = current.rows.labels.map((label, at) => `${current.rows.units[at]},${field(label)}`);
  const to = current.columns.labels.map((label, at) => `${current.columns.units[at]},${field(label)}`);
  for (let row = 0; row < current.Q; row++) {
    for (let column = 0; column < current.K; column++) {
      lines.push(`${from[row]},${to[column]},${Number(current.weights[row * current.K + column].toPrecision(3))}`);
    }
  }
  download(new Blob([`${lines.join("\n")}\n`], { type: "text/csv;charset=utf-8" }), "csv");
}

// ---- Everything together -----------------------------------------------------------------------------------------

function show() {
  const open = state.head !== null;
  const stack = data.stacks[state.stack];
  $("main").dataset.view = open ? "head" : "overview";
  $("head").hidden = !open;
  for (const [option, values] of Object.entries(CHOICES)) {
    for (const value of values) document.querySelector(`input[name="${option}"][value="${value}"]`).checked = state[option] === value;
  }
  document.querySelector('[data-option="special"]').disabled = ![stack.query, stack.key].some((side) => side.special.some(Boolean));
  document.querySelector('input[name="special"][value="renormalise"]').disabled = lens().signed;
  document.querySelector('input[name="range"][value="one"] + span').textContent = lens().shares ? "1" : "Largest";
  document.querySelector('input[name="range"][value="head"] + span').textContent = lens().forms ? "Map’s largest" : "Head’s largest";
  [...$("stacks").children].forEach((tab, at) => {
    tab.setAttribute("aria-pressed", String(at === state.stack));
    tab.disabled = !has(state.lens, at);
  });
  const verb = lens().forms ? ["What it draws on", "What draws on it"] : ["What it attends to", "What attends to it"];
  document.querySelectorAll('input[name="direction"] + span').forEach((span, at) => { span.textContent = verb[at]; });
  $("lens").value = lens().name;
  $("how").textContent = lens().how;
  $("how").hidden = !lens().how;
  $("close").textContent = lens().forms ? "← All maps" : "← All heads";
  buildOverview();
  for (const button of thumbs.flat()) button.removeAttribute("aria-current");
  if (open) {
    const button = thumbs[state.head.layer][state.head.head];
    button.setAttribute("aria-current", "true");
    grabTab(button);
    $("help").open = false;
    drawHead().then(drawOverviewIfStale);
  } else {
    current = null;
    $("tip").hidden = true;
    drawLegend();
    drawOverviewIfStale();
  }
}

let overviewState = "";
function drawOverviewIfStale() {
  const now = [state.lens, state.stack, state.level, state.special, state.scale, state.range, theme()].join(" ");
  if (!$("overview").checkVisibility() || now === overviewState) return;
  overviewState = now;
  drawOverview();
}

let parked = null;  // the head that was open when a lens without heads was chosen

/** Another lens on the same place: the same layer, and the same head where the lens has heads. */
function change(to) {
  const headed = lens().forms === null;
  state.lens = to;
  if (!has(to, state.stack)) Object.assign(state, { stack: data.stacks.findIndex((_, at) => has(to, at)), token: null });
  if (state.head) {
    if (headed) parked = state.head;
    const wanted = lens().forms === null && parked ? { layer: state.head.layer, head: parked.head } : state.head;
    const row = grid()[wanted.layer];
    state.head = row?.[wanted.head] ? wanted : row?.[0] ? { layer: wanted.layer, head: 0 } : grid()[0][0] ? { layer: 0, head: 0 } : null;
  }
  writeHash();
  show();
}

function start() {
  for (const { name } of data.lenses) $("lens").append(new Option(name, name));
  $("lens").parentElement.hidden = data.lenses.length === 1;
  $("lens").addEventListener("change", (event) => change(data.lenses.findIndex(({ name }) => name === event.target.value)));
  if (data.stacks.length > 1) {
    data.stacks.forEach((stack, at) => {
      const tab = make("button", "", stack.stack);
      tab.type = "button";
      tab.addEventListener("click", () => {
        Object.assign(state, { stack: at, head: null, token: null });
        writeHash(true);
        show();
      });
      $("stacks").append(tab);
    });
  } else {
    $("stacks").hidden = true;
  }
  document.addEventListener("change", (event) => {
    if (!(event.target.name in CHOICES)) return;
    const swap = event.target.name === "direction" && !data.stacks[state.stack].self;
    state[event.target.name] = event.target.value;
    if (swap) state.token = null;  // the other side is another text
    writeHash();
    show();
  });
  const map = $("map");
  map.addEventListener("pointermove", (event) => showCell(cellAt(event), event.clientX, event.clientY));
  map.addEventListener("pointerleave", () => showCell(null, 0, 0));
  map.addEventListener("blur", () => showCell(null, 0, 0));
  map.addEventListener("click", (event) => { const at = cellAt(event); if (at) pin(at); });
  map.addEventListener("keydown", moveCell);
  $("scroller").addEventListener("scroll", redraw, { passive: true });

  const placeOf = (event) => {
    const span = event.target.closest?.(".unit"), isSource = data.stacks[state.stack].self ||
      span?.parentElement.dataset.axis === (state.direction === "to" ? "rows" : "columns");
    return span && isSource ? Number(span.dataset.place) : null;
  };
  $("texts").addEventListener("pointerover", (event) => { hovered = placeOf(event); drawReading(); });
  $("texts").addEventListener("pointerleave", () => { hovered = null; drawReading(); });
  $("texts").addEventListener("click", (event) => {
    const place = placeOf(event);
    if (place === null) return;
    state.token = sourceAxis().first[place];
    writeHash();
    drawReading();
  });

  const zoom = (by) => {
    const scroller = $("scroller"), before = geo.size, seen = part();
    const middle = [seen.x + seen.width / 2, seen.y + seen.height / 2];
    state.zoom = by === null ? null : clamp((state.zoom ?? 1) * by, 0.5, 40);
    layout();
    const [x, y] = middle.map((at) => (at * geo.size) / before), now = part();
    scroller.scrollTo(x - now.width / 2, y - now.height / 2);
  };
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("fit").addEventListener("click", () => zoom(null));
  $("close").addEventListener("click", () => { state.head = null; writeHash(true); show(); });
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("png").addEventListener("click", savePng);
  $("svg").addEventListener("click", saveSvg);
  $("csv").addEventListener("click", saveCsv);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.head) $("close").click();
  });
  const again = () => { readHash(); show(); };
  addEventListener("popstate", again);
  addEventListener("hashchange", again);
  addEventListener("resize", () => { layout(); drawOverviewIfStale(); });
  dark.addEventListener("change", () => { if (current) { heat = null; drawReading(); } drawLegend(); drawOverviewIfStale(); });
  readHash();
  show();
}

if (typeof DecompressionStream === "undefined") {
  $("overview").append(make("p", "remark", "This browser cannot unpack the maps. Any browser of 2023 or later can."));
} else {
  start();
}
})();
