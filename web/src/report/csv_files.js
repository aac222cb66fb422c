// The data of a chapter as CSV files, made when a link is clicked.

import { quoteField } from "../csv.js";
import { download } from "../dom.js";
import { inflate } from "../inflate.js";
import { NO_WEIGHT, measurementOf, weightOf } from "./study_data.js";

/** @typedef {import("./study_data.js").StudyData} StudyData */
/** @typedef {import("./types.js").Statistic} Statistic */
/** @typedef {(data: StudyData, names: string[]) => BlobPart[] | Promise<BlobPart[]>} Maker */

const HEADER = "stack,layer,head,statistic,value,low,high,count\n";

/** @param {number | null} value */
const fieldOf = (value) => (value === null ? "" : String(value));

/** @param {{name: string}[]} items @param {string} name */
const indexOf = (items, name) => items.findIndex((item) => item.name === name);

/** Connects the links of one chapter. @param {StudyData} data @param {string} chapterNumber */
export function connectLinks(data, chapterNumber) {
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(`a.csv[data-chapter="${chapterNumber}"]`))) {
    link.hidden = false;
    link.addEventListener("click", async (event) => {
      event.preventDefault();
      saveCsv(link.download, await MAKERS[link.dataset.kind ?? ""](data, JSON.parse(link.dataset.names ?? "[]")));
    });
  }
}

/** @param {string} name @param {BlobPart[]} parts */
const saveCsv = (name, parts) => download(new Blob(parts, { type: "text/csv" }), name);

/** @param {StudyData} data @param {Statistic} statistic @param {import("./head_table.js").HeadRow[]} rows */
export function saveRows(data, statistic, rows) {
  const name = statistic.name.replace(/[^A-Za-z0-9]+/g, "-") || "statistic";
  saveCsv(`${name}.csv`, [HEADER, ...rows.map((row) => headLine(data, statistic, row.head, row))]);
}

/** @param {StudyData} data @param {Statistic} statistic @param {import("./types.js").Head} head @param {import("./types.js").Measurement} measurement */
function headLine({ packed }, { name }, { stack, layer, head }, { value, low, high, count }) {
  return `${[quoteField(packed.stacks[stack].name), layer, head, quoteField(name), ...[value, low, high, count].map(fieldOf)].join(",")}\n`;
}

/** @type {Maker} Statistics by name; none: all. */
function statisticsFile(data, names) {
  const statistics = data.statistics.filter(({ name }) => !names.length || names.includes(name));
  return [HEADER, ...statistics.flatMap((statistic) => data.heads.flatMap((head) => {
    const measurement = measurementOf(statistic, head);
    return measurement ? [headLine(data, statistic, head, measurement)] : [];
  }))];
}

/** @type {Maker} A line for each head and query, a column for each key; with fewer digits than the maps of the study. */
async function mapsFile({ packed: { maps, stacks } }, [name]) {
  const stack = indexOf(stacks, name), [queries, keys] = maps.shapes[stack];
  const lines = [`stack,layer,head,query,${Array.from({ length: keys }, (_, key) => `key_${key}`).join(",")}\n`];
  for (const [index, text] of maps.data[stack].entries()) {
    const codes = new Uint8Array(await inflate(text)), address = `${quoteField(name)},${Math.floor(index / maps.heads[stack])},${index % maps.heads[stack]}`;
    for (let query = 0; query < queries; query++) {
      const weights = Array.from(codes.subarray(query * keys, (query + 1) * keys), (code) => (code === NO_WEIGHT ? "" : weightOf(code).toFixed(4)));
      lines.push(`${address},${query},${weights.join(",")}\n`);
    }
  }
  return lines;
}

/** @type {Maker} */
function offsetsFile({ packed: { offsets, stacks } }, [name]) {
  const stack = indexOf(stacks, name), { heads } = stacks[stack];
  return ["stack,layer,head,offset,mass\n", ...offsets[stack].flatMap((shares, index) => shares.map((share, position) =>
    `${[quoteField(name), Math.floor(index / heads), index % heads, position - (shares.length - 1) / 2, fieldOf(share)].join(",")}\n`))];
}

/** @type {Maker} */
async function tableFile({ packed }, [name]) {
  return [await inflate(packed.tables[indexOf(packed.tables, name)].csv)];
}

/** @type {Record<string, Maker>} */
const MAKERS = { heads: statisticsFile, table: tableFile, map: mapsFile, offset: offsetsFile };
