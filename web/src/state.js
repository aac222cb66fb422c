// The choices of the user. Exactly these are stored in the address of the page.

/** Choices with a fixed set of values, the first of which is the default. */
export const CHOICES = {
  level: ["tokens", "words"],
  scale: ["root", "linear"],
  range: ["one", "head"],
  direction: ["to", "by"],
  view: ["map", "arcs"],
};
/** Which maps the explorer shows: of model a, of model b, of both, b minus a, or a now minus a with all heads on. */
export const SHOWS = ["a", "b", "both", "difference", "change"];
/** Choices that are on or off, off by default. */
export const SWITCHES = ["special", "punctuation", "itself", "renormalise"];

/**
 * @typedef {object} State
 * @property {string} text
 * @property {string | null} second  the second text, or the target of a translation; null if there is none
 * @property {string} lens
 * @property {Set<string>} off  heads that are switched off, as stack.layer.head
 * @property {string} stack
 * @property {import("./types.js").Place[]} heads  open heads; the map shows the first, the arcs show all
 * @property {number | null} token  index of the selected token
 * @property {string} show
 * @property {string} level
 * @property {string} scale
 * @property {string} range
 * @property {string} direction
 * @property {string} view
 * @property {boolean} translates  the model's own translation is wanted
 * @property {string} order  layer, role, cluster, or an importance of the study
 * @property {boolean} special  special tokens are hidden
 * @property {boolean} punctuation  punctuation is hidden
 * @property {boolean} itself  attention to oneself is hidden
 * @property {boolean} renormalise  what is left is stretched to 1
 */

/** @type {State} */
export const state = {
  text: "", second: null, lens: "raw", off: new Set(), stack: "", heads: [], token: null,
  show: "a", level: "tokens", scale: "root", range: "one", direction: "to", view: "map", translates: false, order: "layer",
  special: false, punctuation: false, itself: false, renormalise: false,
};

/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];
/** @param {(changed: Set<string>) => void} act */
export const listen = (act) => { listeners.push(act); };

/** Change the state and tell everyone which parts of it changed. @param {Partial<State>} patch */
export function change(patch) {
  Object.assign(state, patch);
  for (const act of listeners) act(new Set(Object.keys(patch)));
}

/** @param {import("./types.js").Place | undefined} one @param {import("./types.js").Place | undefined} two */
export const samePlace = (one, two) => one?.layer === two?.layer && one?.head === two?.head;
