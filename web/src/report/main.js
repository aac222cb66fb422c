// The page of studies. Without scripts its figures, findings and tables are there too.

import { startChapter } from "./chapter.js";
import { makeTablesSortable } from "./sortable_tables.js";

for (const holder of /** @type {NodeListOf<HTMLScriptElement>} */ (document.querySelectorAll("script.study-data"))) startChapter(holder);
makeTablesSortable();

if (navigator.clipboard) for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("button.copy"))) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.text ?? "");
    button.textContent = "Copied";
  });
}

/** @type {HTMLDetailsElement[]} opened for printing: on paper nothing can be unfolded */
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details")].filter((details) => !details.open);
  for (const details of unfolded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
});
