// Maps are fetched a layer at a time when they are asked for; the latest ones are kept.

import * as api from "./api.js";

/** @typedef {import("./types.js").Answer} Answer */
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
  const fetched = () => (against ? api.difference(answer.id, against.id, stack, layer) : api.maps(answer.id, stack, layer));
  return keep(name, () => again(source, fetched));
}

/** How the maps of a source are to be read; what two of them differ by has the wider scale of both. @param {Source} source @returns {import("./types.js").Lens} */
export const lensOf = ({ answer, against }) =>
  against ? { ...answer.lens, signed: true, full: Math.max(answer.lens.full, against.lens.full) } : answer.lens;

/** @param {Source} source @param {string} stack */
export const thumbnailsOf = (source, stack) => again(source, () => api.thumbnails(source.answer.id, stack));

/** The server keeps a few states only; one that it has forgotten is asked for once more. @template T @param {Source} source @param {() => Promise<T>} fetched */
async function again({ answer, against }, fetched) {
  try {
    return await fetched();
  } catch (reason) {
    if (!(reason instanceof api.Refused) || reason.status !== 404) throw reason;
    for (const one of [answer, against]) if (one) one.id = (await api.attend(one.question, "again")).id;
    return fetched();
  }
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
