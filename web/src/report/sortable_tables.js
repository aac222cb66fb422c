// Tables of the page that are sorted by a click on a heading.

import { element } from "../dom.js";
import { compare } from "./study_data.js";

export function makeTablesSortable() {
  for (const table of /** @type {NodeListOf<HTMLTableElement>} */ (document.querySelectorAll("table.sheet"))) makeSortable(table);
}

/** @param {HTMLTableElement} table */
function makeSortable(table) {
  const body = table.tBodies[0], rows = [...body.rows], headings = [...table.tHead?.rows[0].cells ?? []];
  const columns = headings.map((heading) => {
    const name = heading.textContent ?? "", button = element("button", { type: "button" }, name);
    heading.replaceChildren(button);
    return { heading, button, name };
  });
  columns.forEach(({ heading, button, name }, index) => {
    const isText = heading.classList.contains("words");
    const keyOf = (/** @type {HTMLTableRowElement} */ row) => {
      const { key } = row.cells[index].dataset;
      return key === undefined ? null : isText ? key : Number(key);
    };
    button.addEventListener("click", () => {
      const order = heading.getAttribute("aria-sort"), isDescending = order === null ? !isText : order === "ascending";
      for (const other of columns) {
        other.heading.removeAttribute("aria-sort");
        other.button.textContent = other.name;
      }
      heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      button.textContent = `${name} ${isDescending ? "↓" : "↑"}`;
      body.replaceChildren(...[...rows].sort((a, b) => compare(keyOf(a), keyOf(b), isDescending)));
    });
  });
}
