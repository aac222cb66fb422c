// Saves the displayed maps as an image (PNG, SVG) or as a table (CSV).

import { HEAD_COLOURS, fullOf } from "./colour.js";
import { arcsDrawing, gridDrawing, mapDrawing } from "./drawings.js";
import { full, shortName } from "./heads.js";
import { lensOf } from "./maps.js";
import { caption, captionOfAll, fileOf, fileOfTable, modelOf } from "./naming.js";
import { savePng, saveSvg, saveTable } from "./sheet.js";
import { state } from "./state.js";

/** @typedef {import("./stage.js").Stage} Stage */

const HOW = { png: savePng, svg: saveSvg };
const number = (/** @type {number} */ weight) => Number(weight.toPrecision(3));

/** Save the open heads of all displayed models. @param {Stage} stage @param {"png" | "svg" | "csv"} as */
export function saveOpen(stage, as) {
  const { models, shown } = stage;
  if (!shown.length) return;
  const [{ name, view }] = shown, isArcs = state.view === "arcs", panes = [...new Set(shown.map(({ at }) => at))];
  const file = fileOf(stage.live ? [...new Set(shown.map(({ model }) => model))] : [], name, Boolean(view.lens.forms));
  if (as === "csv") return saveTable(file, cells(stage));
  const names = [...new Set(shown.map((one) => one.name))];
  HOW[as]({
    file,
    line: models.length > 1 ? caption(models, shown) : `${modelOf(models, 0)} · ${caption(models, shown)}`,
    panels: panes.map((at) => {
      const here = stage.inPane(at);
      return { title: panes.length > 1 ? here[0].model : "", drawing: isArcs ? arcsDrawing(here, stage.chosenEnd(at)) : mapDrawing(here[0].view) };
    }),
    keys: isArcs ? names.map((text, at) => ({ text, colour: HEAD_COLOURS.light[at % HEAD_COLOURS.light.length] })) : [],
    scale: isArcs ? null : { signed: view.signed, full: fullOf(view) },
  });
}

/** Rows of the table of the open heads: one per cell, with a column for the model if there are two. @param {Stage} stage @returns {Iterable<(string | number)[]>} */
function* cells({ models, shown }) {
  const isOfTwo = models.length > 1;
  yield [...(isOfTwo ? ["model"] : []), "head", "query", "query_text", "key", "key_text", "weight"];
  for (const { name, model, view } of shown) {
    const { rows, columns, Q, K, weights } = view, begin = isOfTwo ? [model, name] : [name];
    for (let row = 0; row < Q; row++) {
      for (let column = 0; column < K; column++) {
        yield [...begin, rows.units[row], rows.labels[row], columns.units[column], columns.labels[column], number(weights[row * K + column])];
      }
    }
  }
}

/** Save the grid: as an image, or as a table with a row per head. @param {Stage} stage @param {"png" | "svg" | "csv"} as */
export async function saveAll(stage, as) {
  const { models, grids } = stage, sources = stage.sources();
  if (!sources.length || !sources[0].answer.sides[state.stack]) return;
  const lens = await lensOf(sources[0], state.stack), names = sources.map((_, at) => modelOf(models, at));
  const modelNames = stage.live ? names : [], all = models[0].stacks.length > 1 ? `all-${state.stack}` : "all", file = fileOf(modelNames, all, Boolean(lens.forms));
  if (as === "csv") return saveTable(fileOfTable(modelNames, all), heads(stage));
  const pictures = await Promise.all(sources.map((source, at) => grids.frames[at].grid.pictures(source)));
  HOW[as]({
    file, line: captionOfAll(models, sources.length, lens), keys: [],
    panels: sources.map((_, at) => ({ title: sources.length > 1 ? names[at] : "", drawing: gridDrawing(grids.frames[at].grid, pictures[at], lens.forms ? new Set() : state.off) })),
    scale: { signed: lens.signed, full: state.range === "head" ? null : lens.full },
  });
}

/** Rows of the table of all heads, from the summaries of the answers; both models if they are compared. @param {Stage} stage @returns {Iterable<(string | number)[]>} */
function* heads(stage) {
  const { models } = stage, isOfTwo = models.length > 1;
  const displayed = stage.sources().flatMap(({ answer, against }) => (against && state.show === "difference" ? [against, answer] : [answer]));
  yield [...(isOfTwo ? ["model"] : []), "stack", "layer", "head", "off", "largest", "entropy", "change"];
  for (const { summary, lens, question } of displayed) {
    const name = shortName(models.find(({ id }) => id === question.model) ?? models[0]);
    for (const { stack, layer, head, largest, entropy, change } of summary.values()) {
      if (stack !== state.stack) continue;
      const isOff = !lens.forms && state.off.has(full(stack, layer, head));
      yield [...(isOfTwo ? [name] : []), stack, lens.layers?.[layer] ?? layer, lens.forms?.[head] ?? head, isOff ? 1 : 0, largest, entropy ?? "", change];
    }
  }
}
