/* The card of one head. */
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
/* A longer number would leave no room for the strip beside it: its interval stands below. */
const LONGEST_ON_A_LINE = 24;
/* A share as a multiple of what uniform attention gives on the same texts: shares alone depend on their length. */
const timesUniform = (one, head, row) => {
  const uniform = one.uniform[head.s][head.layer];
  return uniform ? row.value / uniform : null;
};
const hasUniform = data.statistics.some((one) => one.uniform.some((stack) => stack.length));
const timesLabel = (times) => `${times >= 9.95 ? times.toFixed(0) : times.toFixed(1)}\u00d7`;
const rangeLine = (one, i, head) => {
  const row = read(one, head);
  if (!row) return [];
  const [value, interval] = parted(one, row);
  const times = timesUniform(one, head, row);
  const told = times === null ? {} : { title: `${timesLabel(times)} what uniform attention would give` };
  const beyond = hasUniform ? [make("span", { class: "times", ...told }, times === null ? "" : timesLabel(times))] : [];
  const line = make("tr", { "data-statistic": one.name, title: `${one.definition || one.title}${counted(one, row, " (", ")")}` },
    make("td", {}, one.lens ? one.name.replace(`@${one.lens}`, "") : one.name), make("td", {}, strip(one, row)),
    make("td", { class: (value + interval).length > LONGEST_ON_A_LINE ? "wraps" : "" }, make("b", {}, value), make("span", { class: "interval" }, interval), ...beyond));
  if (i === state.statistic && state.colouring === null) line.className = "chosen";
  return [line];
};
/* Importance and raw attention in sight; every other lens folded, and as the reader left it with the head before. */
const GROUPS = ["importance", "attention", "patterns"];
const unfolded = new Set(["importance", "attention"]);
const ranges = (head) => {
  const groups = new Map(GROUPS.map((group) => [group, []]));
  data.statistics.forEach((one, i) => {
    const lines = rangeLine(one, i, head);
    if (lines.length) groups.set(one.group, [...(groups.get(one.group) || []), ...lines]);
  });
  groups.forEach((lines, group) => { if (!lines.length) groups.delete(group); });
  if (groups.size === 1) return [make("table", { class: "ranges" }, make("tbody", {}, ...[...groups.values()][0]))];
  return [...groups].map(([group, lines]) => {
    const part = make("details", { class: "group" }, make("summary", {}, `${group} (${lines.length})`),
      make("table", { class: "ranges" }, make("tbody", {}, ...lines)));
    part.open = unfolded.has(group);
    part.addEventListener("toggle", () => { if (part.open) unfolded.add(group); else unfolded.delete(group); });
    return part;
  });
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
  inflate(text).then((codes) => {
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
  const wide = 312 / shares.length;  // the last label is wider than its bar
  const picture = shape("svg", { viewBox: "0 0 360 118", class: "profile", role: "img", "aria-label": "attention by relative position" });
  picture.append(shape("path", { d: "M30 92H344", stroke: "var(--rule)" }), shape("text", { x: 26, y: 14, "text-anchor": "end" }, most.toFixed(2)),
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
  const link = make("a", { href: `#${prefix}explore` }, head.label);
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
  card.importance.forEach((one) => facts.append(make("li", {}, `${one.what}: `, make("b", {}, one.text), one.after)));
  if (card.twin) {
    const twin = heads.find((one) => one.s === head.s && one.layer === card.twin[0] && one.head === card.twin[1]);
    if (twin) facts.append(make("li", {}, "most like head ", opener(twin), `, ${nats(card.twin[2])} apart`));
  }
  if (card.substitute) facts.append(make("li", {}, `cheapest substitute: the fixed pattern “${card.substitute[0]}”, ${nats(card.substitute[1])} away`));
  card.relations.forEach((one) => facts.append(make("li", {}, make("b", {}, one.relation), `, ${one.direction}: ${one.accuracy.toFixed(3)}${between(one)}, `
    + `best offset ${one.baseline.toFixed(3)}`)));
  return facts.children.length ? [...parts, facts] : parts;
};
const showCard = () => {
  const head = state.head;
  if (!head) { byId("card").replaceChildren(make("p", { class: "note" }, "Choose a head.")); return; }
  const explained = make("p", { class: "note" }, "Grey ticks are all heads, the orange mark is this one with its 95 % interval.");
  byId("card").replaceChildren(make("h3", {}, `Head ${head.label}`), ...ranges(head), explained);
  byId("does").replaceChildren(...does(head));
  const pictures = [meanMap(head), profile(head)].filter((parts) => parts.length);
  byId("pictures").replaceChildren(...pictures.map((parts) => make("div", {}, ...parts)));
};
const select = (head) => {
  state.head = head;
  rove(head);
  heads.forEach((other) => other.cell.setAttribute("aria-selected", String(other === head)));
  byId("heads").tBodies[0].querySelectorAll("tr").forEach((row) => row.classList.toggle("chosen", row.dataset.head === head.label));
  tell(head);
  showCard();
};

