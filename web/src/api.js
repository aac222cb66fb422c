// The page's side of the server's interface. Every answer is checked for its status; what was refused says why.

import { Refused } from "./refused.js";
import { summaryOf, unpack } from "./unpack.js";

/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").Answer} Answer */

const client = Array.from(crypto.getRandomValues(new Uint32Array(3)), (one) => one.toString(36)).join("");
let turn = 0;

/** @param {string} path @param {RequestInit} [options] */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin" });
  } catch (reason) {
    if (reason instanceof DOMException && reason.name === "AbortError") throw new Refused(409, "A newer question was asked.");
    throw new Refused(0, "The server does not answer. If it was stopped, start it again: headscope serve.");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Refused(response.status, typeof said?.error === "string" ? said.error : `The server answered ${response.status}.`);
}

/** @param {string} path @param {unknown} body @param {AbortSignal} [signal] */
const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** @returns {Promise<import("./types.js").About>} */
export const about = async () => (await ask("/api/about")).json();

/** @type {Map<string, AbortController>} */
const underWay = new Map();

/**
 * Ask the model. A newer question of the same `purpose` stops an older one, here and at the server.
 * @param {Question} question @param {string} purpose @returns {Promise<Answer>}
 */
export async function attend(question, purpose) {
  underWay.get(purpose)?.abort();
  const stop = new AbortController();
  underWay.set(purpose, stop);
  const response = await post("/api/attend", { ...question, client: `${client}-${purpose}`, turn: ++turn }, stop.signal);
  const said = await response.json();
  /** @type {Answer} */
  const answer = {
    ...said, question, summary: summaryOf(said.summary),
    maps: (stack, layer) => again([answer], () => bytes(`maps/${answer.id}/${stack}/${layer}`)),
    thumbnails: (stack) => again([answer], () => bytes(`thumbnails/${answer.id}/${stack}`)),
    difference: (against, stack, layer) => again([answer, against], () => bytes(`difference/${against.id}/${answer.id}/${stack}/${layer}`)),
    largestDifference: (against, stack) => again([answer, against], async () => (await (await ask(`/api/difference/${against.id}/${answer.id}/${stack}`)).json()).full),
  };
  return answer;
}

/** @param {string} path */
const bytes = async (path) => unpack(await (await ask(`/api/${path}`)).arrayBuffer());

/** The server keeps a few states only; one that it has forgotten is asked for once more. @template T @param {Answer[]} answers @param {() => Promise<T>} fetched */
async function again(answers, fetched) {
  try {
    return await fetched();
  } catch (reason) {
    if (!(reason instanceof Refused) || reason.status !== 404) throw reason;
    for (const one of answers) one.id = (await attend(one.question, "again")).id;
    return fetched();
  }
}

/**
 * The model's own translation. A newer question of the same model stops an older one.
 * @param {{model: string, text: string, off: string}} question @returns {Promise<{before: string, after: string | null}>}
 */
export async function translate(question) {
  const purpose = `translate-${question.model}`, stop = new AbortController();
  underWay.get(purpose)?.abort();
  underWay.set(purpose, stop);
  return (await post("/api/translate", { ...question, client: `${client}-${purpose}`, turn: ++turn }, stop.signal)).json();
}

/** How alike what two models made of each text is; null: it cannot be compared. @param {Answer} one @param {Answer} other @returns {Promise<number[] | null>} */
export const alike = (one, other) => again([one, other], async () => (await (await ask(`/api/alike/${one.id}/${other.id}`)).json()).cosines);

/** @param {"heads" | `cards/${string}` | `examples/${string}`} what */
export const study = async (what) => (await ask(`/api/study/${what}`)).json();
