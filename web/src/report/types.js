/**
 * The data of one chapter, as `report/pack.py` writes it. Lists of stacks follow the order of `stacks`; lists of heads
 * have the index layer × heads of the stack + head. Null: no value.
 *
 * @typedef {{name: string, layers: number, heads: number}} Stack
 * @typedef {{value: (number | null)[], low: (number | null)[], high: (number | null)[], count: (number | null)[]}} Columns
 * @typedef {"share" | "nats" | "points" | "number" | "tokens" | "offset" | "switch" | "other"} Kind
 * @typedef {{name: string, group: string, lens: string, title: string, definition: string, unit: string, kind: Kind,
 *   low: number, high: number, diverging: boolean, reversed: boolean, stacks: (Columns | null)[],
 *   uniform: (number | null)[][]}} PackedStatistic  low, high: limits of the colour scale; uniform: by stack and layer,
 *   what uniform attention would give
 * @typedef {[label: number, text: string, brief?: string]} LabelledCell
 * @typedef {{title: string, definition: string, labels: {text: string, colour: string, heads: number, pale?: boolean}[],
 *   stacks: ((LabelledCell | null)[] | null)[]}} Colouring  heads coloured by a label instead of a number
 * @typedef {{role: string, value: number, low: number | null, high: number | null, baseline: number | null, sure: boolean,
 *   rule: string}} Role
 * @typedef {[role: string, kind: string, direction: string, sentence: number, query: number, key: number, weight: number,
 *   expected: number | null]} Example
 * @typedef {{relation: string, direction: string, accuracy: number, low: number | null, high: number | null,
 *   baseline: number, above: boolean}} Relation
 * @typedef {{roles: Role[], importance: {what: string, text: string, after: string}[],
 *   twin: [layer: number, head: number, distance: number] | null, substitute: [pattern: string, distance: number] | null,
 *   relations: Relation[], examples: Example[]}} Card
 * @typedef {{shapes: [queries: number, keys: number][], heads: number[], data: string[][], cut: boolean}} PackedMaps  by stack;
 *   a byte b of a map is the weight (b / 254)², 255 is no weight
 * @typedef {object} Packed
 * @property {Stack[]} stacks
 * @property {PackedStatistic[]} statistics
 * @property {(number | null)[][][]} offsets  by stack, head and offset
 * @property {{heads: (Card | null)[][], sentences: string[][]}} cards
 * @property {Colouring[]} colourings
 * @property {{name: string, csv: string}[]} tables
 * @property {{sequential: string[], diverging: string[]}} colours
 * @property {PackedMaps} maps
 *
 * @typedef {{stack: number, layer: number, head: number, index: number, label: string}} Head  stack: its index
 * @typedef {PackedStatistic & {values: number[], min: number, max: number}} Statistic
 * @typedef {{value: number, low: number | null, high: number | null, count: number | null}} Measurement
 */
export {};
