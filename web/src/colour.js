// Colour scales. Weights: one hue with strictly monotone lightness, so that it also works in grey. Differences: two hues that meet
// in the background colour. Both are distinguishable with colour blindness.

import { blend, channels, luminance, paint } from "./ramp.js";
import { state } from "./state.js";

/** @typedef {"light" | "dark"} Theme */
/** @typedef {import("./types.js").View} View */

const RAMPS = {
  light: ["#f4f7fa", "#d3e2f1", "#9fc6e4", "#5a9fd0", "#2470b3", "#0d4787", "#08264f"],
  dark: ["#1d242d", "#1c3a5c", "#24568a", "#3a7fbb", "#6aaee0", "#a9d6f5", "#f0f9ff"],
};
const LESS = {
  light: ["#f4f7fa", "#fbe0c8", "#f3b884", "#dd8641", "#b5591a", "#843a0a", "#4f2004"],
  dark: ["#1d242d", "#4a3018", "#7a4a1c", "#b06a26", "#dd9450", "#f5c79a", "#fff4e8"],
};

/** @param {string[]} stops @param {number} length @returns {number[][]} */
function ramp(stops, length) {
  const rgb = stops.map(channels);
  return Array.from({ length }, (_, index) => blend(rgb, index / (length - 1)));
}

/** The 511 colours of a scale: index 255 is zero, 510 the positive end, 0 the negative end. @param {Theme} name */
const colours = (name) => [...ramp(LESS[name], 256).reverse(), ...ramp(RAMPS[name], 256).slice(1)];
const COLOURS = { light: colours("light"), dark: colours("dark") };
const INKS = {
  light: new Uint32Array(new Uint8Array(COLOURS.light.flatMap((rgb) => [...rgb, 255])).buffer),
  dark: new Uint32Array(new Uint8Array(COLOURS.dark.flatMap((rgb) => [...rgb, 255])).buffer),
};

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
/** @returns {Theme} */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : prefersDark.matches ? "dark" : "light";
}
/** @param {() => void} act */
export const onTheme = (act) => prefersDark.addEventListener("change", act);

/** The number at the end of the colour scale: the map's own largest number, or one for all maps. @param {Pick<View, "largest" | "lens">} view */
export const fullOf = ({ largest, lens }) => (state.range === "head" ? largest || 1 : lens.full);

/** A function from a weight to the index of its colour (0 to 510). @param {Pick<View, "largest" | "lens">} view @returns {(weight: number) => number} */
export function shade(view) {
  const full = fullOf(view), isRoot = state.scale === "root";
  return (weight) => {
    const size = Math.min(1, Math.abs(weight) / full), depth = Math.round(255 * (isRoot ? Math.sqrt(size) : size));
    return weight < 0 ? 255 - depth : 255 + depth;
  };
}

/** @param {number} colour @param {Theme} [name] */
export const css = (colour, name = theme()) => `rgb(${COLOURS[name][colour].join(" ")})`;
/** @param {number} colour */
export const hex = (colour) => `#${COLOURS.light[colour].map((value) => value.toString(16).padStart(2, "0")).join("")}`;

/** Black or white, whichever has enough contrast (WCAG) on this colour. @param {number} colour */
export const inkOn = (colour) => (luminance(COLOURS[theme()][colour]) > 0.179 ? "#000" : "#fff");

/** Colours of heads in the arcs, distinguishable with colour blindness. */
export const HEAD_COLOURS = {
  light: ["#1f5fa6", "#b5591a", "#2a7a4b", "#8a3f8f", "#9a7400", "#3d6d7a", "#a83244", "#5b5b9e"],
  dark: ["#7fb8ec", "#eba468", "#7cc79a", "#d79adb", "#dcbc55", "#8fc3d0", "#ee8d9b", "#aeb0ec"],
};

/**
 * The pixels of a map, at most `most` per side; if several cells share a pixel, it shows the one furthest from 0.
 * @param {View} view @param {number} most @param {Theme} [name]
 */
export function pixels(view, most, name = theme()) {
  const { Q, K, weights } = view, block = Math.max(1, Math.ceil(Math.max(Q, K) / most));
  const width = Math.max(1, Math.ceil(K / block)), height = Math.max(1, Math.ceil(Q / block));
  const peaks = block === 1 ? weights : new Float32Array(width * height);
  for (let row = 0; block > 1 && row < Q; row++) {
    const into = Math.floor(row / block) * width;
    for (let column = 0; column < K; column++) {
      const at = into + Math.floor(column / block), weight = weights[row * K + column];
      if (Math.abs(weight) > Math.abs(peaks[at])) peaks[at] = weight;
    }
  }
  const image = new ImageData(width, height), cells = new Uint32Array(image.data.buffer), colourOf = shade(view), ink = INKS[name];
  for (let at = 0; at < peaks.length; at++) cells[at] = ink[colourOf(peaks[at])];
  return image;
}

/** The five labels below a colour scale, at its quarters; `full` is null if each head has its own scale. @param {boolean} signed @param {number | null} full */
export function legendTexts(signed, full) {
  const places = signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1], isRoot = state.scale === "root";
  return places.map((place, at) => {
    const share = Math.sign(place) * (isRoot ? place * place : Math.abs(place));
    if (state.range === "head" && full === null) return share === 0 ? "0" : at === 4 ? "largest" : at === 0 ? "−largest" : "";
    if (full && full !== 1 && (at === 1 || at === 3)) return "";
    const weight = share * (full || 1), size = Math.abs(weight), sign = weight < 0 ? "−" : signed && weight > 0 ? "+" : "";
    return sign + (size === 0 || size === 1 ? String(size) : (size < 0.00095 ? size.toExponential(1).replace("e-", "e−") : size.toFixed(size < 0.0095 ? 4 : size < 0.055 ? 3 : 2)));
  });
}

/** @param {HTMLElement} holder  with a canvas and five spans @param {boolean} signed @param {number | null} full */
export function drawLegend(holder, signed, full) {
  const image = new ImageData(signed ? 511 : 256, 1);
  new Uint32Array(image.data.buffer).set(signed ? INKS[theme()] : INKS[theme()].subarray(255));
  const strip = holder.querySelector("canvas"), texts = legendTexts(signed, full);
  if (strip) paint(strip, image);
  holder.querySelectorAll("span").forEach((span, at) => { span.textContent = texts[at]; });
  holder.setAttribute("aria-label", `colour scale, ${texts.filter(Boolean).join(", ")}`);
}
