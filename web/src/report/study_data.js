// The heads and statistics of a chapter, from its packed data.

import { address } from "../heads.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Measurement} Measurement */
/** @typedef {import("./types.js").Packed} Packed */
/** @typedef {import("./types.js").PackedStatistic} PackedStatistic */

/** Code of a map cell without a weight. */
export const NO_WEIGHT = 255;
/** @param {number} code  a byte of a packed map */
export const weightOf = (code) => (code / 254) ** 2;

export class StudyData {
  /** @param {Packed} packed */
  constructor(packed) {
    this.packed = packed;
    this.heads = listHeads(packed);
    /** @type {import("./types.js").Statistic[]} */
    this.statistics = packed.statistics.map((statistic) => {
      const values = this.heads.flatMap((head) => measurementOf(statistic, head)?.value ?? []);
      return { ...statistic, values, min: values.reduce((a, b) => Math.min(a, b), Infinity), max: values.reduce((a, b) => Math.max(a, b), -Infinity) };
    });
  }
}

/** Every head that has a value of some statistic. @param {Packed} packed @returns {Head[]} */
function listHeads(packed) {
  const heads = [];
  for (const [stack, { name, layers, heads: width }] of packed.stacks.entries()) {
    for (let index = 0; index < layers * width; index++) {
      const layer = Math.floor(index / width), head = index % width;
      const hasValue = packed.statistics.some(({ stacks }) => stacks[stack] && stacks[stack].value[index] !== null);
      if (hasValue) heads.push({ stack, layer, head, index, label: address(packed, name, layer, head) });
    }
  }
  return heads;
}

/** @param {PackedStatistic} statistic @param {Head} head @returns {Measurement | null} */
export function measurementOf({ stacks }, { stack, index }) {
  const columns = stacks[stack], value = columns?.value[index] ?? null;
  if (!columns || value === null) return null;
  return { value, low: columns.low[index], high: columns.high[index], count: columns.count[index] };
}

/** The statistic in words; its lens is named by the group it is listed in. @param {PackedStatistic} statistic */
export const titleOf = ({ title, lens }) => (lens ? title.replace(`, lens ${lens}`, "") : title);

/** Compares for sorting; equal values keep their order, and missing ones come last in either direction.
 * @template {string | number} T @param {T | null} a @param {T | null} b @param {boolean} isDescending */
export function compare(a, b, isDescending) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  return (a < b ? -1 : 1) * (isDescending ? -1 : 1);
}
