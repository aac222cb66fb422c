// Entry point of a saved page, also in a notebook. All answers are embedded in it.

import { $ } from "./dom.js";
import { attendIn } from "./embedded.js";
import { startPage } from "./page.js";

if (typeof DecompressionStream === "undefined") {
  $("error").textContent = "This browser cannot unpack the maps. Any browser of 2023 or later can.";
  $("error").hidden = false;
} else {
  /** @type {import("./embedded.js").Embedded} */
  const data = JSON.parse($("data").textContent);
  startPage([data.model], attendIn(data), null);
}
