// From packed maps to the displayed numbers: merges tokens to words, hides tokens, renormalises.

import { SIGNED, WEIGHTS } from "./unpack.js";

/** @typedef {import("./types.js").Side} Side */
/** @typedef {import("./types.js").Axis} Axis */
/** @typedef {import("./types.js").Axes} Axes */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").Maps} Maps */
/** @typedef {Pick<import("./state.js").State, "level" | "special" | "punctuation" | "itself" | "renormalise">} Options */

/**
 * One displayed axis. Its units are tokens or words. `of`: index of the unit of each token (-1: hidden); `size`: tokens per unit; `first`: first token of each unit.
 * @param {Side} side @param {Options} options @returns {Axis}
 */
export function axis(side, { level, special, punctuation }) {
  const words = level === "words", texts = words ? side.words : side.tokens, isSpecial = words ? side.word_special : side.special;
  const isSign = words ? side.word_punctuation : side.punctuation;
  const place = new Map();
  texts.forEach((_, unit) => {
    if (!(special && isSpecial[unit]) && !(punctuation && isSign[unit])) place.set(unit, place.size);
  });
  const units = [...place.keys()];
  const of = Int32Array.from(side.tokens, (_, token) => place.get(words ? side.unit[token] : token) ?? -1);
  const size = new Uint32Array(units.length);
  /** @type {number[]} */
  const first = new Array(units.length).fill(-1);
  /** @type {string[]} */
  const printed = new Array(units.length).fill("");
  of.forEach((at, token) => {
    if (at < 0) return;
    size[at] += 1;
    if (first[at] < 0) first[at] = token;
    printed[at] += `${printed[at] && " "}${side.printed[token]}`;
  });
  return {
    of, size, units, first, printed,
    labels: units.map((unit) => texts[unit]),
    special: units.map((unit) => Boolean(isSpecial[unit])),
    joined: units.map((unit) => !words && unit > 0 && side.unit[unit] === side.unit[unit - 1]),
    rtl: side.rtl,
  };
}

/** @param {import("./types.js").Sides} sides @param {boolean} self  whether both axes are the same tokens @param {Options} options @returns {Axes} */
export function axesOf({ query, key }, self, options) {
  const rows = axis(query, options);
  return { rows, columns: self ? rows : axis(key, options), self };
}

/**
 * The displayed numbers. The tokens of a word are summed over keys and averaged over queries; then units are hidden, then rows renormalised.
 * @param {Maps} maps @param {number[]} numbers  heads to average, as indices into `places`
 * @param {Axes} axes @param {Options} options @param {import("./types.js").Lens} lens @returns {View}
 */
export function viewOf(maps, numbers, { rows, columns, self }, options, lens) {
  const Q = rows.labels.length, K = columns.labels.length, weights = new Float32Array(Q * K), rowTotals = new Float32Array(Q);
  for (const number of numbers) addHead(maps, number, rows, columns, weights, rowTotals, 1 / numbers.length);
  if (options.itself && self) for (let at = 0; at < Q; at++) weights[at * K + at] = 0;
  const rowSums = new Float32Array(Q), columnSums = new Float32Array(K);
  let largest = 0;
  for (let row = 0; row < Q; row++) {
    let sum = 0;
    for (let at = row * K; at < (row + 1) * K; at++) sum += weights[at];
    rowSums[row] = sum;
    const divisor = options.renormalise && !maps.signed && sum > 0 ? sum : 1;
    for (let column = 0, at = row * K; column < K; column++, at++) {
      const weight = (weights[at] /= divisor), size = weight < 0 ? -weight : weight;
      columnSums[column] += weight;
      if (size > largest) largest = size;
    }
  }
  return { rows, columns, self, Q, K, weights, rowTotals, rowSums, columnSums, largest, signed: maps.signed, lens };
}

/** @param {Maps} maps @param {number} number @param {Axis} rows @param {Axis} columns @param {Float32Array} weights @param {Float32Array} rowTotals @param {number} share */
function addHead(maps, number, rows, columns, weights, rowTotals, share) {
  const K = columns.labels.length, keys = maps.columns, values = maps.signed ? SIGNED : WEIGHTS, { codes, tops } = maps;
  for (let query = 0; query < maps.rows; query++) {
    const row = rows.of[query];
    if (row < 0) continue;
    const scale = (share * tops[number * maps.rows + query]) / rows.size[row], from = (number * maps.rows + query) * keys, into = row * K;
    let sum = 0;
    for (let key = 0; key < keys; key++) {
      const column = columns.of[key], weight = values[codes[from + key]] * scale;
      sum += weight;
      if (column >= 0) weights[into + column] += weight;
    }
    rowTotals[row] += sum;
  }
}

/** An axis whose units are blocks of tokens, for thumbnails of long texts. @param {number} length @returns {Axis} */
export function blockAxis(length) {
  const numbers = Array.from({ length }, (_, at) => at), none = numbers.map(() => false);
  return {
    of: Int32Array.from(numbers), size: new Uint32Array(length).fill(1), labels: numbers.map(String), units: numbers,
    special: none, joined: none, first: numbers, printed: numbers.map(String), rtl: false,
  };
}
