// The package as a user gets it: packed, installed, typed and run; the README and the examples included.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import * as belay from "../index.js";
import { PACKAGE, folder, npmTools, run, serve } from "./support.mjs";

const read = (name) => readFileSync(path.join(PACKAGE, name), "utf8");
const blocks = [...read("README.md").matchAll(/^```(js|ts)\n(.*?)^```$/gms)].map(([, language, code]) => ({ language, code }));
const tools = npmTools("clients");
const tsc = (args, options) => run(process.execPath, [path.join(tools, "node_modules/typescript/bin/tsc"), "--typeRoots",
  path.join(tools, "node_modules/@types"), ...args], options);

/** A project with the packed package in it. */
async function project(t) {
  const dir = folder(t);
  const packed = await run("npm", ["pack", "--silent", "--pack-destination", dir], { cwd: PACKAGE });
  assert.equal(packed.code, 0, packed.err);
  writeFileSync(path.join(dir, "package.json"), '{"type":"module"}');
  const installed = await run("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", packed.out.trim()], { cwd: dir });
  assert.equal(installed.code, 0, installed.out + installed.err);
  return dir;
}

test("the README's examples run in a project that installed the package", async (t) => {
  const dir = await project(t);
  const url = await serve(t);
  const at = (code) => code.replaceAll("http://127.0.0.1:7420", url);
  const [first, using, more] = blocks;
  assert.deepEqual(blocks.map(({ language }) => language), ["js", "ts", "js"]);
  writeFileSync(path.join(dir, "first.js"), at(first.code));
  writeFileSync(path.join(dir, "more.js"), more.code);
  writeFileSync(path.join(dir, "using.ts"), `import { connect } from "belay-client";\nconst client = connect();\n${using.code}`);
  const compiled = await tsc(["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "using.ts"], { cwd: dir });
  assert.equal(compiled.code, 0, compiled.out);
  for (const [file, says] of [["first.js", /^deploying, token \d+\n$/], ["using.js", /^$/], ["more.js", /'db-users': \d+[\s\S]*held by job-9[\s\S]*build-router-prod job-9\n/]]) {
    const result = await run(process.execPath, [file], { cwd: dir, env: { BELAY_STORE: url } });
    assert.deepEqual([result.code, result.err], [0, ""], file);
    assert.match(result.out, says);
  }
  for (const key of ["deploy-api-prod", "db-users", "build-router-prod"]) {
    assert.equal((await belay.connect(url).status(key)).status, "released", key);
  }
});

test("the declarations compile strictly and name what there is", async () => {
  const compiled = await tsc(["-p", PACKAGE]);
  assert.equal(compiled.code, 0, compiled.out);
  const declared = [...read("index.d.ts").matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(belay).sort());
  for (const name of declared) {
    assert.ok(/^(Client|BelayError|connect)$/.test(name) || read("README.md").includes(`\`${name}\``), `README.md does not name ${name}`);
  }
});

test("eslint finds nothing", async () => {
  const result = await run(process.execPath, [path.join(tools, "node_modules/eslint/bin/eslint.js"), "-c", path.join(PACKAGE, "test/eslint.config.mjs"),
    "--max-warnings", "0", PACKAGE], { cwd: PACKAGE, env: { BELAY_ESLINT: tools } });
  assert.deepEqual([result.code, result.out], [0, ""]);
});

test("it has no dependency and less than 1,000 lines of code", async () => {
  const { dependencies, files, version } = JSON.parse(read("package.json"));
  assert.equal(dependencies, undefined);
  assert.equal(version, /project\(belay VERSION (\S+)/.exec(read("../../CMakeLists.txt"))[1]);
  const code = ["index.js", ...["client", "clock", "errors", "events", "lock", "transport"].map((name) => `lib/${name}.js`)];
  assert.ok(files.includes("lib"));
  const isCode = (line) => !/^\s*($|\/\/|\/\*|\*)/.test(line);
  const lines = code.reduce((sum, name) => sum + read(name).split("\n").filter(isCode).length, 0);
  assert.ok(lines < 1000 && lines > 100, `${lines} lines`);
});
