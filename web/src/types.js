/**
 * What pages are told, by a server or by themselves, and what they make of it.
 *
 * @typedef {{tokens: string[], printed: string[], special: number[], unit: number[], words: string[],
 *   word_special: number[], punctuation: number[], word_punctuation: number[], rtl: boolean}} Side  the tokens of one axis
 * @typedef {{query: Side, key: Side}} Sides
 * @typedef {{layer: number, heads: number[]}} LayerShape
 * @typedef {{name: string, layers: LayerShape[]}} StackShape
 * @typedef {{text: string, second: string | null, lens: string}} Example  what the page begins with
 * @typedef {{id: string, name: string, stacks: StackShape[], lenses: {heads: string[], tokens: string[]}, example: Example, off?: string}} Model  off: heads that were ablated, in a saved page
 * @typedef {Model & {kind: string, takes_pair: boolean, mask_token: string | null, max_tokens: number, prune_command: string}} LiveModel  one that can be asked
 * @typedef {{models: LiveModel[], study: StudyShape | null}} About
 * @typedef {{what: string, why: string, heads: string, count: number}} Unimportant  heads a study would do without
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
 * @typedef {object} Answer  what the model said to a question, and where its maps are
 * @property {string} id
 * @property {Question} question
 * @property {Record<string, Sides>} sides
 * @property {any} prediction
 * @property {Map<string, HeadSummary>} summary
 * @property {Lens} lens
 * @property {(stack: string, layer: number) => Promise<Maps>} maps
 * @property {((stack: string) => Promise<Maps>) | null} thumbnails  null: its maps are at hand, and are drawn themselves
 * @property {((against: Answer, stack: string, layer: number) => Promise<Maps>) | null} difference  of its maps from another
 *   answer's; null: there is no other
 * @property {((against: Answer, stack: string) => Promise<number>) | null} largestDifference  of all maps of a stack
 * @typedef {(question: Question, purpose: string) => Promise<Answer>} Attend
 *
 * @typedef {{places: {layer: number, head: number}[], rows: number, columns: number, signed: boolean,
 *   tops: Float32Array, codes: Uint8Array}} Maps  of some heads, one after the other, in the order of `places`
 * @typedef {{answer: Answer, against: Answer | null}} Source  maps of an answer, or how they differ from another's
 * @typedef {{layer: number, head: number | "mean"}} Place
 *
 * @typedef {{of: Int32Array, size: Uint32Array, labels: string[], units: number[], special: boolean[],
 *   joined: boolean[], first: number[], printed: string[], rtl: boolean}} Axis
 * @typedef {{rows: Axis, columns: Axis, self: boolean}} Axes
 * @typedef {{rows: Axis, columns: Axis, self: boolean, Q: number, K: number, weights: Float32Array, whole: Float32Array,
 *   left: Float32Array, got: Float32Array, largest: number, signed: boolean, lens: Lens}} View  the numbers on show: a row
 *   sums to `whole` with all its keys and to `left` with those that are shown, a column to `got`
 *
 * @typedef {{title: string, places: Place[], notes?: string[]}} Group  heads that stand together, with what they have in common,
 *   and what is said of each, where that is the reason of their order
 * @typedef {object} Live  what a page has whose model can be asked
 * @property {(given: URLSearchParams) => Partial<import("./state.js").State>} read  its part of the address
 * @property {(given: URLSearchParams) => void} write
 * @property {() => boolean} isEmpty  there is nothing to ask
 * @property {() => boolean} lacksTarget  a stack may have no maps because there is no target yet
 * @property {() => void} draw  what stands around the view
 * @property {(heads: string[]) => void} toggle  switch heads off or, if all of them are off, on
 * @property {(stack: string, there: StackShape) => Group[] | null} groups  the order of the grid; null: by layer
 * @property {(model: Model, place: Place, isOfTokens: boolean) => void} drawOpen  what stands beside the open head
 * @property {(grids: import("./grids.js").Grids) => import("./keys.js").Key[]} keys  its own
 */
export {};
