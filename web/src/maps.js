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

/** @type {Map<string, Promise<number>>} */
const scales = new Map();

/** How the maps of a source are to be read; the scale of what two differ by ends at the largest difference of all maps of the stack.
 * @param {Source} source @param {string} stack @returns {Promise<import("./types.js").Lens>} */
export async function lensOf({ answer, against }, stack) {
  if (!against || !answer.largestDifference) return answer.lens;
  const name = `${against.id} ${answer.id} ${stack}`, asked = scales.get(name) ?? answer.largestDifference(against, stack);
  scales.clear();  // one is on show at a time
  scales.set(name, asked);
  asked.catch(() => scales.delete(name));
  return { ...answer.lens, signed: true, full: (await asked) || 1 };
}

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
