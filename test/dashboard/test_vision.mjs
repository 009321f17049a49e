// What colours say must be seen without them: in lightness, in a pattern, or in a shape. As people with three kinds of
// colour blindness see the page.

import assert from "node:assert/strict";
import { page_test } from "./kit.mjs";
import { addPast, past } from "./past.mjs";

const MINUTE = 60000;
const DEFICIENCIES = ["deuteranopia", "protanopia", "tritanopia"];
const KINDS = { holding: ".legend .swatch.hold", waiting: ".legend .swatch.wait", forced: ".legend .mark.by-force", lost: ".legend .mark.by-loss", ground: ".lanehead .axis" };

/** The lightness (L*) of a picture without a margin: its mean, and how far its pixels are from that. */
async function lightness(reader, png, margin = 0) {
  return reader.evaluate(async ([base64, margin]) => {
    const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const edge = Math.round(Math.min(bitmap.width, bitmap.height) * margin);
    const { data } = context.getImageData(edge, edge, bitmap.width - 2 * edge, bitmap.height - 2 * edge);
    const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const all = [];
    for (let i = 0; i < data.length; i += 4) {
      const y = 0.2126 * linear(data[i]) + 0.7152 * linear(data[i + 1]) + 0.0722 * linear(data[i + 2]);
      all.push(y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y);
    }
    const mean = all.reduce((sum, one) => sum + one, 0) / all.length;
    return { mean, spread: Math.sqrt(all.reduce((sum, one) => sum + (one - mean) ** 2, 0) / all.length) };
  }, [png.toString("base64"), margin]);
}

page_test("holding, waiting, forced and lost differ without colours, and so does what needs attention", {}, async (server, show) => {
  const now = Date.now();
  await server.release(await server.acquire("first"));
  await server.stop();
  addPast(server, [...past("deploy", "Ada", now - 50 * MINUTE, now - 40 * MINUTE), ...past("deploy", "Grace", now - 40 * MINUTE, now - 20 * MINUTE, { waited: 5 * MINUTE, end: "lock.forced", by: "ops", reason: "x" }),
    ...past("build", "Joan", now - 30 * MINUTE, now - 10 * MINUTE, { end: "lock.taken_over", by: "Ada" })]);
  await server.start();
  await server.acquire("long", { ttl_ms: 600000 });
  server.waiter("long", "patient");
  await server.acquire("quiet", { heartbeat_ms: 100, stale_after_ms: 300 });
  await server.acquire("gone", { ttl_ms: 300 });
  for (const colorScheme of ["light", "dark"]) {
    const page = await show({ hash: "#/activity?tab=timeline&hours=1", colorScheme });
    const reader = await page.context().newPage(); // the page's own policy allows no pictures from elsewhere
    const cdp = await page.context().newCDPSession(page);
    await page.waitForSelector(".track .mark");
    for (const type of DEFICIENCIES) {
      await cdp.send("Emulation.setEmulatedVisionDeficiency", { type });
      const seen = {};
      for (const [name, where] of Object.entries(KINDS)) {
        seen[name] = await lightness(reader, await page.locator(where).first().screenshot({ path: process.env.SHOTS ? `${process.env.SHOTS}/${type}-${colorScheme}-${name}.png` : undefined }), 0.2); // without round corners
      }
      process.env.SHOTS && console.log(type, colorScheme, JSON.stringify(seen));
      const names = Object.keys(KINDS).filter((name) => name !== "ground");
      const pairs = names.flatMap((a, i) => [...names.slice(i + 1), "ground"].map((b) => [a, b]));
      for (const [a, b] of pairs) {
        const apart = Math.abs(seen[a].mean - seen[b].mean), pattern = Math.abs(seen[a].spread - seen[b].spread);
        assert.ok(apart >= 12 || pattern >= 8, `${type}, ${colorScheme}: ${a} and ${b} differ by ${apart.toFixed(1)} in lightness and ${pattern.toFixed(1)} in pattern`);
      }
    }
    await page.goto(`${server.url}/#/locks`);
    await page.waitForSelector(".need.bad");
    await page.waitForSelector(".need.warn");
    await page.waitForSelector(".need.wait");
    const shapes = await page.$$eval(".need", (all) => all.map((one) => one.querySelector("path").getAttribute("d")));
    assert.equal(new Set(shapes).size, shapes.length, "each entry has its own sign");
    if (process.env.SHOTS) {
      for (const type of DEFICIENCIES) {
        await cdp.send("Emulation.setEmulatedVisionDeficiency", { type });
        await page.goto(`${server.url}/#/locks`);
        await page.waitForSelector(".need.bad");
        await page.screenshot({ path: `${process.env.SHOTS}/attention-${type}-${colorScheme}.png` });
        await page.goto(`${server.url}/#/activity?tab=timeline&hours=1`);
        await page.waitForSelector(".track .mark");
        await page.screenshot({ path: `${process.env.SHOTS}/timeline-${type}-${colorScheme}.png` });
      }
    }
  }
});
