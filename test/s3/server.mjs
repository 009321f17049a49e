// A small S3 for tests: objects in memory, conditions on PUT honoured as AWS has them (412, 409, and 404 for
// If-Match on what is not there), lists in pages, SHA-256 checksums, and every signature checked by AWS's own
// signer. Prints its port.
//
//     node server.mjs FOLDER-OF-NPM [--page N] [--drop P] [--conflict P] [--gate FILE]
//
// --drop P: with that probability the connection is cut, half of the time before and half of the time after the
// request was carried out. --conflict P: a conditional PUT is answered with 409 and not carried out. After two such
// faults in a row a request is answered: belay sends it three times, and a command that then fails proves nothing.
// --gate FILE: while there is such a file, requests wait, and how many do is written to FILE.waiting.
import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/package.json`);
const { SignatureV4 } = require("@smithy/signature-v4");
const { HttpRequest } = require("@smithy/protocol-http");
const { Sha256 } = require("@aws-crypto/sha256-js");

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
};
const pageSize = option("page", 3);
const drop = option("drop", 0);
const conflict = option("conflict", 0);
let faultsInRow = 0;
const isFault = (probability) => {
  const is = faultsInRow < 2 && Math.random() < probability;
  faultsInRow += is ? 1 : 0;
  return is;
};
const gate = process.argv.includes("--gate") ? process.argv[process.argv.indexOf("--gate") + 1] : null;

const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };
const bucket = "states";
const objects = new Map(); // key: {body, etag, sha, modified}

async function isSigned(request, url) {
  const given = /^AWS4-HMAC-SHA256 Credential=([^/]+)\/\d{8}\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)$/
    .exec(request.headers.authorization ?? "");
  const date = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(request.headers["x-amz-date"] ?? "");
  if (!given || !date || given[1] !== credentials.accessKeyId) return false;
  const headers = {};
  for (const name of given[3].split(";")) headers[name] = request.headers[name];
  const query = {};
  for (const [name, value] of url.searchParams) query[name] = value;
  const signer = new SignatureV4({ credentials, region: given[2], service: "s3", sha256: Sha256, uriEscapePath: false,
                                   applyChecksum: false });
  const signed = await signer.sign(
    new HttpRequest({ method: request.method, protocol: "http:", hostname: "x", path: url.pathname, query, headers }),
    { signingDate: new Date(Date.UTC(date[1], date[2] - 1, date[3], date[4], date[5], date[6])) });
  return signed.headers.authorization.endsWith(`Signature=${given[4]}`);
}

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
// As S3 does for encoding-type=url.
const encode = (text) => encodeURIComponent(text).replace(/%2F/g, "/").replace(/%20/g, "+");

function list(url) {
  const prefix = url.searchParams.get("prefix") ?? "";
  const delimiter = url.searchParams.get("delimiter");
  const after = url.searchParams.get("continuation-token");
  const size = Math.min(Number(url.searchParams.get("max-keys") ?? pageSize), pageSize);
  const shown = url.searchParams.get("encoding-type") === "url" ? encode : escape;
  const order = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
  const entries = new Map();
  for (const key of [...objects.keys()].sort(order)) {
    if (!key.startsWith(prefix)) continue;
    const end = delimiter ? key.indexOf(delimiter, prefix.length) : -1;
    entries.set(end < 0 ? key : key.slice(0, end + 1), end < 0 ? objects.get(key) : null);
  }
  const names = [...entries.keys()].sort(order).filter((name) => after === null || order(name, after) > 0);
  const page = names.slice(0, size);
  const parts = page.map((name) => {
    const object = entries.get(name);
    return object === null ? `<CommonPrefixes><Prefix>${shown(name)}</Prefix></CommonPrefixes>`
      : `<Contents><Key>${shown(name)}</Key><Size>${object.body.length}</Size><ETag>${escape(object.etag)}</ETag>` +
        `<LastModified>${object.modified.toISOString()}</LastModified></Contents>`;
  });
  const more = names.length > page.length;
  return { status: 200, body: `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
    `<IsTruncated>${more}</IsTruncated>${parts.join("")}` +
    `${more ? `<NextContinuationToken>${escape(page.at(-1))}</NextContinuationToken>` : ""}</ListBucketResult>` };
}

const error = (status, code) => ({ status, body: `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>` });

function put(key, request, body) {
  const there = objects.get(key);
  const none = request.headers["if-none-match"];
  const match = request.headers["if-match"];
  if ((none || match) && isFault(conflict)) return error(409, "ConditionalRequestConflict");
  if (none !== undefined && none !== "*") return error(501, "NotImplemented");
  if (none === "*" && there) return error(412, "PreconditionFailed");
  if (match !== undefined && !there) return error(404, "NoSuchKey");
  if (match !== undefined && there.etag !== match) return error(412, "PreconditionFailed");
  const sha = createHash("sha256").update(body).digest();
  const claimed = request.headers["x-amz-checksum-sha256"];
  if (claimed !== undefined && claimed !== sha.toString("base64")) return error(400, "BadDigest");
  if (request.headers["x-amz-content-sha256"] !== sha.toString("hex")) return error(400, "XAmzContentSHA256Mismatch");
  const object = { body, etag: `"${createHash("md5").update(body).digest("hex")}"`, sha: claimed, modified: new Date() };
  objects.set(key, object);
  return { status: 200, headers: { ETag: object.etag } };
}

function answer(request, url, body) {
  const path = decodeURIComponent(url.pathname).split("/");
  if (path[1] !== bucket) return error(404, "NoSuchBucket");
  const key = path.slice(2).join("/");
  if (key === "" && request.method === "GET") return list(url);
  if (request.method === "PUT") return put(key, request, body);
  if (request.method === "DELETE") {
    objects.delete(key);
    return { status: 204 };
  }
  const object = objects.get(key);
  if (!object) return error(404, "NoSuchKey");
  const headers = { ETag: object.etag };
  if (request.headers["if-none-match"] === object.etag) return { status: 304, headers };
  if (request.headers["x-amz-checksum-mode"] === "ENABLED" && object.sha) headers["x-amz-checksum-sha256"] = object.sha;
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? ""); // terraform sends one
  if (!range) return { status: 200, headers, body: object.body };
  const size = object.body.length;
  const [from, to] = [Number(range[1]), range[2] === "" ? size - 1 : Math.min(Number(range[2]), size - 1)];
  if (from >= size) return error(416, "InvalidRange");
  delete headers["x-amz-checksum-sha256"];
  headers["Content-Range"] = `bytes ${from}-${to}/${size}`;
  return { status: 206, headers, body: object.body.subarray(from, to + 1) };
}

let waiting = 0;
async function passGate() {
  if (gate === null || !existsSync(gate)) return;
  writeFileSync(`${gate}.waiting`, String(++waiting));
  while (existsSync(gate)) await new Promise((done) => setTimeout(done, 10));
}

const server = createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("error", () => {});
  request.on("end", async () => {
    const url = new URL(request.url, "http://x");
    await passGate();
    const before = faultsInRow;
    const cut = isFault(drop) ? (Math.random() < 0.5 ? "before" : "after") : "";
    if (cut === "before") return request.socket.destroy();
    const result = (await isSigned(request, url)) ? answer(request, url, Buffer.concat(pieces)) : error(403, "SignatureDoesNotMatch");
    if (cut === "after") return request.socket.destroy();
    if (faultsInRow === before) faultsInRow = 0;
    const sent = Buffer.from(result.body ?? "");
    const length = result.status === 204 || result.status === 304 ? {} : { "Content-Length": sent.length };
    response.writeHead(result.status, { Date: new Date().toUTCString(), ...length, ...result.headers });
    response.end(sent);
  });
});
server.keepAliveTimeout = 60000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
