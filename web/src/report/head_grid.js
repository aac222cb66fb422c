// Grids of layers × heads, coloured by a statistic or by labels.

import { element } from "../dom.js";
import { channels, rgbText } from "../ramp.js";
import { inkOn } from "./colour_scale.js";
import { formatCount, formatInCell, formatMeasurement, formatValue } from "./numbers.js";
import { measurementOf, titleOf } from "./study_data.js";
import { formatInterval } from "../study_text.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Colouring} Colouring */
/** @typedef {import("./types.js").Statistic} Statistic */

const MOST_WITH_VALUES = 16;  // heads across, up to which cells have room for text
const ROLES = "main role";  // the title of this colouring
/** @type {Record<string, [layers: number, heads: number]>} */
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class HeadGrid {
  /** @type {Map<string, HTMLElement>} every cell, by its position */ cells = new Map();
  /** @type {HTMLElement[]} by stack */ boxes = [];
  /** @type {Head | null} the head whose cell can be reached by Tab */ tabStop = null;

  /** @param {import("./chapter.js").Chapter} chapter */
  constructor(chapter) {
    this.chapter = chapter;
    this.boxes = chapter.data.packed.stacks.map((stack, index) => this.buildStack(stack, index));
    chapter.byId("grids").replaceChildren(...this.boxes);  // instead of the map that needs no script
    for (const head of chapter.data.heads) this.connect(head);
    this.moveTabStop(chapter.data.heads[0]);
  }

  /** @param {import("./types.js").Stack} stack @param {number} index */
  buildStack({ name, layers, heads }, index) {
    const isDense = heads > MOST_WITH_VALUES, body = element("tbody");
    const columns = Array.from({ length: heads }, (_, head) => element("th", { scope: "col" }, isDense && head % 4 ? "" : String(head)));
    for (let layer = 0; layer < layers; layer++) {
      const row = element("tr", {}, element("th", { scope: "row" }, isDense && layer % 2 ? "" : String(layer)));
      for (let head = 0; head < heads; head++) {
        const cell = element("td", { role: "gridcell", tabindex: -1 });
        this.cells.set(keyOf(index, layer, head), cell);
        row.append(cell);
      }
      body.append(row);
    }
    const table = element("table", { role: "grid", class: isDense ? "grid small" : "grid", "aria-label": `${name}: layers and heads` },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, isDense ? "" : "layer"), ...columns)), body);
    const isAlone = this.chapter.data.packed.stacks.length === 1;
    return element("div", { class: "stack" }, ...(isAlone ? [] : [element("h3", {}, name)]), table);
  }

  /** @param {Head} head */
  connect(head) {
    const cell = this.cellOf(head);
    cell.dataset.head = head.label;
    cell.addEventListener("pointerenter", () => this.showReadout(head));
    cell.addEventListener("focus", () => {
      this.moveTabStop(head);
      this.showReadout(head);
    });
    cell.addEventListener("click", () => this.chapter.open(head));
    cell.addEventListener("keydown", (event) => this.handleKey(event, head));
  }

  /** @param {Head} head */
  cellOf({ stack, layer, head }) {
    return /** @type {HTMLElement} */ (this.cells.get(keyOf(stack, layer, head)));
  }

  /** @param {Head} head */
  moveTabStop(head) {
    if (this.tabStop) this.cellOf(this.tabStop).tabIndex = -1;
    this.cellOf(head).tabIndex = 0;
    this.tabStop = head;
  }

  /** @param {KeyboardEvent} event @param {Head} head */
  handleKey(event, head) {
    const step = STEPS[event.key];
    if (event.key === "Enter" || event.key === " ") this.chapter.open(head);
    else if (step) {
      const next = this.cells.get(keyOf(head.stack, head.layer + step[0], head.head + step[1]));
      if (next?.dataset.head) next.focus();
    } else return;
    event.preventDefault();
  }

  paint() {
    const { colouring, statistic } = this.chapter;
    for (const cell of this.cells.values()) if (!cell.dataset.head) cell.className = "none";
    if (colouring) this.paintColouring(colouring);
    else this.paintStatistic(statistic);
  }

  /** @param {Statistic} statistic */
  paintStatistic(statistic) {
    const { byId, colours, data } = this.chapter;
    for (const head of data.heads) {
      const measurement = measurementOf(statistic, head), description = measurement ? formatMeasurement(statistic, measurement) : "no value";
      this.paintCell(head, `${titleOf(statistic)} ${description}`, measurement ? formatInCell(statistic, measurement.value) : "", "",
        measurement && colours.colourOf(statistic, measurement.value));
    }
    this.showStacks(statistic.stacks);
    const [low, high] = colours.limits(statistic), bar = element("span", { class: "legend-bar" });
    const label = (/** @type {number} */ value) => element("span", {}, formatValue(statistic, Number(value.toPrecision(3))).replace(/\.0+$/, ""));
    bar.style.background = `linear-gradient(to right, ${colours.rampOf(statistic).map(rgbText).join(", ")})`;
    byId("legend").replaceChildren(label(low), bar, label(high), ` ${statistic.unit.split(",")[0]}`);
    byId("definition").replaceChildren(element("code", {}, statistic.name), ` ${statistic.definition || statistic.title}`);
  }

  /** @param {Colouring} colouring */
  paintColouring(colouring) {
    const { byId, data } = this.chapter;
    for (const head of data.heads) {
      const [number, text = "", brief = ""] = colouring.stacks[head.stack]?.[head.index] ?? [], label = number === undefined ? null : colouring.labels[number];
      this.paintCell(head, `${colouring.title}: ${label?.text ?? "none"}`, text, brief, label && channels(label.colour), label?.pale);
    }
    this.showStacks(colouring.stacks);
    byId("legend").replaceChildren(...colouring.labels.map(({ text, colour, heads, pale }) => {
      const chip = element("span", { class: pale ? "chip pale" : "chip" });
      chip.style.setProperty("--family", colour);
      return element("span", { class: "label" }, chip, `${text} (${heads})`);
    }));
    byId("definition").textContent = colouring.definition;
  }

  /** Hides the stacks for which there is nothing to show. @param {unknown[]} contents  by stack */
  showStacks(contents) {
    this.boxes.forEach((box, stack) => { box.hidden = !contents[stack]; });
  }

  /**
   * @param {Head} head @param {string} description  for screen readers
   * @param {string} text @param {string} brief  shown instead of a long text in the narrow cells of a phone
   * @param {import("../ramp.js").Rgb | null} rgb @param {boolean} [isPale]  a paler colour of the same family
   */
  paintCell(head, description, text, brief, rgb, isPale = false) {
    const cell = this.cellOf(head), hasRoom = this.chapter.data.packed.stacks[head.stack].heads <= MOST_WITH_VALUES, visible = rgb && hasRoom ? text : "";
    cell.className = !rgb ? "none" : isPale ? "pale" : "";
    if (visible && brief) cell.replaceChildren(element("span", { class: "long" }, text), element("span", { class: "brief", "data-brief": brief }));
    else cell.textContent = visible;
    cell.style.background = rgb && !isPale ? rgbText(rgb) : "";
    cell.style.color = rgb && !isPale ? inkOn(rgb) : "";
    cell.style.setProperty("--family", rgb ? rgbText(rgb) : "");
    cell.setAttribute("aria-label", `head ${head.label}${visible ? `: ${visible}` : ""}, ${description}`);
    cell.setAttribute("aria-selected", String(head === this.chapter.head));
  }

  /** @param {Head} selected */
  markSelected(selected) {
    this.moveTabStop(selected);
    for (const head of this.chapter.data.heads) this.cellOf(head).setAttribute("aria-selected", String(head === selected));
  }

  /** @param {Colouring} colouring @param {Head} head */
  mainRole({ title }, { stack, index }) {
    return title === ROLES ? this.chapter.data.packed.cards.heads[stack]?.[index]?.roles[0] : undefined;
  }

  /** @param {Head} head */
  showReadout(head) {
    const { colouring, statistic, byId } = this.chapter;
    byId("readout").replaceChildren(element("b", {}, nameOf(this.chapter.data, head)), colouring ? labelText(colouring, head, this.mainRole(colouring, head)) : valueText(statistic, head));
  }
}

/** An address in words: "Head 2 of layer 0 (0.2)". @param {import("./study_data.js").StudyData} data @param {Head} head */
export function nameOf({ packed }, { stack, layer, head, label }) {
  return `Head ${head} of ${packed.stacks.length > 1 ? `${packed.stacks[stack].name} ` : ""}layer ${layer} (${label})`;
}

/** @param {number} stack @param {number} layer @param {number} head */
const keyOf = (stack, layer, head) => `${stack}/${layer}/${head}`;

/** @param {Colouring} colouring @param {Head} head @param {import("./types.js").Role | undefined} role  the main one, if roles are shown */
function labelText({ title, labels, stacks }, { stack, index }, role) {
  if (role) return ` ${title}: ${role.role}, ${formatInterval(role.value, role.low, role.high)}`;
  const cell = stacks[stack]?.[index];
  return ` ${title}: ${cell ? labels[cell[0]].text : "none"}`;
}

/** @param {Statistic} statistic @param {Head} head */
function valueText(statistic, head) {
  const measurement = measurementOf(statistic, head);
  if (!measurement) return ` ${titleOf(statistic)}: no value`;
  return ` ${titleOf(statistic)}: ${formatMeasurement(statistic, measurement)}${formatCount(statistic, measurement, " from ")}`;
}
