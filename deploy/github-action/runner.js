// What the runner and a step exchange: variables that begin with INPUT_ and STATE_, and the files that GITHUB_OUTPUT,
// GITHUB_STATE and GITHUB_ENV name. No package is needed for that.
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

function input(name) {
  return (process.env[`INPUT_${name.replace(/ /g, "_").toUpperCase()}`] || "").trim();
}

function append(variable, name, value) {
  if (/[\r\n]/.test(value)) throw new Error(`'${name}' has a line break`);
  fs.appendFileSync(process.env[variable], `${name}=${value}\n`);
}

// From here on the runner replaces the value with *** in the log.
function mask(value) {
  if (value) process.stdout.write(`::add-mask::${value}\n`);
}

function fail(message) {
  const escaped = message.replace(/%/g, "%25").replace(/\r/g, "%0D").replace(/\n/g, "%0A");
  process.stdout.write(`::error::${escaped}\n`);
  process.exitCode = 1;
}

// belay takes the token from its environment: arguments are visible to every process of the machine.
function environment(store, token) {
  const env = { ...process.env, BELAY_STORE: store };
  for (const name of Object.keys(env)) if (name.startsWith("INPUT_")) delete env[name];
  if (token) env.BELAY_AUTH_TOKEN = token;
  return env;
}

// What the renewals had to say. The runner empties its folder after the job.
function renewalLog(id) {
  return path.join(process.env.RUNNER_TEMP || os.tmpdir(), `belay-renewals-${id}.log`);
}

module.exports = { append, environment, fail, input, mask, renewalLog };
