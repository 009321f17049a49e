// The dashboard in a real browser, on a real server. Each test has its own store.

import assert from "node:assert/strict";
import { test } from "node:test";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { HOSTILE, faults, meter, overflow, page_test, press, until } from "./kit.mjs";
import { copyLocks } from "./past.mjs";
import { ROOT } from "./support.mjs";

const row = (key) => `.tr[data-key="${CSS_escape(key)}"]`;
const CSS_escape = (text) => text.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
const keys = (page) => page.$$eval(".rows .tr", (rows) => rows.map((one) => [one.getBoundingClientRect().top, one.dataset.key]).sort((a, b) => a[0] - b[0]).map(([, key]) => key));

page_test("locks appear, wait and disappear without a reload, and scroll and selection stay", {}, async (server, show) => {
  for (let i = 100; i < 160; i++) {
    await server.acquire(`k-${i}`);
  }
  const page = await show();
  await page.waitForSelector(row("k-100"));
  await page.evaluate(() => {
    window.wasNotReloaded = true;
    document.querySelector(".scroller").scrollTop = 880;
  });
  await page.waitForSelector(row("k-130"));
  await page.focus(`${row("k-130")} a`);
  const place = () => page.$eval(row("k-130"), (one) => Math.round(one.getBoundingClientRect().top));
  const at = await place();
  const lock = await server.acquire("a-first", { locked_by: "newcomer", locked_by_name: "New Comer" });
  await until(page, () => document.querySelector(".total").textContent === "61 locks");
  assert.equal(await place(), at, "the row that one looks at has moved");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "k-130");
  await page.$eval(".scroller", (one) => (one.scrollTop = 0));
  await page.waitForSelector(`${row("a-first")} >> text=New Comer (ops)`);
  const wait = server.waiter("a-first", "patient");
  await page.waitForSelector(`${row("a-first")} .badge.queue >> text=1`);
  await server.release(lock);
  await page.waitForSelector(`${row("a-first")} >> text=patient`);
  await server.release(await wait);
  await page.waitForSelector(row("a-first"), { state: "detached" });
  assert.equal(await page.evaluate(() => window.wasNotReloaded), true);
});

page_test("changes by another process on the same file are shown", { tokens: false }, async (server, show) => {
  const page = await show();
  await page.waitForSelector("text=No locks are held");
  execFileSync(process.env.BELAY_BIN, ["--store", `sqlite:${server.dir}/belay.db`, "acquire", "from-a-shell"], { env: { ...process.env, HOME: server.dir } });
  await page.waitForSelector(row("from-a-shell"));
});

page_test("a banner shows that the kill switch is on", { more: "locking_enabled: false\n" }, async (server, show) => {
  const page = await show();
  await page.waitForSelector('[role="alert"] >> text=Locking is switched off');
  assert.deepEqual(await faults(page), []);
});

page_test("a strip shows the freezes, and an admin begins and ends one", {}, async (server, show) => {
  const page = await show();
  await page.waitForSelector("text=No locks are held");
  assert.equal(await page.isVisible(".freezes"), false);
  await page.click('[aria-label="Freeze keys"]');
  await page.fill("#pattern", "deploy-*");
  assert.equal(await page.isDisabled("dialog button[type=submit]"), true, "a reason is needed");
  await page.fill("#reason", HOSTILE);
  await page.fill("#hours", "1.5");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".freezes >> text=deploy-*");
  assert.ok((await page.textContent(".freezes")).includes(HOSTILE));
  assert.equal((await server.acquire("deploy-api")).error.code, "frozen");
  assert.deepEqual(await faults(page), []);
  const reader = await show({ role: "reader" });
  await reader.waitForSelector(".freezes >> text=deploy-*");
  assert.equal(await reader.$(".freezes button, [aria-label='Freeze keys']"), null);
  await page.click(".freezes button");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".freezes", { state: "hidden" });
  await reader.waitForSelector(".freezes", { state: "hidden" });
  assert.equal((await server.acquire("deploy-api")).http, 200);
});

page_test("search, filters and sorting find a lock", {}, async (server, show) => {
  await server.acquire("deploy-api-prod", { locked_by_name: "Grace", ttl_ms: 900000 });
  await server.acquire("deploy-web-prod", { locked_by_name: "Ada", ttl_ms: 100000 });
  await server.acquire("build-api-dev", { locked_by_name: "Ada", ttl_ms: 500000 });
  await server.release(await server.acquire("old-one"));
  const page = await show();
  await page.waitForSelector(row("build-api-dev"));
  assert.deepEqual(await keys(page), ["build-api-dev", "deploy-api-prod", "deploy-web-prod"]);
  await page.click('[data-sort="left"]');
  await until(page, () => document.querySelector('[aria-sort="ascending"] button')?.dataset.sort === "left");
  assert.deepEqual(await keys(page), ["deploy-web-prod", "build-api-dev", "deploy-api-prod"]);
  await page.fill(".search", "ada prod");
  await until(page, () => document.querySelectorAll(".rows .tr").length === 1);
  assert.deepEqual(await keys(page), ["deploy-web-prod"]);
  await page.fill(".search", "nothing like it");
  await page.waitForSelector("text=No matching lock");
  await page.click("text=Show all locks");
  await page.click('[data-filter="released"]');
  await page.waitForSelector(`${row("old-one")} >> text=completed`);
});

page_test("what needs attention comes first, with a link, and in the title", {}, async (server, show) => {
  await server.acquire("calm", { ttl_ms: 600000 });
  const page = await show();
  await page.waitForSelector(row("calm"));
  assert.equal(await page.textContent(".attention"), "Nothing needs attention");
  assert.equal(await page.title(), "Locks – belay");
  await server.acquire("a-stale-one", { heartbeat_ms: 100, stale_after_ms: 300 });
  await server.acquire("an-expired-one", { ttl_ms: 500 });
  server.waiter("calm", "patient");
  await page.waitForSelector(".need.bad >> text=1 stale lock");
  await page.waitForSelector(".need.warn >> text=1 expired lock");
  await page.waitForSelector(".need.wait >> text=1 waiting for calm");
  await until(page, () => document.title === "(2) Locks – belay" && document.querySelector("link[rel=icon]").href.endsWith("icon-alarm.svg"));
  const age = (key) => page.textContent(`${row(key)} .c-age`);
  const [held, calm] = [await age("an-expired-one"), await age("calm")];
  await until(page, ([selector, text]) => document.querySelector(selector).textContent !== text, [`${row("calm")} .c-age`, calm]);
  assert.equal(await age("an-expired-one"), held, "held until its lease ended, and no longer");
  assert.deepEqual(await faults(page), []);
  await page.click(".need.bad");
  await until(page, () => document.querySelectorAll(".rows .tr").length === 1);
  assert.deepEqual(await keys(page), ["a-stale-one"]);
  assert.match(page.url(), /#\/locks\?filter=stale$/);
});

page_test("a released row says when", {}, async (server, show) => {
  await server.release(await server.acquire("old-one"));
  const page = await show();
  await page.waitForSelector("text=No locks are held");
  await page.click('[data-filter="released"]');
  await page.waitForSelector(`${row("old-one")} .c-left >> text=/^ended [0-9]+[sm] ago$/`);
});

page_test("an address shows the same search, filter, order and range to everybody", {}, async (server, show) => {
  await server.acquire("deploy-a", { ttl_ms: 900000 });
  await server.acquire("deploy-b", { ttl_ms: 100000 });
  await server.acquire("build-c");
  const page = await show();
  await page.waitForSelector(row("build-c"));
  await page.fill(".search", "deploy");
  await page.click('[data-filter="held"]');
  await page.click('[data-sort="left"]');
  await until(page, () => document.querySelector(".total").textContent === "2 of 2 locks");
  const other = await show({ hash: new URL(page.url()).hash });
  await until(other, () => document.querySelectorAll(".rows .tr").length === 2);
  assert.deepEqual(await keys(other), ["deploy-b", "deploy-a"]);
  assert.equal(await other.inputValue(".search"), "deploy");
  await page.goto(`${server.url}/#/activity?hours=24`);
  await page.waitForSelector('[aria-pressed="true"] >> text=24 hours');
  await page.goto(`${server.url}/#/locks`);
  await page.reload();
  await until(page, () => document.querySelector('[aria-sort="ascending"] button')?.dataset.sort === "left");
});

page_test("addresses in metadata are links, ids can be copied, and a wall display has no controls", {}, async (server, show) => {
  await server.acquire("k", { metadata: { run: "https://ci.example/run/812", script: "javascript:alert(1)", commit: "9f3c2ab" } });
  const page = await show({ hash: "#/locks/k", permissions: ["clipboard-read", "clipboard-write"] });
  await page.waitForSelector(".facts.meta a");
  assert.deepEqual(await page.$$eval(".facts.meta a", (links) => links.map((link) => [link.textContent, link.rel])), [["https://ci.example/run/812", "noopener noreferrer"]]);
  await page.click('[aria-label="Copy: Lock id"]');
  const id = await page.textContent("dt >> text=Lock id >> xpath=following-sibling::dd");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), id);
  await page.goto(`${server.url}/?tv#/locks`);
  await page.waitForSelector(row("k"));
  assert.equal(await page.isVisible(".side"), false);
  assert.equal(await page.isVisible(".search"), false);
  assert.ok((await page.$eval(`${row("k")} .key`, (one) => parseFloat(getComputedStyle(one).fontSize))) >= 20);
  assert.ok((await overflow(page)) <= 0);
});

page_test("a lock's page shows metadata, queue, history, hold times and hierarchy, and updates itself", {}, async (server, show) => {
  const key = "stack:shop:env:prod:service:cart";
  for (let i = 0; i < 3; i++) {
    await server.release(await server.acquire(key, { locked_by: `run-${i}` }), i === 1 ? "failed" : "completed");
  }
  await server.acquire(key, { locked_by: "run-now", metadata: { commit: "9f3c2ab" } });
  await server.acquire("stack:shop:env:prod:component:cart/worker", { locked_by: "refused" });
  const page = await show({ hash: `#/locks/${encodeURIComponent(key)}` });
  await page.waitForSelector(".timeline >> text=Acquired");
  await page.waitForSelector(".facts.meta >> text=9f3c2ab");
  assert.match(await page.textContent(".trio"), /Median.*9[05] %.*Longest/);
  assert.equal(await page.$$eval(".timeline li", (items) => items.filter((item) => item.textContent.includes("Released")).length), 3);
  assert.deepEqual(await page.$$eval(".tree .mono", (items) => items.map((item) => item.textContent)), ["stack:shop:env:prod", key]);
  server.waiter(key, "first-in-line");
  await page.waitForSelector(".line >> text=first-in-line");
  server.waiter("stack:shop:env:prod", "second-from-above");
  await page.goto(`${server.url}/#/locks/${encodeURIComponent("stack:shop:env:prod")}`);
  await page.waitForSelector(`.tree a >> text=${key}`);
});

page_test("an admin ends a lock: the dialog shows the holder, requires a reason and the key, and the history records it", {}, async (server, show) => {
  await server.acquire("deploy-api-prod", { locked_by: "ci-77", locked_by_name: "Grace" });
  const page = await show({ hash: "#/locks/deploy-api-prod" });
  await page.click("text=Force unlock…");
  assert.match(await page.textContent("dialog"), /Grace \(ops\)\s*ci-77/);
  const isOff = () => page.isDisabled("text=End this lock");
  assert.ok(await isOff());
  await page.fill("#typed", "deploy-api-prod");
  assert.ok(await isOff(), "a reason is needed");
  await page.fill("#reason", "runner was deleted");
  await page.fill("#typed", "deploy-api-dev");
  assert.ok(await isOff(), "the key must be the one");
  await page.fill("#typed", "deploy-api-prod");
  await page.press("#typed", "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(".timeline .bad >> text=runner was deleted");
  const { json } = await server.call("GET", "/v1/locks/deploy-api-prod/history");
  const last = json.events.at(-1);
  assert.deepEqual([last.event, last.by, last.reason], ["lock.forced", "ops", "runner was deleted"]);
});

page_test("a lock with several holders shows each of them, and an admin ends one", {}, async (server, show) => {
  for (const name of ["Ada", "Grace", "Joan"]) {
    await server.acquire("plans", { locked_by: `job-${name}`, locked_by_name: name, shared: true });
  }
  await server.acquire("deploys", { locked_by_name: "Ada", slots: 3 });
  const page = await show();
  await page.waitForSelector(`${row("plans")} >> text=shared by 3`);
  await page.waitForSelector(`${row("deploys")} >> text=1 of 3 slots`);
  await server.acquire("deploys", { locked_by: "job-2", locked_by_name: "Grace", slots: 3 });
  await page.waitForSelector(`${row("deploys")} >> text=2 of 3 slots`);
  await page.goto(`${server.url}/#/locks/plans`);
  await page.waitForSelector(".holders >> text=Grace (ops)");
  assert.equal(await page.textContent(".holder strong"), "shared by 3");
  assert.equal(await page.$$eval(".holders li", (items) => items.length), 3);
  assert.equal(await page.$(".top button.danger"), null);
  assert.deepEqual(await faults(page), []);
  await page.click('[aria-label="Force unlock Grace (ops)"]');
  assert.match(await page.textContent("dialog"), /Grace \(ops\)\s*job-Grace/);
  await page.fill("#reason", "stuck");
  await page.fill("#typed", "plans");
  await page.press("#typed", "Enter");
  await page.waitForSelector(".holders >> text=Grace (ops)", { state: "detached" });
  const { json } = await server.call("GET", "/v1/locks/plans");
  assert.deepEqual(json.holders.map((one) => one.locked_by), ["job-Ada", "job-Joan"]);
  const reader = await show({ role: "reader", hash: "#/locks/plans" });
  await reader.waitForSelector(".holders >> text=Ada (ops)");
  assert.equal(await reader.$(".holders button"), null);
});

page_test("a lock that changes hands while the dialog is open is not ended (L3)", {}, async (server, show) => {
  const lock = await server.acquire("k", { locked_by: "first" });
  const page = await show({ hash: "#/locks/k" });
  await page.click("text=Force unlock…");
  await page.fill("#reason", "x");
  await page.fill("#typed", "k");
  await server.release(lock);
  await server.acquire("k", { locked_by: "second" });
  await page.click("text=End this lock");
  await page.waitForSelector(".problem >> text=Another client has the lock now");
  assert.equal((await server.call("GET", "/v1/locks/k")).json.locked_by, "second");
});

page_test("a reader sees no unlock button and no lock id, and is refused", {}, async (server, show) => {
  await server.acquire("k", { lock_id: "very-secret-id" });
  const page = await show({ role: "reader", hash: "#/locks/k" });
  await page.waitForSelector("text=Ending it needs the role 'admin'");
  assert.equal(await page.$("text=Force unlock"), null);
  assert.ok(!(await page.content()).includes("very-secret-id"));
  const status = await page.evaluate(async () => (await fetch("v1/locks/k", { method: "DELETE" })).status);
  assert.equal(status, 403);
});

page_test("hostile keys, owners and metadata are shown as plain text", {}, async (server, show) => {
  await server.acquire(HOSTILE, { locked_by: HOSTILE, locked_by_name: `</div>${HOSTILE}`, metadata: { [HOSTILE.slice(0, 100)]: HOSTILE, "javascript:alert(3)": "javascript:alert(4)" } });
  const page = await show();
  await page.waitForSelector(".rows .key");
  assert.equal(await page.textContent(".rows .key"), HOSTILE);
  await page.click(".rows .key");
  await page.waitForSelector(".facts.meta");
  assert.equal(await page.textContent("h1"), HOSTILE);
  assert.ok((await page.textContent(".facts.meta")).includes(HOSTILE));
  await page.click("text=Force unlock…");
  assert.ok((await page.textContent("dialog")).includes(HOSTILE));
  assert.equal(await page.$$eval("img", (all) => all.filter((one) => !one.src.endsWith("/ui/icon.svg")).length), 0);
  assert.equal(await page.$$eval("script", (all) => all.length), 1);
  assert.equal(await page.evaluate(() => window.x), undefined);
});

page_test("the page loads nothing from other origins and cannot be framed", {}, async (server) => {
  for (const file of ["/", "/ui/app.js", "/ui/app.css", "/ui/icon.svg"]) {
    const answer = await server.call("GET", file, null);
    const policy = answer.headers.get("content-security-policy");
    assert.match(policy, /^default-src 'none'/);
    assert.ok(!policy.includes("unsafe") && policy.includes("frame-ancestors 'none'"));
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
    const again = await fetch(server.url + file, { headers: { "If-None-Match": answer.headers.get("etag") } });
    assert.equal(again.status, 304);
  }
});

page_test("every action works with the keyboard alone", {}, async (server, show) => {
  for (const key of ["a-lock", "b-lock", "c-lock"]) {
    await server.acquire(key);
  }
  const page = await show();
  await page.waitForSelector(row("c-lock"));
  await press(page, "j", "j");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "b-lock");
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  await press(page, "Enter");
  await page.waitForSelector("text=Force unlock…");
  await press(page, "u");
  await page.waitForSelector("dialog");
  await page.keyboard.type("no hands");
  await press(page, "Tab");
  await page.keyboard.type("b-lock");
  await press(page, "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(".timeline .bad");
  await press(page, "Escape");
  await page.waitForSelector(row("c-lock"));
  await press(page, "/");
  await page.keyboard.type("c-l");
  await until(page, () => document.querySelectorAll(".rows .tr").length === 1);
  await press(page, "Escape", "Escape");
  await press(page, "?");
  await page.waitForSelector("dialog >> text=next and previous");
  await press(page, "Escape", "g", "a");
  await page.waitForSelector("h1 >> text=Activity");
  await press(page, "g", "l");
  await page.waitForSelector("h1 >> text=Locks");
});

page_test("the page reports a lost connection, keeps its content, and reconnects by itself", {}, async (server, show) => {
  const lock = await server.acquire("before");
  const page = await show();
  await page.waitForSelector(row("before"));
  await server.stop();
  await page.waitForSelector(".lost:not([hidden]) >> text=The connection to the server is lost");
  assert.ok(await page.isVisible(row("before")));
  await server.start();
  await server.acquire("meanwhile");
  await server.release(lock);
  await page.waitForSelector('.link[data-link="live"]');
  await page.waitForSelector(".lost", { state: "hidden" });
  await page.waitForSelector(row("meanwhile"));
  await page.waitForSelector(row("before"), { state: "detached" });
});

page_test("a lease that expires is shown as expired without an event", {}, async (server, show) => {
  await server.acquire("short", { ttl_ms: 2500 });
  await server.acquire("quiet", { heartbeat_ms: 100, stale_after_ms: 500 });
  const page = await show();
  await page.waitForSelector(`${row("short")} >> text=expired`);
  await page.waitForSelector(`${row("quiet")} >> text=stale`);
});

page_test("five thousand locks scroll, filter and change smoothly", {}, async (server, show) => {
  const many = Number(process.env.BELAY_DASHBOARD_LOCKS ?? 5000);
  const name = (i) => `job/service-${String(i).padStart(5, "0")}`;
  await server.acquire(name(0), { ttl_ms: 3600000 });
  await server.stop();
  copyLocks(server, many);
  await server.start();
  const page = await show();
  await until(page, (n) => document.querySelector(".total").textContent === `${n.toLocaleString("en-GB")} locks`, many);
  const work = await meter(page);
  const seen = await page.evaluate(async () => {
    const scroller = document.querySelector(".scroller");
    const gaps = [];
    let last = performance.now();
    for (let i = 0; i < 120; i++) {
      scroller.scrollTop += 1500; // every visible row changes
      await new Promise((resolve) => requestAnimationFrame(resolve));
      gaps.push(performance.now() - last);
      last = performance.now();
    }
    gaps.sort((a, b) => a - b);
    return { rows: document.querySelectorAll(".rows .tr").length, median: gaps[60], worst: gaps.at(-1), top: scroller.scrollTop };
  });
  seen.work = (await work()) / 120;
  console.log(`# 5000 locks: ${JSON.stringify(seen)}`);
  assert.ok(seen.rows < 60, `only what is in view exists, not ${seen.rows} rows`);
  assert.ok(seen.top > 100000);
  assert.ok(seen.work < 70, `a frame takes ${seen.work} ms of work`); // 28 on two cores with a load of 20
  const lock = await server.acquire("a-new-one");
  await page.$eval(".scroller", (one) => (one.scrollTop = 0));
  await page.waitForSelector(row("a-new-one"));
  await server.release(lock);
  await page.waitForSelector(row("a-new-one"), { state: "detached" });
  await page.fill(".search", "04321");
  await until(page, () => document.querySelectorAll(".rows .tr").length === 1);
  assert.deepEqual(await keys(page), [name(4321 % many)]);
});

page_test("the charts count events", {}, async (server, show) => {
  for (let i = 0; i < 7; i++) {
    const lock = await server.acquire("k", { locked_by: `run-${i}` });
    await server.acquire("k", { locked_by: "too-late" });
    await server.release(lock);
  }
  const page = await show({ hash: "#/activity" });
  await page.waitForSelector("figure >> nth=3");
  assert.match(await page.textContent("figure >> nth=0"), /acquired\s*7/);
  assert.match(await page.textContent("figure >> nth=1"), /refused\s*7/);
  await page.click("text=The numbers as a table");
  assert.ok(await page.isVisible("td >> nth=0"));
  await page.click("text=24 hours");
  await until(page, () => /acquired\s*7/.test(document.querySelector("figure").textContent));
});

for (const colorScheme of ["light", "dark"]) {
  page_test(`axe finds no serious fault on any page (${colorScheme})`, {}, async (server, show) => {
    const key = "stack:shop:env:prod:service:cart";
    await server.release(await server.acquire(key));
    await server.acquire(key, { metadata: { commit: "9f3c2ab" }, heartbeat_ms: 100, stale_after_ms: 500 });
    await server.acquire("short", { ttl_ms: 1000 });
    server.waiter(key, "in-line");
    const login = await show({ role: null, colorScheme });
    await login.waitForSelector("#token");
    assert.deepEqual(await faults(login), [], "log in");
    const page = await show({ colorScheme });
    await page.waitForSelector(`${row("short")} >> text=expired`);
    const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
    assert.equal(background[0] < 100, colorScheme === "dark");
    assert.deepEqual(await faults(page), [], "locks");
    await page.fill(".search", "no such");
    await page.waitForSelector("text=No matching lock");
    assert.deepEqual(await faults(page), [], "no lock fits");
    await page.goto(`${server.url}/#/locks/${encodeURIComponent(key)}`);
    await page.waitForSelector(".tree");
    assert.deepEqual(await faults(page), [], "one lock");
    await page.click("text=Force unlock…");
    assert.deepEqual(await faults(page), [], "force unlock");
    await page.keyboard.press("Escape");
    await page.goto(`${server.url}/#/activity`);
    await page.waitForSelector("figure >> nth=3");
    assert.deepEqual(await faults(page), [], "activity");
  });
}

page_test("the theme button changes the colours and is remembered", {}, async (server, show) => {
  const page = await show({ colorScheme: "light" });
  const shade = () => page.evaluate(() => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]));
  assert.ok((await shade()) > 200);
  await page.click('[aria-label^="Colours"]');
  await page.click('[aria-label^="Colours"]');
  assert.ok((await shade()) < 100);
  await page.reload();
  await page.waitForSelector('.link[data-link="live"]');
  assert.ok((await shade()) < 100);
});

page_test("at the width of a phone nothing is cut off and axe finds no fault", {}, async (server, show) => {
  await server.acquire("stack:shop:env:prod:service:a-very-long-name-of-a-service-indeed", { locked_by_name: "Somebody With A Long Name Too" });
  const page = await show({ viewport: { width: 360, height: 700 }, hasTouch: true });
  await page.waitForSelector(".rows .tr");
  assert.ok((await overflow(page)) <= 0);
  assert.deepEqual(await faults(page), []);
  await page.tap(".rows .tr .key");
  await page.waitForSelector(".timeline");
  assert.ok((await overflow(page)) <= 0);
  assert.deepEqual(await faults(page), []);
  await page.goto(`${server.url}/#/activity`);
  await page.waitForSelector("figure >> nth=3");
  assert.ok((await overflow(page)) <= 0);
});

page_test("an empty page shows the commands to start with", { tokens: false }, async (server, show) => {
  const page = await show();
  await page.waitForSelector("text=No locks are held");
  assert.ok((await page.textContent(".empty")).includes(`${server.url}/v1/locks/deploy-api-prod/acquire`));
  await page.goto(`${server.url}/#/locks/never-heard-of`);
  await page.waitForSelector("text=belay acquire never-heard-of");
});

test("no script of the page makes elements from text", () => {
  const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "src/dashboard"], { cwd: ROOT, encoding: "utf8" }).split("\n").filter((name) => /\.(js|html)$/.test(name));
  assert.ok(files.length > 5);
  for (const file of files) {
    const text = readFileSync(path.join(ROOT, file), "utf8");
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|srcdoc|javascript:| style=|\son\w+="/, file);
    assert.doesNotMatch(text.replaceAll("http://www.w3.org/2000/svg", ""), /https?:\/\//, `${file} loads nothing from elsewhere`);
  }
});
