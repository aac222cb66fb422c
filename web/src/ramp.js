// Colours as [red, green, blue], and ramps of them.

/** @typedef {number[]} Rgb  three numbers, 0 to 255 */

/** @param {string} hex  such as #1f5fa6 @returns {Rgb} */
export const channels = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));

/** @param {Rgb} rgb */
export const rgbText = (rgb) => `rgb(${rgb.join(",")})`;

/** The colour at this share (0 to 1) of a ramp with evenly spaced stops. @param {Rgb[]} stops @param {number} share @returns {Rgb} */
export function blend(stops, share) {
  const position = Math.min(Math.max(share, 0), 1) * (stops.length - 1), left = Math.min(Math.floor(position), stops.length - 2);
  return stops[left].map((value, channel) => Math.round(value + (stops[left + 1][channel] - value) * (position - left)));
}

/** Relative luminance as WCAG defines it. @param {Rgb} rgb */
export function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** @param {HTMLCanvasElement} canvas @param {ImageData} image */
export function paint(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}
