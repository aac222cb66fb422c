/**
 * Types of the data that a page receives, from a server or from its own file, and of what it computes from them.
 *
 * @typedef {{tokens: string[], printed: string[], special: number[], unit: number[], words: string[],
 *   word_special: number[], punctuation: number[], word_punctuation: number[], rtl: boolean}} Side  the tokens of one axis: `unit` is the word of each token, `rtl` means right-to-left text
 * @typedef {{query: Side, key: Side}} Sides
 * @typedef {{layer: number, heads: number[]}} LayerShape
 * @typedef {{name: string, layers: LayerShape[]}} StackShape
 * @typedef {{text: string, second: string | null, lens: string}} Example  the first input of the page
 * @typedef {{id: string, name: string, stacks: StackShape[], lenses: {heads: string[], tokens: string[]}, example: Example, off?: string}} Model  off: the ablated heads of a saved page
 * @typedef {Model & {kind: string, takes_pair: boolean, mask_token: string | null, max_tokens: number, prune_command: string}} LiveModel  a model of a running server
 * @typedef {{models: LiveModel[], study: StudyShape | null}} About
 * @typedef {{what: string, why: string, heads: string, count: number}} Unimportant  heads that a study found unimportant
 * @typedef {{model: string, is_of_this_model: boolean, statistics: string[], importances: string[], has_roles: boolean,
 *   has_clusters: boolean, has_examples: boolean, unimportant: Unimportant[]}} StudyShape
 * @typedef {{name: string, title: string, definition: string}} Statistic
 * @typedef {[number | null, number | null, number | null]} Interval  value, low, high
 * @typedef {{stack: string, layer: number, head: number, roles: string[], cluster: number | null,
 *   values: Record<string, Interval>}} StudyHead
 *
 * @typedef {{stack: string, layer: number, head: number, largest: number, entropy: number | null, change: number}} HeadSummary
 * @typedef {{name: string, how: string, shares: boolean, signed: boolean, full: number, forms: string[] | null,
 *   layers: string[] | null}} Lens  how to read the maps; `forms` and `layers` name the maps of a lens that is not per head
 * @typedef {{model: string, text: string, second: string | null, off: string, lens: string}} Question
 * @typedef {object} Answer  the prediction for a question, and functions that fetch its maps
 * @property {string} id
 * @property {Question} question
 * @property {Record<string, Sides>} sides
 * @property {any} prediction
 * @property {Map<string, HeadSummary>} summary
 * @property {Lens} lens
 * @property {(stack: string, layer: number) => Promise<Maps>} maps
 * @property {((stack: string) => Promise<Maps>) | null} thumbnails  null: the maps themselves are in the page and are drawn instead
 * @property {((against: Answer, stack: string, layer: number) => Promise<Maps>) | null} difference  its maps minus
 *   those of `against`; null in a saved page
 * @property {((against: Answer, stack: string) => Promise<number>) | null} largestDifference  the largest absolute difference in a stack
 * @typedef {(question: Question, purpose: string) => Promise<Answer>} Attend
 *
 * @typedef {{places: {layer: number, head: number}[], rows: number, columns: number, signed: boolean,
 *   tops: Float32Array, codes: Uint8Array}} Maps  packed maps (see unpack.js), one after the other in the order of `places`
 * @typedef {{answer: Answer, against: Answer | null}} Source  maps of `answer`, minus those of `against` unless it is null
 * @typedef {{layer: number, head: number | "mean"}} Place
 *
 * @typedef {{of: Int32Array, size: Uint32Array, labels: string[], units: number[], special: boolean[],
 *   joined: boolean[], first: number[], printed: string[], rtl: boolean}} Axis
 * @typedef {{rows: Axis, columns: Axis, self: boolean}} Axes
 * @typedef {{rows: Axis, columns: Axis, self: boolean, Q: number, K: number, weights: Float32Array, rowTotals: Float32Array,
 *   rowSums: Float32Array, columnSums: Float32Array, largest: number, signed: boolean, lens: Lens}} View  the displayed numbers [Q, K].
 *   `rowTotals`: sums of rows over all keys; `rowSums`: over the displayed keys, before renormalising; `columnSums`: of displayed numbers
 *
 * @typedef {{title: string, places: Place[], notes?: string[]}} Group  heads shown together under a title;
 *   `notes` has a text for each head, such as the number by which they are sorted
 * @typedef {object} Live  the parts of a page that need a running server
 * @property {(given: URLSearchParams) => Partial<import("./state.js").State>} read  the state in its parameters of the address
 * @property {(given: URLSearchParams) => void} write
 * @property {() => boolean} isEmpty  there is no text
 * @property {() => boolean} lacksTarget  a translation model has no target, so some stacks have no maps
 * @property {() => void} draw  everything around the maps: texts, switches, predictions
 * @property {(heads: string[]) => void} toggle  switch heads off or, if all of them are off, on
 * @property {(stack: string, there: StackShape) => Group[] | null} groups  the order of the grid; null: by layer
 * @property {(model: Model, place: Place, isOfTokens: boolean) => void} drawOpen  the switch, roles and study results of the open head
 * @property {(grids: import("./grids.js").Grids) => import("./keys.js").Key[]} keys  its shortcuts
 */
export {};
