/**
 * What the server tells, and what the page makes of it.
 *
 * @typedef {{tokens: string[], printed: string[], special: number[], unit: number[], words: string[],
 *   word_special: number[], punctuation: number[], word_punctuation: number[], rtl: boolean}} Side  the tokens of one axis
 * @typedef {{query: Side, key: Side}} Sides
 * @typedef {{layer: number, heads: number[]}} LayerShape
 * @typedef {{name: string, layers: LayerShape[]}} StackShape
 * @typedef {{text: string, second: string | null}} Example
 * @typedef {{id: string, name: string, stacks: StackShape[], kind: string, takes_pair: boolean, mask_token: string | null,
 *   max_tokens: number, lenses: {heads: string[], tokens: string[]}, example: Example}} Model
 * @typedef {{models: Model[], study: StudyShape | null}} About
 * @typedef {{why: string, heads: string, count: number}} Unimportant  heads a study would do without
 * @typedef {{model: string, is_of_this_model: boolean, statistics: string[], importances: string[], has_roles: boolean,
 *   has_clusters: boolean, has_examples: boolean, unimportant: Unimportant[]}} StudyShape
 * @typedef {{name: string, title: string, definition: string}} Statistic
 * @typedef {[number | null, number | null, number | null]} Interval  value, low, high
 * @typedef {{stack: string, layer: number, head: number, roles: string[], cluster: number | null,
 *   values: Record<string, Interval>}} StudyHead
 *
 * @typedef {{stack: string, layer: number, head: number, largest: number, entropy: number | null, change: number}} HeadSummary
 * @typedef {{name: string, how: string, shares: boolean, signed: boolean, full: number, forms: string[] | null,
 *   layers: string[] | null}} Lens  how maps are to be read; `forms` stand beside each other where maps are not of heads
 * @typedef {{model: string, text: string, second: string | null, off: string, lens: string}} Question
 * @typedef {{id: string, question: Question, sides: Record<string, Sides>, prediction: any,
 *   summary: Map<string, HeadSummary>, lens: Lens}} Answer  what the model said to a question; `id` names its maps
 *
 * @typedef {{places: {layer: number, head: number}[], rows: number, columns: number, signed: boolean,
 *   tops: Float32Array, codes: Uint8Array}} Maps  of some heads, one after the other, in the order of `places`
 * @typedef {{answer: Answer, against: Answer | null}} Source  maps of an answer, or how they differ from another's
 * @typedef {{layer: number, head: number | "mean"}} Place
 *
 * @typedef {{of: Int32Array, size: Uint32Array, labels: string[], units: number[], special: boolean[],
 *   joined: boolean[], first: number[], printed: string[], rtl: boolean}} Axis
 * @typedef {{rows: Axis, columns: Axis, self: boolean}} Axes
 * @typedef {{rows: Axis, columns: Axis, self: boolean, Q: number, K: number, weights: Float32Array, left: Float32Array,
 *   got: Float32Array, largest: number, signed: boolean, lens: Lens}} View  the numbers on show
 */
export {};
