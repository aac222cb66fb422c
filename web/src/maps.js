// Maps come a layer at a time when they are asked for; the latest ones are kept.

/** @typedef {import("./types.js").Maps} Maps */
/** @typedef {import("./types.js").Source} Source */

const KEPT_BYTES = 160e6;
/** @type {Map<string, Promise<Maps>>} */
const kept = new Map();
/** @type {Map<string, number>} */
const weighed = new Map();

/** @param {Source} source @param {string} stack @param {number} layer @returns {Promise<Maps>} */
export function layerOf(source, stack, layer) {
  const { answer, against } = source, name = `${against?.id ?? ""} ${answer.id} ${stack} ${layer}`;
  return keep(name, () => (against && answer.difference ? answer.difference(against, stack, layer) : answer.maps(stack, layer)));
}

/** How the maps of a source are to be read; what two of them differ by has the wider scale of both. @param {Source} source @returns {import("./types.js").Lens} */
export const lensOf = ({ answer, against }) =>
  against ? { ...answer.lens, signed: true, full: Math.max(answer.lens.full, against.lens.full) } : answer.lens;

/** @param {string} name @param {() => Promise<Maps>} fetched */
function keep(name, fetched) {
  const there = kept.get(name) ?? fetched();
  kept.delete(name);
  kept.set(name, there);
  there.then((maps) => {
    weighed.set(name, maps.codes.byteLength);
    let total = [...weighed.values()].reduce((sum, size) => sum + size, 0);
    for (const oldest of kept.keys()) {
      if (total <= KEPT_BYTES || oldest === name) break;
      total -= weighed.get(oldest) ?? 0;
      weighed.delete(oldest);
      kept.delete(oldest);
    }
  }, () => kept.delete(name));
  return there;
}
