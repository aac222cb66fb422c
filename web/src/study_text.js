// Number formats and headings of head cards, shared by the explorer and the report.

import { fixed } from "./dom.js";

export const formatShare = (/** @type {number | null} */ value) => (value === null ? "–" : fixed(value, 3));

/** @param {number | null} value @param {number | null} low @param {number | null} high */
export const formatInterval = (value, low, high) =>
  (low === null || high === null ? formatShare(value) : `${formatShare(value)} [${formatShare(low)}, ${formatShare(high)}]`);

export const formatNats = (/** @type {number} */ value) => `${fixed(value, value < 0.01 ? 4 : 2)} nats`;

/** @type {Record<string, string>} headings of the examples of a role, by kind */
export const EXAMPLE_HEADINGS = { typical: "clear examples", counter: "counterexamples" };

/** @type {Record<string, string>} when a pair of words counts as right, by direction */
export const DIRECTION_RULES = {
  dependent: "Right if the dependent’s largest weight is on its syntactic head",
  governor: "Right if the syntactic head’s largest weight is on the dependent",
  received: "Right if no other word gives the dependent more weight than its syntactic head does",
};

/** @type {Record<string, string>} directions of relations, as in report/head_cards.py */
export const DIRECTIONS = {
  dependent: "dependent → syntactic head",
  governor: "syntactic head → dependent",
  received: "syntactic head → dependent, compared over all words",
};
