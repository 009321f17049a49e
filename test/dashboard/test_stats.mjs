// Statistics: the view of all locks, and the card on the page of one (S4.14).

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import path from "node:path";
import { ROOT } from "./support.mjs";
import { HOSTILE, faults, overflow, page_test, press, until } from "./kit.mjs";

const DAY = 86400;

/** Replace the history of a server's store; times are seconds before now. */
async function plant(server, history) {
  await server.stop();
  const script = `import sqlite3, sys, json
db = sqlite3.connect(sys.argv[1])
db.execute("DELETE FROM events")
db.execute("UPDATE meta SET indexed = 0, listed = 0")
db.executemany("INSERT INTO events VALUES (?, ?, 0, ?, ?, 'id', 1, 'me', 'me', NULL, NULL, ?, NULL)", json.loads(sys.argv[2]))
db.commit()`;
  const now = Date.now();
  const rows = history.map(([ago, type, key, seconds], i) => [2 + i, Math.round(now - ago * 1000), type, key, seconds === undefined ? -1 : seconds * 1000]);
  execFileSync("python3", ["-c", script, path.join(server.dir, "belay.db"), JSON.stringify(rows)], { cwd: ROOT });
  await server.start();
}

const WEEK = [
  [20 * DAY, "lock.acquired", "deploy-api-prod"], [20 * DAY - 5, "lock.released", "deploy-api-prod", 5],
  [3 * DAY, "lock.acquired", "deploy-api-prod"], [3 * DAY - 60, "lock.released", "deploy-api-prod", 60],
  [3 * DAY - 60, "wait.ended", "deploy-api-prod", 30], [3 * DAY - 60, "lock.acquired", "deploy-api-prod"],
  [3 * DAY - 180, "lock.forced", "deploy-api-prod", 120], [2 * DAY, "lock.refused", "build-1"],
  [2 * DAY, "lock.acquired", "build-1"], [2 * DAY - 1, "lock.lost", "build-1"], [2 * DAY - 1, "lock.taken_over", "build-1"],
];

const figures = (page) => page.$$eval("figure", (all) => all.map((one) => one.querySelector("svg").getAttribute("aria-label")));
const rows = (page) => page.$$eval(".stats tbody tr, .stats tfoot tr", (all) => all.map((row) => [...row.children].map((cell) => cell.textContent).join("|")));

page_test("the statistics view draws and lists the days of the history", {}, async (server, show) => {
  await plant(server, WEEK);
  const page = await show({ hash: "#/stats" });
  await page.waitForSelector("figure >> nth=3");
  assert.deepEqual(await figures(page), [
    "Locks acquired. acquired: 3", "Refused, taken over, forced, lost. refused: 1, taken over: 1, forced: 1, lost: 1",
    "Hold time. median: 1m, 90 % within: 2m", "Time in the queue. median: 30s, 90 % within: 30s"]);
  const day = (ago) => new Date(Date.now() - ago * DAY * 1000).toISOString().slice(0, 10);
  const listed = await rows(page);
  assert.equal(listed.at(-1), "Total|3|1|1|1|1|1m 0s|2m 0s|2m 0s|1|30s|30s|30s");
  assert.ok(listed[0].startsWith(`${day(2)}|1|1|`) || listed[0].startsWith(day(1)), listed[0]);
  assert.match(await page.textContent(".period"), /\d{4}, \d\d:\d\d to now\. Counted at/);
  assert.equal(await page.$$eval("figure", (all) => all[0].querySelectorAll(".bar").length), 2); // of eight days
});

page_test("period, division and keys are in the address, and say where the history begins", {}, async (server, show) => {
  await plant(server, WEEK);
  const page = await show({ hash: "#/stats?since=30d&by=key" });
  await until(page, () => document.querySelectorAll(".stats tbody tr").length === 2);
  assert.deepEqual(await rows(page), ["deploy-api-prod|3|0|0|1|0|1m 0s|2m 0s|2m 0s|1|30s|30s|30s", "build-1|1|1|1|0|1|–|–|–|0|–|–|–",
    "Total|4|1|1|1|1|1m 0s|2m 0s|2m 0s|1|30s|30s|30s"]);
  assert.match(await page.textContent(".period"), /to now: the history begins there\./);
  await page.click("text=Profile");
  await until(page, () => document.querySelector(".stats tbody th")?.textContent === "deploy");
  await page.fill(".search", "build");
  await until(page, () => document.querySelectorAll(".stats tbody tr").length === 1);
  await page.click("text=All");
  await until(page, () => location.hash === "#/stats?since=all&by=profile&prefix=build");
  await until(page, () => document.querySelector(".period").textContent.includes("all that the history has"));
  await page.fill(".search", "nothing-begins-so");
  await page.waitForSelector("text=No data yet");
  await press(page, "Escape");
  await page.focus("main");
  await press(page, "g", "a", "g", "n");
  await page.waitForSelector("h1 >> text=Statistics");
});

page_test("the page of a lock has its statistics", {}, async (server, show) => {
  await plant(server, [...WEEK, [60, "lock.acquired", HOSTILE], [50, "lock.released", HOSTILE, 10]]);
  const page = await show({ hash: "#/locks/deploy-api-prod" });
  await page.waitForSelector(".onekey");
  assert.match(await page.textContent(".onekey"), /^Statisticsacquired 3 timesHeld3 holdsMedian1m 0s90 %2m 0sLongest2m 0sWaited1 waitMedian30s90 %30sLongest30s1 forced.* to now: all that the history has$/);
  assert.deepEqual(await faults(page), []);
  await page.goto(`${server.url}/#/stats?by=key`);
  await page.waitForSelector(".stats tbody tr >> nth=2");
  assert.ok((await rows(page)).some((row) => row.startsWith(`${HOSTILE}|1|`)));
  await page.click(".stats tbody a >> text=build-1");
  await page.waitForSelector("h1 >> text=build-1");
});

page_test("without events the statistics say so", {}, async (server, show) => {
  const page = await show({ hash: "#/stats" });
  await page.waitForSelector("text=No data yet");
  assert.match(await page.textContent(".stats .empty"), /The history has no events/);
  assert.deepEqual(await faults(page), []);
});

for (const [colorScheme, widths] of [["light", [360, 768, 1440]], ["dark", [390, 1024]]]) {
  page_test(`axe finds no fault in the statistics, and nothing is cut off (${colorScheme})`, {}, async (server, show) => {
    await plant(server, WEEK);
    for (const width of widths) {
      const page = await show({ viewport: { width, height: 800 }, colorScheme, hash: "#/stats" });
      await page.waitForSelector("figure >> nth=3");
      assert.ok((await overflow(page)) <= 0, `${width}`);
      const cut = await page.$$eval("nav a, .bar button", (all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1 || one.clientHeight > 45).map((one) => one.textContent));
      assert.deepEqual(cut, [], `${width}`);
      assert.deepEqual(await faults(page), [], `${width}`);
      await page.click("text=Key");
      await page.waitForSelector(".stats tbody a");
      assert.ok((await overflow(page)) <= 0, `${width}, by key`);
      if (process.env.SHOTS) {
        await page.goto(`${server.url}/#/stats`);
        await page.waitForSelector("figure >> nth=3");
        await page.screenshot({ path: `${process.env.SHOTS}/stats-${width}-${colorScheme}.png` });
        await page.goto(`${server.url}/#/locks/deploy-api-prod`);
        await page.waitForSelector(".onekey");
        await page.screenshot({ path: `${process.env.SHOTS}/lock-${width}-${colorScheme}.png` });
      }
      await page.context().close();
    }
  });
}
