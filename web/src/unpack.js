// Maps as a server sends them, or a page holds them: "HSM1"; kind, maps, rows, columns (uint32); layer and head of each map (uint16);
// the largest of each row (float32); one byte a cell. All little-endian. A weight is largest · (code / 255)², one with
// a sign (a difference, some lenses) largest · sign(code) · (code / 127)².

/** @typedef {import("./types.js").Maps} Maps */

const MAGIC = 0x314d5348; // "HSM1", read as a number
const HEADER = 20;

/** What a code stands for, as a share of its row's largest. */
export const WEIGHTS = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
export const SIGNED = Float32Array.from({ length: 256 }, (_, byte) => {
  const code = byte < 128 ? byte : byte - 256;
  return Math.sign(code) * (code / 127) ** 2;
});

/** @param {ArrayBuffer} buffer @returns {Maps} */
export function unpack(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint32(0, true) !== MAGIC) throw new Error("these are no maps");
  const [kind, count, rows, columns] = [4, 8, 12, 16].map((at) => view.getUint32(at, true));
  const places = Array.from({ length: count }, (_, at) => ({
    layer: view.getUint16(HEADER + 4 * at, true), head: view.getUint16(HEADER + 4 * at + 2, true),
  }));
  const from = HEADER + 4 * count, codesFrom = from + 4 * count * rows;
  if (buffer.byteLength !== codesFrom + count * rows * columns) throw new Error("the maps are not whole");
  const tops = Float32Array.from({ length: count * rows }, (_, at) => view.getFloat32(from + 4 * at, true));
  return { places, rows, columns, signed: kind === 1, tops, codes: new Uint8Array(buffer, codesFrom) };
}

/** By stack.layer.head. @param {import("./types.js").HeadSummary[]} summary */
export const summaryOf = (summary) => new Map(summary.map((one) => [`${one.stack}.${one.layer}.${one.head}`, one]));
