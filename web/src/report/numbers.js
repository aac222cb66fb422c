// Values of statistics as text.

/** @typedef {import("./types.js").Statistic} Statistic */
/** @typedef {import("./types.js").Measurement} Measurement */

const LONGEST_IN_CELL = 5;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const SCALED_KINDS = ["share", "nats", "points", "number", "other"];

/** With a minus sign for the hyphen. @param {string} text */
const withMinus = (text) => text.replace("-", "−");

/** @param {number} value */
export const formatSigned = (value) => (value > 0 ? "+" : "") + withMinus(String(value));

/** Whether all values are so small that three fixed decimals would hide them. @param {Statistic} statistic */
const isTiny = ({ kind, min, max }) => SCALED_KINDS.includes(kind) && Math.max(-min, max) < 0.05 && max > min;

/** The power of ten of the largest value. @param {number[]} values */
const orderOf = (...values) => Math.floor(Math.log10(Math.max(...values.map(Math.abs))));

/** The exponent these values are written with; 0: without a power of ten. @param {Statistic} statistic @param {number[]} values */
function exponentFor(statistic, ...values) {
  const isScientific = isTiny(statistic) && orderOf(statistic.min, statistic.max) < -2 && values.some((value) => value !== 0);
  return isScientific ? orderOf(...values) : 0;
}

/** @param {number} exponent */
function powerOfTen(exponent) {
  if (!exponent) return "";
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[Number(digit)]);
  return ` ×10${exponent < 0 ? "⁻" : ""}${digits.join("")}`;
}

/** Tiny values have as many decimals as show three digits of the largest. @param {Statistic} statistic @param {number} value @param {number} exponent */
const mantissa = ({ min, max }, value, exponent) => withMinus(exponent ? (value / 10 ** exponent).toFixed(2) : value.toFixed(2 - orderOf(min, max)));

/** @param {Statistic} statistic @param {number | null} value */
export function formatValue(statistic, value) {
  if (value === null) return "";
  if (isTiny(statistic)) {
    const exponent = exponentFor(statistic, value);
    return value === 0 ? "0" : mantissa(statistic, value, exponent) + powerOfTen(exponent);
  }
  if (statistic.kind === "offset") return formatSigned(value);
  if (statistic.kind === "share" || statistic.kind === "nats") return withMinus(value.toFixed(3));
  if (statistic.kind === "tokens") return withMinus(value.toFixed(2));
  return withMinus(String(Number(value.toPrecision(4))));
}

/** What fits into a cell of the grid; nothing if only zeros would. @param {Statistic} statistic @param {number} value */
export function formatInCell(statistic, value) {
  const { kind, min, max } = statistic;
  if (isTiny(statistic)) return "";
  if (kind === "offset") return formatSigned(value);
  const isBelowOne = kind === "nats" && Math.max(-min, max) < 1;  // changes of the loss: one decimal would be 0.0
  if (kind === "share" || isBelowOne) return withMinus(value.toFixed(2).replace(/^(-?)0\./, "$1.").replace("-.00", ".00"));
  if (kind === "nats" || kind === "tokens") return withMinus(value.toFixed(1));
  const text = withMinus(String(Number(value.toPrecision(2))).replace(/^(-?)0\./, "$1."));
  return text.length <= LONGEST_IN_CELL ? text : "";
}

/** [value, interval]; a common power of ten follows once, at the end. @param {Statistic} statistic @param {Measurement} measurement */
export function formatParts(statistic, { value, low, high }) {
  const hasInterval = low !== null && high !== null, exponent = exponentFor(statistic, value, ...(hasInterval ? [low, high] : []));
  const format = (/** @type {number | null} */ x) => (x !== null && exponent ? mantissa(statistic, x, exponent) : formatValue(statistic, x));
  return [format(value), (hasInterval ? ` [${format(low)}, ${format(high)}]` : "") + powerOfTen(exponent)];
}

/** @param {Statistic} statistic @param {Measurement} measurement */
export const formatMeasurement = (statistic, measurement) => formatParts(statistic, measurement).join("");

/** The number of examples, batches of examples or texts; empty if it is unknown. @param {Statistic} statistic @param {Measurement} measurement @param {string} before @param {string} [after] */
export const formatCount = ({ group, name }, { count }, before, after = "") =>
  (count ? `${before}${count} ${name === "gradient-batch" ? "batches" : group === "importance" ? "examples" : "texts"}${after}` : "");
