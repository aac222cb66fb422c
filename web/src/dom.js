// Small helpers for the DOM. Tokens are untrusted text: they enter the page only as textContent, on a canvas, or through an XML serialiser.

/** @param {string} id @returns {any} */
export const $ = (id) => document.getElementById(id);

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

/** @param {string} className @param {string} text @param {() => void} act */
export function button(className, text, act) {
  const node = make("button", className, text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string | number>} attributes
 * @param {(string | Node)[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  return /** @type {HTMLElementTagNameMap[T]} */ (filled(document.createElement(tag), attributes, children));
}

/** @param {string} name @param {Record<string, string | number>} attributes @param {(string | Node)[]} children */
export function svgTag(name, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/** @template {Element} T @param {T} node @param {Record<string, string | number>} attributes @param {(string | Node)[]} children */
function filled(node, attributes, children) {
  for (const [attribute, value] of Object.entries(attributes)) node.setAttribute(attribute, String(value));
  node.append(...children);
  return node;
}

/** @param {number} x @param {number} low @param {number} high */
export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/** Text in Unicode isolates, so that right-to-left text does not reorder what is around it. @param {string} text */
export const isolated = (text) => `\u2068${text}\u2069`;

/** A weight with two significant digits, which is its stored precision. At most four decimals, or an exponent if `isSmall`. @param {number} weight @param {boolean} [isSmall] */
export function digits(weight, isSmall = false) {
  if (weight === 0) return "0";
  const size = Math.abs(weight), sign = weight < 0 ? "−" : "";
  if (isSmall && (size < 0.00095 || size >= 9995)) return sign + size.toExponential(1).replace("e-", "e−").replace("e+", "e");
  if (size < 0.00005) return `${sign && "> −"}${sign ? "" : "< "}0.0001`;
  return sign + (size >= 0.095 ? size.toFixed(2) : size.toFixed(size >= 0.0095 ? 3 : 4));
}

/** A number with a fixed number of decimals, never “−0”. @param {number} value @param {number} places */
export function fixed(value, places) {
  const text = Math.abs(value).toFixed(places);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** The number of decimals needed to show a change; null if `most` are not enough. @param {number} by @param {number} least @param {number} [most] */
export function placesFor(by, least, most = 6) {
  for (let places = least; places <= most; places++) if (Number(by.toFixed(places)) !== 0) return places;
  return null;
}

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = make("a"), url = URL.createObjectURL(blob);
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Let the browser handle user input between two steps of long work. */
export const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

const CAPTION = 62, LEAST_TALL = 420;
/** The height at which a drawing and its caption end at the lower edge of the window, before scrolling. @param {HTMLElement} node */
export const roomBelow = (node) => Math.max(LEAST_TALL, innerHeight - Math.min(node.getBoundingClientRect().top + scrollY, LEAST_TALL) - CAPTION);
/** The same when the page is scrolled so that the drawing starts below the display options, which stay visible. */
export const roomWhole = () => Math.max(LEAST_TALL, innerHeight - controlsHeight() - CAPTION - 24);

/** The height of the display options if they stay at the top of the window, otherwise 0. */
export function controlsHeight() {
  const controls = $("controls");
  return getComputedStyle(controls).position === "sticky" ? controls.offsetHeight : 0;
}
