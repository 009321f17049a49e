// Times and durations for people, in the words of `belay list`.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) {
    return "–";
  }
  if (ms < SECOND) {
    return ms <= 0 ? "0s" : `${Math.round(ms)}ms`;
  }
  const s = Math.floor(ms / SECOND), m = Math.floor(ms / MINUTE), hours = Math.floor(ms / HOUR), d = Math.floor(ms / DAY);
  if (s < 60) {
    return `${s}s`;
  }
  if (m < 60) {
    return `${m}m ${s % 60}s`;
  }
  if (hours < 24) {
    return `${hours}h ${m % 60}m`;
  }
  return `${d}d ${hours % 24}h`;
}

/** A short form for axes: 90 s is 1.5m. */
export function tick(ms) {
  const steps = [[DAY, "d"], [HOUR, "h"], [MINUTE, "m"], [SECOND, "s"]];
  for (const [size, unit] of steps) {
    if (ms >= size) {
      return `${Number((ms / size).toFixed(1))}${unit}`;
    }
  }
  return ms === 0 ? "0" : `${Math.round(ms)}ms`;
}

export function count(n) {
  return n.toLocaleString("en-GB");
}

export function short(n) {
  return n >= 1e6 ? `${Number((n / 1e6).toFixed(1))}M` : n >= 1e4 ? `${Number((n / 1e3).toFixed(1))}k` : count(n);
}

/** How long ago, in one unit. */
export function age(ms) {
  const [size, unit] = [[DAY, "d"], [HOUR, "h"], [MINUTE, "m"]].find(([one]) => ms >= one) ?? [SECOND, "s"];
  return `${Math.max(0, Math.floor(ms / size))}${unit} ago`;
}

export function bytes(n) {
  const units = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const [size, unit] = units.find(([one]) => n >= one) ?? [1, "B"];
  return `${Number((n / size).toFixed(n / size < 10 && size > 1 ? 1 : 0))} ${unit}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MINUTES = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DATED = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function clock(ms) {
  return CLOCK.format(ms);
}

export function minutes(ms) {
  return MINUTES.format(ms);
}

/** With the day, unless it is today. */
export function moment(ms, now) {
  return new Date(ms).toDateString() === new Date(now).toDateString() ? CLOCK.format(ms) : DATED.format(ms);
}

/** The display name, and the owner unless it repeats the name: belay's own owners are user@host:process:number. */
export function holder(lock) {
  const name = lock.locked_by_name || lock.locked_by || "";
  const owner = lock.locked_by && lock.locked_by !== name && !lock.locked_by.startsWith(`${name}:`) ? lock.locked_by : "";
  return { name, owner };
}

/** How several clients hold a lock, such as "shared by 3" or "2 of 3 slots"; "" for an exclusive one. */
export function sharing({ mode, slots }, holders) {
  return mode === "shared" ? `shared by ${count(holders)}` : mode === "slots" ? `${count(holders)} of ${count(slots)} slots` : "";
}

/** Whether texts match a search: each word of it is in one of them. */
export function matcher(search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return (...texts) => words.every((word) => texts.some((text) => text?.toLowerCase().includes(word)));
}

export function percentile(sorted, percent) {
  return sorted.length === 0 ? null : sorted[Math.min(sorted.length - 1, Math.ceil((sorted.length * percent) / 100) - 1)];
}

/** Quoted as one word for a shell. */
export function quote(text) {
  return /^[\w\-./:@%+,=]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
