// Results of a study in the explorer: orders of the grid, the card of a head, examples from the corpus.

import * as api from "./api.js";
import { $, button, fixed, make } from "./dom.js";
import { address, full, shortName } from "./heads.js";
import { change, state } from "./state.js";
import { DIRECTIONS, EXAMPLE_HEADINGS, formatInterval, formatNats, formatShare } from "./study_text.js";

/** @typedef {import("./types.js").StudyShape} StudyShape */
/** @typedef {import("./types.js").StudyHead} StudyHead */
/** @typedef {import("./types.js").Place} Place */

/** @type {Map<string, StudyHead>} */
const heads = new Map();
/** @type {Map<string, import("./types.js").Statistic>} */
const statistics = new Map();

/** The possible orders of the grid as [value, label]. @param {StudyShape | null} study @returns {[string, string][]} */
export function orders(study) {
  if (!study) return [["layer", "layer"]];
  return [
    ["layer", "layer"],
    .../** @type {[string, string][]} */ (study.has_roles ? [["role", "role"]] : []),
    .../** @type {[string, string][]} */ (study.has_clusters ? [["cluster", "cluster"]] : []),
    ...study.importances.map((name) => /** @type {[string, string]} */ ([name, titleOf(name)])),
  ];
}

/** @param {string} name */
const titleOf = (name) => statistics.get(name)?.title ?? name;

export async function loadStudy() {
  const content = await api.study("heads");
  for (const statistic of content.statistics) statistics.set(statistic.name, statistic);
  for (const entry of content.heads) heads.set(full(entry.stack, entry.layer, entry.head), entry);
}

/** The heads of a stack that model and study have, grouped in the chosen order; null for the order by layer.
 * @param {string} stack @param {import("./types.js").StackShape | undefined} shape @returns {import("./types.js").Group[] | null} */
export function groups(stack, shape) {
  const isThere = (/** @type {StudyHead} */ { layer, head }) => shape?.layers.some((row) => row.layer === layer && row.heads.includes(head));
  const ofStack = [...heads.values()].filter((entry) => entry.stack === stack && isThere(entry));
  const places = (/** @type {StudyHead[]} */ some) => some.map(({ layer, head }) => ({ layer, head }));
  if (state.order === "layer" || !ofStack.length) return null;
  if (state.order === "role") return grouped(ofStack, (entry) => entry.roles[0] ?? NO_ROLE, (name) => (name === NO_ROLE ? Infinity : 0), places);
  if (state.order === "cluster") return grouped(ofStack, (entry) => (entry.cluster === null ? "no cluster" : `cluster ${entry.cluster}`), () => 0, places);
  const value = (/** @type {StudyHead} */ entry) => entry.values[state.order]?.[0] ?? null, measured = ofStack.filter((entry) => value(entry) !== null);
  if (!measured.length) return null;
  measured.sort((a, b) => (value(b) ?? 0) - (value(a) ?? 0));
  const rest = ofStack.filter((entry) => value(entry) === null), notes = measured.map((entry) => number(value(entry)));
  return [{ title: `${titleOf(state.order)}, largest first`, places: places(measured), notes }, ...(rest.length ? [{ title: "not measured", places: places(rest) }] : [])];
}

/** @param {StudyHead[]} some @param {(entry: StudyHead) => string} nameOf @param {(name: string) => number} rank @param {(some: StudyHead[]) => Place[]} places */
function grouped(some, nameOf, rank, places) {
  /** @type {Map<string, StudyHead[]>} */
  const byTitle = new Map();
  for (const entry of some) byTitle.set(nameOf(entry), [...(byTitle.get(nameOf(entry)) ?? []), entry]);
  return [...byTitle].sort(([title, many], [otherTitle, others]) => rank(title) - rank(otherTitle) || others.length - many.length)
    .map(([title, members]) => ({ title, places: places(members) }));
}

/** @param {string} head */
export const rolesOf = (head) => heads.get(head)?.roles ?? [];

const NO_ROLE = "no clear role";

let run = 0;
/**
 * The card of a head with its examples.
 * @param {import("./types.js").Model} model @param {StudyShape | null} study @param {Place | undefined} place @param {boolean} isOfTwo  a second model is open, so the card names the model of the study
 */
export async function drawCard(model, study, place, isOfTwo) {
  const now = ++run, holder = $("card");
  holder.hidden = !study || !place || place.head === "mean";
  if (!study || !place || place.head === "mean") return;
  const name = full(state.stack, place.layer, place.head);
  if (holder.dataset.head === name) return;
  holder.classList.add("behind");
  const heading = isOfTwo ? `From the study of ${shortName({ name: study.model })}` : "From the study";
  try {
    const [card, examples] = await Promise.all([api.study(`cards/${name}`), study.has_examples ? api.study(`examples/${name}`) : []]);
    if (now !== run) return;
    holder.dataset.head = name;
    holder.classList.remove("behind");
    holder.replaceChildren(make("h3", "", heading), ...cardParts(model, card), ...exampleParts(examples, place));
  } catch (reason) {
    if (now !== run) return;
    holder.classList.remove("behind");
    holder.replaceChildren(make("p", "alarm", /** @type {Error} */ (reason).message));
  }
}

const number = (/** @type {number | null} */ value) => (value === null ? "–" : String(Number(value.toPrecision(3))).replace("-", "−"));

/** @param {import("./types.js").Model} model @param {any} card */
function cardParts(model, card) {
  const list = make("dl", "facts");
  /** @param {string} name @param {(string | Node)[][]} lines  contents of each line */
  const facts = (name, lines) => {
    if (lines.length) list.append(make("dt", "", name));
    for (const line of lines) {
      const item = make("dd");
      item.append(...line);
      list.append(item);
    }
  };
  const roles = card.roles.map((/** @type {any} */ { role, value, low, high, baseline, sure, rule }) => {
    const line = make("span", sure ? "" : "unsure", `${role}: ${formatInterval(value, low, high)}`);
    line.title = `${rule}${baseline === null ? "" : `; baseline ${formatShare(baseline)}`}${sure ? "" : "; the interval includes values below the threshold"}`;
    return [line];
  });
  facts(roles.length > 1 ? "Roles" : "Role", roles.length ? roles : [[NO_ROLE]]);
  facts("Relations above the best fixed offset", card.relations.map((/** @type {any} */ { relation, direction, accuracy, low, high, baseline }) => [`${relation === "all" ? "all relations" : relation}, ${DIRECTIONS[direction] ?? direction}: accuracy ${formatInterval(accuracy, low, high)}, best fixed offset ${formatShare(baseline)}`]));
  for (const { what, text, after } of card.importance) facts(capital(what), [[`${text}${after}`]]);
  if (card.cluster !== null) {
    const others = [...heads.values()].filter((entry) => entry.stack === state.stack && entry.cluster === card.cluster).length - 1;
    facts("Cluster", [[`number ${card.cluster}, with ${others || "no"} other ${others === 1 ? "head" : "heads"}`]]);
  }
  if (card.twin) {
    const { layer, head, distance } = card.twin, open = () => change({ heads: [{ layer, head }] });
    facts("Most similar head", [[button("link", address(model, state.stack, layer, head), open), `, distance ${formatNats(distance)}`]]);
  }
  if (card.substitute) facts("Nearest fixed pattern", [[`${card.substitute.pattern}, distance ${formatNats(card.substitute.distance)}`]]);
  return [list];
}

const capital = (/** @type {string} */ text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @typedef {{roles: string[], kind: string, words: string[], query: number, key: number, expected: number | null, weight: number | null, text: string,
 *   second: string | null, token: number | null, level: string, is_whole: boolean}} Example */

/** The examples grouped by role, and within a role by kind: clear examples, counterexamples. @param {Example[]} examples @param {Place} place */
function exampleParts(examples, place) {
  if (!examples.length) return [];
  /** @type {Map<string, Example[]>} */
  const byRole = new Map();
  for (const example of examples) {
    const name = example.roles.join(", ");
    byRole.set(name, [...(byRole.get(name) ?? []), example]);
  }
  const legend = make("p", "remark");
  legend.append(make("b", "query", "query"), " attends most to ", make("mark", "", "key"), ...(examples.some(({ expected }) => expected !== null) ? ["; ", make("span", "expected", "predicted by the role")] : []));
  return [
    make("h3", "", "Examples"), legend,
    ...[...byRole].flatMap(([name, some]) => [make("p", "of-role", name), ...[...new Set(some.map(({ kind }) => kind))].flatMap((kind) => {
      const list = make("ul", "examples");
      list.append(...some.filter((example) => example.kind === kind).map((example) => exampleItem(example, place)));
      return [make("p", "kind", EXAMPLE_HEADINGS[kind] ?? kind), list];
    })]),
  ];
}

/** @param {Example} example @param {Place} place */
function exampleItem({ words, query, key, expected, weight, text, second, token, level, is_whole }, place) {
  const open = button("example", "", () => {
    change({ text, second, token, level, direction: "to", lens: "raw", heads: [place] });
    $("main").scrollIntoView({ block: "start" });
  });
  words.forEach((word, at) => {
    const named = [at === query && "query", at === expected && "expected"].filter(Boolean).join(" ");
    open.append(make(at === key ? "mark" : at === query ? "b" : "span", named, word), " ");
  });
  if (weight !== null) open.append(make("small", "weight", fixed(weight, 2)));
  open.title = is_whole ? "Open this text" : "Open this excerpt (the study does not keep the whole text)";
  const item = make("li");
  item.append(open);
  return item;
}
