// The text next to the open map: what a token attends to, or which tokens attend to it, and the largest weights as numbers.

import { css, inkOn, shade } from "./colour.js";
import { $, clamp, digits, isolated, make } from "./dom.js";
import { hold, isResting } from "./pointer.js";
import { change, state } from "./state.js";

/** @typedef {import("./types.js").View} View */

const RANKED = 8;

/** @typedef {{model: string, view: View}} ModelView  a view, and the name of its model */

/** @type {View | null} */
let view = null;
/** @type {ModelView[]} the view of each displayed model; the text shows the first */
let shownViews = [];
/** @type {{rows: HTMLElement[], columns: HTMLElement[]}} */
let spans = { rows: [], columns: [] };
/** @type {number | null} index on the source axis of the token under the pointer */
let hovered = null;
/** @type {import("./map_pane.js").Cell | null} */
let cell = null;

const isTo = () => state.direction === "to";
const source = () => /** @type {View} */ (view)[isTo() ? "rows" : "columns"];

/** The index of the token or word whose weights are shown: the one under the pointer, else the selected one, else the first that is not special. */
function sourcePlace() {
  if (!view) return null;
  if (cell) return isTo() ? cell.row : cell.column;
  if (hovered !== null) return hovered;
  const axis = source(), chosen = state.token === null ? -1 : axis.of[state.token] ?? -1;
  if (chosen >= 0) return chosen;
  return axis.labels.length ? Math.max(0, axis.special.indexOf(false)) : null;
}

/** The row and column to highlight in the map. @returns {import("./map.js").Lit | null} */
export function lit() {
  if (cell) return { rows: cell.row, columns: cell.column };
  const place = sourcePlace();
  if (place === null) return null;
  return isTo() ? { rows: place, columns: null } : { rows: null, columns: place };
}

/** @param {ModelView[]} next */
export function showReading(next) {
  hold();
  shownViews = next;
  view = next[0]?.view ?? null;
  hovered = cell = null;
  $("texts").replaceChildren();
  if (!view) {
    $("rankings").replaceChildren();
    $("asked").textContent = $("remark").textContent = "";
    return;
  }
  $("rankings").replaceChildren(...shownViews.map(({ model }, at) => rankingOf(shownViews.length > 1 ? model : "", at)));
  spans.rows = block(view.rows, "rows", view.self ? "" : "from (queries)");
  spans.columns = view.self ? spans.rows : block(view.columns, "columns", "to (keys)");
  shadeTexts();
}

/** @param {import("./types.js").Axis} axis @param {"rows" | "columns"} name @param {string} title */
function block(axis, name, title) {
  const box = make("div", "side"), flow = make("div", "flow");
  if (title) box.append(make("h3", "", title));
  flow.dir = axis.rtl ? "rtl" : "ltr";
  flow.dataset.axis = name;
  const units = axis.labels.map((label, at) => {
    const continues = axis.joined[at], span = make("span", "unit", continues ? label.replace(/^(##|·)/, "") || label : label);
    span.classList.toggle("special", axis.special[at]);
    span.classList.toggle("joined", continues);
    span.dir = "auto";
    span.title = axis.printed[at];
    span.dataset.place = String(at);
    return span;
  });
  flow.append(...units);
  flow.classList.toggle("fixed", !view?.self && (name === "rows") !== isTo());
  box.append(flow);
  $("texts").append(box);
  return units;
}

/** @param {import("./map_pane.js").Cell | null} next */
export function showCell(next) {
  cell = next;
  shadeTexts();
}

/** @param {View} shown @param {number} place @returns {Float32Array} */
export function weightsFrom({ Q, K, weights }, place) {
  if (isTo()) return weights.subarray(place * K, (place + 1) * K);
  return Float32Array.from({ length: Q }, (_, row) => weights[row * K + place]);
}

function shadeTexts() {
  if (!view) return;
  const place = sourcePlace(), sources = isTo() ? spans.rows : spans.columns, targets = isTo() ? spans.columns : spans.rows;
  for (const span of view.self ? sources : [...sources, ...targets]) {
    if (span.style.background) span.style.background = span.style.color = "";
    span.classList.remove("source");
  }
  const bodies = [...$("rankings").querySelectorAll("tbody")], question = $("asked");
  question.replaceChildren();
  if (place === null) {
    question.textContent = "All tokens are hidden.";
    for (const body of bodies) body.replaceChildren();
    $("remark").textContent = "";
    return;
  }
  const weights = weightsFrom(view, place), colourOf = shade(view);
  weights.forEach((weight, at) => {
    const colour = colourOf(weight);
    if (colour === 255) return;
    targets[at].style.background = css(colour);
    targets[at].style.color = inkOn(colour);
  });
  sources[place].classList.add("source");
  if (cell) reveal(sources[place]);
  const name = make("b", "", isolated(source().labels[place]));
  if (shownViews.length > 1) question.append(make("span", "remark", `${shownViews[0].model}: `));
  if (view.lens.forms || !view.lens.shares) question.append(name, isTo() ? " receives from" : " contributes to");
  else if (view.signed) question.append("Change: ", name, isTo() ? " attends to" : " is attended to by");
  else question.append(name, isTo() ? " attends to" : " is attended to by");
  rank(bodies[0], view, weights);
  shownViews.slice(1).forEach((other, at) => rankOther(bodies[at + 1], other.view, source().first[place]));
  $("remark").textContent = remark(view, place, weights);
}

/** @param {string} model  name of the model; "" if there is only one @param {number} at */
function rankingOf(model, at) {
  const table = make("table", "ranking"), columns = make("colgroup");
  table.createCaption().textContent = model || "largest weights";
  if (!model && table.caption) table.caption.className = "away";
  columns.append(...["text", "place", "", "number"].map((name) => make("col", name)));
  table.append(columns);
  table.createTBody();
  if (at === 0) table.id = "ranking";
  return table;
}

/** Rank the same token's weights in another model; nothing is shown if the other model has another token there. @param {HTMLTableSectionElement} body @param {View} other @param {number} token */
function rankOther(body, other, token) {
  const axis = other[isTo() ? "rows" : "columns"], place = axis.of[token] ?? -1, isSame = axis.labels[place] === source().labels[source().of[token]];
  if (place >= 0 && isSame) rank(body, other, weightsFrom(other, place));
  else body.replaceChildren();
}

/** @param {HTMLTableSectionElement} body @param {View} shown @param {Float32Array} weights */
function rank(body, shown, weights) {
  const target = shown[isTo() ? "columns" : "rows"];
  const size = (/** @type {number} */ at) => Math.abs(weights[at]);
  const order = Array.from(weights.keys()).sort((a, b) => size(b) - size(a)).slice(0, RANKED).filter((at) => weights[at] !== 0);
  while (body.rows.length > order.length) body.deleteRow(-1);
  while (body.rows.length < order.length) {
    const row = body.insertRow();
    row.insertCell().dir = "auto";
    row.insertCell();
    row.insertCell().append(make("i"));
    row.insertCell();
  }
  order.forEach((at, place) => {
    const [label, position, bar, number] = body.rows[place].cells, ink = /** @type {HTMLElement} */ (bar.firstChild);
    label.textContent = target.labels[at];
    position.textContent = String(target.units[at]);
    position.title = "Position in the text, counted from 0";
    ink.style.width = `${(100 * size(at)) / size(order[0])}%`;
    ink.classList.toggle("less", weights[at] < 0);
    number.textContent = digits(weights[at], !shown.lens.shares);
  });
}

/** Scroll a word of a long text into view within its box, without scrolling the page. @param {HTMLElement} span */
function reveal(span) {
  const flow = /** @type {HTMLElement} */ (span.parentElement), box = flow.getBoundingClientRect(), word = span.getBoundingClientRect();
  if (word.top < box.top || word.bottom > box.bottom) flow.scrollTop += word.top - box.top - box.height / 2;
}

/** The sum of a token's weights, and how much of it is hidden. @param {View} shown @param {number} place @param {Float32Array} weights */
function remark({ signed, lens, rowTotals, rowSums, columnSums, K }, place, weights) {
  const { shares, forms } = lens, sumText = (/** @type {number} */ sum) => (shares ? sum.toFixed(2).replace("-", "−") : digits(sum, true));
  const isDifference = signed && shares;
  if (!isTo()) {
    const sum = weights.reduce((total, weight) => total + weight, 0), mean = columnSums.reduce((total, one) => total + one, 0) / K;
    if (isDifference) return `Column sum: ${sumText(sum)}.`;
    return `Column sum: ${sumText(sum)} over ${weights.length} ${state.level} (mean of all columns: ${sumText(mean)}).`;
  }
  if (isDifference) return "";
  const all = rowTotals[place], isOne = shares && Math.abs(all - 1) < 0.02;  // a row that sums to 1, apart from rounding
  const sum = isOne ? "" : `Row sum: ${sumText(all)}. `;
  if (!(state.special || state.punctuation || state.itself)) return sum.trim();
  if (signed) return `${sum}Hidden: ${sumText(all - rowSums[place])} of it.`;
  const gone = clamp(1 - rowSums[place] / (isOne ? 1 : all || 1), 0, 1), what = forms ? "the row is hidden" : "its attention goes to hidden tokens";
  if (!state.renormalise) return `${sum}${percent(gone)} of ${what}.`;
  if (rowSums[place] === 0) return `All of ${what}; nothing is left to renormalise.`;
  return `${sum}${percent(gone)} of ${what}. The other ${percent(1 - gone)} is rescaled to 1${gone > 0.9 ? ", which also magnifies rounding errors." : "."}`;
}

const percent = (/** @type {number} */ share) => (share > 0 && share < 0.005 ? "less than 1 %" : share < 1 && share > 0.995 ? "more than 99 %" : `${Math.round(100 * share)} %`);

/** @param {() => void} redraw  called when the pointer moves to another token */
export function startReading(redraw) {
  const placeOf = (/** @type {Event} */ event) => {
    const span = /** @type {HTMLElement} */ (event.target).closest?.(".unit"), axis = span?.parentElement?.dataset.axis;
    const isSource = view?.self || axis === (isTo() ? "rows" : "columns");
    return span instanceof HTMLElement && isSource ? Number(span.dataset.place) : null;
  };
  const hover = (/** @type {number | null} */ place) => {
    if (place === hovered) return;
    hovered = place;
    shadeTexts();
    redraw();
  };
  for (const name of ["pointerover", "pointermove"]) $("texts").addEventListener(name, (/** @type {Event} */ event) => { if (!isResting()) hover(placeOf(event)); });
  $("texts").addEventListener("pointerleave", () => hover(null));
  $("texts").addEventListener("click", (/** @type {Event} */ event) => {
    const place = placeOf(event);
    if (place !== null) change({ token: source().first[place] });
  });
}

/** The token of a cell of the map, on the source axis. @param {import("./map_pane.js").Cell} at */
export const tokenOf = (at) => source().first[isTo() ? at.row : at.column];
