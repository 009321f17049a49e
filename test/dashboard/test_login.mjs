// Logging in: a cookie that all tabs of a browser share and no script can read, until somebody logs out.

import assert from "node:assert/strict";
import http from "node:http";
import { page_test, until } from "./kit.mjs";
import { TOKENS } from "./support.mjs";

const isIn = (page) => page.waitForSelector('.link[data-link="live"]');
const isOut = (page) => page.waitForSelector("#token");

async function tabOf(page, server, hash = "#/locks") {
  const tab = await page.context().newPage();
  await tab.goto(`${server.url}/${hash}`);
  return tab;
}

page_test("a log-in needs a valid token, and leaves nothing that a script could read", {}, async (server, show) => {
  await server.acquire("k");
  const page = await show({ role: null });
  await page.fill("#token", "wrong");
  await page.press("#token", "Enter");
  await page.waitForSelector("text=does not accept that token");
  await page.fill("#token", TOKENS.admin);
  await page.press("#token", "Enter");
  await page.waitForSelector('.tr[data-key="k"]');
  const [cookie, ...others] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.secure, others.length], [true, "Strict", false, 0]);
  assert.ok(!cookie.value.includes(TOKENS.admin));
  assert.ok(cookie.expires - Date.now() / 1000 < 12 * 3600 + 60);
  assert.deepEqual(await page.evaluate(() => [document.cookie, sessionStorage.length, Object.keys(localStorage).filter((name) => name !== "belay.theme")]), ["", 0, []]);
});

page_test("a new tab is logged in, and logging out in one tab logs out all of them", {}, async (server, show) => {
  await server.acquire("k");
  const first = await show({ role: "reader" });
  const second = await tabOf(first, server, "#/locks/k");
  await isIn(second);
  assert.equal(await second.textContent(".whoami .name"), "watcher");
  await second.reload();
  await isIn(second);
  await second.click('[aria-label="Log out"]');
  await Promise.all([isOut(first), isOut(second)]);
  assert.deepEqual(await first.context().cookies(), []);
  await first.reload();
  await isOut(first);
  await first.fill("#token", TOKENS.admin);
  await first.press("#token", "Enter");
  await Promise.all([isIn(first), isIn(second)]); // the other tab notices
  assert.equal(await second.textContent(".whoami .name"), "ops");
});

page_test("the session of another browser ends on the server, too, and its page asks for a token", {}, async (server, show) => {
  const page = await show();
  const [cookie] = await page.context().cookies();
  const answer = await fetch(`${server.url}/v1/session`, { method: "DELETE", headers: { Cookie: `${cookie.name}=${cookie.value}`, "Belay-Session": "1" } });
  assert.equal(answer.status, 200);
  const other = await tabOf(page, server);
  await until(other, () => document.querySelector("#token") || document.querySelector('.link[data-link="live"]'));
  await isIn(page); // the tab that knows the token has logged in again
});

page_test("a page stays logged in when the server restarts", {}, async (server, show) => {
  const page = await show();
  const [before] = await page.context().cookies();
  await server.stop();
  await page.waitForSelector(".lost:not([hidden])");
  await server.start();
  await page.waitForSelector(".lost", { state: "hidden" });
  await isIn(page);
  const [after] = await page.context().cookies();
  assert.notEqual(after.value, before.value);
  await server.acquire("after");
  await page.waitForSelector('.tr[data-key="after"]');
});

/** A page of another site, which sends a form to the server when it is opened. */
async function evil(t, server) {
  const page = `<form method="post" enctype="text/plain" action="${server.url}/v1/acquire"><input name='{"key":"stolen","locked_by":"x","ignore":"' value='"}'></form><script>document.forms[0].submit()</script>`;
  const site = http.createServer((request, answer) => answer.setHeader("Content-Type", "text/html").end(page));
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  t.after(() => site.close());
  return site.address().port;
}

page_test("a form of another site is refused, also from another port of this machine", {}, async (server, show, t) => {
  const page = await show();
  const port = await evil(t, server);
  for (const host of ["127.0.0.1", "localhost"]) { // the same site, so that the cookie is sent; and another one
    const tab = await page.context().newPage();
    const [answer] = await Promise.all([tab.waitForResponse((one) => one.url().endsWith("/v1/acquire")), tab.goto(`http://${host}:${port}/`)]);
    assert.equal(answer.status(), 403, host);
    const sent = (await answer.request().allHeaders()).cookie ?? "";
    assert.equal(sent.includes("belay_session"), host === "127.0.0.1", "the test is about the cookie");
    await tab.close();
  }
  assert.equal((await server.call("GET", "/v1/locks/stolen")).status, 404);
});
