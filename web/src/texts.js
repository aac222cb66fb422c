// The text boxes. A new text is sent when no key was pressed for a moment.

import { asking } from "./asking.js";
import { $ } from "./dom.js";
import { change, state } from "./state.js";

/** @typedef {import("./types.js").LiveModel} Model */

const REST_MS = 220;
/** @type {number | undefined} */
let timer;

/** @param {Model} model */
const isTranslation = (model) => model.stacks.some(({ name }) => name === "cross");

/** @param {Model} model */
export function startTexts(model) {
  const labels = isTranslation(model) ? ["Source", "Target"] : ["Text", "Second text"];
  $("text-label").textContent = labels[0];
  $("second-label").textContent = labels[1];
  $("add-second").textContent = isTranslation(model) ? "+ target" : "+ second text";
  $("text").placeholder = "Type or paste a text";
  $("second").placeholder = isTranslation(model) ? "A translation: shows how likely it is, and the decoder’s attention" : "A second text, read as a pair with the first";
  const onInput = () => {
    if (!asking.isTyped) {
      asking.isTyped = true;
      change({});
    }
    clearTimeout(timer);
    timer = setTimeout(commit, REST_MS);
  };
  for (const id of ["text", "second"]) {
    $(id).addEventListener("input", () => { grow($(id)); onInput(); });
    $(id).addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) commit();
    });
  }
  $("add-second").addEventListener("click", () => {
    commit();
    change({ second: "" });
    $("second").focus();
  });
  $("drop-second").addEventListener("click", () => {
    commit();
    change({ second: null });
    $("text").focus();
  });
  $("example").addEventListener("click", () => {
    change({ text: model.example.text, second: model.example.second, token: null });
    $("text").focus();
  });
  addEventListener("resize", () => { grow($("text")); grow($("second")); });
}

/** Use the text in the boxes now. */
function commit() {
  clearTimeout(timer);
  asking.isTyped = false;
  const second = state.second === null ? null : $("second").value;
  if ($("text").value !== state.text || second !== state.second) change({ text: $("text").value, second, token: null });
  else change({});
}

/** @param {Model} model */
export function drawTexts(model) {
  for (const [id, value] of [["text", state.text], ["second", state.second ?? ""]]) {
    if ($(id).value !== value && !asking.isTyped) $(id).value = value;
    grow($(id));
  }
  $("second-box").hidden = state.second === null;
  $("add-second").hidden = state.second !== null || !model.takes_pair;
}

/** Fit the height of a box to its text, up to a limit; two lines if a head is open, because the map needs the space. @param {HTMLTextAreaElement} box */
function grow(box) {
  if (!box.offsetParent) return;
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, state.heads.length ? 64 : Math.max(64, innerHeight * 0.15))}px`;
}
