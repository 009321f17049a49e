// The stream of events, which reconnects by itself.

import { isFault } from "./errors.js";
import { lostAnswer } from "./transport.js";

const SILENT_MS = 45000; // the server sends a comment every 15 seconds

/** The id and the event of each block that has one of them. The first block has only the id that the stream begins with. */
async function* parse(response) {
  let rest = "";
  let data = "";
  let id;
  for await (const chunk of response.setEncoding("utf8")) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) {
        data += line.slice(6);
      } else if (line.startsWith("id: ")) {
        id = Number(line.slice(4));
      } else if (line === "" && (data !== "" || id !== undefined)) {
        yield { id, event: data === "" ? undefined : JSON.parse(data) };
        data = "";
        id = undefined;
      }
    }
  }
}

export class EventStream {
  #transport;
  #query;
  #last;
  #response = null;
  #blocks; // of the response
  #wasOpen = false;
  #stop = new AbortController();

  /** Use Client.events(). */
  constructor(transport, { prefix, after, signal }) {
    this.#transport = transport;
    this.#query = prefix === undefined ? "" : `?${new URLSearchParams({ prefix })}`;
    this.#last = after;
    if (signal?.aborted) {
      this.close();
    }
    signal?.addEventListener("abort", () => this.close(), { once: true });
  }

  /** Resolves once the stream is open: from then on no event is missed. */
  async open() {
    for (let faults = 1; this.#response === null && !this.#stop.signal.aborted; faults++) {
      try {
        await this.#connect(this.#transport.limit(faults - 1));
      } catch (error) {
        if (this.#stop.signal.aborted) {
          return;
        }
        if (!isFault(error) || (!this.#wasOpen && this.#transport.isHopeless(faults))) {
          throw error;
        }
        await this.#transport.pause(faults, this.#stop.signal);
      }
    }
  }

  async #connect(timeout) {
    const opened = await this.#transport.open("GET", `/v1/events${this.#query}`, {
      isStream: true, timeout, signal: this.#stop.signal,
      headers: { Accept: "text/event-stream, application/json", ...(this.#last === undefined ? {} : { "Last-Event-ID": String(this.#last) }) },
    });
    const { response } = opened;
    if (response.statusCode !== 200) {
      await this.#transport.read(opened);
    }
    response.socket.setTimeout(SILENT_MS, () => response.destroy(new Error("the stream is silent")));
    this.#blocks = parse(response);
    if (this.#last === undefined) {
      await this.#readBeginning(opened.server);
    }
    this.#response = response;
    this.#wasOpen = true;
  }

  /** The stream goes on from here if it breaks before the first event. */
  async #readBeginning(server) {
    let first;
    try {
      first = await this.#blocks.next();
    } catch (cause) {
      throw lostAnswer(server, cause);
    }
    if (first.done) {
      throw lostAnswer(server, new Error("the stream ended as it began"));
    }
    this.#last = first.value.id;
  }

  close() {
    this.#stop.abort();
    this.#response?.destroy();
  }

  async *[Symbol.asyncIterator]() {
    try {
      while (!this.#stop.signal.aborted) {
        await this.open();
        try {
          for await (const { event } of this.#response === null ? [] : this.#blocks) {
            if (event !== undefined) {
              this.#last = event.id ?? this.#last;
              yield event;
            }
          }
        } catch {
          // cut: open() goes on after the last event
        }
        this.#response = null;
      }
    } finally {
      this.close();
    }
  }
}
