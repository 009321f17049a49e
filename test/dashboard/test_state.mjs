// The pages of deployment states and of Terraform's, in a real browser on a real server (issue 6, 6).

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { HOSTILE, faults, overflow, page_test, press, until } from "./kit.mjs";
import { TOKENS } from "./support.mjs";

const COMMITS = ["1111111aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "2222222bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "3333333ccccccccccccccccccccccccccccccccc"];
const ONE = { resources: { web: { type: "vm", size: "small", tags: { team: "shop" } }, queue: { type: "sqs" } }, outputs: { url: "one.example", count: 1 } };
const TWO = { resources: { web: { type: "vm", size: "large", tags: { team: "shop" } }, cache: { type: "redis" } }, outputs: { url: "two.example", count: 1 } };

/** Three deployments of shop in prod: ONE, TWO, and TWO again, which failed. */
async function shop(server) {
  await server.deploy("shop", "prod", ONE, { git_commit: COMMITS[0], git_branch: "main", deployment_id: "dep-1" });
  await server.deploy("shop", "prod", TWO, { git_commit: COMMITS[1], git_branch: "main", deployment_id: "dep-2", version: "1.2.0" });
  const answer = await server.deploy("shop", "prod", TWO, { git_commit: COMMITS[2], git_branch: "fix", deployment_id: "dep-3", status: "failed" });
  assert.equal(answer.status, 200, answer.text);
}

const row = (key) => `.states [data-key=${JSON.stringify(key)}]`;
const change = (name) => `.main .change:has(summary .name:text-is(${JSON.stringify(name)}))`;
const version = (n) => `.versions li:nth-child(${n})`;
const history = async (server) => (await server.call("GET", "/v1/state/shop/prod/history")).json;

page_test("the list shows stacks, environments and the last deployment of each, and updates itself", {}, async (server, show) => {
  await shop(server);
  for (let i = 100; i < 130; i++) {
    await server.deploy(`stack-${i}`, "dev", ONE);
  }
  const page = await show({ hash: "#/state" });
  await page.waitForSelector(`${row("shop/prod")} .badge.bad >> text=failed`);
  const text = await page.textContent(row("shop/prod"));
  assert.match(text, /shop \/ prod.*failed.*ci.*3333333.*fix.*ago.*3/);
  assert.equal(await page.textContent(".total"), "31 states");
  await page.evaluate(() => {
    window.wasNotReloaded = true;
    document.querySelector(".scroller").scrollTop = 300;
  });
  await page.focus(`${row("stack-115/dev")} .key`);
  const place = () => page.$eval(row("stack-115/dev"), (one) => Math.round(one.getBoundingClientRect().top - one.closest(".scroller").getBoundingClientRect().top));
  const at = await place();
  await server.deploy("stack-115", "dev", TWO, { git_commit: COMMITS[1] });
  await page.waitForSelector(`${row("stack-115/dev")} >> text=2222222`);
  assert.equal(await place(), at, "the row that one looks at has moved");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "stack-115 / dev");
  await server.deploy("stack-116", "dev", TWO, { keep: true });
  await page.waitForSelector(`${row("stack-116/dev")} >> text=in use`);
  await page.fill(".search", "shop prod");
  await until(page, () => document.querySelectorAll(".stacks [data-key]").length === 1);
  await page.click(row("shop/prod"));
  await page.waitForSelector(change("web"), { state: "detached" });
  await page.waitForSelector("h1 >> text=shop / prod");
  assert.equal(await page.evaluate(() => window.wasNotReloaded), true);
});

page_test("two versions are compared by resource and output, with old and new values, and long ones are folded", {}, async (server, show) => {
  await shop(server);
  const page = await show({ hash: "#/state/shop/prod" });
  await page.waitForSelector("text=Resources and outputs are the same");
  await page.click(`${version(2)} button`);
  await page.waitForSelector(change("web"));
  assert.match(await page.textContent(".main h2"), /1 added.*2 changed.*1 removed/);
  assert.equal(await page.textContent(`${change("web")} .path`), "size");
  assert.deepEqual([await page.textContent(`${change("web")} del code`), await page.textContent(`${change("web")} ins code`)], ['"small"', '"large"']);
  assert.match(await page.textContent(change("queue")), /removed/);
  assert.match(await page.textContent(change("cache")), /added.*redis/s);
  assert.match(await page.textContent(change("url")), /one\.example.*two\.example/s);
  assert.equal(await page.$(change("count")), null, "what is the same is not shown");
  assert.match(page.url(), /#\/state\/shop\/prod\/\d.*\.json$/, "the version has an address");
  await page.reload();
  await page.waitForSelector(change("web"));
  await page.selectOption("#from", "");
  await page.waitForSelector(`${change("count")} >> text=added`);
  const big = { resources: { web: { code: "x".repeat(5000), rules: Array.from({ length: 40 }, (_, n) => ({ n })) } }, outputs: {} };
  await server.deploy("shop", "prod", big);
  await page.goto(`${server.url}/#/state/shop/prod`);
  await page.reload();
  await page.waitForSelector(change("web"));
  assert.equal(await page.$eval(change("web"), (one) => one.open), false);
  await page.click(`${change("web")} summary`);
  await page.waitForSelector(`${change("web")} .fold summary >> text=5 kB`);
  assert.ok(!(await page.textContent(change("web"))).includes("x".repeat(100)), "a long text waits until it is asked for");
  await page.click(`${change("web")} .fold summary`);
  await page.waitForSelector(`${change("web")} .fold pre`);
  await page.click("text=All of this version");
  await page.waitForSelector(".contents .change >> text=web");
});

page_test("numbers are compared and shown as written", {}, async (server, show) => {
  const document = (text) => `{"resources":{},"outputs":{"big":${text},"float":1.0,"__proto__":{"a":1}}}`;
  await server.deploy("shop", "prod", document("12345678901234567890"));
  await server.deploy("shop", "prod", document("12345678901234567891"));
  const page = await show({ hash: "#/state/shop/prod" });
  await page.waitForSelector(change("big"));
  assert.deepEqual(await page.$$eval(".main .change code", (all) => all.map((one) => one.textContent)), ["12345678901234567890", "12345678901234567891"]);
  await page.click("text=All of this version");
  await page.waitForSelector(".contents >> text=1.0");
  await page.waitForSelector(".contents .name >> text=__proto__");
});

page_test("an admin restores a version: the dialog shows the changes, requires the name, and a new version records it", {}, async (server, show) => {
  await shop(server);
  const page = await show({ hash: "#/state/shop/prod" });
  await page.click(`${version(3)} button`);
  await page.click("text=Restore this version…");
  await page.waitForSelector("dialog .change");
  assert.match(await page.textContent("dialog .sum"), /1 added.*2 changed.*1 removed/);
  assert.match(await page.textContent("dialog .diff"), /large.*small/s, "from what is there to what was");
  const isOff = () => page.isDisabled("dialog button[type=submit]");
  assert.ok(await isOff());
  await page.fill("#typed", "shop/dev");
  assert.ok(await isOff(), "the name must be the one");
  await page.fill("#typed", "shop/prod");
  await page.press("#typed", "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(".top .badge >> text=restored");
  await page.waitForSelector(`${version(4)}`);
  await page.waitForSelector(".timeline >> text=Restored by ops");
  const { json } = await server.call("GET", "/v1/state/shop/prod");
  assert.deepEqual(json.resources, ONE.resources);
  const { deployments, versions } = await history(server);
  assert.deepEqual([versions.length, deployments[0].status, deployments[0].user], [4, "restored", "ops"]);
  const events = (await server.call("GET", `/v1/locks/${encodeURIComponent("stack:shop:env:prod")}/history`)).json.events;
  assert.deepEqual(events.slice(-2).map(({ event, locked_by_name }) => [event, locked_by_name]), [["lock.acquired", "ops"], ["lock.released", "ops"]]);
});

page_test("a state that changes while the dialog is open, or is being deployed, is not restored", {}, async (server, show) => {
  await shop(server);
  const page = await show({ hash: "#/state/shop/prod" });
  await page.click(`${version(3)} button`);
  await page.click("text=Restore this version…");
  await page.waitForSelector("dialog .change");
  await page.fill("#typed", "shop/prod");
  await server.deploy("shop", "prod", { ...TWO, outputs: { url: "three.example" } });
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".problem >> text=Another client has saved the state");
  await page.waitForSelector("dialog .diff >> text=three.example");
  assert.deepEqual((await server.call("GET", "/v1/state/shop/prod")).json.outputs, { url: "three.example" });
  const lock = await server.acquire("stack:shop:env:prod", { locked_by: "deployer", locked_by_name: "Grace" });
  await page.click("dialog button[type=submit]");
  await page.waitForSelector(".problem >> text=Grace");
  assert.equal((await history(server)).versions.length, 4);
  await server.release(lock);
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.deepEqual((await server.call("GET", "/v1/state/shop/prod")).json.outputs, ONE.outputs);
});

page_test("a reader sees the state but no restore button, and is refused", {}, async (server, show) => {
  await shop(server);
  await server.terraform("network", { version: 4, serial: 1, resources: [], outputs: { ip: { value: "10.9.8.7" } } });
  const page = await show({ role: "reader", hash: "#/state/shop/prod" });
  await page.click(`${version(2)} button`);
  await page.waitForSelector(change("web"));
  await page.waitForSelector("text=Restoring needs the role 'admin'");
  assert.equal(await page.$("text=Restore this version"), null);
  const status = await page.evaluate(async (token) => (await fetch("v1/state/shop/prod/restore", { method: "POST", body: '{"version":"3"}', headers: { Authorization: `Bearer ${token}` } })).status, TOKENS.reader);
  assert.equal(status, 403);
  assert.equal((await history(server)).versions.length, 3);
  await page.goto(`${server.url}/#/terraform/network`);
  await page.waitForSelector("text=viewing them needs the role 'locker'");
  assert.equal(await page.$$eval(".versions li", (all) => all.length), 1);
  assert.ok(!(await page.content()).includes("10.9.8.7"));
});

page_test("verify reports a sound state or the damaged part, and restoring a version repairs it", {}, async (server, show) => {
  await shop(server);
  const page = await show({ hash: "#/state/shop/prod" });
  await page.click("text=Verify");
  await page.waitForSelector(".sound >> text=match their checksums");
  const file = path.join(server.dir, "belay.db-state/stacks/shop/prod/state.json");
  writeFileSync(file, readFileSync(file, "utf8").replace("two.example", "bad.example"));
  await page.click("text=Verify");
  await page.waitForSelector(".findings .badge.bad");
  assert.match(await page.textContent(".findings"), /outputs/);
  writeFileSync(file, readFileSync(file, "utf8").slice(0, 200)); // now it is not even JSON
  await page.reload();
  await page.waitForSelector(".top .badge.bad >> text=damaged");
  await page.click("text=Restore this version…");
  await page.waitForSelector("dialog >> text=The current version cannot be read");
  await page.fill("#typed", "shop/prod");
  await page.press("#typed", "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(".top .badge >> text=restored");
  assert.deepEqual((await server.call("GET", "/v1/state/shop/prod")).json.outputs, TWO.outputs);
});

const TF = (serial, cidr, password) => ({
  version: 4, terraform_version: "1.11.4", serial, lineage: "l", outputs: { ip: { value: cidr }, password: { value: password, sensitive: true } },
  resources: [{ mode: "managed", type: "aws_subnet", name: "main", module: "module.net", instances: [
    { index_key: "a", attributes: { cidr, key: password }, sensitive_attributes: [[{ type: "get_attr", value: "key" }]] }, { index_key: 1, attributes: { cidr: "same" } }] }],
});

page_test("a Terraform state is compared by address, keeps its secrets, and is restored", {}, async (server, show) => {
  await server.terraform("network", TF(1, "10.0.0.0/16", "hunter2-a"));
  await server.terraform("network", TF(2, "10.1.0.0/16", "hunter2-b"));
  const page = await show({ hash: "#/state" });
  await page.click(".terraforms .key >> text=network");
  const name = 'module.net.aws_subnet.main["a"]';
  await page.waitForSelector(change(name));
  assert.deepEqual(await page.$$eval(".main .change summary .name", (all) => all.map((one) => one.textContent)), [name, "ip", "password"]);
  assert.match(await page.textContent(change(name)), /10\.0\.0\.0\/16.*10\.1\.0\.0\/16/s);
  await page.click("text=All of this version");
  await page.waitForSelector(".contents .change");
  assert.ok(!(await page.content()).includes("hunter2"));
  await page.click(`${version(2)} button`);
  await page.click("text=Restore this version…");
  await page.waitForSelector("dialog .change");
  await page.fill("#typed", "network");
  await page.press("#typed", "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(version(3));
  const { json } = await server.call("GET", "/v1/terraform/network", null, "locker");
  assert.deepEqual([json.serial, json.outputs.ip.value], [3, "10.0.0.0/16"]);
});

const NAME = '<img src=x onerror="alert(1)">\'&amp;{{7*7}}'; // a stack's name has no '/'
page_test("hostile names and values are shown as plain text", {}, async (server, show) => {
  const document = { resources: { [HOSTILE]: { [HOSTILE]: HOSTILE } }, outputs: { __proto__x: HOSTILE, constructor: "javascript:alert(3)" }, [HOSTILE]: 1 };
  await server.deploy(NAME, NAME, { resources: {}, outputs: {} });
  const answer = await server.deploy(NAME, NAME, document, { git_commit: HOSTILE, git_branch: HOSTILE, triggered_by: HOSTILE, version: HOSTILE, deployment_id: HOSTILE });
  assert.equal(answer.status, 200, answer.text);
  await server.terraform(NAME, TF(1, HOSTILE, "x"));
  const page = await show({ hash: "#/state" });
  await page.waitForSelector(`.stacks .key >> text=${NAME} / ${NAME}`);
  await until(page, (text) => document.querySelector(".stacks .commit")?.textContent.includes(text), HOSTILE);
  await page.click(".stacks .key");
  await page.waitForSelector(".main .change");
  assert.equal(await page.textContent("h1"), `${NAME} / ${NAME}`);
  assert.ok((await page.$$eval(".main .change .name", (all) => all.map((one) => one.textContent))).includes(HOSTILE));
  assert.ok((await page.textContent(".main")).includes(JSON.stringify(HOSTILE)));
  await page.goto(`${server.url}/#/terraform/${encodeURIComponent(NAME)}`);
  await page.waitForSelector(".main .change");
  for (const hash of ["#/state/%/%", "#/state/%ff/x", "#/terraform/%3Cscript%3E", "#/state/a/b/c/d"]) {
    await page.goto(`${server.url}/${hash}`);
    await page.waitForSelector(".empty");
  }
  assert.equal(await page.$$eval("img:not([src='ui/icon.svg']), #app script", (all) => all.length), 0);
});

page_test("every action on states works with the keyboard alone", {}, async (server, show) => {
  await shop(server);
  await server.deploy("billing", "prod", ONE);
  const page = await show();
  await press(page, "g", "s");
  await page.waitForSelector(row("shop/prod"));
  await press(page, "j", "j");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "shop / prod");
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  await press(page, "Enter");
  await page.waitForSelector(version(3));
  await press(page, "v");
  await page.waitForSelector(".sound");
  await press(page, "j", "j", "j", "Enter");
  await page.waitForSelector(`${version(3)}.to`);
  assert.ok(await page.$eval(`${version(3)} button`, (one) => one === document.activeElement), "the focus stays on the version");
  await page.waitForSelector("text=Restore this version…");
  await press(page, "r");
  await page.waitForSelector("dialog .change");
  await page.keyboard.type("shop/prod");
  await press(page, "Enter");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForSelector(version(4));
  await press(page, "Escape");
  await page.waitForSelector(row("shop/prod"));
  await press(page, "/");
  await page.keyboard.type("bill");
  await until(page, () => document.querySelectorAll(".stacks [data-key]").length === 1);
  await press(page, "Enter", "Enter");
  await page.waitForSelector("h1 >> text=billing / prod");
});

page_test("large versions are compared on request only", {}, async (server, show) => {
  await server.deploy("shop", "prod", { resources: { blob: "x".repeat(5e6) }, outputs: {} });
  await server.deploy("shop", "prod", { resources: { blob: "y".repeat(5e6) }, outputs: {} });
  const page = await show({ hash: "#/state/shop/prod" });
  await page.click("text=Compare them");
  await page.waitForSelector(`${change("blob")}`);
});

page_test("an empty list shows the commands to start with, an unreadable one the reason", {}, async (server, show) => {
  const page = await show({ hash: "#/state" });
  await page.waitForSelector("text=belay deploy --stack shop --environment prod");
  assert.ok((await page.textContent(".empty")).includes(`${server.url}/v1/terraform/network`));
  assert.deepEqual(await faults(page), []);
  await page.goto(`${server.url}/#/state/shop/never`);
  await page.waitForSelector("text=belay deploy --stack shop --environment never");
  const fail = (status, code, message) => page.route("**/v1/state", (route) => route.fulfill({ status, contentType: "application/json", body: JSON.stringify({ error: { code, message, lock: null } }) }));
  // The answer of a server on DynamoDB without --state-store.
  await fail(503, "bad_config", "where is deployment state kept? Name it with --state-store");
  await page.goto(`${server.url}/#/state`);
  await page.waitForSelector("text=This server has no state store");
  await page.waitForSelector("text=belay serve --state-store");
  assert.deepEqual(await faults(page), []);
  await page.unroute("**/v1/state");
  await fail(503, "unreachable", "the bucket does not answer");
  await page.goto(`${server.url}/#/locks`);
  await page.goto(`${server.url}/#/state`);
  await page.waitForSelector("text=the bucket does not answer");
});

for (const colorScheme of ["light", "dark"]) {
  page_test(`axe finds no serious fault on the pages of states (${colorScheme})`, {}, async (server, show) => {
    await shop(server);
    await server.deploy("shop", "dev", ONE, { keep: true });
    await server.terraform("network", TF(1, "10.0.0.0/16", "x"));
    const page = await show({ colorScheme, hash: "#/state" });
    await page.waitForSelector(`${row("shop/dev")} >> text=in use`);
    await page.waitForSelector(`${row("shop/prod")} >> text=failed`);
    assert.equal((await page.evaluate(() => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]))) < 100, colorScheme === "dark");
    assert.deepEqual(await faults(page), [], "the list");
    await page.goto(`${server.url}/#/state/shop/prod`);
    await page.click("text=Verify");
    await page.waitForSelector(".sound");
    await page.click(`${version(2)} button`);
    await page.waitForSelector(change("web"));
    assert.deepEqual(await faults(page), [], "one state");
    await page.click("text=Restore this version…");
    await page.waitForSelector("dialog .diff");
    assert.deepEqual(await faults(page), [], "restore");
    await page.keyboard.press("Escape");
    await page.goto(`${server.url}/#/terraform/network`);
    await page.waitForSelector(".main .change");
    assert.deepEqual(await faults(page), [], "Terraform");
  });
}

page_test("at the width of a phone the states are not cut off and axe finds no fault", {}, async (server, show) => {
  const long = "a-very-long-name-of-a-stack-that-somebody-thought-was-good";
  await server.deploy(long, "production-eu-central-1", ONE);
  await server.deploy(long, "production-eu-central-1", { resources: { ["n".repeat(80)]: { ["p".repeat(60)]: "v".repeat(200) }, ...TWO.resources }, outputs: {} }, { git_commit: COMMITS[0], git_branch: "feature/with-a-long-name-too-and-more" });
  const page = await show({ viewport: { width: 360, height: 700 }, hasTouch: true, hash: "#/state" });
  await page.waitForSelector(".stacks .badge.ok");
  assert.ok((await overflow(page)) <= 0);
  assert.deepEqual(await faults(page), []);
  await page.tap(".stacks .key");
  await page.waitForSelector(".main .change");
  assert.ok((await overflow(page)) <= 0);
  assert.ok(await page.evaluate(() => document.querySelector(".scroller").scrollWidth <= innerWidth), "nothing sticks out");
  assert.ok(await page.evaluate(() => document.documentElement.scrollHeight <= innerHeight), "the page scrolls below the navigation");
  assert.deepEqual(await faults(page), []);
  await page.tap(`${version(2)} button`);
  await page.tap("text=Restore this version…");
  await page.waitForSelector("dialog .change");
  assert.ok(await page.$eval("dialog", (one) => one.getBoundingClientRect().right <= innerWidth && one.scrollWidth <= one.clientWidth + 1));
});
