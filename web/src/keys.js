// Keyboard shortcuts, and their list in the help.

import { $, make } from "./dom.js";

/** @typedef {{key: string, shown: string, what: string, act: () => void}} Key */

/** @param {Key[]} keys */
export function startKeys(keys) {
  const list = $("keys"), fixed = [
    ["← ↑ ↓ →", "move between heads in the grid, or between cells in a map"],
    ["Enter", "open the focused head; in a map, select the token"],
    ["Shift Enter", "open the focused head in addition to the open ones, as arcs"],
    ["Tab", "move between parts of the page"],
  ];
  for (const [shown, what] of [...keys.map((one) => [one.shown, one.what]), ...fixed]) {
    const name = make("dt"), description = make("dd", "", what);
    for (const part of shown.split(" ")) name.append(make("kbd", "", part));
    list.append(name, description);
  }
  const help = /** @type {HTMLDialogElement} */ ($("help"));
  $("show-help").addEventListener("click", () => {
    help.showModal();
    $("help-title").focus();  // by default the button at the end has the focus, which scrolls the text out of view
  });
  $("close-help").addEventListener("click", () => help.close());
  help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
  document.addEventListener("keydown", (event) => {
    if (help.open || event.defaultPrevented || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") /** @type {HTMLElement} */ (event.target).blur();
      return;
    }
    const name = `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.key}`, key = keys.find((one) => one.key === name);
    if (!key) return;
    event.preventDefault();
    key.act();
  });
}

/** @param {EventTarget | null} target */
const isTyping = (target) => target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement
  || (target instanceof HTMLInputElement && target.type !== "radio" && target.type !== "checkbox");
