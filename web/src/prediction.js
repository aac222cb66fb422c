// What the model says, and how the heads that are off change it.

import { button, fixed, make, placesFor } from "./dom.js";
import { change, state } from "./state.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").LiveModel} Model */
/** @typedef {{name: string, before: number, after: number | null}} Row */

const MOST_ROWS = 6;
const percent = (/** @type {number} */ share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
/** A change with as many digits as it needs; where six do not show it there is none. @param {number} by @param {number} [least] @param {number} [most] */
function moved(by, least = 3, most = 6) {
  const places = placesFor(by, least, most);
  return places === null ? "no change" : `${by < 0 ? "−" : "+"}${Math.abs(by).toFixed(places)}`;
}

/**
 * @param {HTMLElement} holder @param {Model} model @param {Answer} answer @param {string} title  of this model, where there are two
 * @param {import("./translating.js").Translation | null} translated  the model's own translation, where it is wanted
 * @param {boolean} isFirst  of two models one is enough to say what their numbers mean
 */
export function drawPrediction(holder, model, answer, title, translated, isFirst) {
  const said = answer.prediction, parts = [];
  if (title) parts.push(make("h3", "", title));
  if (said.kind === "classifier") parts.push(...classes(said));
  else if (said.kind === "masked") parts.push(...masks(said, model));
  else if (said.kind === "causal") parts.push(heading("Next token"), table(said.rows, true));
  else if (said.kind === "translation") parts.push(...translation(said, translated));
  else parts.push(...similarity(said, isFirst));
  holder.replaceChildren(...parts);
}

/** @param {string} text */
const heading = (text) => make("p", "said", text);

/** @param {{what: string, rows: Row[]}} said */
function classes({ what, rows }) {
  if (what === "number") return [heading("The model’s number"), figure(rows[0].before, rows[0].after)];
  const now = (/** @type {Row} */ row) => row.after ?? row.before;
  const sorted = [...rows].sort((one, two) => now(two) - now(one)), before = [...rows].sort((one, two) => two.before - one.before)[0];
  const turned = sorted[0].name !== before.name && what === "one";
  const parts = [heading(what === "one" ? "Class" : "Classes, each by itself"), table(sorted.slice(0, MOST_ROWS), true)];
  if (turned) parts.push(alarm(`The answer has changed: it was ${before.name}.`));
  if (rows.length > MOST_ROWS) parts.push(make("p", "remark", `and ${rows.length - MOST_ROWS} more classes`));
  return parts;
}

/** @param {{masks: {token: number, rows: Row[]}[]}} said @param {Model} model */
function masks({ masks: found }, model) {
  if (!found.length) {
    const hint = make("p", "remark", "Nothing is masked. Write ");
    hint.append(make("code", "", model.mask_token ?? "the mask token"), " in the text to see what the model would put there.");
    return [heading("Masked tokens"), hint];
  }
  return found.flatMap(({ token, rows }) => [heading(found.length > 1 ? `Mask at token ${token}` : "In place of the mask"), table(rows.slice(0, MOST_ROWS), true)]);
}

/** @param {{before: number | null, after: number | null, rows: Row[]}} said @param {import("./translating.js").Translation | null} translated */
function translation(said, translated) {
  const parts = [];
  if (said.before === null) parts.push(make("p", "remark", "Give a target below the source to see how likely it is, and the decoder’s attention."));
  else {
    parts.push(heading("Log-probability of the target"), figure(said.before, said.after));
    const moved = said.rows.filter((row) => row.after !== null && Math.abs(row.after - row.before) >= 0.1)
      .sort((one, two) => Math.abs((two.after ?? 0) - two.before) - Math.abs((one.after ?? 0) - one.before)).slice(0, 4);
    if (moved.length) {
      parts.push(heading("Tokens that changed most"), table(moved, false));
      parts.push(make("p", "remark", "Log-probability in nats: the longer its bar, the less likely a token is now; the line is what it was."));
    }
  }
  const wish = button("small", "Translate freely", () => change({ translates: !state.translates }));
  wish.setAttribute("aria-pressed", String(translated !== null));
  wish.title = translated ? "The translation follows the switches; press to stop that" : "The model’s own translation, by beam search; it then follows the switches";
  return [...parts, wish, ...(translated ? translatedParts(translated) : [])];
}

/** @param {import("./translating.js").Translation} translated */
function translatedParts({ said, trouble, isStale }) {
  const holder = make("div", "translated");
  holder.classList.toggle("stale", isStale);
  if (trouble && !isStale) holder.append(alarm(trouble));
  else if (said) {
    const { before, after } = said, isSame = after === before;
    const shown = after === null || isSame ? [[before, isSame ? "the same without the heads" : ""]] : [[before, "all heads"], [after, "without the heads that are off"]];
    holder.append(...shown.map(([text, which]) => {
      const line = make("p", "translation");
      line.append(make("bdi", "", text), ...(which ? [make("span", "remark", which)] : []));
      return line;
    }));
  }
  if (isStale) holder.append(make("p", "remark", said ? "translating again …" : "translating …"));
  return [holder];
}

/** @param {{of: string, before: number, after: number | null}} said @param {boolean} isFirst */
function similarity({ of, before, after }, isFirst) {
  const hint = (/** @type {string} */ text) => (isFirst ? [make("p", "remark", text)] : []);
  if (of === "pair") return [heading("Similarity (cosine)"), figure(before, after), ...hint("For this number each text is read alone; the maps show both read together.")];
  if (after === null) return [heading("Sentence vector"), ...hint("A second text shows how similar the two are; a head switched off, how far the vector moves.")];
  return [heading("Cosine with the vector of all heads"), figure(1, after)];
}

/** One number, large, and what it was. @param {number} before @param {number | null} after */
function figure(before, after) {
  const line = make("p", "figure");
  const places = after === null ? 3 : placesFor(after - before, 3) ?? 3;
  line.append(make("b", "", fixed(after ?? before, places)));
  if (after === null) return line;
  line.append(make("span", "delta", moved(after - before)));
  if (placesFor(after - before, 3) !== null) line.append(make("span", "remark", `was ${fixed(before, places)}`));
  return line;
}

/** @param {string} text */
function alarm(text) {
  return make("p", "alarm", text);
}

/** Shares as bars: filled is now, the line is what it was. @param {Row[]} rows @param {boolean} isShare */
function table(rows, isShare) {
  const found = make("table", "shares"), body = found.createTBody(), has = rows.some(({ after }) => after !== null);
  const most = isShare ? 1 : Math.max(...rows.flatMap(({ before, after }) => [Math.abs(before), Math.abs(after ?? 0)]), 1e-9);
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
    value.textContent = isShare ? percent(now) : fixed(now, 3);
    if (has) {
      const delta = row.insertCell(), by = after === null ? 0 : after - before;
      delta.className = "delta";
      delta.textContent = isShare ? moved(100 * by, 1, 4) : moved(by);
    }
  }
  return found;
}
