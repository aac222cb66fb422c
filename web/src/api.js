// The page's side of the server's interface. Every answer is checked for its status; what was refused says why.

import { unpack } from "./unpack.js";

/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").Answer} Answer */

/** The server said no, or nothing at all (status 0). */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

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
  const summary = new Map(said.summary.map((/** @type {import("./types.js").HeadSummary} */ one) => [`${one.stack}.${one.layer}.${one.head}`, one]));
  return { ...said, question, summary };
}

/** @param {string} path */
const bytes = async (path) => (await ask(path)).arrayBuffer();

/** @param {string} id @param {string} stack @param {number} layer */
export const maps = async (id, stack, layer) => unpack(await bytes(`/api/maps/${id}/${stack}/${layer}`));

/** @param {string} id @param {string} against @param {string} stack @param {number} layer */
export const difference = async (id, against, stack, layer) =>
  unpack(await bytes(`/api/difference/${against}/${id}/${stack}/${layer}`));

/** @param {string} id @param {string} stack */
export const thumbnails = async (id, stack) => unpack(await bytes(`/api/thumbnails/${id}/${stack}`));

/** @param {{model: string, text: string, off: string}} question */
export const translate = async (question) => (await post("/api/translate", question)).json();

/** @param {"heads" | `cards/${string}` | `examples/${string}`} what */
export const study = async (what) => (await ask(`/api/study/${what}`)).json();
