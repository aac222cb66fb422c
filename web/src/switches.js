// The set of heads that are switched off, with undo and redo.

import { $, button, make } from "./dom.js";
import { parsed, quoted, written } from "./heads.js";
import { change, state } from "./state.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").LiveModel} LiveModel */

const MOST_PAST = 200;
/** @type {Set<string>[]} */
let past = [];
/** @type {Set<string>[]} */
let future = [];

/** @param {Set<string>} off */
function switchTo(off) {
  past = [...past, state.off].slice(-MOST_PAST);
  future = [];
  change({ off });
}

/** Switch these heads off or, if all of them are off, on. @param {string[]} heads */
export function toggle(heads) {
  const off = new Set(state.off), isOn = heads.some((head) => !off.has(head));
  for (const head of heads) off[isOn ? "add" : "delete"](head);
  switchTo(off);
}

export function undo() {
  const before = past.pop();
  if (!before) return;
  future.push(state.off);
  change({ off: before });
}

export function redo() {
  const after = future.pop();
  if (!after) return;
  past.push(state.off);
  change({ off: after });
}

/** @param {LiveModel} model */
export const command = (model) => model.prune_command.replace(/HEADS(?= --out small$)/, () => quoted(written(model, state.off)));

/** @param {Model} model @param {number} total  number of heads of the model */
export function drawSwitches(model, total) {
  const count = state.off.size, list = written(model, state.off);
  $("off").replaceChildren();
  if (count) {
    $("off").append(make("b", "", `${count} of ${total} heads off`), make("span", "list", list.replaceAll(",", ", ")));
    $("off").title = list;
  } else {
    $("off").append(make("span", "remark", `All ${total} heads are on. Use the switches in the grid. A click on the number of a layer or column switches all of its heads.`));
    $("off").removeAttribute("title");
  }
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("all-on").disabled = !count;
  $("copy").disabled = !count;
  if (saidIn !== situation()) $("copied").hidden = true;
}

/** @param {LiveModel} model @param {import("./types.js").Unimportant[]} unimportant */
export function startSwitches(model, unimportant) {
  $("undo").addEventListener("click", undo);
  $("redo").addEventListener("click", redo);
  $("all-on").addEventListener("click", () => switchTo(new Set()));
  for (const { what, why, heads, count } of unimportant) {
    const choice = button("small", `Switch off ${count} ${count === 1 ? "head" : "heads"} ${what}`, () => switchTo(new Set([...state.off, ...parsed(model, heads)])));
    choice.title = `${written(model, parsed(model, heads)).replaceAll(",", ", ")}: ${why}.`;
    $("unimportant").append(choice);
  }
  $("unimportant").hidden = !unimportant.length;
  $("copy").addEventListener("click", async () => {
    const text = command(model);
    try {
      await navigator.clipboard.writeText(text);
      say("Copied.", text);
    } catch {
      say("Copy this command:", text);
    }
  });
}

/** @type {number | undefined} */
let timer;
/** The situation in which the last message was shown; the message is hidden when the situation changes. */
let saidIn = "";
const situation = () => JSON.stringify([[...state.off], state.text, state.second, state.show]);

/** @param {string} what @param {string} text */
function say(what, text) {
  const line = $("copied");
  line.replaceChildren(make("span", "", what), make("code", "", text));
  line.hidden = false;
  saidIn = situation();
  clearTimeout(timer);
  timer = setTimeout(() => { line.hidden = true; }, 12000);
}
