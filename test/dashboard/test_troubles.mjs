// What goes wrong around a page: sleep, proxies, clocks, revoked tokens, restarts, strange names.

import assert from "node:assert/strict";
import { overflow, page_test, press, until } from "./kit.mjs";
import { Proxy } from "./proxy.mjs";

const row = (key) => `.tr[data-key="${key}"]`;
const HOUR = 3600000;

/** The clock of the machine, but not the one that counts since the page was opened, can be set forward. */
const MOVABLE_CLOCK = `{
  const Real = Date;
  window.ahead = 0;
  window.Date = class extends Real {
    constructor(...given) { given.length > 0 ? super(...given) : super(Real.now() + window.ahead); }
    static now() { return Real.now() + window.ahead; }
  };
}`;

async function behind(server, t) {
  const proxy = await new Proxy().start(server);
  t.after(() => proxy.stop());
  return proxy;
}

page_test("a laptop that slept for an hour, on a connection that died, shows what is true now", {}, async (server, show, t) => {
  const proxy = await behind(server, t);
  const before = await server.acquire("before");
  const page = await show({ url: proxy.url, init: MOVABLE_CLOCK });
  await page.waitForSelector(row("before"));
  proxy.silence(Boolean(process.env.BELAY_DASHBOARD_ALL)); // with all of them dead, each takes some seconds to give up
  await server.release(before);
  await server.acquire("meanwhile");
  await page.evaluate((ms) => (window.ahead = ms), HOUR);
  await page.waitForSelector(row("meanwhile"), { timeout: 40000 }); // sooner than the watchdog notices the silence
  await page.waitForSelector(row("before"), { state: "detached" });
});

page_test("a page that the browser has frozen catches up", {}, async (server, show) => {
  const page = await show();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
  await server.acquire("while-frozen");
  await cdp.send("Page.setWebLifecycleState", { state: "active" });
  await page.waitForSelector(row("while-frozen"));
});

page_test("behind a proxy that holds streams back the page fetches the locks, says so, and is live when it can be", {}, async (server, show, t) => {
  const proxy = await behind(server, t);
  proxy.holdsStreams = true;
  await server.acquire("first");
  const page = await show({ url: proxy.url });
  await page.waitForSelector(row("first"));
  await page.waitForSelector(".link.slow >> text=Every 10 s");
  await server.acquire("second");
  await page.waitForSelector(row("second"));
  proxy.letStreamsPass();
  await page.waitForSelector(".link:not(.slow) >> text=Live");
  await server.acquire("third");
  await page.waitForSelector(row("third"));
});

page_test("a token that is revoked ends the page that uses it, and says so", {}, async (server, show) => {
  const page = await show({ role: "reader" });
  const other = await show({ role: "admin" });
  server.configure(["admin", "locker"]);
  server.process.kill("SIGHUP");
  await page.waitForSelector("text=Your session has ended, or this server no longer accepts your token.");
  await page.waitForSelector("#token");
  await server.acquire("after");
  await other.waitForSelector(row("after"));
});

page_test("two tabs stay logged in when the server restarts, also the one that has only the cookie", {}, async (server, show) => {
  const first = await show();
  const second = await first.context().newPage();
  await second.goto(`${server.url}/#/locks`);
  await second.waitForSelector('.link[data-link="live"]');
  await server.stop();
  await Promise.all([first, second].map((page) => page.waitForSelector(".lost:not([hidden])")));
  await server.start();
  await server.acquire("after");
  await Promise.all([first, second].map((page) => page.waitForSelector(row("after"))));
});

page_test("a link in a chat asks a stranger for a token, then shows what it says", {}, async (server, show) => {
  await server.acquire("deploy-a");
  await server.acquire("build-b");
  const page = await show({ hash: "#/locks?q=deploy&filter=held" });
  await page.waitForSelector(row("deploy-a"));
  assert.equal(await page.$(row("build-b")), null);
  for (const hash of ["#/locks/%zz", "#/nothing/of/the/kind", "#/activity?hours=-1&tab=x", "#/stats?since=never&by=moon", "#/locks?sort=__proto__&filter=constructor"]) {
    await page.goto(`${server.url}/${hash}`);
    await page.waitForSelector("main h1");
  }
});

page_test("the search of states and databases is in the address, too", {}, async (server, show) => {
  for (const stack of ["shop", "billing"]) {
    await server.deploy(stack, "prod", { resources: {}, outputs: {} });
    await server.app(stack, ["http://127.0.0.1:9/"], [`postgres=${stack}:5432`]);
  }
  const page = await show({ hash: "#/state" });
  for (const [name, found] of [["state", ".stacks .tr:not(.head)"], ["databases", ".db"]]) {
    await page.goto(`${server.url}/#/${name}`);
    await until(page, (all) => document.querySelectorAll(all).length === 2, found);
    await page.fill(".search", "shop");
    await until(page, (all) => document.querySelectorAll(all).length === 1, found);
    const other = await show({ hash: new URL(page.url()).hash });
    await until(other, (all) => document.querySelectorAll(all).length === 1, found);
    assert.equal(await other.inputValue(".search"), "shop");
  }
});

page_test("on a machine whose clock is an hour ahead, ages and the timeline are right", {}, async (server, show) => {
  await server.acquire("k", { ttl_ms: 600000 });
  const page = await show({ init: `${MOVABLE_CLOCK} window.ahead = ${HOUR};` });
  await page.waitForSelector(row("k"));
  assert.match(await page.textContent(`${row("k")} .c-age`), /^\d+(ms|s)$|^[1-3]m/);
  assert.match(await page.textContent(`${row("k")} .c-left`), /^(9m|10m 0s|8m|7m)/);
  await page.goto(`${server.url}/#/activity?tab=timeline&hours=1`);
  await page.waitForSelector(".track .hold.open");
  const share = await page.$eval(".track .hold.open", (bar) => bar.offsetLeft / bar.parentElement.clientWidth);
  assert.ok(share > 0.9 && share <= 1, `it begins at ${share} of the hour`);
  await page.goto(`${server.url}/#/locks/k`);
  await until(page, () => /^\d+(ms|s)$|^[1-3]m/.test(document.querySelector(".times strong")?.textContent ?? ""));
});

page_test("title and icon count what is stale or expired on every page, also in a tab that is not drawn", {}, async (server, show) => {
  await server.acquire("quiet", { heartbeat_ms: 100, stale_after_ms: 300 });
  const page = await show({ hash: "#/activity" });
  await until(page, () => document.title === "(1) Activity – belay");
  await page.goto(`${server.url}/#/locks`);
  await page.waitForSelector(row("quiet"));
  await page.evaluate(() => {
    window.requestAnimationFrame = () => 0;
    Object.defineProperty(document, "hidden", { get: () => true });
  });
  await server.acquire("short", { ttl_ms: 300 });
  await until(page, () => document.title === "(2) Locks – belay");
});

page_test("names cannot reorder or hide the text around them", {}, async (server, show) => {
  const key = "deploy-\u202edorp\u200b", address = "https://ci.example/\u202egnp.exe";
  await server.acquire(key, { locked_by: "ci-1", locked_by_name: "Eve\u2066\u202e", metadata: { run: address, data: "data:text/html,<script>alert(1)</script>", script: "JavaScript:alert(1)", file: "file:///etc/passwd" } });
  await server.acquire("hebrew", { locked_by: "ci-2", locked_by_name: "שרה כהן" });
  await server.acquire("rocket", { locked_by: "ci-3", locked_by_name: "👩\u200d🚀" });
  const page = await show();
  await page.waitForSelector("text=deploy-\\u{202e}dorp\\u{200b}");
  await page.waitForSelector("text=Eve\\u{2066}\\u{202e} (ops)");
  await page.waitForSelector(`${row("rocket")} >> text=👩\u200d🚀`);
  const [name, owner] = await page.$eval(row("hebrew"), (one) => [".name", ".owner"].map((part) => one.querySelector(part).getBoundingClientRect().left));
  assert.ok(name < owner, "the owner is to the right of the name");
  const apart = await page.$eval(`${row("hebrew")} .name`, (one) => getComputedStyle(one).unicodeBidi);
  assert.equal(apart, "isolate");
  await page.click("text=deploy-\\u{202e}");
  await page.waitForSelector(".facts.meta a");
  assert.deepEqual(await page.$$eval(".facts.meta a", (all) => all.map((one) => [one.textContent, decodeURI(one.href)])), [["https://ci.example/\\u{202e}gnp.exe", address]]);
  assert.ok(!/[\u202e\u2066\u200b]/.test(await page.evaluate(() => document.body.innerText + document.title)));
  await page.click("text=Force unlock…");
  await page.fill("#reason", "x");
  await page.fill("#typed", "deploy-\\u{202e}dorp\\u{200b}");
  await page.press("#typed", "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.equal((await server.call("GET", `/v1/locks/${encodeURIComponent(key)}`)).json.status, "released");
});

page_test("a printed page has all rows, no controls, and is light", {}, async (server, show) => {
  for (let i = 0; i < 80; i++) {
    await server.acquire(`k-${i}`);
  }
  const page = await show({ colorScheme: "dark" });
  await page.waitForSelector(row("k-0"));
  const drawn = () => page.$$eval(".rows .tr", (all) => all.length);
  assert.ok((await drawn()) < 60);
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await page.emulateMedia({ media: "print" });
  assert.equal(await drawn(), 80);
  assert.equal(await page.isVisible(".side"), false);
  const [bottom, height, shade] = await page.evaluate(() => [Math.max(...[...document.querySelectorAll(".rows .tr")].map((one) => one.getBoundingClientRect().bottom)), document.documentElement.scrollHeight, getComputedStyle(document.body).backgroundColor]);
  assert.ok(bottom > 80 * 40 && bottom <= height + 1, `the last row ends at ${bottom} of ${height}`);
  assert.equal(shade, "rgb(255, 255, 255)");
  await page.emulateMedia({ media: null });
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  assert.ok((await drawn()) < 60);
});

page_test("at a zoom of 200 % nothing sticks out, and rows can be read", {}, async (server, show) => {
  for (let i = 0; i < 20; i++) {
    await server.acquire(`a-key-of-some-length-${i}`);
  }
  const page = await show({ viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 });
  await page.waitForSelector(".rows .tr");
  assert.ok((await page.$eval(".scroller", (one) => one.clientHeight)) >= 200, "room for three rows");
  for (const hash of ["#/locks", "#/locks/a-key-of-some-length-3", "#/activity", "#/activity?tab=timeline", "#/stats", "#/state", "#/databases"]) {
    await page.goto(`${server.url}/${hash}`);
    await page.waitForSelector("main h1");
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
    assert.ok((await overflow(page)) <= 0, hash);
  }
});

page_test("with the keyboard alone the focus is always seen", {}, async (server, show) => {
  await server.acquire("a-lock", { metadata: { run: "https://ci.example/1" } });
  await server.call("POST", "/v1/freezes", { pattern: "x-*", reason: "tests" });
  const page = await show();
  for (const hash of ["#/locks", "#/locks/a-lock", "#/activity", "#/activity?tab=timeline", "#/stats", "#/state", "#/databases"]) {
    await page.goto(`${server.url}/${hash}`);
    await page.waitForSelector("main h1");
    const unseen = [], reached = new Set();
    for (let i = 0; i < 24; i++) {
      await press(page, "Tab");
      const [name, isSeen] = await page.evaluate(() => {
        const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
        const isInside = box.width > 0 && box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 1 && box.top < innerHeight;
        return [`${one.tagName} ${one.className} ${one.textContent.slice(0, 20)}`, one === document.body || (style.outlineStyle !== "none" && isInside)];
      });
      reached.add(name);
      isSeen || unseen.push(name);
    }
    assert.deepEqual(unseen, [], hash);
    assert.ok(reached.size > 10, `${hash}: Tab reaches ${[...reached]}`);
  }
});
