// The pages of shared databases, in a real browser on a real server with real applications (issue 7, 5).

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import http from "node:http";
import { HOSTILE, faults, overflow, page_test, press, until } from "./kit.mjs";

const DB = "10.0.1.5:5432", OTHER = "i-0123456789abcdef0";
const ACTIONS = { more: 'databases:\n  postgres:\n    stop:\n      command: ["true"]\n    start:\n      command: ["true"]\n' };
const card = (id) => `.db[data-key=${JSON.stringify(id)}]`;
const user = (id, app) => `${card(id)} .users li:has(.name:text-is(${JSON.stringify(app)}))`;

/** A server for applications: /NAME answers `codes.NAME`, and requests are counted. */
async function applications(t) {
  const codes = {}, asked = {};
  const listener = http.createServer((request, response) => {
    const name = request.url.slice(1);
    asked[name] = (asked[name] ?? 0) + 1;
    response.writeHead(codes[name] ?? 200).end();
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  t.after(() => listener.close());
  return { codes, asked, url: (name) => `http://127.0.0.1:${listener.address().port}/${name}` };
}

/** shop and billing share a database; billing has another for itself. */
async function registry(server, apps) {
  await server.app("shop", [apps.url("shop")], [`postgres=${DB}`], { labels: { team: "payments" } });
  await server.app("billing", [apps.url("billing")], [`postgres=${DB}`, `neo4j=${OTHER}@10.0.1.9:7687`]);
  await server.app("lonely", [apps.url("lonely")], []);
}

const stop = (server, app) => server.call("POST", `/v1/databases/${DB}/stop`, { app }, "locker");

page_test("the page shows users, records and the last decision of each database, and updates itself", ACTIONS, async (server, show, t) => {
  const apps = await applications(t);
  await registry(server, apps);
  const page = await show({ hash: "#/databases" });
  await page.waitForSelector(card(DB));
  assert.equal(await page.textContent(".total"), "2 databases, 3 applications");
  assert.match(await page.textContent(card(DB)), /postgres.*shared by 2 applications.*billing.*recorded as running.*shop.*No decision yet/s);
  assert.match(await page.textContent(card(OTHER)), /neo4j.*10\.0\.1\.9:7687.*used by one application/s);
  assert.match(await page.textContent(card("")), /without a database.*lonely/s);
  await page.focus(`${card(OTHER)} .key`);
  await stop(server, "shop"); // billing is up
  await page.waitForSelector(`${card(DB)} .decision >> text=not stopped: in use`);
  assert.match(await page.textContent(`${card(DB)} .decision`), /ago by ci.*billing is UP/s);
  await page.waitForSelector(`${user(DB, "shop")} >> text=stop requested`);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), OTHER, "the focus stays");
  apps.codes.billing = 503;
  await stop(server, "shop");
  await page.waitForSelector(`${card(DB)} .decision .badge.ok >> text=stopped`);
  const lock = await server.acquire(`LOCK#DB#${DB}`, { locked_by: "x", locked_by_name: "Grace" });
  await page.waitForSelector(`${card(DB)} .badge >> text=locked by Grace`);
  await server.release(lock);
  await page.waitForSelector(`${card(DB)} .badge >> text=locked by Grace`, { state: "detached" });
});

page_test("a stop that failed needs attention", { more: ACTIONS.more.replace('"true"', '"test", "-e", "/dev/shm/belay-never"') }, async (server, show, t) => {
  const apps = await applications(t);
  apps.codes.billing = 503;
  await registry(server, apps);
  const page = await show();
  await page.waitForSelector("text=Nothing needs attention");
  assert.match((await stop(server, "shop")).text, /"action": ?"error"/);
  await page.waitForSelector(`.need.bad >> text=stop or start of ${DB} failed`);
  await page.click(".need.bad");
  await page.waitForSelector(".decision .badge.bad");
});

page_test("health checks run on request only", {}, async (server, show, t) => {
  const apps = await applications(t);
  await registry(server, apps);
  await server.app("gone", ["http://127.0.0.1:9/"], [`postgres=${DB}`]);
  apps.codes.billing = 503;
  const page = await show({ hash: "#/databases", role: "reader" });
  await page.waitForSelector(`${user(DB, "shop")} >> text=not checked`);
  await server.release(await server.acquire(`LOCK#DB#${DB}`)); // the page redraws
  await page.waitForSelector("text=Check health");
  assert.deepEqual(apps.asked, {});
  await page.click(`${user(DB, "shop")} button`);
  await page.waitForSelector(`${user(DB, "shop")} .badge.ok >> text=UP`);
  assert.deepEqual(Object.keys(apps.asked), ["shop"], "only the one that was meant");
  await page.click("text=Check health");
  await page.waitForSelector(`${user(DB, "billing")} .badge >> text=DOWN`);
  await page.waitForSelector(`${user(DB, "gone")} .badge.warn >> text=UNKNOWN`);
  assert.match(await page.textContent(user(DB, "billing")), /503/);
  const before = JSON.stringify(apps.asked);
  await page.goto(`${server.url}/#/locks`);
  await page.goto(`${server.url}/#/databases`);
  await page.waitForSelector(`${user(DB, "shop")} >> text=UP`);
  assert.equal(JSON.stringify(apps.asked), before, "what was answered is kept");
});

page_test("a database's page shows its users with their URLs and every decision with its reason", ACTIONS, async (server, show, t) => {
  const apps = await applications(t);
  await registry(server, apps);
  await stop(server, "shop");
  apps.codes.billing = 503;
  await stop(server, "shop");
  const page = await show({ hash: `#/databases/${encodeURIComponent(DB)}` });
  await page.waitForSelector(".timeline >> text=Stopped");
  const text = await page.textContent(".timeline");
  assert.match(text, /Stopped.*About to be stopped.*Not stopped: in use.*by ci.*billing is UP/s);
  assert.match(await page.textContent(".users"), /billing.*shop.*payments/s);
  assert.ok((await page.textContent(".users")).includes(apps.url("shop")));
  await page.click("text=Check health");
  await page.waitForSelector(".users .badge >> text=DOWN");
  await page.goto(`${server.url}/#/databases/${encodeURIComponent("10.0.1.9:7687")}`);
  await page.waitForSelector(".top >> text=neo4j");
  await page.goto(`${server.url}/#/databases/nobody:1`);
  await page.waitForSelector("text=No application uses this database");
  await page.goto(`${server.url}/#/locks/${encodeURIComponent(`LOCK#DB#${DB}`)}`);
  await page.waitForSelector(".timeline >> text=Not stopped: in use");
});

page_test("hostile names of applications and databases are shown as plain text", {}, async (server, show) => {
  const answer = await server.app("app", ["http://127.0.0.1:9/%3Cscript%3E"], [`postgres=${DB}`], { labels: { team: HOSTILE } });
  assert.equal(answer.status, 200, answer.text);
  // The registry accepts few characters in names; the page must not rely on that.
  const page = await show({ hash: "#/locks" });
  const users = [{ app: HOSTILE, state: "stopped", since: "2026-11-16T01:00:00.000Z" }];
  const last = { database: HOSTILE, kind: HOSTILE, host: null, action: HOSTILE, reason: HOSTILE, shared: true, sharing_apps: [HOSTILE], active_apps: [], at: null, by: HOSTILE };
  await page.route("**/v1/databases", (route) => route.fulfill({ json: { databases: [{ database: HOSTILE, kind: HOSTILE, host: HOSTILE, shared: true, apps: users, last }] } }));
  await page.route("**/status/quick*", (route) => route.fulfill({ json: { app: HOSTILE, status: HOSTILE, http_code: null, timestamp: "2026-11-16T01:00:00.000Z", reason: HOSTILE } }));
  await page.goto(`${server.url}/#/databases`);
  await until(page, (text) => document.querySelector(".db .key")?.textContent === text, HOSTILE);
  await page.click("text=Check health");
  await until(page, (text) => document.querySelector(".answer .badge")?.textContent === text, HOSTILE);
  assert.ok((await page.textContent(".decision")).includes(HOSTILE));
  await page.click(".db .key");
  await until(page, (text) => document.querySelector("h1")?.textContent === text && document.querySelector(".users"), HOSTILE);
  await page.unroute("**/v1/databases");
  await page.goto(`${server.url}/#/databases/${encodeURIComponent(DB)}`);
  await until(page, (text) => document.querySelector(".users")?.textContent.includes(text), HOSTILE);
  assert.equal(await page.$$eval("img:not([src='ui/icon.svg']), #app script", (all) => all.length), 0);
});

page_test("searching, opening and health checks work with the keyboard alone", {}, async (server, show, t) => {
  const apps = await applications(t);
  await registry(server, apps);
  const page = await show();
  await press(page, "g", "d");
  await page.waitForSelector(card(DB));
  await press(page, "j", "j");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), OTHER);
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  await press(page, "s");
  await page.waitForSelector(`${user(OTHER, "billing")} .badge.ok`);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), OTHER, "the focus stays while answers come");
  await press(page, "/");
  await page.keyboard.type("shop");
  await until(page, () => document.querySelectorAll(".db").length === 1);
  await press(page, "Enter", "Enter");
  await page.waitForSelector(`h1 >> text=${DB}`);
  await page.waitForSelector(".users li");
  await press(page, "j", "Enter");
  await until(page, () => document.querySelector(".users .badge.ok") && document.activeElement.textContent === "Check");
  await press(page, "Escape");
  await page.waitForSelector(".db");
});

page_test("an empty registry shows the commands to start with, an unreadable one the reason", {}, async (server, show) => {
  const page = await show({ hash: "#/databases" });
  await page.waitForSelector("text=belay app register shop");
  assert.ok((await page.textContent(".empty")).includes(`BELAY_STORE=${server.url}`));
  assert.deepEqual(await faults(page), []);
  await page.route("**/v1/databases", (route) => route.fulfill({ status: 503, json: { error: { code: "unreachable", message: "the table does not answer", lock: null } } }));
  await page.goto(`${server.url}/#/locks`);
  await page.goto(`${server.url}/#/databases`);
  await page.waitForSelector("text=the table does not answer");
});

for (const colorScheme of ["light", "dark"]) {
  page_test(`axe finds no serious fault on the pages of databases (${colorScheme})`, ACTIONS, async (server, show, t) => {
    const apps = await applications(t);
    await registry(server, apps);
    apps.codes.lonely = 404;
    await server.app("gone", ["http://127.0.0.1:9/"], [`neo4j=${OTHER}`]);
    await stop(server, "shop");
    await server.acquire(`LOCK#DB#${OTHER}`);
    const page = await show({ colorScheme, hash: "#/databases" });
    await page.click("text=Check health");
    await page.waitForSelector(`${user(OTHER, "gone")} >> text=UNKNOWN`);
    await page.waitForSelector(`${user("", "lonely")} >> text=DOWN`);
    await page.waitForSelector(`${card(OTHER)} >> text=locked by`);
    assert.deepEqual(await faults(page), [], "all of them");
    await page.click(`${card(DB)} .key`);
    await page.waitForSelector(".timeline li");
    assert.deepEqual(await faults(page), [], "one of them");
  });
}

page_test("at the width of a phone the databases are not cut off and axe finds no fault", {}, async (server, show) => {
  await server.app("an-application-with-quite-a-long-name-that-goes-on-and-on", ["http://127.0.0.1:9/a/rather/long/path/to/ask/whether/it/is/up"], ["postgres=a-very-long-host-name.of-some-department.internal.example:5432"]);
  const page = await show({ viewport: { width: 360, height: 700 }, hasTouch: true, hash: "#/databases" });
  await page.waitForSelector(".db");
  await page.tap("text=Check health");
  await page.waitForSelector(".answer");
  const fits = () => page.evaluate(() => document.querySelector(".scroller").scrollWidth <= innerWidth);
  assert.ok((await overflow(page)) <= 0 && (await fits()));
  assert.deepEqual(await faults(page), []);
  await page.tap(".db .key");
  await page.waitForSelector(".wide-users li");
  assert.ok((await overflow(page)) <= 0 && (await fits()));
  assert.deepEqual(await faults(page), []);
});

const LIMITED = { more: `    - {"name": "acme", "role": "locker", "keys": ["app:acme*", "LOCK#DB#${DB}"], "sha256": "${createHash("sha256").update("secret-acme").digest("hex")}"}\n` };

page_test("a token that is limited to some keys sees what is hidden from it", LIMITED, async (server, show) => {
  await server.app("other", ["http://127.0.0.1:9/"], ["postgres=10.0.1.6:5432"]);
  const page = await show({ hash: "#/databases", token: "secret-acme" });
  await page.waitForSelector("text=Your token has no permission for any database");
  await server.app("acme", ["http://127.0.0.1:9/"], [`postgres=${DB}`]);
  await page.reload();
  await page.waitForSelector(card(DB));
  assert.equal(await page.textContent(".total"), "1 database, 1 application that your token may see");
  assert.deepEqual(await faults(page), []);
  await page.goto(`${server.url}/#/databases/${encodeURIComponent("10.0.1.6:5432")}`);
  await page.waitForSelector("text=Your token has no permission for the users of this database");
  await page.goto(`${server.url}/#/locks/other`);
  await page.waitForSelector("text='acme' may not touch the key 'other'.");
  await page.goto(`${server.url}/#/activity`);
  await page.waitForSelector("text='acme' is limited to some keys, and these numbers are over all keys: use a token without 'keys'.");
  assert.deepEqual(await faults(page), []);
  await page.goto(`${server.url}/#/locks/${encodeURIComponent(`LOCK#DB#${DB}`)}`);
  await page.waitForSelector("text=This lock is unknown");
  assert.doesNotMatch(await page.textContent("#app"), /null|undefined/);
});
