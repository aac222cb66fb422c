/* The explorer of a study. Data comes from one JSON element; every string is set as text, never as HTML. */
(() => {
"use strict";
const data = JSON.parse(document.getElementById("study-data").textContent);
const byId = (id) => document.getElementById(id);
const MOST_WITH_VALUES = 16;
const MOST_ROWS = 400;
const MOST_OFFSETS = 20;
const state = { statistic: 0, head: null, fit: false, sort: "value", descending: true };

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

/* ---- numbers and colours ---- */
const minus = (text) => text.replace("-", "\u2212");
const signed = (x) => (x > 0 ? "+" : "") + minus(String(x));
/* Changes of thousandths: three digits that count, and none in a cell, where only zeros would fit. */
const isTiny = (one) => ["share", "nats"].includes(one.kind) && Math.max(-one.least, one.most) < 0.05;
const number = (one, x) => {
  if (x === null) return "";
  if (isTiny(one)) return minus(String(Number(x.toPrecision(3))));
  if (one.kind === "offset") return signed(x);
  if (one.kind === "share" || one.kind === "nats") return minus(x.toFixed(3));
  if (one.kind === "tokens") return minus(x.toFixed(2));
  return minus(String(Number(x.toPrecision(4))));
};
const brief = (one, x) => {
  if (isTiny(one)) return "";
  if (one.kind === "offset") return signed(x);
  if (one.kind === "share") return minus(x.toFixed(2).replace(/^0\./, "."));
  if (one.kind === "nats" || one.kind === "tokens") return minus(x.toFixed(1));
  return minus(String(Number(x.toPrecision(2))));
};
const whole = (one, row) => number(one, row.value)
  + (row.low !== null && row.high !== null ? ` [${number(one, row.low)}, ${number(one, row.high)}]` : "");
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const ramps = { sequential: data.colours.sequential.map(channels), diverging: data.colours.diverging.map(channels) };
const blend = (ramp, share) => {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const left = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[left].map((from, c) => Math.round(from + (ramp[left + 1][c] - from) * (at - left)));
};
const css = (rgb) => `rgb(${rgb.join(",")})`;
const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const isPale = (rgb) => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]) > 0.21;
const rampOf = (one) => (one.diverging ? ramps.diverging : ramps.sequential);
const limits = (one) => {
  if (!state.fit) return [one.low, one.high];
  if (one.diverging) { const reach = Math.max(Math.abs(one.least), Math.abs(one.most)) || 1; return [-reach, reach]; }
  return one.most > one.least ? [one.least, one.most] : [one.least, one.least + 1];
};
const colour = (one, x) => { const [low, high] = limits(one); return blend(rampOf(one), (x - low) / (high - low || 1)); };

/* ---- small builders ---- */
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
};
const shape = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
};

/* ---- layers x heads ---- */
const cellAt = new Map();
const buildGrids = () => {
  data.stacks.forEach((stack, s) => {
    const small = stack.heads > MOST_WITH_VALUES;
    const table = make("table", { role: "grid", class: small ? "grid small" : "grid", "aria-label": `${stack.name}: layers and heads` });
    const numbers = Array.from({ length: stack.heads }, (_, head) =>
      make("th", { scope: "col" }, small && head % 4 ? "" : String(head)));
    table.append(make("thead", {}, make("tr", {}, make("th", { scope: "col" }, small ? "" : "layer"), ...numbers)));
    const body = make("tbody");
    for (let layer = 0; layer < stack.layers; layer += 1) {
      const row = make("tr", {}, make("th", { scope: "row" }, small && layer % 2 ? "" : String(layer)));
      for (let head = 0; head < stack.heads; head += 1) {
        const cell = make("td", { role: "gridcell", tabindex: "-1" });
        cellAt.set(`${s}/${layer}/${head}`, cell);
        row.append(cell);
      }
      body.append(row);
    }
    table.append(body);
    const title = `${stack.name}: ${stack.layers} layers down, ${stack.heads} heads across`;
    stack.box = make("div", { class: "stack" }, make("h3", {}, title), table);
    byId("grids").append(stack.box);
  });
  heads.forEach((head, i) => {
    head.cell = cellAt.get(`${head.s}/${head.layer}/${head.head}`);
    head.cell.dataset.head = head.label;
    head.cell.addEventListener("pointerenter", () => tell(head));
    head.cell.addEventListener("focus", () => { rove(head); tell(head); });
    head.cell.addEventListener("click", () => select(head));
    head.cell.addEventListener("keydown", (event) => move(event, head));
    if (i === 0) head.cell.tabIndex = 0;
  });
};
let reachable = null;
const rove = (head) => { (reachable || heads[0]).cell.tabIndex = -1; head.cell.tabIndex = 0; reachable = head; };
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const move = (event, head) => {
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(head); return; }
  const step = STEPS[event.key];
  if (!step) return;
  event.preventDefault();
  const next = cellAt.get(`${head.s}/${head.layer + step[0]}/${head.head + step[1]}`);
  if (next && next.dataset.head) next.focus();
};
const paintGrids = () => {
  const one = chosen();
  cellAt.forEach((cell) => { if (!cell.dataset.head) cell.className = "none"; });
  heads.forEach((head) => {
    const row = read(one, head);
    head.cell.className = row ? "" : "none";
    head.cell.textContent = row && data.stacks[head.s].heads <= MOST_WITH_VALUES ? brief(one, row.value) : "";
    head.cell.style.background = "";
    if (row) {
      const rgb = colour(one, row.value);
      head.cell.style.background = css(rgb);
      head.cell.style.color = isPale(rgb) ? "#14212d" : "#fdfdfd";
    }
    head.cell.setAttribute("aria-label", `head ${head.label}, ${one.name} ${row ? whole(one, row) : "no value"}`);
    head.cell.setAttribute("aria-selected", String(head === state.head));
  });
  data.stacks.forEach((stack, s) => { stack.box.hidden = !one.stacks[s]; });
  const [low, high] = limits(one);
  byId("legend-low").textContent = number(one, Number(low.toPrecision(3))).replace(/\.0+$/, "");
  byId("legend-high").textContent = number(one, Number(high.toPrecision(3))).replace(/\.0+$/, "");
  byId("legend-unit").textContent = one.unit.split(",")[0];
  byId("legend-bar").style.background = `linear-gradient(to right, ${rampOf(one).map(css).join(", ")})`;
  byId("definition").textContent = one.definition || one.title;
};
const tell = (head) => {
  const one = chosen();
  const row = read(one, head);
  const rest = row ? ` ${one.name} ${whole(one, row)} from ${row.count} texts` : ` has no value of ${one.name}`;
  byId("readout").replaceChildren(make("b", {}, head.label), rest);
};

/* ---- one head ---- */
const strip = (one, row) => {
  const span = one.most - one.least || 1;
  const x = (value) => (4 + 192 * Math.min(Math.max((value - one.least) / span, 0), 1)).toFixed(1);
  const ticks = one.values.map((value) => `M${x(value)} 4v8`).join("");
  const picture = shape("svg", { viewBox: "0 0 200 16", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("path", { d: "M4 8H196", stroke: "var(--rule)", "stroke-width": "1" }),
    shape("path", { d: ticks, stroke: "var(--muted)", "stroke-width": "1", opacity: "0.35" }));
  if (row.low !== null && row.high !== null) {
    picture.append(shape("path", { d: `M${x(row.low)} 8H${x(row.high)}`, stroke: "#d55e00", "stroke-width": "5", opacity: "0.55" }));
  }
  picture.append(shape("path", { d: `M${x(row.value)} 1v14`, stroke: "#d55e00", "stroke-width": "3" }));
  return picture;
};
const ranges = (head) => {
  const table = make("table", { class: "ranges" });
  data.statistics.forEach((one, i) => {
    const row = read(one, head);
    if (!row) return;
    const interval = row.low !== null && row.high !== null ? ` [${number(one, row.low)}, ${number(one, row.high)}]` : "";
    const line = make("tr", { "data-statistic": one.name, title: `${one.definition || one.title} (${row.count} texts)` },
      make("td", {}, one.name), make("td", {}, strip(one, row)),
      make("td", {}, make("b", {}, number(one, row.value)), make("span", { class: "interval" }, interval)));
    if (i === state.statistic) line.className = "chosen";
    table.append(line);
  });
  return table;
};
const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
const meanMap = (head) => {
  const [queries, keys] = data.maps.shapes[head.s];
  const text = data.maps.data[head.s][head.layer * data.maps.heads[head.s] + head.head];
  if (!text || head.head >= data.maps.heads[head.s]) return [];
  const heading = make("h4", {}, `Mean attention map of ${head.label}`);
  if (typeof DecompressionStream === "undefined") return [heading, make("p", {}, "This browser is too old to unpack it.")];
  const canvas = make("canvas", { width: keys, height: queries, role: "img", "aria-label": `mean attention of head ${head.label}` });
  canvas.style.aspectRatio = `${keys} / ${queries}`;
  const told = make("div", { class: "map-readout" }, data.maps.cut ? `The first ${Math.max(queries, keys)} positions.` : "");
  unpack(text).then((codes) => {
    const missing = channels(getComputedStyle(document.documentElement).getPropertyValue("--missing").trim());
    const image = new ImageData(keys, queries);
    codes.forEach((code, i) => image.data.set([...(code === 255 ? missing : blend(ramps.sequential, code / 254)), 255], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.dataset.ready = "yes";
    canvas.addEventListener("pointermove", (event) => {
      const key = Math.min(keys - 1, Math.max(0, Math.floor((event.offsetX / canvas.clientWidth) * keys)));
      const query = Math.min(queries - 1, Math.max(0, Math.floor((event.offsetY / canvas.clientHeight) * queries)));
      const code = codes[query * keys + key];
      told.textContent = `position ${query} to ${key}: ${code === 255 ? "no text that long" : ((code / 254) ** 2).toFixed(2)}`;
    });
  }).catch(() => { told.textContent = "The map could not be unpacked."; });
  return [heading, make("div", { class: "map" }, make("span"), make("span", {}, `key, 0 to ${keys - 1} \u2192`),
    make("span", { class: "down" }, `\u2190 query, 0 to ${queries - 1}`), canvas, make("span"), told)];
};
const profile = (head) => {
  const all = (data.offsets[head.s] || [])[head.index];
  if (!all) return [];
  const reach = Math.min((all.length - 1) / 2, MOST_OFFSETS);
  const shares = all.slice((all.length - 1) / 2 - reach, (all.length + 1) / 2 + reach);
  const most = Math.max(0.05, ...shares.map((x) => x || 0));
  const wide = 324 / shares.length;
  const picture = shape("svg", { viewBox: "0 0 360 118", class: "profile", role: "img", "aria-label": "attention by relative position" });
  picture.append(shape("path", { d: "M30 92H356", stroke: "var(--rule)" }), shape("text", { x: 26, y: 14, "text-anchor": "end" }, most.toFixed(2)),
    shape("text", { x: 26, y: 95, "text-anchor": "end" }, "0"));
  shares.forEach((share, i) => {
    const offset = i - reach;
    const tall = (82 * (share || 0)) / most;
    picture.append(shape("rect", { x: 31 + i * wide, y: 92 - tall, width: Math.max(wide - 1, 0.5), height: tall,
      fill: offset === 0 ? "#e69f00" : "var(--accent)" },
      shape("title", {}, `offset ${signed(offset)}: ${share === null ? "none" : share.toFixed(3)}`)));
    if (offset === 0 || Math.abs(offset) === reach || offset % 5 === 0 && Math.abs(offset) < reach - 2) {
      picture.append(shape("text", { x: 31 + (i + 0.5) * wide, y: 106, "text-anchor": "middle" }, signed(offset)));
    }
  });
  return [make("h4", {}, `Attention of ${head.label} by offset (key minus query)`), picture];
};
/* ---- what a head does: roles, twin, substitute, relations, examples ---- */
const between = (row) => (row.low !== null && row.high !== null ? ` [${row.low.toFixed(3)}, ${row.high.toFixed(3)}]` : "");
const nats = (x) => `${x.toFixed(x < 0.01 ? 4 : 2)} nats`;
const opener = (head) => {
  const link = make("a", { href: "#explore" }, head.label);
  link.addEventListener("click", (event) => { event.preventDefault(); select(head); });
  return link;
};
const sentence = (one) => {
  const [, , , number, query, key, weight, expected] = one;
  const line = make("p", { class: "example" });
  data.cards.sentences[number].forEach((word, i) => {
    const classes = [i === query && "query", i === key && "key", i === expected && "expected"].filter((name) => name);
    line.append(classes.length ? make("span", { class: classes.join(" ") }, word) : word, " ");
  });
  line.append(make("span", { class: "weight" }, weight.toFixed(2)));
  return line;
};
const examplesOf = (role, card) => ["typical", "counter"].flatMap((kind) => {
  const found = card.examples.filter((one) => one[0] === role && one[1] === kind);
  const heading = kind === "typical" ? "where it does" : "where it looks elsewhere";
  return found.length ? [make("h5", {}, heading), ...found.map(sentence)] : [];
});
const roleParts = (card) => {
  const seen = new Set();
  return card.roles.map((one, i) => {
    const rule = `${one.rule}${one.sure ? "" : " (the interval reaches below)"}`;
    const baseline = one.baseline === null ? "" : `, baseline ${one.baseline.toFixed(3)}`;
    const shown = seen.has(one.role) ? [] : examplesOf(one.role, card);
    seen.add(one.role);
    const line = make("details", { class: "role" }, make("summary", {}, make("b", {}, one.role),
      ` ${minus(one.value.toFixed(3))}${minus(between(one))}${baseline}`), make("p", { class: "rule" }, rule), ...shown);
    line.open = i === 0;
    return line;
  });
};
const hasRoles = data.cards.heads.some((stack) => stack.some((one) => one && one.roles.length));
const does = (head) => {
  const card = (data.cards.heads[head.s] || [])[head.index];
  if (!card) return [];
  const parts = [make("h3", {}, `What head ${head.label} does`)];
  if (hasRoles) parts.push(...(card.roles.length ? roleParts(card) : [make("p", { class: "note" }, "No rule for a role holds.")]));
  if (card.examples.length) {
    parts.push(make("p", { class: "note" }, make("span", { class: "example" }, make("span", { class: "query" }, "looks"), " at ",
      make("span", { class: "key" }, "largest weight"), ", ", make("span", { class: "expected" }, "where the rule wants it")),
      ". The clearest of a few texts, not usual ones."));
  }
  const facts = make("ul");
  if (card.twin) {
    const twin = heads.find((one) => one.s === head.s && one.layer === card.twin[0] && one.head === card.twin[1]);
    if (twin) facts.append(make("li", {}, "most like head ", opener(twin), `, ${nats(card.twin[2])} apart`));
  }
  if (card.substitute) facts.append(make("li", {}, `nearest fixed pattern: ${card.substitute[0]}, ${nats(card.substitute[1])} away`));
  card.relations.forEach((one) => facts.append(make("li", {}, make("b", {}, one.relation), `, ${one.direction}: ${one.accuracy.toFixed(3)}${between(one)}, `
    + `best offset ${one.baseline.toFixed(3)}`)));
  return facts.children.length ? [...parts, facts] : parts;
};
const sheets = () => document.querySelectorAll("table.sheet").forEach((table) => {
  const body = table.tBodies[0];
  const first = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const name = cell.textContent;
    const button = make("button", { type: "button" }, name);
    cell.replaceChildren(button);
    const keyOf = (row) => {
      const key = row.cells[column].dataset.key;
      return key === undefined ? null : cell.classList.contains("words") ? key : Number(key);
    };
    button.addEventListener("click", () => {
      const was = cell.getAttribute("aria-sort");
      const falls = was === null ? !cell.classList.contains("words") : was === "ascending";
      [...table.tHead.rows[0].cells].forEach((other) => {
        other.removeAttribute("aria-sort");
        other.firstChild.textContent = other.firstChild.textContent.replace(/ [\u2191\u2193]$/, "");
      });
      cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
      button.textContent = name + (falls ? " \u2193" : " \u2191");
      const order = new Map(first.map((row, i) => [row, i]));
      body.replaceChildren(...[...first].sort((a, b) => {
        const [x, y] = [keyOf(a), keyOf(b)];
        if (x === y) return order.get(a) - order.get(b);
        if (x === null || y === null) return x === null ? 1 : -1;
        return (x < y ? -1 : 1) * (falls ? -1 : 1);
      }));
    });
  });
});
const showCard = () => {
  const head = state.head;
  if (!head) { byId("card").replaceChildren(make("p", { class: "note" }, "Choose a head.")); return; }
  const explained = make("p", { class: "note" }, "Grey ticks are all heads, the orange mark is this one with its 95 % interval.");
  byId("card").replaceChildren(make("h3", {}, `Head ${head.label}`), ranges(head), explained);
  byId("does").replaceChildren(...does(head));
  const pictures = [meanMap(head), profile(head)].filter((parts) => parts.length);
  byId("pictures").replaceChildren(...pictures.map((parts) => make("div", {}, ...parts)));
};
const select = (head) => {
  state.head = head;
  rove(head);
  heads.forEach((other) => other.cell.setAttribute("aria-selected", String(other === head)));
  document.querySelectorAll("#heads tbody tr").forEach((row) => row.classList.toggle("chosen", row.dataset.head === head.label));
  tell(head);
  showCard();
};

/* ---- the table ---- */
const COLUMNS = ["head", "value", "low", "high", "count"];
const matcher = (text) => {
  const items = text.split(",").map((item) => item.trim()).filter((item) => item);
  const patterns = items.map((item) => new RegExp(`^${item.toLowerCase().replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*")}${/[.*]$/.test(item) || !item.includes(".") ? "" : "$"}`));
  return (head) => !patterns.length || patterns.some((pattern) => pattern.test(head.label.toLowerCase()));
};
const shownRows = () => {
  const one = chosen();
  const least = byId("least").value === "" ? -Infinity : Number(byId("least").value);
  const matches = matcher(byId("filter").value);
  const rows = heads.map((head, order) => ({ head, order, ...read(one, head) }))
    .filter((row) => row.value !== undefined && row.value >= least && matches(row.head));
  const key = (row) => (state.sort === "head" ? row.order : row[state.sort]);
  rows.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === y) return a.order - b.order;
    if (x === null || y === null) return x === null ? 1 : -1;
    return state.descending ? y - x : x - y;
  });
  return rows;
};
const buildTable = () => {
  const row = make("tr");
  COLUMNS.forEach((column) => {
    const button = make("button", { type: "button", "data-sort": column });
    button.addEventListener("click", () => {
      state.descending = state.sort === column ? !state.descending : column !== "head";
      state.sort = column;
      paintTable();
    });
    row.append(make("th", { scope: "col" }, button));
  });
  row.append(make("th", { class: "track" }));
  document.querySelector("#heads thead").append(row);
};
const paintTable = () => {
  const one = chosen();
  const rows = shownRows();
  document.querySelectorAll("#heads thead button").forEach((button) => {
    const mine = button.dataset.sort === state.sort;
    button.textContent = button.dataset.sort + (mine ? (state.descending ? " \u2193" : " \u2191") : "");
    button.parentElement.setAttribute("aria-sort", mine ? (state.descending ? "descending" : "ascending") : "none");
  });
  const start = Math.min(one.least, 0);
  const span = one.most - start || 1;
  const lines = rows.slice(0, MOST_ROWS).map((row) => {
    const opener = make("button", { type: "button" }, row.head.label);
    const bar = make("span", { class: "bar" });
    bar.style.width = `${Math.max(0, (100 * (row.value - start)) / span)}%`;
    const line = make("tr", { "data-head": row.head.label }, make("td", {}, opener),
      ...COLUMNS.slice(1, 4).map((column) => make("td", {}, number(one, row[column]))), make("td", {}, String(row.count)),
      make("td", { class: "track" }, bar));
    line.classList.toggle("chosen", row.head === state.head);
    line.addEventListener("click", () => select(row.head));
    return line;
  });
  document.querySelector("#heads tbody").replaceChildren(...lines);
  byId("table-name").textContent = one.name;
  byId("shown").textContent = `${Math.min(rows.length, MOST_ROWS)} of ${one.values.length} heads`
    + (rows.length > MOST_ROWS ? "; the CSV has all that match" : "");
};
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
const download = () => {
  const one = chosen();
  const text = (x) => (x === null ? "" : String(x));
  const lines = shownRows().map((row) => [quoted(data.stacks[row.head.s].name), row.head.layer, row.head.head, quoted(one.name),
    text(row.value), text(row.low), text(row.high), text(row.count)].join(","));
  const csv = ["stack,layer,head,statistic,value,low,high,count", ...lines].join("\n") + "\n";
  const link = make("a", { download: `${one.name.replace(/[^A-Za-z0-9]+/g, "-") || "statistic"}.csv` });
  link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

/* ---- go ---- */
const choose = (i) => {
  state.statistic = i;
  byId("statistic").value = String(i);
  paintGrids();
  paintTable();
  showCard();
  if (state.head) tell(state.head);
};
if (!data.statistics.length || !heads.length) {
  byId("readout").textContent = "This study has no heads.";
  return;
}
document.querySelectorAll(".tools").forEach((tools) => { tools.hidden = false; });
data.statistics.forEach((one, i) => byId("statistic").append(make("option", { value: String(i) }, one.name)));
byId("statistic").addEventListener("change", (event) => choose(Number(event.target.value)));
byId("fit").addEventListener("change", (event) => { state.fit = event.target.checked; paintGrids(); });
byId("filter").addEventListener("input", paintTable);
byId("least").addEventListener("input", paintTable);
byId("download").addEventListener("click", download);
document.querySelectorAll("a.head").forEach((link) => link.addEventListener("click", () => {
  const head = heads.find((one) => one.label === link.dataset.head);
  const statistic = data.statistics.findIndex((one) => one.name === link.dataset.statistic);
  if (statistic >= 0) choose(statistic);
  if (head) select(head);
}));
buildGrids();
buildTable();
sheets();
// Under a tall grid the pictures of a head would be out of sight: then they go beside it.
if (data.stacks.reduce((layers, stack) => layers + stack.layers, 0) > 14) {
  byId("side").prepend(byId("does"));
  byId("side").append(byId("pictures"));
}
choose(Math.max(0, data.statistics.findIndex((one) => one.name === "previous")));
state.head = shownRows().length ? shownRows()[0].head : heads[0];
select(state.head);
})();
