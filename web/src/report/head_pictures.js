// Pictures of one head: its mean attention map, and its attention by offset.

import { clamp, element, svgTag } from "../dom.js";
import { inflate } from "../inflate.js";
import { blend, channels, paint } from "../ramp.js";
import { formatSigned } from "./numbers.js";
import { NO_WEIGHT, weightOf } from "./study_data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Packed} Packed */
/** @typedef {import("../ramp.js").Rgb} Rgb */

const MOST_OFFSETS = 20;

/** @param {Packed} packed @param {Head} head @param {Rgb[]} ramp @returns {Element[]} */
export function meanMap({ maps }, { stack, layer, head, label }, ramp) {
  const [queries, keys] = maps.shapes[stack], width = maps.heads[stack], text = maps.data[stack][layer * width + head];
  if (!text || head >= width) return [];
  const heading = element("h4", {}, `Mean attention map of ${label}`);
  if (typeof DecompressionStream === "undefined") return [heading, element("p", {}, "This browser is too old to show the map.")];
  const canvas = element("canvas", { width: keys, height: queries, role: "img", "aria-label": `mean attention of head ${label}` });
  canvas.style.aspectRatio = `${keys} / ${queries}`;
  const readout = element("div", { class: "map-readout" }, maps.cut ? `Only the first ${Math.max(queries, keys)} positions are shown.` : "");
  inflate(text).then((buffer) => {
    const codes = new Uint8Array(buffer);
    paint(canvas, imageOf(codes, keys, queries, ramp));
    canvas.dataset.ready = "yes";
    canvas.addEventListener("pointermove", (event) => {
      const key = clamp(Math.floor((event.offsetX / canvas.clientWidth) * keys), 0, keys - 1);
      const query = clamp(Math.floor((event.offsetY / canvas.clientHeight) * queries), 0, queries - 1), code = codes[query * keys + key];
      readout.textContent = `query position ${query}, key position ${key}: ${code === NO_WEIGHT ? "no text is that long" : weightOf(code).toFixed(2)}`;
    });
  }).catch(() => { readout.textContent = "The map could not be decoded."; });
  return [heading, element("div", { class: "map" }, element("span"), element("span", {}, `key, 0 to ${keys - 1} →`),
    element("span", { class: "down" }, `← query, 0 to ${queries - 1}`), canvas, element("span"), readout)];
}

/** @param {Uint8Array} codes @param {number} keys @param {number} queries @param {Rgb[]} ramp */
function imageOf(codes, keys, queries, ramp) {
  const missing = channels(getComputedStyle(document.documentElement).getPropertyValue("--missing").trim()), image = new ImageData(keys, queries);
  codes.forEach((code, index) => image.data.set([...(code === NO_WEIGHT ? missing : blend(ramp, code / 254)), 255], 4 * index));
  return image;
}

/** A bar for each offset around 0. @param {Packed} packed @param {Head} head @returns {Element[]} */
export function offsetProfile({ offsets }, { stack, index, label }) {
  const profile = offsets[stack]?.[index];
  if (!profile) return [];
  const farthest = (profile.length - 1) / 2, reach = Math.min(farthest, MOST_OFFSETS), shares = profile.slice(farthest - reach, farthest + reach + 1);
  const top = Math.max(0.05, ...shares.map((share) => share ?? 0));
  const step = 312 / shares.length;  // the last label is wider than its bar
  const picture = svgTag("svg", { viewBox: "0 0 360 118", class: "profile", role: "img", "aria-label": "attention by relative position" },
    svgTag("path", { d: "M30 92H344", stroke: "var(--rule)" }), svgTag("text", { x: 26, y: 14, "text-anchor": "end" }, top.toFixed(2)),
    svgTag("text", { x: 26, y: 95, "text-anchor": "end" }, "0"));
  shares.forEach((share, position) => {
    const offset = position - reach, distance = Math.abs(offset), height = (82 * (share ?? 0)) / top;
    picture.append(svgTag("rect", {
      x: 31 + position * step, y: 92 - height, width: Math.max(step - 1, 0.5), height, fill: offset === 0 ? "#e69f00" : "var(--accent)",
    }, svgTag("title", {}, `offset ${formatSigned(offset)}: ${share === null ? "none" : share.toFixed(3)}`)));
    if (offset === 0 || distance === reach || (offset % 5 === 0 && distance < reach - 2)) {
      picture.append(svgTag("text", { x: 31 + (position + 0.5) * step, y: 106, "text-anchor": "middle" }, formatSigned(offset)));
    }
  });
  return [element("h4", {}, `Attention of ${label} by offset (key minus query)`), picture];
}
