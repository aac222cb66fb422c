// Tokens are text from anywhere: they reach the page by textContent, by canvas, or by an XML serialiser. Nothing else.

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

/** Right-to-left text stays on its side of an arrow. @param {string} text */
export const isolated = (text) => `\u2068${text}\u2069`;

/** A weight with the digits it is stored to: two that count, at most four after the point unless `isSmall` numbers matter. @param {number} weight @param {boolean} [isSmall] */
export function digits(weight, isSmall = false) {
  if (weight === 0) return "0";
  const size = Math.abs(weight), sign = weight < 0 ? "−" : "";
  if (isSmall && (size < 0.00095 || size >= 9995)) return sign + size.toExponential(1).replace("e-", "e−").replace("e+", "e");
  if (size < 0.00005) return `${sign && "> −"}${sign ? "" : "< "}0.0001`;
  return sign + (size >= 0.095 ? size.toFixed(2) : size.toFixed(size >= 0.0095 ? 3 : 4));
}

/** With so many digits after the point, and never less than nothing. @param {number} value @param {number} places */
export function fixed(value, places) {
  const text = Math.abs(value).toFixed(places);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** How many digits after the point show a change; null: six do not. @param {number} by @param {number} least @param {number} [most] */
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

/** Lets the browser answer its user between two pieces of work. */
export const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

const CAPTION = 62, LEAST_TALL = 420;
/** The height that a drawing may have so that it and its caption end with the window, before one scrolls. @param {HTMLElement} node */
export const roomBelow = (node) => Math.max(LEAST_TALL, innerHeight - Math.min(node.getBoundingClientRect().top + scrollY, LEAST_TALL) - CAPTION);
/** The same once it has been scrolled below the choices, where it stays. */
export const roomWhole = () => Math.max(LEAST_TALL, innerHeight - controlsHeight() - CAPTION - 24);

/** Of the choices, where they stay on top of the window. */
export function controlsHeight() {
  const controls = $("controls");
  return getComputedStyle(controls).position === "sticky" ? controls.offsetHeight : 0;
}
