// Requests and their answers: one attempt, and attempts until there is an answer, from whichever server gives one.

import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { sleep } from "./clock.js";
import { InvalidError, UnknownOutcomeError, UnavailableError, errorOf, isFault } from "./errors.js";

const CONNECT_MS = 3000;
const SEVERAL_MS = 4000; // for an answer, while there is another server that was not asked
const TRIES = 3;
const BACKOFF_MS = 100;
const BACKOFF_MAX_MS = 1000;
const BODY_MAX = 64 * 1024 * 1024;

function readFile(file, name) {
  try {
    return readFileSync(file);
  } catch (cause) {
    throw new InvalidError(`${name}: ${cause.message}`, { cause });
  }
}

function readToken({ token, tokenFile }) {
  const { BELAY_AUTH_TOKEN: given, BELAY_AUTH_FILE: file } = process.env;
  const read = (path, name) => readFile(path, name).toString().trim();
  const text = token ?? (tokenFile ? read(tokenFile, "tokenFile") : given || (file ? read(file, "BELAY_AUTH_FILE") : undefined));
  if (text !== undefined && !/^[\x21-\x7e]+$/.test(text)) {
    throw new InvalidError("the token is empty, or has spaces or other characters that a token cannot have");
  }
  return text;
}

function parseServer(text, ca) {
  if (text.startsWith("unix:/")) {
    return { url: text, module: http, agent: new http.Agent({ keepAlive: true }), options: { socketPath: text.slice(5), host: "localhost" }, base: "" };
  }
  let url;
  try {
    url = new URL(text);
  } catch {
    url = { protocol: "" };
  }
  if (!["http:", "https:"].includes(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw new InvalidError(`'${url.password ? "(with a password)" : text}' is not a server's URL: write http://HOST:PORT, https://HOST:PORT or unix:/PATH; a token belongs in BELAY_AUTH_TOKEN or a file`);
  }
  const module = url.protocol === "https:" ? https : http;
  return {
    url: text,
    module,
    agent: new module.Agent({ keepAlive: true, ca }),
    options: { host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || undefined },
    base: url.pathname.replace(/\/+$/, ""),
  };
}

export function lostAnswer(server, cause) {
  return new UnknownOutcomeError(`no answer from ${server.url}: ${cause.message}`, { cause });
}

export class Transport {
  #servers;
  #current = 0;
  #token;
  #warned = false;
  #store = "?"; // of the first answer: all servers must have this one

  constructor({ url = process.env.BELAY_STORE || "http://127.0.0.1:7420", caFile = process.env.BELAY_CA_FILE || undefined, timeout, ...auth }) {
    const urls = (Array.isArray(url) ? url : String(url).split(",")).map((one) => one.trim()).filter(Boolean);
    if (urls.length === 0) {
      throw new InvalidError("url: no server is named: write http://HOST:PORT, https://HOST:PORT or unix:/PATH");
    }
    const ca = caFile === undefined ? undefined : readFile(caFile, "caFile");
    this.#servers = urls.map((one) => parseServer(one, ca));
    this.#token = readToken(auth);
    this.timeout = timeout;
  }

  close() {
    this.#servers.forEach((server) => server.agent.destroy());
  }

  get url() {
    return this.#servers[this.#current].url;
  }

  get serverCount() {
    return this.#servers.length;
  }

  /** How long an answer may take after so many faults: one of several servers may hang, and then the next one is asked soon. */
  limit(faults) {
    return this.serverCount > 1 && faults < this.serverCount ? Math.min(SEVERAL_MS, this.timeout) : this.timeout;
  }

  /** This server, or its store, is in trouble: another may do better. */
  #leave(server) {
    if (this.#servers[this.#current] === server) {
      this.#current = (this.#current + 1) % this.#servers.length;
    }
  }

  #headers(body) {
    return {
      Accept: "application/json",
      ...(body === undefined ? {} : { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) }),
      ...(this.#token === undefined ? {} : { Authorization: `Bearer ${this.#token}` }),
      ...(this.#servers.length === 1 ? {} : { "Belay-Store": this.#store }),
    };
  }

  /**
   * Sends one request; resolves to the response once its head is there. Rejects with UnavailableError if nothing was
   * sent, else with UnknownOutcomeError. `unref` does not keep the process alive for it. With `isStream` only the head of
   * the answer has to come in time.
   */
  open(method, path, { body, headers, timeout = this.timeout, isStream = false, signal, unref = false } = {}) {
    const server = this.#servers[this.#current];
    const data = body === undefined ? undefined : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      let sent = false;
      const request = server.module.request({
        ...server.options, agent: server.agent, method, path: server.base + path, signal, headers: { ...this.#headers(data), ...headers },
      });
      const limit = (ms, what) => setTimeout(() => request.destroy(new Error(`no ${what} within ${ms} ms`)), ms);
      const timers = [limit(CONNECT_MS, "connection"), limit(timeout, "answer")];
      request.once("socket", (socket) => {
        const connected = () => {
          clearTimeout(timers[0]);
          sent = true;
        };
        if (socket.connecting) {
          socket.once(server.module === https ? "secureConnect" : "connect", connected);
        } else {
          connected();
        }
        if (unref) {
          [socket, ...timers].forEach((handle) => handle.unref());
        }
      });
      request.once("response", (response) => {
        if (isStream) {
          timers.forEach(clearTimeout);
        }
        response.once("close", () => timers.forEach(clearTimeout));
        this.#warnIfOff(response);
        if (this.#store === "?") {
          this.#store = response.headers["belay-store"] ?? "?";
        }
        resolve({ response, server });
      });
      request.on("error", (cause) => {
        timers.forEach(clearTimeout);
        if (!signal?.aborted) {
          this.#leave(server);
        }
        reject(sent ? lostAnswer(server, cause) : new UnavailableError(`cannot connect to ${server.url}: ${cause.message}`, { cause }));
      });
      request.end(data);
    });
  }

  #warnIfOff(response) {
    if (response.headers["belay-locking"] === "off" && !this.#warned) {
      this.#warned = true;
      process.emitWarning("locking is switched off at the server: its locks protect nothing", "BelayWarning");
    }
  }

  /** One request and its answer, as JSON. */
  async attempt(method, path, options) {
    return this.read(await this.open(method, path, options));
  }

  async read({ response, server }) {
    const { statusCode: status } = response;
    const chunks = [];
    let size = 0;
    let body = null;
    try {
      for await (const chunk of response) {
        size += chunk.length;
        if (size > BODY_MAX) {
          throw new Error(`an answer of over ${BODY_MAX} bytes`);
        }
        chunks.push(chunk);
      }
    } catch (cause) {
      this.#leave(server);
      throw lostAnswer(server, cause);
    }
    try {
      body = JSON.parse(Buffer.concat(chunks).toString());
    } catch {
      // not from a belay server, as the error says
    }
    if (status === 200 && typeof body === "object" && body !== null && !Array.isArray(body)) {
      return body;
    }
    if (status >= 500) {
      this.#leave(server);
    }
    throw status === 200 ? lostAnswer(server, new Error("what came is not of a belay server")) : errorOf(server.url, status, body);
  }

  /** Waits before the attempt after `faults` in a row; not at all while there are servers that were not asked yet. */
  async pause(faults, signal, unref, most = BACKOFF_MAX_MS) {
    if (faults >= this.#servers.length) {
      await sleep(Math.min(BACKOFF_MS * 2 ** (faults - this.#servers.length), BACKOFF_MAX_MS, most), signal, unref);
    }
  }

  /**
   * Sends a request that may be repeated until it is answered, at most `tries` times; `onSend` is called before each. An
   * answer that was lost is never reported as a failure (L5), except to a read, which changes nothing.
   */
  async call(method, path, { isRead = method === "GET", tries = TRIES, onSend, signal, ...options } = {}) {
    let unknown = null;
    for (let faults = 1; ; faults++) {
      try {
        onSend?.();
        return await this.attempt(method, path, { timeout: this.limit(faults - 1), ...options, signal });
      } catch (error) {
        signal?.throwIfAborted();
        error.wasUnknown = unknown !== null;
        if (!isFault(error)) {
          throw error;
        }
        unknown = error instanceof UnknownOutcomeError ? error : unknown;
        if (this.isHopeless(faults, tries)) {
          throw isRead ? new UnavailableError(error.message, { cause: error }) : unknown ?? error;
        }
        await this.pause(faults, signal, options.unref);
        signal?.throwIfAborted();
      }
    }
  }

  /** Whether `faults` in a row are enough: every server was asked. */
  isHopeless(faults, tries = TRIES) {
    return faults >= Math.max(tries, this.#servers.length);
  }
}
