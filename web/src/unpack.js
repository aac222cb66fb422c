// The byte format of maps, little-endian: "HSM1"; kind, number of maps, rows, columns (uint32 each); layer and head of each map
// (uint16); the largest absolute value of each row (float32); one byte per cell (the code).
// Kind 0: value = largest · (code / 255)². Kind 1, for signed numbers (a difference, some lenses):
// value = largest · sign(code) · (code / 127)², where code is a signed byte.

/** @typedef {import("./types.js").Maps} Maps */

const MAGIC = 0x314d5348; // "HSM1", read as a number
const HEADER = 20;

/** The value of each code, as a share of the largest value of its row. */
export const WEIGHTS = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
export const SIGNED = Float32Array.from({ length: 256 }, (_, byte) => {
  const code = byte < 128 ? byte : byte - 256;
  return Math.sign(code) * (code / 127) ** 2;
});

/** @param {ArrayBuffer} buffer @returns {Maps} */
export function unpack(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint32(0, true) !== MAGIC) throw new Error("this is not the format of maps");
  const [kind, count, rows, columns] = [4, 8, 12, 16].map((at) => view.getUint32(at, true));
  const places = Array.from({ length: count }, (_, at) => ({
    layer: view.getUint16(HEADER + 4 * at, true), head: view.getUint16(HEADER + 4 * at + 2, true),
  }));
  const from = HEADER + 4 * count, codesFrom = from + 4 * count * rows;
  if (buffer.byteLength !== codesFrom + count * rows * columns) throw new Error("the maps are incomplete");
  const tops = Float32Array.from({ length: count * rows }, (_, at) => view.getFloat32(from + 4 * at, true));
  return { places, rows, columns, signed: kind === 1, tops, codes: new Uint8Array(buffer, codesFrom) };
}

/** Rows of a summary by stack.layer.head. @param {import("./types.js").HeadSummary[]} summary */
export const summaryOf = (summary) => new Map(summary.map((one) => [`${one.stack}.${one.layer}.${one.head}`, one]));
