// Who held what when, and who blocks whom.

import assert from "node:assert/strict";
import { page_test, press, until } from "./kit.mjs";
import { addPast, past } from "./past.mjs";

const MINUTE = 60000, HOUR = 60 * MINUTE;
const labels = (page, kind) => page.$$eval(`.track .${kind}`, (bars) => bars.map((bar) => bar.getAttribute("aria-label")));
const lane = (key) => `.lanes > .lane[data-key="${key}"]`;

/** A server whose store has these events. */
async function withPast(server, events) {
  await server.release(await server.acquire("first-of-all"));
  await server.stop();
  addPast(server, events);
  await server.start();
}

page_test("the timeline shows holds and waits, and marks forced and lost ends", {}, async (server, show) => {
  const now = Date.now();
  await withPast(server, [
    ...past("deploy", "Ada", now - 50 * MINUTE, now - 40 * MINUTE),
    ...past("deploy", "Grace", now - 40 * MINUTE, now - 20 * MINUTE, { waited: 5 * MINUTE, end: "lock.forced", by: "ops", reason: "runner gone" }),
    ...past("build", "Joan", now - 30 * MINUTE, now - 10 * MINUTE, { end: "lock.taken_over", by: "Ada" }),
    ...past("build", "Ada", now - 10 * MINUTE, now - 5 * MINUTE),
  ]);
  const page = await show({ hash: "#/activity?tab=timeline&hours=1" });
  await page.waitForSelector(lane("deploy"));
  const text = (await labels(page, "hold")).join("\n");
  assert.match(text, /^deploy: held by Ada for 10m 0s, .*, released$/m);
  assert.match(text, /^deploy: held by Grace for 20m 0s, .* to .*, ended by force by ops: runner gone$/m);
  assert.match(text, /^build: held by Joan for 20m 0s, .*, not released before its lease ended$/m);
  assert.match((await labels(page, "wait")).join("\n"), /^deploy: waited for by Grace for 5m 0s, .*, acquired$/m);
  assert.deepEqual(await page.$$eval(".track .mark", (all) => all.map((one) => [one.closest(".lane").dataset.key, one.textContent, one.classList.contains("by-force")])), [["build", "!", false], ["deploy", "✕", true]]);
  const share = await page.$eval(`${lane("deploy")} .hold`, (one) => [one.offsetLeft / one.parentElement.clientWidth, one.offsetWidth / one.parentElement.clientWidth]);
  assert.ok(Math.abs(share[0] - 10 / 60) < 0.02 && Math.abs(share[1] - 10 / 60) < 0.02, `at ${share}`);
  const looks = await page.evaluate(() => [".hold", ".wait"].map((name) => getComputedStyle(document.querySelector(`.track ${name}`)).backgroundImage));
  assert.ok(looks[0] === "none" && looks[1].includes("repeating-linear-gradient"), "a pattern, not only a colour");
  await page.hover(`${lane("build")} .hold`);
  assert.match(await page.textContent(".read"), /^build: held by Joan/);
});

page_test("the timeline is live, and tab, range and filter are in the address", {}, async (server, show) => {
  const now = Date.now();
  await withPast(server, [...past("old", "Ada", now - 20 * HOUR, now - 19 * HOUR), ...past("older", "Ada", now - 30 * HOUR, now - 29 * HOUR), ...past("began-before", "Ada", now - 30 * HOUR, now - 10 * MINUTE)]);
  const page = await show({ hash: "#/activity" });
  await page.click(".tabs >> text=Timeline");
  await page.waitForSelector(lane("began-before"));
  assert.match(page.url(), /#\/activity\?tab=timeline$/);
  assert.equal(await page.$(lane("old")), null);
  const lock = await server.acquire("live", { locked_by: "runner" });
  await page.waitForSelector(`${lane("live")} .hold.open`);
  const waiter = server.waiter("live", "patient");
  await page.waitForSelector(`${lane("live")} .wait.open`);
  await server.release(lock);
  await page.waitForSelector(`${lane("live")} .hold:not(.open)`);
  await page.waitForSelector(`${lane("live")} .hold.open`);
  await page.waitForSelector(`${lane("live")} .wait:not(.open)`);
  await server.release(await waiter);
  await page.waitForSelector(`${lane("live")} .hold.open`, { state: "detached" });
  await page.click("text=24 hours");
  await page.waitForSelector(lane("old"));
  assert.equal(await page.$(lane("older")), null);
  await page.fill(".search", "old");
  await page.waitForSelector(lane("live"), { state: "detached" });
  const other = await show({ hash: new URL(page.url()).hash });
  await other.waitForSelector(lane("old"));
  assert.match(other.url(), /#\/activity\?tab=timeline&hours=24&q=old$/);
  assert.deepEqual(await other.$$eval(".lanes > .lane", (all) => all.map((one) => one.dataset.key)), ["old"]);
  await other.fill(".search", "nothing like it");
  await other.waitForSelector("text=No key that matches was held");
});

page_test("the keyboard goes along a lane, to the next lane, and to the event", {}, async (server, show) => {
  const now = Date.now();
  const many = Array.from({ length: 60 }, (_, i) => past("a", `run-${i}`, now - 55 * MINUTE + i * MINUTE / 2, now - 55 * MINUTE + i * MINUTE / 2 + 20000)).flat();
  await withPast(server, [...many, ...past("a", "Ada", now - 20 * MINUTE, now - 10 * MINUTE), ...past("b", "Grace", now - 50 * MINUTE, now - 45 * MINUTE, { end: "lock.forced", by: "ops", reason: "stuck" }), ...past("b", "Joan", now - 21 * MINUTE, now - 9 * MINUTE)]);
  const page = await show();
  await press(page, "g", "t");
  await page.click("text=1 hour");
  await page.waitForSelector(lane("b"));
  const at = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  await press(page, "ArrowDown");
  assert.match(await at(), /^a: held by Ada/);
  await press(page, "ArrowDown");
  assert.match(await at(), /^b: held by Joan/, "the nearest in time");
  await press(page, "ArrowLeft");
  assert.match(await at(), /^b: held by Grace/);
  assert.match(await page.textContent(".read"), /^b: held by Grace/);
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  await press(page, "ArrowUp");
  assert.match(await at(), /^a: held by run-/);
  await press(page, "Home");
  assert.match(await at(), /^a: held by run-0 /);
  assert.equal(await page.$$eval('.track a[tabindex="0"]', (all) => all.length), 1, "Tab reaches one bar");
  await press(page, "Enter");
  await page.waitForSelector(".timeline li.here >> text=Acquired by run-0");
  assert.ok(await page.$eval(".timeline li.here", (one) => one === document.activeElement && one.getBoundingClientRect().bottom <= innerHeight), "in view and focused");
  await page.goBack();
  await page.waitForSelector(lane("b"));
  await page.click(`${lane("b")} .hold`);
  await page.waitForSelector(".timeline li.here >> text=Ended by force");
  await page.goto(`${server.url}/#/locks/b?event=1`);
  await page.waitForSelector("text=The event 1 is not among them");
});

page_test("a timeline of many keys and events says what it leaves out", {}, async (server, show) => {
  const now = Date.now();
  const events = Array.from({ length: 45 }, (_, i) => past(`key-${i}`, "Ada", now - 50 * MINUTE + i, now - 40 * MINUTE + i, i === 3 ? { waited: MINUTE } : {})).flat();
  await withPast(server, events);
  const page = await show({ hash: "#/activity?tab=timeline&hours=1" });
  await page.waitForSelector("text=40 of 46 keys");
  assert.equal(await page.$$eval(".lanes > .lane", (all) => all.length), 40);
  assert.ok(await page.$(lane("key-3")), "a key that was waited for comes first");
  assert.equal(await page.$(lane("key-0")), null);
  await page.fill(".search", "key-0");
  await page.waitForSelector(lane("key-0"));
  await until(page, () => document.querySelector(".cut").textContent === "");
  await server.stop();
  addPast(server, Array.from({ length: 2600 }, (_, i) => past("busy", "cron", now - 30 * MINUTE + i * 500, now - 30 * MINUTE + i * 500 + 200)).flat());
  await server.start();
  await page.goto(`${server.url}/#/locks`);
  await page.goto(`${server.url}/#/activity?tab=timeline&hours=1`);
  await page.waitForSelector("text=There were more events than this page reads");
  assert.ok((await page.$$eval(`${lane("busy")} .track a`, (all) => all.length)) < 200, "holds that would be drawn over each other are one bar");
  assert.match((await labels(page, "hold")).join("\n"), /busy: [\d,]+ short holds/);
});

page_test("a lock's page says who is in the way, and estimates the turn from past holds", {}, async (server, show) => {
  const now = Date.now();
  await withPast(server, Array.from({ length: 12 }, (_, i) => past("deploy", `run-${i}`, now - HOUR - i * 10 * MINUTE, now - HOUR - i * 10 * MINUTE + (4 + (i % 3) - 1) * MINUTE)).flat());
  await server.acquire("deploy", { locked_by: "ci-1", locked_by_name: "Ada" });
  server.waiter("deploy", "second");
  await server.acquire("fresh", { locked_by: "ci-2" });
  const page = await show({ hash: "#/locks/deploy" });
  await page.waitForSelector(".blocks .in-the-way >> text=Ada (ops)");
  await page.waitForSelector(".line >> text=second");
  await until(page, () => document.querySelector(".line .turn").textContent === "turn in about 4 min");
  assert.equal(await page.textContent("p.turn"), "If you queue now, your turn is in about 8 min, an estimate from the last 12 holds.");
  await page.goto(`${server.url}/#/locks/fresh`);
  await page.waitForSelector(".blocks .in-the-way >> text=ci-2");
  assert.equal(await page.isVisible("p.turn"), false, "nothing is known of it");
});

page_test("a holder that takes longer than all before gets no estimate", {}, async (server, show) => {
  const now = Date.now();
  await withPast(server, Array.from({ length: 3 }, (_, i) => past("deploy", `run-${i}`, now - HOUR - i * MINUTE, now - HOUR - i * MINUTE + 1)).flat());
  await server.acquire("deploy", { locked_by: "ci-1" });
  const page = await show({ hash: "#/locks/deploy" });
  await page.waitForSelector("text=It is held for longer than each of the last 3 holds: there is no estimate.");
  const said = await page.evaluate(async () => {
    const { about } = await import("./ui/blocks.js");
    return [about(20000), about(90000), about(3 * 3600000)];
  });
  assert.deepEqual(said, ["less than 1 min", "about 2 min", "about 3 h"]);
});

page_test("locks above and below are shown as in the way", {}, async (server, show) => {
  const top = "stack:shop:env:prod", service = `${top}:service:cart`;
  await server.release(await server.acquire(service));
  await server.acquire(service, { locked_by: "run-7", locked_by_name: "Grace" });
  const page = await show({ hash: `#/locks/${encodeURIComponent(top)}` });
  await page.waitForSelector(".in-the-way >> text=below it");
  assert.match(await page.textContent(".in-the-way"), /Grace \(ops\).*stack:shop:env:prod:service:cart/);
  await page.click(".in-the-way a");
  await page.waitForSelector(".in-the-way >> text=holder");
  await page.goto(`${server.url}/#/locks/${encodeURIComponent(`${top}:component:cart/worker`)}`);
  await page.waitForSelector(".in-the-way >> text=above it");
  assert.equal(await page.isVisible("p.turn"), false, "another key is in the way: there is no estimate");
});
