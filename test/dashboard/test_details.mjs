// Details that make a page pleasant: each entry of the strip leads somewhere, what is cut can be read, what is shown can be copied.

import assert from "node:assert/strict";
import { page_test, until } from "./kit.mjs";
import { addPast, past } from "./past.mjs";

const row = (key) => `.tr[data-key="${key}"]`;
const boxes = (page, where) => page.$$eval(where, (all) => all.map((one) => one.getBoundingClientRect()).map(({ top, bottom, left, right, width, height }) => ({ top, bottom, left, right, width, height })));

page_test("the strip has the longest queue, what expires soon and the freezes, each a link", {}, async (server, show) => {
  await server.acquire("a-short-queue");
  await server.acquire("long-queue");
  server.waiter("a-short-queue", "a");
  server.waiter("long-queue", "b");
  server.waiter("long-queue", "c");
  await server.acquire("deploy-soon", { ttl_ms: 100000 });
  const page = await show();
  await page.waitForSelector(".need.wait >> text=2 waiting for long-queue");
  await server.acquire("ends-soon", { ttl_ms: 9000 });
  await page.waitForSelector(".need.soft >> text=ends-soon expires in");
  await page.click(".need.soft");
  await page.waitForSelector("h1 >> text=ends-soon");
  await page.goto(`${server.url}/#/locks`);
  await page.click(".need.wait");
  await page.waitForSelector("h1 >> text=long-queue");
  await server.call("POST", "/v1/freezes", { pattern: "deploy-*", reason: "the sale" });
  await page.click(".freezes a >> text=deploy-*");
  await until(page, () => document.querySelectorAll(".rows .tr").length === 1);
  assert.ok(await page.isVisible(row("deploy-soon")));
});

page_test("keys and commands can be copied, and a key that is cut is in its tooltip", { tokens: false }, async (server, show) => {
  const key = `a/key/${"of-many-parts/".repeat(12)}end`;
  const page = await show({ permissions: ["clipboard-read", "clipboard-write"] });
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.click('[aria-label="Copy: Command"] >> nth=0');
  await until(page, () => document.querySelector("#say").textContent === "Command copied");
  assert.equal(await copied(), await page.textContent(".command pre >> nth=0"));
  assert.match(await copied(), /^export BELAY_STORE=http.*\nbelay run /);
  assert.equal(await page.$$eval("pre", (all) => all.filter((one) => !one.parentElement.querySelector(".copy")).length), 0);
  await server.acquire(key);
  await page.waitForSelector(row(key));
  assert.ok(await page.$eval(`${row(key)} .key`, (one) => one.scrollWidth > one.clientWidth), "the test is about a key that is cut");
  assert.equal(await page.getAttribute(`${row(key)} .key`, "title"), key);
  await page.click(`${row(key)} .key`);
  await page.click('[aria-label="Copy: Key"]');
  await until(page, () => document.querySelector("#say").textContent === "Key copied");
  assert.equal(await copied(), key);
});

page_test("a page without log-in says so in full, and empty charts say that there is no data yet", { tokens: false }, async (server, show) => {
  const page = await show({ hash: "#/activity" });
  await page.waitForSelector("figure >> nth=3");
  assert.equal(await page.$$eval("figure text.none", (all) => all.filter((one) => one.textContent === "no data yet").length), 4);
  assert.equal((await page.innerText(".whoami")).replaceAll("\n", ": "), "no authentication: every client is an admin");
  assert.deepEqual(await page.$$eval(".whoami span", (all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1)), []);
});

page_test("legends are in line, and the texts of charts can be read, also on a phone", {}, async (server, show) => {
  const lock = await server.acquire("k");
  await server.acquire("k", { locked_by: "other" });
  await server.release(lock);
  for (const width of [360, 1280]) {
    const page = await show({ hash: "#/activity", viewport: { width, height: 800 } });
    await page.waitForSelector("figure >> nth=3");
    const entries = await boxes(page, "figure:nth-of-type(2) .legend > span");
    assert.equal(entries.length, 3);
    assert.equal(new Set(entries.map(({ height }) => Math.round(height))).size, 1, "each is as high as the others");
    assert.ok(entries.every(({ top }) => top === entries[0].top), "on one line");
    const sizes = await page.$$eval("figure svg", (all) => all.map((one) => parseFloat(getComputedStyle(one.querySelector("text")).fontSize) * one.getBoundingClientRect().width / 640));
    assert.ok(Math.min(...sizes) >= 9, `${width}: texts of ${sizes} px`);
    const texts = await boxes(page, "figure svg text.x:not([visibility=hidden])"), shown = texts.filter((one) => one.width > 0);
    shown.forEach((one, i) => i > 0 && one.top === shown[i - 1].top && assert.ok(one.left >= shown[i - 1].right, `${width}: labels overlap`));
  }
});

page_test("a wall display is live, and has nothing to click on but what needs attention", {}, async (server, show) => {
  await server.call("POST", "/v1/freezes", { pattern: "x-*", reason: "the sale" });
  const page = await show();
  await page.goto(`${server.url}/?tv#/locks`);
  await page.waitForSelector("text=No locks are held");
  const lock = await server.acquire("live");
  await page.waitForSelector(row("live"));
  assert.deepEqual(await page.$$eval("button, input", (all) => all.filter((one) => one.checkVisibility() && !one.dataset.sort).map((one) => one.textContent)), []);
  assert.ok((await page.$eval(".freeze", (one) => parseFloat(getComputedStyle(one).fontSize))) >= 20);
  await server.release(lock);
  await page.waitForSelector(row("live"), { state: "detached" });
});

page_test("names in a queue and of applications are not broken within a word", {}, async (server, show) => {
  const now = Date.now();
  await server.release(await server.acquire("first"));
  await server.stop();
  addPast(server, [1, 2, 3].flatMap((i) => past("deploy", "Ada", now - i * 3600000, now - i * 3600000 + 600000))); // for an estimate
  await server.start();
  await server.acquire("deploy", { locked_by_name: "Grace Hopper" });
  server.acquire("deploy", { locked_by: "ci-5321", locked_by_name: "Barbara Liskov", wait_ms: 60000 }).catch(() => null);
  await server.app("recommender", ["http://127.0.0.1:9/"], ["postgres=10.0.1.5:5432"]);
  const page = await show({ hash: "#/locks/deploy" });
  const lines = (where) => page.$eval(where, (one) => {
    const range = document.createRange();
    range.selectNodeContents(one.firstChild);
    return new Set([...range.getClientRects()].map(({ top }) => top)).size;
  });
  for (const width of [360, 390, 768, 1024, 1440]) {
    await page.setViewportSize({ width, height: 800 });
    await page.goto(`${server.url}/#/locks/deploy`);
    await page.waitForSelector("ol.line .turn >> text=about 10 min");
    assert.equal(await lines("ol.line .name"), 1, `${width}: the waiter`);
    await page.goto(`${server.url}/#/databases`);
    await page.waitForSelector(".users .name");
    assert.equal(await lines(".users .name"), 1, `${width}: the application`);
  }
});
