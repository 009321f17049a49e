// Check objects against the Kubernetes API: node validate.mjs TOOLS < OBJECTS, a JSON array. Prints one line for each
// fault, and exits with 1 if there is one.
//
// The API's schemas allow unknown fields, so a misspelt one passes them; the types generated from the same schemas do
// not. The schemas know formats and patterns, which the types do not. Hence both.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const tools = path.resolve(process.argv[2]);
const require = createRequire(path.join(tools, "package.json"));
const ts = require("typescript");
const objects = JSON.parse(fs.readFileSync(0, "utf8"));

function moduleOf({ apiVersion, kind }) {
  const [group, version] = apiVersion.includes("/") ? apiVersion.split("/") : ["", apiVersion];
  const root = group === "monitoring.coreos.com" ? "@kubernetes-models/prometheus-operator" : "kubernetes-models";
  return [root, group, version, kind].filter(Boolean).join("/");
}

function nameOf(object) {
  return `${object.kind} ${object.metadata?.name}`;
}

// A literal of that type must not have other properties than the type has, at any depth.
function typeFaults() {
  const file = path.join(tools, "manifests.ts");
  const text = objects.map((object, i) =>
    `import type { I${object.kind} as Type${i} } from "${moduleOf(object)}";\nconst object${i}: Type${i} = ${JSON.stringify(object)};`);
  const options = { strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.CommonJS, moduleResolution: ts.ModuleResolutionKind.Node10 };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (name) => name === file || fileExists.call(host, name);
  host.getSourceFile = (name, ...more) => name === file ? ts.createSourceFile(name, text.join("\n"), options.target) : getSourceFile.call(host, name, ...more);
  const program = ts.createProgram([file], options, host);
  return ts.getPreEmitDiagnostics(program).map((fault) => {
    const line = fault.file ? fault.file.getLineAndCharacterOfPosition(fault.start).line : 0;
    return `${nameOf(objects[Math.floor(line / 2)])}: ${ts.flattenDiagnosticMessageText(fault.messageText, " ")}`;
  });
}

function schemaFaults() {
  const faults = [];
  for (const object of objects) {
    try {
      new (require(moduleOf(object))[object.kind])(object).validate();
    } catch (error) {
      faults.push(`${nameOf(object)}: ${error.message}`);
    }
  }
  return faults;
}

const faults = [...typeFaults(), ...schemaFaults()];
for (const fault of faults) console.log(fault.replace(/\s+/g, " "));
process.exitCode = faults.length ? 1 : 0;
