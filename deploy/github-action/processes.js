// Other processes, by their id and the time they started: an id alone may meanwhile be that of another process.
const fs = require("node:fs");

// The time is known on Linux only; elsewhere the id must do.
function startTime(pid) {
  try {
    // The name, in parentheses, may contain spaces and parentheses. The 20th field after it is the start time.
    const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
    return fields[0] === "Z" ? "ended" : fields[19];
  } catch {
    return "";
  }
}

function identify(pid) {
  return `${pid}:${startTime(pid)}`;
}

function isAlive(identity) {
  const [pid, started] = identity.split(":");
  try {
    process.kill(Number(pid), 0);
  } catch (error) {
    if (error.code !== "EPERM") return false;
  }
  return startTime(pid) === started;
}

module.exports = { identify, isAlive };
