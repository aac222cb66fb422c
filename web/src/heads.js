// Addresses of heads: encoder.3.2, or 3.2 if the model has one stack. Sets: 3.2,4.*

/** @typedef {import("./types.js").Model} Model */

/** @param {string} stack @param {number} layer @param {number | string} head */
export const full = (stack, layer, head) => `${stack}.${layer}.${head}`;

/** Whether this lens is a token map, over all heads, rather than one map per head. @param {Model} model @param {string} lens */
export const isOfTokens = (model, lens) => model.lenses.tokens.includes(lens);

/** @param {{stacks: unknown[]}} model @param {string} stack @param {number} layer @param {number | string} head */
export function address(model, stack, layer, head) {
  return model.stacks.length === 1 ? `${layer}.${head}` : full(stack, layer, head);
}

/** Every head of a model, as stack.layer.head. @param {Model} model */
export function everyHead(model) {
  return model.stacks.flatMap(({ name, layers }) =>
    layers.flatMap(({ layer, heads }) => heads.map((head) => full(name, layer, head))));
}

/** The shortest address of a set of heads: entire layers become 4.*, runs 4.0-3. @param {Model} model @param {Iterable<string>} off */
export function written(model, off) {
  const gone = new Set(off), parts = [];
  for (const { name, layers } of model.stacks) {
    const stem = model.stacks.length === 1 ? "" : `${name}.`;
    for (const { layer, heads } of layers) {
      const of = heads.filter((head) => gone.has(full(name, layer, head)));
      if (of.length && of.length === heads.length) parts.push(`${stem}${layer}.*`);
      else parts.push(...runs(of).map((run) => `${stem}${layer}.${run}`));
    }
  }
  return parts.join(",");
}

/** 0, 1, 2, 5 → 0-2, 5; runs of two stay separate numbers. @param {number[]} numbers */
function runs(numbers) {
  const result = [];
  for (let from = 0; from < numbers.length;) {
    let to = from;
    while (numbers[to + 1] === numbers[to] + 1) to += 1;
    if (to - from >= 2) result.push(`${numbers[from]}-${numbers[to]}`);
    else result.push(...numbers.slice(from, to + 1).map(String));
    from = to + 1;
  }
  return result;
}

/** The heads of this model in a written set; unknown ones are ignored. @param {Model} model @param {string} text */
export function parsed(model, text) {
  /** @type {Set<string>} */
  const result = new Set();
  for (const part of text.split(",").map((one) => one.trim()).filter(Boolean)) {
    const match = /^(?:([a-z]+)\.)?(\d+|\*)\.(\d+|\*|\d+-\d+)$/.exec(part);
    if (!match) continue;
    const name = match[1] ?? (model.stacks.length === 1 ? model.stacks[0].name : null);
    const [low, high] = match[3].includes("-") ? match[3].split("-").map(Number) : [NaN, NaN];
    for (const stack of model.stacks) {
      if (stack.name !== name) continue;
      for (const { layer, heads } of stack.layers) {
        if (match[2] !== "*" && Number(match[2]) !== layer) continue;
        for (const head of heads) {
          if (match[3] === "*" || Number(match[3]) === head || (head >= low && head <= high)) result.add(full(name, layer, head));
        }
      }
    }
  }
  return result;
}

/** The parts of a written set that match no head of this model. @param {Model} model @param {string} text */
export const unknownIn = (model, text) => text.split(",").map((one) => one.trim()).filter((part) => part && !parsed(model, part).size);

/** A shell argument, in single quotes if it needs them. @param {string} text */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The heads of a stack that both models have; all heads of the first if there is no second. @param {Model} first @param {Model | undefined} second @param {string} stack @returns {import("./types.js").StackShape | undefined} */
export function common(first, second, stack) {
  const mine = first.stacks.find(({ name }) => name === stack), theirs = second?.stacks.find(({ name }) => name === stack);
  if (!mine || !second) return mine;
  return {
    name: stack,
    layers: mine.layers.map(({ layer, heads }) => {
      const others = theirs?.layers.find((other) => other.layer === layer)?.heads ?? [];
      return { layer, heads: heads.filter((head) => others.includes(head)) };
    }),
  };
}

/** The name of a model; for a model from a directory, the last part of its path. @param {{name: string}} model */
export const shortName = ({ name }) => (/^[.~/]/.test(name) ? name.split("/").filter(Boolean).pop() ?? name : name);
