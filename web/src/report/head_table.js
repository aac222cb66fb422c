// The table of all heads: filtered, sorted by any column.

import { element } from "../dom.js";
import { formatValue } from "./numbers.js";
import { compare, measurementOf, titleOf } from "./study_data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Measurement & {head: Head, order: number}} HeadRow  order: of the head in the study */
/** @typedef {"head" | "value" | "low" | "high" | "count"} Column */

const MOST_ROWS = 400;
/** @type {Column[]} */
const COLUMNS = ["head", "value", "low", "high", "count"];

export class HeadTable {
  /** @type {Column} */ sort = "value";
  isDescending = true;

  /** @param {import("./chapter.js").Chapter} chapter */
  constructor(chapter) {
    this.chapter = chapter;
    this.table = /** @type {HTMLTableElement} */ (chapter.byId("heads"));
    this.body = this.table.tBodies[0];
    this.buttons = COLUMNS.map((column) => {
      const button = element("button", { type: "button", "data-sort": column });
      button.addEventListener("click", () => this.sortBy(column));
      return button;
    });
    const headings = this.buttons.map((button) => element("th", { scope: "col" }, button));
    this.table.tHead?.append(element("tr", {}, ...headings, element("th", { class: "track" })));
  }

  /** @param {Column} column */
  sortBy(column) {
    this.isDescending = this.sort === column ? !this.isDescending : column !== "head";
    this.sort = column;
    this.paint();
  }

  /** The rows that pass the filters, sorted. @returns {HeadRow[]} */
  rows() {
    const { byId, data, statistic } = this.chapter;
    const minimum = byId("least").value === "" ? -Infinity : Number(byId("least").value), matches = matcher(byId("filter").value);
    const rows = data.heads.flatMap((head, order) => {
      const measurement = measurementOf(statistic, head);
      return measurement && measurement.value >= minimum && matches(head) ? [{ head, order, ...measurement }] : [];
    });
    const key = (/** @type {HeadRow} */ row) => (this.sort === "head" ? row.order : row[this.sort]);
    return rows.sort((a, b) => compare(key(a), key(b), this.isDescending) || a.order - b.order);
  }

  paint() {
    const { byId, statistic } = this.chapter, rows = this.rows();
    for (const button of this.buttons) {
      const column = button.dataset.sort, isSorted = column === this.sort;
      button.textContent = column + (isSorted ? (this.isDescending ? " ↓" : " ↑") : "");
      button.parentElement?.setAttribute("aria-sort", isSorted ? (this.isDescending ? "descending" : "ascending") : "none");
    }
    this.body.replaceChildren(...rows.slice(0, MOST_ROWS).map((row) => this.line(row)));
    byId("table-name").replaceChildren(titleOf(statistic), " ", element("code", {}, statistic.name));
    byId("shown").textContent = `${Math.min(rows.length, MOST_ROWS)} of ${statistic.values.length} heads`
      + (rows.length > MOST_ROWS ? "; the CSV file has all that match" : "");
  }

  /** @param {HeadRow} row */
  line(row) {
    const { statistic } = this.chapter, start = Math.min(statistic.min, 0), range = statistic.max - start || 1;
    const bar = element("span", { class: "bar" });
    bar.style.width = `${Math.max(0, (100 * (row.value - start)) / range)}%`;
    const line = element("tr", { "data-head": row.head.label }, element("td", {}, element("button", { type: "button" }, row.head.label)),
      ...[row.value, row.low, row.high].map((value) => element("td", {}, formatValue(statistic, value))), element("td", {}, String(row.count)),
      element("td", { class: "track" }, bar));
    line.classList.toggle("chosen", row.head === this.chapter.head);
    line.addEventListener("click", () => this.chapter.select(row.head));
    return line;
  }

  /** @param {Head} selected */
  markSelected(selected) {
    for (const row of this.body.rows) row.classList.toggle("chosen", row.dataset.head === selected.label);
  }
}

/** Matches heads against a list such as "3.*, 4.1": * is any text, and a layer alone is all its heads. @param {string} text */
function matcher(text) {
  const items = text.split(",").map((item) => item.trim()).filter((item) => item);
  const patterns = items.map((item) => {
    const escaped = item.toLowerCase().replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*"), isPrefix = /[.*]$/.test(item) || !item.includes(".");
    return new RegExp(`^${escaped}${isPrefix ? "" : "$"}`);
  });
  return (/** @type {Head} */ { label }) => !patterns.length || patterns.some((pattern) => pattern.test(label.toLowerCase()));
}
