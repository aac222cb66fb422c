// Fetches maps one layer at a time, and caches the latest ones.

/** @typedef {import("./types.js").Maps} Maps */
/** @typedef {import("./types.js").Source} Source */

const KEPT_BYTES = 160e6;
/** @type {Map<string, Promise<Maps>>} */
const cache = new Map();
/** @type {Map<string, number>} */
const sizes = new Map();

/** @param {Source} source @param {string} stack @param {number} layer @returns {Promise<Maps>} */
export function layerOf(source, stack, layer) {
  const { answer, against } = source, name = `${against?.id ?? ""} ${answer.id} ${stack} ${layer}`;
  return cached(name, () => (against && answer.difference ? answer.difference(against, stack, layer) : answer.maps(stack, layer)));
}

/** @type {Map<string, Promise<number>>} */
const scales = new Map();

/** How to read the maps of a source. The colour scale of differences ends at the largest difference in the stack.
 * @param {Source} source @param {string} stack @returns {Promise<import("./types.js").Lens>} */
export async function lensOf({ answer, against }, stack) {
  if (!against || !answer.largestDifference) return answer.lens;
  const name = `${against.id} ${answer.id} ${stack}`, scale = scales.get(name) ?? answer.largestDifference(against, stack);
  scales.clear();  // only one is needed at a time
  scales.set(name, scale);
  scale.catch(() => scales.delete(name));
  return { ...answer.lens, signed: true, full: (await scale) || 1 };
}

/** @param {string} name @param {() => Promise<Maps>} fetchMaps */
function cached(name, fetchMaps) {
  const pending = cache.get(name) ?? fetchMaps();
  cache.delete(name);
  cache.set(name, pending);
  pending.then((maps) => {
    sizes.set(name, maps.codes.byteLength);
    let total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    for (const oldest of cache.keys()) {
      if (total <= KEPT_BYTES || oldest === name) break;
      total -= sizes.get(oldest) ?? 0;
      sizes.delete(oldest);
      cache.delete(oldest);
    }
  }, () => cache.delete(name));
  return pending;
}
