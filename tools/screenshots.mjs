#!/usr/bin/env node
// The pictures of the dashboard in docs/img, from a real server with made-up locks.
//
//     tools/screenshots.mjs            the pictures that the documents show, in docs/img
//     tools/screenshots.mjs FOLDER     every view, to look at: light, dark and on a phone
//
// BELAY_BIN is the program (default build/belay).
//
// The history for the charts and the states is created by moving records back in time, which
// no command of belay does.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { addPast, past } from "../test/dashboard/past.mjs";
import { ROOT, Server as Plain, browser, folder, open } from "../test/dashboard/support.mjs";

const OUT = path.resolve(process.argv[2] ?? path.join(ROOT, "docs/img"));
const SHOWN = ["README.md", "docs/dashboard.md", "docs/shared-databases.md"]
  .flatMap((name) => [...readFileSync(path.join(ROOT, name), "utf8").matchAll(/img\/([\w-]+)\.png/g)].map((match) => match[1]));
const SERVICES = ["api", "web", "billing", "search", "mailer", "auth", "ledger", "media", "router", "echo", "status"];
const ENVIRONMENTS = ["dev", "stage", "prod"];
const PEOPLE = ["Ada Lovelace", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov", "Leslie Lamport", "Frances Allen"];

/** Deployments use the token of the CI. */
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
LOCKED_AT = 9  # src/store/sqlite/sqlite_record.c: zigzag varints
def earlier(packed, ms):
    numbers, value, shift = [], 0, 0
    for byte in packed:
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            numbers.append(value)
            value, shift = 0, 0
    numbers[LOCKED_AT] -= 2 * ms
    out = bytearray()
    for value in numbers:
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out)
for key, packed in db.execute("select key, numbers from locks where held").fetchall():
    db.execute("update locks set numbers = ? where key = ?", (earlier(packed, int(random.lognormvariate(12.2, 0.9))), key))
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

// ---- states

// Versions get other times and users; checksums are computed again, as docs/state.md specifies.
const AGE = `
import glob, hashlib, json, os, random, sys, time
random.seed(5)
PEOPLE = ["ada", "grace", "edsger", "barbara", "leslie", "frances"]
def sha(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
def seal(document):
    rest = {name: value for name, value in document.items() if name not in ("resources", "outputs", "checksums")}
    sums = {"resources": sha(document["resources"]), "outputs": sha(document["outputs"]), "parts": {name: sha(value) for name, value in rest.items()}}
    document["checksums"] = {**sums, "document": sha({**rest, "checksums": sums})}
    return document
folders = glob.glob(sys.argv[1] + "/stacks/*/*/") + glob.glob(sys.argv[1] + "/terraform/*/")
if not folders:
    sys.exit("no states in " + sys.argv[1])
for folder in folders:
    files = sorted(glob.glob(folder + "history/*.json"), key=lambda f: (os.path.basename(f)[:19], len(f), f))
    now = time.time() - random.randint(300, 90000)
    times = []
    for _ in files:
        times.insert(0, now)
        now -= random.randint(3000, 60000)
    who = {}
    for i, file in enumerate(files):
        document = json.load(open(file))
        name = time.strftime("%Y-%m-%d-%H-%M-%S.json", time.gmtime(times[i]))
        for k, entry in enumerate(document.get("deployment_history", [])):
            at = times[len(document["deployment_history"]) - 1 - k]
            entry["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
            entry["user"], entry["duration_seconds"] = who.setdefault(at, (random.choice(PEOPLE), random.randint(40, 300)))
        if "metadata" in document:
            document["metadata"].update(last_updated=document["deployment_history"][0]["timestamp"], snapshot=name)
            seal(document)
        text = json.dumps(document, indent=2)
        os.remove(file)
        open(folder + "history/" + name, "w").write(text)
    open(folder + "state.json", "w").write(text)
    os.utime(folder + "state.json", (times[-1], times[-1]))
`;

function shop(n) {
  return {
    resources: {
      web: { type: "aws_ecs_service", image: `shop/web:1.${n}.0`, cpu: n > 3 ? 1024 : 512, desired_count: n > 2 ? 6 : 4, environment: { LOG_LEVEL: n > 4 ? "info" : "debug", REGION: "eu-central-1" } },
      cart: { type: "aws_ecs_service", image: `shop/cart:1.${n - (n % 2)}.0`, cpu: 512 },
      orders_db: { type: "aws_rds_cluster", engine: "postgres", version: n > 3 ? "16.4" : "15.8", instances: 2 },
      ...(n > 4 ? { sessions: { type: "aws_elasticache", node: "cache.t4g.small", shards: 2 } } : { session_table: { type: "aws_dynamodb_table", billing: "on-demand" } }),
      policy: { type: "aws_iam_policy", statements: Array.from({ length: 24 }, (_, i) => ({ effect: "Allow", action: `s3:Action${i}`, revision: n })) },
    },
    outputs: { url: "https://shop.example", version: `1.${n}.0`, ...(n > 4 ? { cdn: "https://cdn.shop.example" } : {}) },
  };
}

async function states(server) {
  const commit = (seed) => Array.from({ length: 40 }, (_, i) => "0123456789abcdef"[(seed * 7 + i * 11 + (i % 5) * seed) % 16]).join("");
  for (let n = 1; n <= 5; n++) {
    await server.deploy("shop", "prod", shop(n), { git_commit: commit(n * 5 + 2), git_branch: "main", version: `1.${n}.0`, triggered_by: `github-actions-run-${8100 + n}`, status: n === 3 ? "failed" : "success" });
  }
  for (const [i, stack] of ["billing", "ledger", "media", "search", "shop"].entries()) {
    for (const [k, environment] of ENVIRONMENTS.entries()) {
      for (let n = 0; n <= (i + k) % 3 && `${stack}/${environment}` !== "shop/prod"; n++) {
        await server.deploy(stack, environment, shop(n + 1), { git_commit: commit(i * 3 + k + n), git_branch: environment === "dev" ? `feature/${stack}-${i + 40}` : "main", triggered_by: `github-actions-run-${8000 + i}`, status: (i * 3 + k) % 5 === 3 ? "failed" : "success" });
      }
    }
  }
  const network = (serial, cidr) => ({ version: 4, terraform_version: "1.11.4", serial, lineage: "l", outputs: { vpc: { value: "vpc-0a1b2c3d" } }, resources: [{ mode: "managed", type: "aws_vpc", name: "main", instances: [{ attributes: { cidr } }] }] });
  for (const name of ["dns", "network", "observability"]) {
    await server.terraform(name, network(1, "10.0.0.0/16"));
    await server.terraform(name, network(2, "10.1.0.0/16"));
  }
}

// ---- databases

async function databases(server) {
  const down = new Set(["reports", "crm"]);
  const applications = http.createServer((request, response) => response.writeHead(down.has(request.url.slice(1)) ? 503 : 200).end());
  await new Promise((resolve) => applications.listen(0, "127.0.0.1", resolve));
  const url = (name) => [name === "recommender" ? "http://127.0.0.1:9/" : `http://127.0.0.1:${applications.address().port}/${name}`];
  const uses = { billing: ["postgres=10.0.1.5:5432"], shop: ["postgres=10.0.1.5:5432", "neo4j=i-0123456789abcdef0@10.0.2.7:7687"], reports: ["postgres=10.0.1.5:5432"],
    recommender: ["neo4j=i-0123456789abcdef0@10.0.2.7:7687"], crm: ["postgres=10.0.1.9:5432"], media: ["postgres=10.0.1.12:5432"], search: ["postgres=10.0.1.12:5432"] };
  for (const [name, list] of Object.entries(uses)) {
    await server.app(name, url(name), list, { labels: { team: name === "billing" ? "money" : "web" } });
  }
  const stop = (id, app) => server.call("POST", `/v1/databases/${id}/stop`, { app }, "locker");
  await stop("10.0.1.5:5432", "reports");
  await stop("10.0.1.9:5432", "crm");
  await stop("i-0123456789abcdef0", "shop");
  await server.call("POST", "/v1/apps/shop/mark", { state: "running" }, "locker");
  await server.acquire("LOCK#DB#10.0.1.12:5432", { locked_by: "ops@deploy", locked_by_name: "Frances Allen" });
  return applications;
}

async function shot(page, name, options = {}) {
  if (!process.argv[2] && !SHOWN.includes(name)) {
    return;
  }
  await page.waitForTimeout(1200);
  await page.screenshot({ path: path.join(OUT, `${name}.png`), ...options });
  console.log(path.join(OUT, `${name}.png`));
}

/** The pages of states and databases, in one theme. */
async function look(page, server, suffix = "") {
  await page.goto(`${server.url}/#/state`);
  await page.waitForSelector(".stacks .badge.ok");
  await shot(page, `dashboard-states${suffix}`);
  await page.goto(`${server.url}/#/state/shop/prod`);
  await page.waitForSelector(".main .change");
  await page.click("text=Verify");
  await page.waitForSelector(".sound");
  await page.$eval(".scroller", (one) => (one.scrollTop = 0));
  await shot(page, `dashboard-state${suffix}`);
  await page.click(".versions li:nth-child(2) button");
  await page.click("text=Restore this version…");
  await page.waitForSelector("dialog .change");
  await page.fill("#typed", "shop/prod");
  await shot(page, `dashboard-restore${suffix}`);
  await page.keyboard.press("Escape");
  await page.goto(`${server.url}/#/databases`);
  await page.click("text=Check health");
  await page.waitForSelector(".answer >> text=UNKNOWN");
  await shot(page, `dashboard-databases${suffix}`);
  await page.goto(`${server.url}/#/databases/${encodeURIComponent("10.0.1.5:5432")}`);
  await page.waitForSelector(".timeline li");
  await shot(page, `dashboard-database${suffix}`);
}

/** Holds and waits of the last hours, for the timeline. */
function releases() {
  const MINUTE = 60000, now = Date.now(), events = [];
  for (const service of SERVICES.slice(0, 9)) {
    for (let at = now - (420 - random(60)) * MINUTE; at < now - 45 * MINUTE;) {
      const long = (6 + random(30)) * MINUTE, what = random(12);
      const end = what === 0 ? { end: "lock.forced", by: "ops", reason: "the runner was deleted" } : what === 1 ? { end: "lock.taken_over", by: "ci" } : {};
      events.push(...past(`release-${service}`, `${PEOPLE[random(PEOPLE.length)]} (ci)`, at, at + long, { ...end, waited: random(3) === 0 ? random(15) * MINUTE : 0 }));
      at += long + random(2) * random(40) * MINUTE;
    }
  }
  return events;
}

const dir = folder(), empty = folder();
const ACTIONS = ["postgres", "neo4j"].map((kind) => `  ${kind}:\n    stop:\n      command: ["true"]\n`).join("");
const server = await new Server(dir.path, { more: `databases:\n${ACTIONS}` }).start();
const chrome = await browser();
let applications;
try {
  await states(server);
  await history(server);
  await present(server);
  await server.stop();
  execFileSync("python3", ["-c", MOVE, path.join(dir.path, "belay.db")]);
  addPast(server, releases());
  execFileSync("python3", ["-c", AGE, path.join(dir.path, "belay.db-state")]);
  await server.start();
  applications = await databases(server);
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

  await light.goto(`${server.url}/#/activity?tab=timeline&q=release`);
  await light.waitForSelector(".track a");
  await shot(light, "dashboard-timeline");

  await server.acquire("stack:media:env:stage", { locked_by: "ci-5341", locked_by_name: "Barbara Liskov" });
  await look(light, server);
  const dark = await open(chrome, server, { colorScheme: "dark" });
  await shot(dark, "dashboard-dark");
  await look(dark, server, "-dark");
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

  await look(phone, server, "-phone");

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
  applications?.close();
  dir.remove();
  empty.remove();
}
