/* The map of layers and heads, and the table of heads. */
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
const dye = (cell, rgb) => {
  cell.style.background = css(rgb);
  cell.style.color = isPale(rgb) ? "#14212d" : "#fdfdfd";
};
/* What a colouring says of a head: its label, or nothing. */
const labelled = (colouring, head) => {
  const numbers = colouring.stacks[head.s];
  return numbers && numbers[head.index] !== null ? colouring.labels[numbers[head.index][0]] : null;
};
const inCell = (colouring, head) => colouring.stacks[head.s][head.index].slice(1);
/* brief: what stands in the narrow cells of a telephone, where the text has no room */
const paintCell = (head, words, [text, brief], rgb) => {
  head.cell.className = rgb ? "" : "none";
  const shown = rgb && data.stacks[head.s].heads <= MOST_WITH_VALUES ? text : "";
  if (shown && brief) head.cell.replaceChildren(make("span", { class: "long" }, text), make("span", { class: "brief", "data-brief": brief }));
  else head.cell.textContent = shown;
  head.cell.style.background = "";
  if (rgb) dye(head.cell, rgb);
  head.cell.setAttribute("aria-label", `head ${head.label}${shown ? `: ${shown}` : ""}, ${words}`);  // what is seen is said too
  head.cell.setAttribute("aria-selected", String(head === state.head));
};
const paintColouring = (colouring) => {
  heads.forEach((head) => {
    const label = labelled(colouring, head);
    paintCell(head, `${colouring.title}: ${label ? label.text : "none"}`, label ? inCell(colouring, head) : [""], label && channels(label.colour));
  });
  data.stacks.forEach((stack, s) => { stack.box.hidden = !colouring.stacks[s]; });
  byId("legend").replaceChildren(...colouring.labels.map((label) => {
    const chip = make("span", { class: "chip" });
    chip.style.background = label.colour;
    return make("span", { class: "label" }, chip, `${label.text} (${label.heads})`);
  }));
  byId("definition").textContent = colouring.definition;
};
const paintNumbers = (one) => {
  heads.forEach((head) => {
    const row = read(one, head);
    paintCell(head, `${plainName(one)} ${row ? whole(one, row) : "no value"}`, [row ? brief(one, row.value) : ""], row && colour(one, row.value));
  });
  data.stacks.forEach((stack, s) => { stack.box.hidden = !one.stacks[s]; });
  const [low, high] = limits(one);
  const end = (x) => make("span", {}, number(one, Number(x.toPrecision(3))).replace(/\.0+$/, ""));
  const bar = make("span", { class: "legend-bar" });
  bar.style.background = `linear-gradient(to right, ${rampOf(one).map(css).join(", ")})`;
  byId("legend").replaceChildren(end(low), bar, end(high), ` ${one.unit.split(",")[0]}`);
  byId("definition").replaceChildren(make("code", {}, one.name), ` ${one.definition || one.title}`);
};
const paintGrids = () => {
  cellAt.forEach((cell) => { if (!cell.dataset.head) cell.className = "none"; });
  byId("fit").disabled = state.colouring !== null;
  if (state.colouring === null) paintNumbers(chosen()); else paintColouring(data.colourings[state.colouring]);
};
const tell = (head) => {
  if (state.colouring !== null) {
    const colouring = data.colourings[state.colouring];
    const label = labelled(colouring, head);
    byId("readout").replaceChildren(make("b", {}, head.label), ` ${colouring.title}: ${label ? label.text : "none"}`);
    return;
  }
  const one = chosen();
  const row = read(one, head);
  const rest = row ? ` ${plainName(one)}: ${whole(one, row)}${counted(one, row, " from ")}` : ` has no value of: ${plainName(one)}`;
  byId("readout").replaceChildren(make("b", {}, head.label), rest);
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
  byId("heads").tHead.append(row);
};
const paintTable = () => {
  const one = chosen();
  const rows = shownRows();
  byId("heads").tHead.querySelectorAll("button").forEach((button) => {
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
  byId("heads").tBodies[0].replaceChildren(...lines);
  byId("table-name").replaceChildren(plainName(one), " ", make("code", {}, one.name));
  byId("shown").textContent = `${Math.min(rows.length, MOST_ROWS)} of ${one.values.length} heads`
    + (rows.length > MOST_ROWS ? "; the CSV has all that match" : "");
};
