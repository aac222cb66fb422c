// One chapter of the page: what is selected, and the parts that show it.

import { $, element } from "../dom.js";
import { ColourScale } from "./colour_scale.js";
import { connectLinks, saveRows } from "./csv_files.js";
import { GROUPS, HeadCard } from "./head_card.js";
import { HeadGrid } from "./head_grid.js";
import { meanMap, offsetProfile } from "./head_pictures.js";
import { HeadSummary } from "./head_summary.js";
import { HeadTable } from "./head_table.js";
import { StudyData, titleOf } from "./study_data.js";

/** @typedef {import("./types.js").Head} Head */
/** @typedef {import("./types.js").Colouring} Colouring */

const LABELS_GROUP = "roles and groups";
const DEFAULT_STATISTIC = "previous";

export class Chapter {
  /** @type {Colouring | null} instead of the statistic */ colouring = null;

  /** @param {StudyData} data  with heads @param {string} prefix  of the ids in this chapter @param {string} number */
  constructor(data, prefix, number) {
    this.data = data;
    this.prefix = prefix;
    this.statistic = data.statistics.find(({ name }) => name === DEFAULT_STATISTIC) ?? data.statistics[0];
    this.colours = new ColourScale(data.packed.colours);
    this.grid = new HeadGrid(this);
    this.table = new HeadTable(this);
    this.card = new HeadCard(this);
    this.summary = new HeadSummary(this);
    const [firstRow] = this.table.rows();
    /** @type {Head} */
    this.head = firstRow ? firstRow.head : data.heads[0];
    this.connectControls();
    this.connectHeadLinks(number);
    this.choose(data.packed.colourings.length ? "colouring:0" : `statistic:${data.statistics.indexOf(this.statistic)}`);
    this.select(this.head);
  }

  /** @param {string} id  without the prefix */
  byId = (id) => $(this.prefix + id);

  connectControls() {
    for (const part of ["explore", "table"]) for (const tools of this.byId(part).querySelectorAll(".tools")) tools.hidden = false;
    const [select, fit] = [this.byId("statistic"), this.byId("fit")];
    select.append(...this.options());
    select.addEventListener("change", () => this.choose(select.value));
    fit.addEventListener("change", () => {
      this.colours.isFitted = fit.checked;
      this.grid.paint();
    });
    for (const id of ["filter", "least"]) this.byId(id).addEventListener("input", () => this.table.paint());
    this.byId("download").addEventListener("click", () => saveRows(this.data, this.statistic, this.table.rows()));
  }

  /** What heads can be coloured by, in groups. */
  options() {
    /** @type {Map<string, HTMLElement[]>} */
    const groups = new Map([LABELS_GROUP, ...GROUPS].map((group) => [group, []]));
    const add = (/** @type {string} */ group, /** @type {string} */ value, /** @type {string} */ text, /** @type {string} */ name) =>
      groups.set(group, [...(groups.get(group) ?? []), element("option", { value, "data-name": name }, text)]);
    this.data.packed.colourings.forEach(({ title }, index) => add(LABELS_GROUP, `colouring:${index}`, title, title));
    this.data.statistics.forEach((statistic, index) => add(statistic.group, `statistic:${index}`, titleOf(statistic), statistic.name));
    return [...groups].filter(([, options]) => options.length).map(([label, options]) => element("optgroup", { label }, ...options));
  }

  /** Links to heads elsewhere on the page. @param {string} number  of this chapter */
  connectHeadLinks(number) {
    for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`a.head[data-chapter="${number}"]`))) {
      link.addEventListener("click", () => {
        const head = this.data.heads.find(({ label }) => label === link.dataset.head);
        const statistic = this.data.statistics.findIndex(({ name }) => name === link.dataset.statistic);
        if (statistic >= 0) this.choose(`statistic:${statistic}`);
        if (head) this.select(head);
      });
    }
  }

  /** @param {string} value  of an option: statistic:0, colouring:1 */
  choose(value) {
    const [kind, index] = value.split(":");
    this.colouring = kind === "colouring" ? this.data.packed.colourings[Number(index)] : null;
    if (kind === "statistic") this.statistic = this.data.statistics[Number(index)];
    this.byId("statistic").value = value;
    this.byId("fit").parentElement.hidden = this.colouring !== null;
    this.grid.paint();
    this.table.paint();
    this.showHead();
  }

  /** Shows a head in detail and goes there. @param {Head} head */
  open(head) {
    this.select(head);
    this.byId("head").scrollIntoView({ block: "start" });
  }

  /** @param {Head} head */
  select(head) {
    this.head = head;
    this.grid.markSelected(head);
    this.table.markSelected(head);
    this.showHead();
  }

  showHead() {
    const { data, head } = this, pictures = [meanMap(data.packed, head, this.colours.sequential), offsetProfile(data.packed, head)];
    this.grid.showReadout(head);
    this.card.show(head);
    this.summary.show(head);
    this.byId("pictures").replaceChildren(...pictures.filter((parts) => parts.length).map((parts) => element("div", {}, ...parts)));
  }
}

/** @param {HTMLScriptElement} holder  the data of a chapter */
export function startChapter(holder) {
  const data = new StudyData(JSON.parse(holder.textContent ?? "")), { prefix = "", chapter = "" } = holder.dataset;
  connectLinks(data, chapter);
  if (data.heads.length) new Chapter(data, prefix, chapter);
  else $(`${prefix}readout`).textContent = "This study has no heads.";
}
