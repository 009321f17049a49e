// Shared by the tests of the pages: one browser, a server for each test, and the checks of axe.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { TIMEOUT_MS, Server, axePath, browser, folder, open } from "./support.mjs";

let chrome;
before(async () => {
  chrome = await browser();
});
after(() => chrome?.close());

/** A test with a server; the page must not have logged an error by its end. */
export function page_test(name, options, body) {
  test(name, { timeout: 4 * TIMEOUT_MS }, async (t) => {
    const dir = folder();
    const server = await new Server(dir.path, options).start();
    const pages = [];
    t.after(async () => {
      await Promise.all(pages.map((page) => page.context().close()));
      await server.stop();
      dir.remove();
    });
    const show = async (more) => {
      pages.push(await open(chrome, server, more));
      return pages.at(-1);
    };
    await body(server, show, t);
    assert.deepEqual(pages.flatMap((page) => page.problems), []);
  });
}

export async function faults(page) {
  await page.evaluate(readFileSync(axePath, "utf8"));
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
}

export const until = (page, fn, arg) => page.waitForFunction(fn, arg, { timeout: TIMEOUT_MS });
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
export const HOSTILE = '<img src=x onerror="alert(1)">"\'&amp;<script>alert(2)</script>{{7*7}}';
export const press = (page, ...keys) => keys.reduce((done, key) => done.then(() => page.keyboard.press(key)), Promise.resolve());

/**
 * CPU time of the page's thread from now on, in ms. On a busy machine elapsed time measures
 * other processes too.
 */
export async function meter(page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  const sum = async () => (await cdp.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000;
  const before = await sum();
  return async () => (await sum()) - before;
}
