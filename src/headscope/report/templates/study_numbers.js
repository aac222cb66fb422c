/* What a chapter holds, and how its numbers are written and coloured. */
const MOST_WITH_VALUES = 16;
const MOST_ROWS = 400;
const LONGEST_IN_CELL = 5;
const MOST_OFFSETS = 20;
/* ---- state ---- */
const state = { statistic: 0, colouring: null, head: null, fit: false, sort: "value", descending: true };

/* ---- what there is ---- */
const oneStack = data.stacks.length === 1;
const heads = [];
data.stacks.forEach((stack, s) => {
  for (let layer = 0; layer < stack.layers; layer += 1) {
    for (let head = 0; head < stack.heads; head += 1) {
      const index = layer * stack.heads + head;
      const exists = data.statistics.some((one) => one.stacks[s] && one.stacks[s].value[index] !== null);
      const address = `${layer}.${head}`;
      if (exists) heads.push({ s, layer, head, index, label: oneStack ? address : `${stack.name}.${address}`, cell: null });
    }
  }
});
const read = (one, head) => {
  const columns = one.stacks[head.s];
  if (!columns || columns.value[head.index] === null) return null;
  return { value: columns.value[head.index], low: columns.low[head.index], high: columns.high[head.index],
    count: columns.count[head.index] };
};
data.statistics.forEach((one) => {
  const values = heads.map((head) => read(one, head)).filter((row) => row).map((row) => row.value);
  one.values = values;
  one.least = values.reduce((a, b) => Math.min(a, b), Infinity);
  one.most = values.reduce((a, b) => Math.max(a, b), -Infinity);
});
const chosen = () => data.statistics[state.statistic];
const byId = (id) => document.getElementById(prefix + id);

/* ---- numbers and colours ---- */
const minus = (text) => text.replace("-", "\u2212");
const signed = (x) => (x > 0 ? "+" : "") + minus(String(x));
/* What a statistic is called in words; the lens is said by the group it stands in. */
const plainName = (one) => (one.lens ? one.title.replace(`, lens ${one.lens}`, "") : one.title);
/* Changes of thousandths: as many decimals for all heads as show three digits of the largest, and none in a cell, where
   only zeros would fit; where all are below a hundredth in powers of ten. */
const isTiny = (one) => ["share", "nats", "points", "number", "other"].includes(one.kind) && Math.max(-one.least, one.most) < 0.05
  && one.most > one.least;
const orderOf = (...some) => Math.floor(Math.log10(Math.max(...some.map(Math.abs))));
const powerOf = (one, ...some) => (isTiny(one) && orderOf(one.least, one.most) < -2 && some.some((x) => x) ? orderOf(...some) : 0);
const HIGH = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
const timesTen = (power) => (power ? ` \u00d710${power < 0 ? "\u207b" : ""}${[...String(Math.abs(power))].map((digit) => HIGH[digit]).join("")}` : "");
const mantissa = (one, x, power) => minus(power ? (x / 10 ** power).toFixed(2) : x.toFixed(2 - orderOf(one.least, one.most)));
const number = (one, x) => {
  if (x === null) return "";
  if (isTiny(one)) return x === 0 ? "0" : mantissa(one, x, powerOf(one, x)) + timesTen(powerOf(one, x));
  if (one.kind === "offset") return signed(x);
  if (one.kind === "share" || one.kind === "nats") return minus(x.toFixed(3));
  if (one.kind === "tokens") return minus(x.toFixed(2));
  return minus(String(Number(x.toPrecision(4))));
};
const brief = (one, x) => {
  if (isTiny(one)) return "";
  if (one.kind === "offset") return signed(x);
  const isBelowOne = one.kind === "nats" && Math.max(-one.least, one.most) < 1;  // changes of the loss: one decimal would be 0.0
  if (one.kind === "share" || isBelowOne) return minus(x.toFixed(2).replace(/^(-?)0\./, "$1.").replace("-.00", ".00"));
  if (one.kind === "nats" || one.kind === "tokens") return minus(x.toFixed(1));
  const text = minus(String(Number(x.toPrecision(2))).replace(/^(-?)0\./, "$1."));
  return text.length <= LONGEST_IN_CELL ? text : "";
};
/* [value, interval]: a power of ten is said once, at the end. */
const parted = (one, row) => {
  const hasInterval = row.low !== null && row.high !== null;
  const power = powerOf(one, row.value, ...(hasInterval ? [row.low, row.high] : []));
  const [value, low, high] = [row.value, row.low, row.high].map((x) => (x !== null && power ? mantissa(one, x, power) : number(one, x)));
  return [value, (hasInterval ? ` [${low}, ${high}]` : "") + timesTen(power)];
};
const whole = (one, row) => parted(one, row).join("");
const counted = (one, row, before, after = "") =>
  (row.count ? `${before}${row.count} ${one.group === "importance" ? "examples" : "texts"}${after}` : "");
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const ramps = { sequential: data.colours.sequential.map(channels), diverging: data.colours.diverging.map(channels) };
ramps.reversed = [...ramps.diverging].reverse(); /* high values are worse: worse has one colour everywhere */
const blend = (ramp, share) => {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const left = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[left].map((from, c) => Math.round(from + (ramp[left + 1][c] - from) * (at - left)));
};
const css = (rgb) => `rgb(${rgb.join(",")})`;
const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const isPale = (rgb) => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]) > 0.21;
const rampOf = (one) => (one.reversed ? ramps.reversed : one.diverging ? ramps.diverging : ramps.sequential);
const limits = (one) => {
  if (!state.fit) return [one.low, one.high];
  if (one.diverging) { const reach = Math.max(Math.abs(one.least), Math.abs(one.most)) || 1; return [-reach, reach]; }
  return one.most > one.least ? [one.least, one.most] : [one.least, one.least + 1];
};
const colour = (one, x) => { const [low, high] = limits(one); return blend(rampOf(one), (x - low) / (high - low || 1)); };

/* ---- small builders ---- */
const shape = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
};

