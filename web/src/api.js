// Client of the server's HTTP interface. An error status becomes a Refused with the server's message.

import { Refused } from "./refused.js";
import { summaryOf, unpack } from "./unpack.js";

/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").Answer} Answer */

const client = Array.from(crypto.getRandomValues(new Uint32Array(3)), (number) => number.toString(36)).join("");
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
  const content = await response.json().catch(() => null);
  throw new Refused(response.status, typeof content?.error === "string" ? content.error : `The server answered ${response.status}.`);
}

/** @param {string} path @param {unknown} body @param {AbortSignal} [signal] */
const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

/** @returns {Promise<import("./types.js").About>} */
export const about = async () => (await ask("/api/about")).json();

/** @type {Map<string, AbortController>} */
const running = new Map();

/**
 * Ask the model. A newer question of the same `purpose` stops an older one, here and at the server.
 * @param {Question} question @param {string} purpose @returns {Promise<Answer>}
 */
export async function attend(question, purpose) {
  running.get(purpose)?.abort();
  const stop = new AbortController();
  running.set(purpose, stop);
  const response = await post("/api/attend", { ...question, client: `${client}-${purpose}`, turn: ++turn }, stop.signal);
  const content = await response.json();
  /** @type {Answer} */
  const answer = {
    ...content, question, summary: summaryOf(content.summary),
    maps: (stack, layer) => withRetry([answer], () => bytes(`maps/${answer.id}/${stack}/${layer}`)),
    thumbnails: (stack) => withRetry([answer], () => bytes(`thumbnails/${answer.id}/${stack}`)),
    difference: (against, stack, layer) => withRetry([answer, against], () => bytes(`difference/${against.id}/${answer.id}/${stack}/${layer}`)),
    largestDifference: (against, stack) => withRetry([answer, against], async () => (await (await ask(`/api/difference/${against.id}/${answer.id}/${stack}`)).json()).full),
  };
  return answer;
}

/** @param {string} path */
const bytes = async (path) => unpack(await (await ask(`/api/${path}`)).arrayBuffer());

/** Fetch from states. The server keeps only the latest ones: if it has evicted one (404), attend once more and retry. @template T @param {Answer[]} answers @param {() => Promise<T>} fetchIt */
async function withRetry(answers, fetchIt) {
  try {
    return await fetchIt();
  } catch (reason) {
    if (!(reason instanceof Refused) || reason.status !== 404) throw reason;
    for (const answer of answers) answer.id = (await attend(answer.question, "again")).id;
    return fetchIt();
  }
}

/**
 * The model's own translation. A newer question of the same model stops an older one.
 * @param {{model: string, text: string, off: string}} question @returns {Promise<{before: string, after: string | null}>}
 */
export async function translate(question) {
  const purpose = `translate-${question.model}`, stop = new AbortController();
  running.get(purpose)?.abort();
  running.set(purpose, stop);
  return (await post("/api/translate", { ...question, client: `${client}-${purpose}`, turn: ++turn }, stop.signal)).json();
}

/** For each text the cosine similarity of two models' embeddings; null if their dimensions differ. @param {Answer} one @param {Answer} other @returns {Promise<number[] | null>} */
export const alike = (one, other) => withRetry([one, other], async () => (await (await ask(`/api/alike/${one.id}/${other.id}`)).json()).cosines);

/** @param {"heads" | `cards/${string}` | `examples/${string}`} what */
export const study = async (what) => (await ask(`/api/study/${what}`)).json();
