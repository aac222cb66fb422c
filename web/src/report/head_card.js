// The card of one head: every statistic, with its position among all heads.

import { clamp, element, svgTag } from "../dom.js";
import { formatCount, formatParts } from "./numbers.js";
import { measurementOf, titleOf } from "./study_data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Statistic} Statistic */
/** @typedef {import("./types.js").Measurement} Measurement */

/** Groups of statistics that come first, in this order. */
export const GROUPS = ["importance", "attention", "patterns"];
const LONGEST_ON_A_LINE = 24;  // longer numbers leave no room for the strip: their interval goes to the next line
const ORANGE = "#d55e00";

export class HeadCard {
  /** groups that are open, as the reader left them with the previous head */
  openGroups = new Set(["importance", "attention"]);

  /** @param {import("./chapter.js").Chapter} chapter */
  constructor(chapter) {
    this.chapter = chapter;
    this.hasUniform = chapter.data.statistics.some(({ uniform }) => uniform.some((stack) => stack.length));
  }

  /** @param {Head} head */
  show(head) {
    this.chapter.byId("card").replaceChildren(element("h3", {}, `All statistics of head ${head.label}`), ...this.groups(head),
      element("p", { class: "note" }, `Grey ticks: all heads. Orange: this head with its 95 % interval.${this.hasUniform ? " 2.0×: twice the share under uniform attention." : ""}`));
  }

  /** One table, or one for each group if there are several. @param {Head} head */
  groups(head) {
    /** @type {Map<string, HTMLElement[]>} */
    const groups = new Map(GROUPS.map((group) => [group, []]));
    for (const statistic of this.chapter.data.statistics) {
      const measurement = measurementOf(statistic, head);
      if (measurement) groups.set(statistic.group, [...(groups.get(statistic.group) ?? []), this.line(statistic, head, measurement)]);
    }
    const filled = [...groups].filter(([, lines]) => lines.length);
    if (filled.length === 1) return [rangesTable(filled[0][1])];
    return filled.map(([group, lines]) => {
      const details = element("details", { class: "group" }, element("summary", {}, `${group} (${lines.length})`), rangesTable(lines));
      details.open = this.openGroups.has(group);
      details.addEventListener("toggle", () => { this.openGroups[details.open ? "add" : "delete"](group); });
      return details;
    });
  }

  /** @param {Statistic} statistic @param {Head} head @param {Measurement} measurement */
  line(statistic, head, measurement) {
    const { name, definition, title } = statistic, [value, interval] = formatParts(statistic, measurement);
    const cell = element("td", { class: (value + interval).length > LONGEST_ON_A_LINE ? "wraps" : "" },
      element("b", {}, value), element("span", { class: "interval" }, interval));
    if (this.hasUniform) cell.append(uniformRatio(statistic, head, measurement));
    const line = element("tr", { "data-statistic": name, title: `${name}: ${definition || title}${formatCount(statistic, measurement, " (", ")")}` },
      element("td", {}, titleOf(statistic)), element("td", {}, strip(statistic, measurement)), cell);
    if (statistic === this.chapter.statistic && !this.chapter.colouring) line.className = "chosen";
    return line;
  }
}

/** @param {HTMLElement[]} lines */
const rangesTable = (lines) => element("table", { class: "ranges" }, element("tbody", {}, ...lines));

/** A share as a multiple of what uniform attention gives on the same texts: shares alone depend on their length.
 * @param {Statistic} statistic @param {Head} head @param {Measurement} measurement */
function uniformRatio({ uniform }, { stack, layer }, { value }) {
  const share = uniform[stack][layer];
  if (!share) return element("span", { class: "times" });
  const ratio = value / share, text = `${ratio >= 9.95 ? ratio.toFixed(0) : ratio.toFixed(1)}×`;
  return element("span", { class: "times", title: `${text} the value under uniform attention` }, text);
}

/** The values of all heads as ticks on a line, this one marked. @param {Statistic} statistic @param {Measurement} measurement */
function strip({ min, max, values }, { value, low, high }) {
  const x = (/** @type {number} */ at) => (4 + 192 * clamp((at - min) / (max - min || 1), 0, 1)).toFixed(1);
  const picture = svgTag("svg", { viewBox: "0 0 200 16", preserveAspectRatio: "none", "aria-hidden": "true" },
    svgTag("path", { d: "M4 8H196", stroke: "var(--rule)", "stroke-width": 1 }),
    svgTag("path", { d: values.map((other) => `M${x(other)} 4v8`).join(""), stroke: "var(--muted)", "stroke-width": 1, opacity: 0.35 }));
  if (low !== null && high !== null) picture.append(svgTag("path", { d: `M${x(low)} 8H${x(high)}`, stroke: ORANGE, "stroke-width": 5, opacity: 0.55 }));
  picture.append(svgTag("path", { d: `M${x(value)} 1v14`, stroke: ORANGE, "stroke-width": 3 }));
  return picture;
}
