// Shows the model's prediction, and how it changes without the heads that are off.

import { button, fixed, isolated, make, placesFor } from "./dom.js";
import { change, state } from "./state.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").LiveModel} Model */
/** @typedef {{name: string, before: number, after: number | null}} Row */

const MOST_ROWS = 6;
const percent = (/** @type {number} */ share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
/** A signed change with as many decimals as it needs, or “no change” if `most` decimals do not show it. @param {number} difference @param {number} [least] @param {number} [most] */
function moved(difference, least = 3, most = 6) {
  const places = placesFor(difference, least, most);
  return places === null ? "no change" : `${difference < 0 ? "−" : "+"}${Math.abs(difference).toFixed(places)}`;
}

/**
 * @param {HTMLElement} holder @param {Model} model @param {Answer} answer @param {string} title  name of the model; "" if there is only one
 * @param {import("./translating.js").Translation | null} translated  the model's own translation, if requested
 * @param {boolean} isFirst  only the first of two models gets the explanations
 */
export function drawPrediction(holder, model, answer, title, translated, isFirst) {
  const prediction = answer.prediction, parts = [];
  if (title) parts.push(make("h3", "", title));
  if (prediction.kind === "classifier") parts.push(...classes(prediction));
  else if (prediction.kind === "masked") parts.push(...masks(prediction, model));
  else if (prediction.kind === "causal") parts.push(...nextToken(prediction.rows));
  else if (prediction.kind === "translation") parts.push(...translation(prediction, translated));
  else parts.push(...similarity(prediction, isFirst));
  holder.replaceChildren(...parts);
}

/** @param {string} text @param {Row[] | null} [turned]  the most likely token or class before and now, if they differ */
function heading(text, turned = null) {
  const line = make("p", "said", text);
  if (turned) line.append(make("span", "turned", `changed: ${turned.map(({ name }) => isolated(name)).join(" → ")}`));
  return line;
}

/** @param {Row[]} rows */
function candidates(rows) {
  const rowsTable = table(rows, true);
  rowsTable.classList.add("candidates");
  return rowsTable;
}

/** @param {{what: string, rows: Row[]}} prediction */
function classes({ what, rows }) {
  if (what === "number") return [heading("Model output"), figure(rows[0].before, rows[0].after)];
  const now = (/** @type {Row} */ row) => row.after ?? row.before;
  const sorted = [...rows].sort((a, b) => now(b) - now(a)), before = [...rows].sort((a, b) => b.before - a.before)[0];
  const turned = sorted[0].name !== before.name && what === "one";
  const parts = [heading(what === "one" ? "Probability of each class" : "Probability of each class, independent of the others", turned ? [before, sorted[0]] : null), table(sorted.slice(0, MOST_ROWS), true)];
  if (rows.length > MOST_ROWS) parts.push(make("p", "remark", `and ${rows.length - MOST_ROWS} more classes`));
  return parts;
}

/** The candidates with the largest probability before or now, sorted by the probability now. @param {Row[]} rows */
function likeliest(rows) {
  const most = (/** @type {Row} */ { before, after }) => Math.max(before, after ?? 0), now = (/** @type {Row} */ { before, after }) => after ?? before;
  return [...rows].sort((a, b) => most(b) - most(a)).slice(0, MOST_ROWS).sort((a, b) => now(b) - now(a));
}

/** @param {Row[]} rows */
function nextToken(rows) {
  const top = (/** @type {(row: Row) => number} */ of) => [...rows].sort((a, b) => of(b) - of(a))[0];
  const before = top((row) => row.before), now = top((row) => row.after ?? row.before);
  return [heading("Probability of the next token", now.name === before.name ? null : [before, now]), candidates(likeliest(rows))];
}

/** @param {{masks: {token: number, rows: Row[]}[]}} prediction @param {Model} model */
function masks({ masks: masked }, model) {
  if (!masked.length) {
    const hint = make("p", "remark", "Write ");
    hint.append(make("code", "", model.mask_token ?? "the mask token"), " in the text to see which tokens the model predicts there.");
    return [heading("Masked tokens"), hint];
  }
  return masked.flatMap(({ token, rows }) => [heading(masked.length > 1 ? `Mask at token ${token}` : "Predictions for the mask"), candidates(likeliest(rows))]);
}

/** @param {{before: number | null, after: number | null, rows: Row[]}} prediction @param {import("./translating.js").Translation | null} translated */
function translation(prediction, translated) {
  const parts = [];
  if (prediction.before === null) parts.push(make("p", "remark", "Add a target to see its probability and the decoder’s attention."));
  else {
    parts.push(heading("Log-probability of the target (nats)"), figure(prediction.before, prediction.after));
    const moved = prediction.rows.filter((row) => row.after !== null && Math.abs(row.after - row.before) >= 0.1)
      .sort((a, b) => Math.abs((b.after ?? 0) - b.before) - Math.abs((a.after ?? 0) - a.before)).slice(0, 4);
    if (moved.length) {
      parts.push(heading("Tokens with the largest change"), table(moved, false));
      parts.push(make("p", "remark", "Log-probability in nats: the longer the bar, the less likely the token. The line marks the value with all heads on."));
    }
  }
  const wish = button("small", "Generate translation", () => change({ translates: !state.translates }));
  wish.setAttribute("aria-pressed", String(translated !== null));
  wish.title = translated ? "The translation follows the text and the switches. Press to remove it." : "Translate the text by beam search. The translation then follows the text and the switches.";
  return [...parts, wish, ...(translated ? translatedParts(translated) : [])];
}

/** @param {import("./translating.js").Translation} translated */
function translatedParts({ said, trouble, isStale }) {
  const holder = make("div", "translated");
  holder.classList.toggle("stale", isStale);
  if (trouble && !isStale) holder.append(alarm(trouble));
  else if (said) {
    const { before, after } = said, isSame = after === before;
    const shown = after === null || isSame ? [[before, isSame ? "unchanged with these heads off" : ""]] : [[before, "all heads on"], [after, "with these heads off"]];
    holder.append(...shown.map(([text, which]) => {
      const line = make("p", "translation");
      line.append(make("bdi", "", text), ...(which ? [make("span", "remark", which)] : []));
      return line;
    }));
  }
  if (isStale) holder.append(make("p", "remark", said ? "translating again …" : "translating …"));
  return [holder];
}

/** @param {{of: string, before: number, after: number | null}} prediction @param {boolean} isFirst */
function similarity({ of, before, after }, isFirst) {
  const hint = (/** @type {string} */ text) => (isFirst ? [make("p", "remark", text)] : []);
  if (of === "pair") return [heading("Cosine similarity of the two texts"), figure(before, after), ...hint("Each text is embedded by itself; the maps show both texts read as a pair.")];
  if (after === null) return [heading("Sentence embedding"), ...hint("This model turns a text into a vector. Add a second text to compare the two, or switch heads off to see how much the vector changes.")];
  return [heading("Cosine similarity to the embedding with all heads on"), figure(1, after, false)];
}

/** One large number and, if heads are off, its change and its value with all heads on. @param {number} before @param {number | null} after @param {boolean} [showsBefore]  false if the value with all heads on is 1 by definition */
function figure(before, after, showsBefore = true) {
  const line = make("p", "figure");
  const places = after === null ? 3 : placesFor(after - before, 3) ?? 3;
  line.append(make("b", "", fixed(after ?? before, places)));
  if (after === null) return line;
  line.append(make("span", "delta", moved(after - before)));
  if (showsBefore && placesFor(after - before, 3) !== null) line.append(make("span", "remark", `all heads on: ${fixed(before, places)}`));
  return line;
}

/** @param {string} text */
function alarm(text) {
  return make("p", "alarm", text);
}

/** Values as bars: the filled bar is the value now, the line is the value with all heads on. @param {Row[]} rows @param {boolean} isShare  values are probabilities; otherwise log-probabilities */
function table(rows, isShare) {
  const result = make("table", "shares"), has = rows.some(({ after }) => after !== null);
  const most = isShare ? 1 : Math.max(...rows.flatMap(({ before, after }) => [Math.abs(before), Math.abs(after ?? 0)]), 1e-9);
  const written = (/** @type {number} */ value) => (isShare ? percent(value) : fixed(value, 3));
  if (has) {
    const head = result.createTHead().insertRow();
    for (const name of ["", "", "now", "all on", isShare ? "change (pp)" : "change"]) head.append(make("th", "", name));
    head.cells[2].title = "With the heads off that are off now";
    head.cells[3].title = "With all heads on";
    head.cells[4].title = isShare ? "Percentage points" : "";
  }
  const body = result.createTBody();
  for (const { name, before, after } of rows) {
    const row = body.insertRow(), now = after ?? before, label = row.insertCell(), bar = row.insertCell(), value = row.insertCell();
    label.textContent = name;
    label.title = name;
    label.dir = "auto";
    const track = make("div", "track"), fill = make("i"), was = make("u");
    fill.style.width = `${(100 * Math.abs(now)) / most}%`;
    track.append(fill);
    if (after !== null) {
      was.style.left = `${(100 * Math.abs(before)) / most}%`;
      track.append(was);
    }
    bar.append(track);
    value.textContent = written(now);
    if (has) {
      const old = row.insertCell(), delta = row.insertCell(), difference = after === null ? 0 : after - before;
      old.className = "old";
      old.textContent = written(before);
      delta.className = "delta";
      delta.textContent = isShare ? moved(100 * difference, 1, 4) : moved(difference);
      row.classList.toggle("changed", Math.abs(difference) >= (isShare ? 0.01 : 0.1));
    }
  }
  return result;
}
