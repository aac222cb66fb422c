// Summary of a head: its roles with examples, importance, most similar head, nearest fixed pattern and relations.

import { element } from "../dom.js";
import { DIRECTIONS, DIRECTION_RULES, EXAMPLE_HEADINGS, formatInterval, formatNats, formatShare } from "../study_text.js";
import { nameOf } from "./head_grid.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Card} Card */
/** @typedef {import("./types.js").Example} Example */

export class HeadSummary {
  /** @param {import("./chapter.js").Chapter} chapter */
  constructor(chapter) {
    this.chapter = chapter;
    this.cards = chapter.data.packed.cards;
    this.hasRoles = this.cards.heads.some((stack) => stack.some((card) => card?.roles.length));
  }

  /** @param {Head} head */
  show(head) {
    const card = this.cards.heads[head.stack]?.[head.index];
    this.chapter.byId("does").replaceChildren(...(card ? this.parts(head, card) : []));
  }

  /** @param {Head} head @param {Card} card */
  parts(head, card) {
    const roles = card.roles.length ? this.roles(card) : [element("p", { class: "note" }, "No clear role.")], facts = this.facts(head, card);
    return [
      element("h3", {}, nameOf(this.chapter.data, head)),
      ...(this.hasRoles ? roles : []),
      ...(card.examples.length ? [exampleLegend()] : []),
      ...(facts.length ? [element("ul", {}, ...facts)] : []),
    ];
  }

  /** A head has a role once for each rule; its examples are shown with the first. @param {Card} card */
  roles({ roles, examples }) {
    return roles.map(({ role, value, low, high, baseline, sure, rule }, index) => {
      const isFirst = roles.findIndex((other) => other.role === role) === index;
      const details = element("details", { class: "role" },
        element("summary", {}, element("b", {}, role), ` ${formatInterval(value, low, high)}${baseline === null ? "" : `, baseline ${formatShare(baseline)}`}`),
        element("p", { class: "rule" }, `${rule}${sure ? "" : " (the interval extends below the threshold)"}`),
        ...(isFirst ? this.examples(examples.filter((example) => example[0] === role)) : []));
      details.open = index === 0;
      return details;
    });
  }

  /** @param {Example[]} examples  of one role */
  examples(examples) {
    return Object.entries(EXAMPLE_HEADINGS).flatMap(([kind, heading]) => {
      const sentences = examples.filter((example) => example[1] === kind).map((example) => this.sentence(example));
      return sentences.length ? [element("h5", {}, heading), ...sentences] : [];
    });
  }

  /** @param {Example} example */
  sentence([, , , sentence, query, key, weight, expected]) {
    const line = element("p", { class: "example" });
    this.cards.sentences[sentence].forEach((word, index) => {
      const marks = [index === query && "query", index === key && "key", index === expected && "expected"].filter(Boolean).join(" ");
      line.append(marks ? element("span", { class: marks }, word) : word, " ");
    });
    line.append(element("span", { class: "weight" }, weight.toFixed(2)));
    return line;
  }

  /** @param {Head} head @param {Card} card */
  facts({ stack }, { importance, twin, substitute, relations }) {
    const nearest = twin && this.chapter.data.heads.find((head) => head.stack === stack && head.layer === twin[0] && head.head === twin[1]);
    return [
      ...importance.map(({ what, text, after }) => element("li", {}, `${what}: `, element("b", {}, text), after)),
      ...(nearest ? [element("li", {}, "most similar head: ", this.linkTo(nearest), ` (Jensen–Shannon divergence ${formatNats(twin[2])})`)] : []),
      ...(substitute ? [element("li", {}, `nearest fixed pattern: “${substitute[0]}” (Jensen–Shannon divergence ${formatNats(substitute[1])})`)] : []),
      ...relations.map(({ relation, direction, accuracy, low, high, baseline }) => element("li", { title: DIRECTION_RULES[direction] ?? "" }, "more accurate than the best fixed offset: ", element("b", {}, relation === "all" ? "all relations" : relation),
        `, ${DIRECTIONS[direction] ?? direction}: accuracy ${formatInterval(accuracy, low, high)}, best fixed offset ${formatShare(baseline)}`)),
    ];
  }

  /** @param {Head} head */
  linkTo(head) {
    const link = element("a", { href: `#${this.chapter.prefix}head` }, head.label);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      this.chapter.select(head);
    });
    return link;
  }
}

/** How words of examples are marked. */
const exampleLegend = () => element("p", { class: "note" }, element("span", { class: "example" }, element("span", { class: "query" }, "query"), ", ",
  element("span", { class: "key" }, "key with the largest weight"), ", ", element("span", { class: "expected" }, "key that the role predicts")),
". The number is the weight of the key. These are the clearest examples in a few texts, not typical ones. In a counterexample of “peaked”, the key is a special token.");
