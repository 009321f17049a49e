// A proxy in front of a server, which can do what real ones do to a stream.

import net from "node:net";
import { freePort } from "./support.mjs";

export class Proxy {
  #pairs = new Set();
  holdsStreams = false; // what a connection that asked for /v1/live gets is kept back

  async start(server) {
    const port = await freePort();
    this.listener = net.createServer((client) => this.#connect(client, server.port));
    await new Promise((resolve) => this.listener.listen(port, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${port}`;
    return this;
  }

  #connect(client, port) {
    const upstream = net.connect(port, "127.0.0.1"), pair = { client, upstream, isSilent: false };
    this.#pairs.add(pair);
    client.on("data", (data) => {
      pair.isStream ||= data.includes("GET /v1/live");
      upstream.write(data);
    });
    upstream.on("data", (data) => pair.isSilent || (pair.isStream && this.holdsStreams) || client.write(data));
    for (const [one, other] of [[client, upstream], [upstream, client]]) {
      one.on("error", () => {});
      one.on("close", () => {
        other.destroy();
        this.#pairs.delete(pair);
      });
    }
  }

  /** The streams that are open now, or all connections, look alive, and nothing arrives on them, as after a laptop has slept. */
  silence(areAll) {
    this.#pairs.forEach((pair) => (pair.isSilent = areAll || pair.isStream));
  }

  letStreamsPass() {
    this.holdsStreams = false;
    this.#pairs.forEach((pair) => pair.isStream && pair.client.destroy());
  }

  stop() {
    this.listener.close();
    this.#pairs.forEach((pair) => pair.client.destroy());
  }
}
