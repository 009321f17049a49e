#!/usr/bin/env node
// The pictures of the dashboard in docs/img, from a real server with made-up locks.
//
//     tools/dashboard-pictures [FOLDER]       BELAY_BIN says which program (default build/belay)
//
// The hours of history behind the charts are made by moving the events of the store back in time, which no
// command of belay does.

import { execFileSync } from "node:child_process";
import path from "node:path";
import { ROOT, Server as Plain, browser, folder, open } from "../test/dashboard/support.mjs";

const OUT = path.resolve(process.argv[2] ?? path.join(ROOT, "docs/img"));
const SERVICES = ["api", "web", "billing", "search", "mailer", "auth", "ledger", "media", "router", "echo", "status"];
const ENVIRONMENTS = ["dev", "stage", "prod"];
const PEOPLE = ["Ada Lovelace", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov", "Leslie Lamport", "Frances Allen"];

/** Whoever deploys has the token of the CI. */
class Server extends Plain {
  acquire(key, fields) {
    return super.acquire(key, fields, "locker");
  }
}

let seed = 7;
function random(n) {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return Math.floor((seed / 2147483648) * n);
}

const MOVE = `
import sqlite3, sys, random
random.seed(3)
db = sqlite3.connect(sys.argv[1])
columns = [row[1] for row in db.execute("pragma table_info(events)")]
at = next(name for name in columns if name.startswith("at"))
rows = db.execute(f"select id, {at}, duration_ms from events order by id").fetchall()
last, n = rows[-1][1], len(rows)
for i, (event, when, duration) in enumerate(rows):
    back = int((1 - i / n) ** 1.1 * 6 * 3600000)
    if duration is not None and duration >= 0:
        duration = int(random.lognormvariate(11.3, 0.8))
    db.execute(f"update events set {at} = ?, duration_ms = ? where id = ?", (last - back, duration, event))
for key, at in db.execute("select key, locked_at_unix_ms from locks where held").fetchall():
    db.execute("update locks set locked_at_unix_ms = ? where key = ?", (at - int(random.lognormvariate(12.2, 0.9)), key))
db.commit()
`;

async function history(server) {
  for (let i = 0; i < 420; i++) {
    const key = `deploy-${SERVICES[random(SERVICES.length)]}-${ENVIRONMENTS[random(3)]}`;
    const who = PEOPLE[random(PEOPLE.length)];
    const lock = await server.acquire(key, { locked_by: `ci-${4000 + i}`, locked_by_name: who });
    if (i % 9 === 0) {
      await server.acquire(key, { locked_by: "other" });
    }
    if (i % 14 === 0) {
      const wait = server.waiter(key, `ci-w${i}`);
      await server.release(lock);
      const next = await wait;
      await server.release(next);
    } else if (i % 60 === 7) {
      await server.call("DELETE", `/v1/locks/${key}`, { lock_id: lock.lock_id, reason: "the runner was deleted" });
    } else {
      await server.release(lock, i % 17 === 0 ? "failed" : "completed");
    }
  }
  for (let i = 0; i < 14; i++) {
    const lock = await server.acquire("deploy-api-prod", { locked_by: `ci-${5200 + i}`, locked_by_name: PEOPLE[i % PEOPLE.length] });
    await server.release(lock, i === 9 ? "failed" : "completed");
  }
}

async function present(server) {
  for (const [i, service] of SERVICES.entries()) {
    for (const environment of ENVIRONMENTS) {
      if ((i + environment.length) % 4 !== 1 && (service !== "api" || environment !== "prod")) {
        await server.acquire(`deploy-${service}-${environment}`, { locked_by: `ci-${5300 + i}`, locked_by_name: PEOPLE[(i + environment.length) % PEOPLE.length],
          ttl_ms: [150000, 600000, 1800000, 240000][i % 4] + random(240000), metadata: { commit: "9f3c2ab", ref: "main", pipeline: `https://ci.example.com/runs/${5300 + i}` } });
      }
    }
    await server.acquire(`build-${service}-dev`, { locked_by: `builder-${i}`, locked_by_name: "buildkite", ttl_ms: 300000 });
  }
  await server.acquire("deploy-api-prod", { locked_by: "ci-5314", locked_by_name: "Grace Hopper", ttl_ms: 1800000, metadata: { commit: "9f3c2ab", ref: "main", pipeline: "https://ci.example.com/runs/5314", change: "CHG-1042" } });
  await server.acquire("stack:shop:env:prod:service:checkout", { locked_by: "deployer-7", locked_by_name: "Leslie Lamport", ttl_ms: 3600000, heartbeat_ms: 100, stale_after_ms: 1000 });
  await server.acquire("stack:shop:env:prod:component:cart/worker", { locked_by: "deployer-9", locked_by_name: "Frances Allen", ttl_ms: 3600000 });
  await server.acquire("terraform-prod", { locked_by: "execution-abc123", locked_by_name: "Barbara Liskov", ttl_ms: 1800000 });
  await server.acquire("migrate-ledger-prod", { locked_by: "job-88", locked_by_name: "Edsger Dijkstra", ttl_ms: 1500 });
}

async function line(server) {
  for (const [i, name] of ["ci-5321", "ci-5324", "hotfix-17"].entries()) {
    server.acquire("deploy-api-prod", { locked_by: name, locked_by_name: PEOPLE[i + 3], wait_ms: 600000 }).catch(() => null);
    await new Promise((resolve) => setTimeout(resolve, 900));
  }
  server.waiter("terraform-prod", "execution-def456");
  server.waiter("stack:shop:env:prod:service:checkout", "deployer-12");
  server.waiter("deploy-search-prod", "ci-5330");
  await new Promise((resolve) => setTimeout(resolve, 300));
  server.waiter("deploy-search-prod", "ci-5331");
}

async function shot(page, name, options = {}) {
  await page.waitForTimeout(1200);
  await page.screenshot({ path: path.join(OUT, `${name}.png`), ...options });
  console.log(path.join(OUT, `${name}.png`));
}

const dir = folder(), empty = folder();
const server = await new Server(dir.path).start();
const chrome = await browser();
try {
  await history(server);
  await present(server);
  await server.stop();
  execFileSync("python3", ["-c", MOVE, path.join(dir.path, "belay.db")]);
  await server.start();
  await line(server);
  await new Promise((resolve) => setTimeout(resolve, 17000)); // until the stale one is noticed

  const light = await open(chrome, server, { colorScheme: "light" });
  await light.click('[data-sort="queue"]');
  await shot(light, "dashboard-locks");
  await light.goto(`${server.url}/#/locks/deploy-api-prod`);
  await light.waitForSelector(".timeline");
  await shot(light, "dashboard-lock");
  await light.click(".danger");
  await light.fill("#reason", "the runner was deleted");
  await light.fill("#typed", "deploy-api-prod");
  await shot(light, "dashboard-unlock");
  await light.keyboard.press("Escape");
  await light.goto(`${server.url}/#/locks/${encodeURIComponent("stack:shop:env:prod:service:checkout")}`);
  await light.waitForSelector(".tree");
  await shot(light, "dashboard-hierarchy");

  const dark = await open(chrome, server, { colorScheme: "dark" });
  await shot(dark, "dashboard-dark");
  await dark.goto(`${server.url}/#/activity`);
  await dark.waitForSelector("figure");
  await shot(dark, "dashboard-activity");
  await dark.goto(`${server.url}/#/locks/deploy-api-prod`);
  await dark.waitForSelector(".timeline");
  await shot(dark, "dashboard-lock-dark");

  const phone = await open(chrome, server, { viewport: { width: 390, height: 780 }, deviceScaleFactor: 1.5 });
  await shot(phone, "dashboard-phone");
  await phone.goto(`${server.url}/#/locks/deploy-api-prod`);
  await phone.waitForSelector(".timeline");
  await shot(phone, "dashboard-phone-lock");

  await light.goto(`${server.url}/#/locks`);
  await light.waitForSelector(".tr[data-key]");
  const ending = server.stop();
  await light.waitForSelector(".lost:not([hidden])");
  await shot(light, "dashboard-lost");
  await ending;

  const other = await new Server(empty.path).start();
  const first = await open(chrome, other, { role: null });
  await first.waitForSelector("#token");
  await shot(first, "dashboard-login");
  await shot(await open(chrome, other), "dashboard-empty");
  await other.stop();
} finally {
  await chrome.close();
  await server.stop();
  dir.remove();
  empty.remove();
}
