// Opens every kind of page in headless Chromium, at 1280 and 390 pixels, light and dark, with and without scripts.
//
//     node browser.mjs TSDIAG WORK [SCREENSHOTS]
//
// Exit code 77 (skipped) where Chromium is missing.  Contrast and names are checked by axe-core from npm,
// where npm can install it.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const [program, work, shots] = process.argv.slice(2).map((p) => resolve(p));
const browser = ["chromium", "chromium-browser", "google-chrome"]
  .find((name) => spawnSync("which", [name]).status === 0);
if (!browser) {
  console.log("skipped: chromium is not installed");
  process.exit(77);
}
rmSync(join(work, "profile"), { recursive: true, force: true });
mkdirSync(work, { recursive: true });
if (shots) mkdirSync(shots, { recursive: true });

// --- the pages
const failures = [];
const expect = (holds, text) => { if (!holds) failures.push(text), console.log("FAILED: " + text); };
function run(...words) {
  const said = spawnSync(program, words, { cwd: work, encoding: "utf8" });
  if (said.status !== 0) throw new Error(`tsdiag ${words.join(" ")}: ${said.stderr}`);
}
const model = "random:post-norm,d=32,heads=4,layers=4";
const pages = {
  probe: () => run("probe", model, "--tokens", "24", "--samples", "3", "--maps", "all", "--loss", "square", "--force", "--out", "probe"),
  training: () => run("train", "random:gpt2,layers=2,d=32,heads=2", "--data", "copy", "--tokens", "17", "--steps", "20",
    "--probe-every", "10", "--force", "--out", "training", "-q"),
  series: () => run("probe", "training", "--samples", "3", "--force", "--out", "series"),
  watch: () => run("watch", "training", "--once", "--settle", "0", "--samples", "2", "--force", "--out", "watch", "-q"),
  check: () => run("check", "devil.eq59", "--force", "--out", "check"),
  statements: () => run("check", "tse", "--trials", "4", "--force", "--out", "statements"),
  figure: () => run("figure", "tse.fig2", "--force", "--out", "figure"),
  gradients: () => {
    for (const [log, swing] of [["vanilla", 0.8], ["norm", 0.2]])
      writeFileSync(join(work, log + ".csv"), "step,grad_norm\n" +
        Array.from({ length: 200 }, (_, i) => `${i},${1 + swing * Math.sin(i * i)}\n`).join(""));
    run("gradients", "vanilla.csv", "norm.csv", "--force", "--out", "gradients");
  },
  compare: () => {
    run("probe", model + ",deesc=0.5", "--tokens", "24", "--samples", "3", "--no-report", "--force", "--out", "other");
    run("compare", "probe", "other", "--force", "--out", "compare");
  },
};

// --- Chromium over its pipe: messages end with a zero byte
class Chromium {
  constructor() {
    this.child = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
      "--user-data-dir=" + join(work, "profile"), "--remote-debugging-pipe"],
    { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.waiting = new Map();
    this.heard = [];
    this.count = 0;
    let rest = "";
    this.child.stdio[4].on("data", (bytes) => {
      const parts = (rest + bytes.toString("utf8")).split("\0");
      rest = parts.pop();
      for (const message of parts.map((p) => JSON.parse(p))) {
        if (!message.id) this.heard.push(message);
        else if (message.error) this.waiting.get(message.id)[1](new Error(message.error.message));
        else this.waiting.get(message.id)[0](message.result);
      }
    });
  }
  ask(method, params = {}) {
    const id = ++this.count;
    return new Promise((done, failed) => {
      this.waiting.set(id, [done, failed]);
      this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId: this.session }) + "\0");
    });
  }
  async start() {
    const { targetId } = await this.ask("Target.createTarget", { url: "about:blank" });
    this.session = (await this.ask("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log"]) await this.ask(domain + ".enable");
  }
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }
  async open(file, { width = 1280, dark = false, scripts = true }) {
    await this.ask("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
    await this.ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    await this.ask("Emulation.setScriptExecutionDisabled", { value: !scripts });
    this.heard = [];
    await this.ask("Page.navigate", { url: "file://" + file });
    for (let i = 0; i < 200 && !this.heard.some((m) => m.method === "Page.loadEventFired"); ++i)
      await new Promise((done) => setTimeout(done, 50));
  }
  complaints() {
    return this.heard.filter((m) => m.method === "Runtime.exceptionThrown" || m.method === "Log.entryAdded" ||
      (m.method === "Runtime.consoleAPICalled" && m.params.type === "error")).map((m) => JSON.stringify(m.params).slice(0, 300));
  }
  async shot(name) {
    if (!shots) return;
    const { data } = await this.ask("Page.captureScreenshot", { captureBeyondViewport: true });
    writeFileSync(join(shots, name + ".png"), Buffer.from(data, "base64"));
  }
  async key(key) {
    const codes = { Enter: 13, ArrowRight: 39, ArrowDown: 40, Escape: 27 };
    for (const type of ["keyDown", "keyUp"])
      await this.ask("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode: codes[key], ...(key === "Enter" && type === "keyDown" ? { text: "\r" } : {}) });
  }
  async click(x, y) {
    for (const type of ["mouseMoved", "mousePressed", "mouseReleased"])
      await this.ask("Input.dispatchMouseEvent", { type, x, y, button: type === "mouseMoved" ? "none" : "left", clickCount: 1 });
  }
}

function axe() {
  const at = join(work, "node_modules/axe-core/axe.min.js");
  if (!existsSync(at)) spawnSync("npm", ["install", "--prefix", work, "--no-audit", "--no-fund", "axe-core@4"], { timeout: 60000 });
  return existsSync(at) ? readFileSync(at, "utf8") : null;
}

// Opens all folds and waits until what was in them is laid out.
const open_folds = `document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))`;

// What stands open when a page is opened: the headline with a figure on the first screen, four screens and 600 words in
// all.  Words are those a reader reads: not the labels of figures, nor their text alternatives.
async function check_length(chromium, name, file) {
  await chromium.open(file, {});
  const found = await chromium.evaluate(`(() => {
    const words = (of) => (of.textContent.match(/\\S+/g) || []).length;
    const seen = [...document.querySelectorAll("header, main p, main li, main h2, main h3, main dd, main th, main td, main summary, figcaption, footer")]
      .filter((e) => !e.closest(".alt, svg") && e.checkVisibility({ contentVisibilityAuto: true, checkVisibilityCSS: true }))
      .filter((e) => !e.parentElement.closest("p, li, h3, dd, th, td, summary, figcaption"));
    return { height: document.documentElement.scrollHeight, figure: document.querySelector("figure:not(details *) .drawing")?.getBoundingClientRect().bottom,
      words: seen.reduce((sum, e) => sum + words(e), 0) };
  })()`);
  console.log(`${name}: ${found.height} px, ${found.words} words open, the first figure ends at ${found.figure?.toFixed(0) ?? "no"} px`);
  expect(found.height <= 4000, `${name}: ${found.height} px stand open`);
  expect(found.words > 20 && found.words <= 600, `${name}: ${found.words} words stand open`);
  if (name === "statements") expect(!found.figure, `${name}: a figure stands open`);
  else expect(found.figure <= (name === "compare" ? 1300 : 900), `${name}: its first figure ends at ${found.figure} px`);
}

// A link opens the fold around its figure; in print all folds are open.
async function check_folds(chromium, file) {
  await chromium.open(file, {});
  const shown = `document.querySelector("#mixing .drawing").checkVisibility({ contentVisibilityAuto: true })`;
  expect(!(await chromium.evaluate(shown)), "a figure is folded");
  await chromium.evaluate(`location.hash = "#mixing"; new Promise((done) => setTimeout(done, 200))`);
  expect(await chromium.evaluate(shown), "a link opens the fold of its figure");
  await chromium.open(file + "#%E0%A4%A", {});  // no text in UTF-8
  expect(await chromium.evaluate("Number(document.documentElement.dataset.ready)") > 0, "an odd fragment stops the scripts");
  for (const scripts of [true, false]) {
    await chromium.open(file, { scripts });
    const { data } = await chromium.ask("Page.printToPDF", { printBackground: false });
    const pages = (Buffer.from(data, "base64").toString("latin1").match(/\/Type ?\/Page\b/g) || []).length;
    expect(pages >= 8, `printed ${scripts ? "with" : "without"} scripts: ${pages} pages`);
    await chromium.ask("Emulation.setScriptExecutionDisabled", { value: false });
  }
  await chromium.open(file, {});
  expect(await chromium.evaluate(`document.querySelectorAll("details[open]").length`) === 0, "folds are closed again");
}

// What every view of a page must be like, with all folds open.
async function check_view(chromium, name, view, rules) {
  const where = `${name} at ${view.width} px, ${view.dark ? "dark" : "light"}`;
  await chromium.evaluate(open_folds);
  const found = await chromium.evaluate(`(() => ({
    ready: Number(document.documentElement.dataset.ready),
    figures: document.querySelectorAll("figure").length,
    wide: document.documentElement.scrollWidth,
    small: [...document.querySelectorAll("svg text, td, th, .key")].filter((t) => parseFloat(getComputedStyle(t).fontSize) < 11).length,
    outside: [...document.querySelectorAll(".plot text")].filter((t) => {
      const b = t.getBoundingClientRect();
      return b.width > 0 && (b.left < -1 || b.right > innerWidth + 1);
    }).map((t) => t.textContent),
    cut: [...document.querySelectorAll("caption span")].filter((s) =>
      s.getBoundingClientRect().right > s.closest(".scroll").getBoundingClientRect().right + 1).length,
  }))()`);
  expect(found.figures > 0 && found.ready === found.figures, `${where}: scripts saw ${found.ready} of ${found.figures} figures`);
  expect(found.wide <= view.width, `${where}: is ${found.wide} px wide`);
  expect(found.small === 0, `${where}: ${found.small} labels are smaller than 11 px`);
  expect(found.outside.length === 0, `${where}: labels beyond the page: ${found.outside.slice(0, 5)}`);
  expect(found.cut === 0, `${where}: ${found.cut} captions of tables are cut off`);
  for (const line of chromium.complaints()) expect(false, `${where}: the console says ${line}`);
  if (!rules) return;
  await chromium.evaluate(rules + ";0");
  const broken = await chromium.evaluate(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa"] })
    .then((r) => r.violations.map((v) => v.id + ": " + v.nodes.slice(0, 2).map((n) => n.html.slice(0, 120)).join(" | ")))`);
  for (const line of broken) expect(false, `${where}: axe: ${line}`);
}

async function check_without_scripts(chromium, name, file) {
  await chromium.open(file, { scripts: false });
  await chromium.shot(`${name}-plain`);
  const { data } = await chromium.ask("Page.printToPDF", { printBackground: false });
  if (shots) writeFileSync(join(shots, name + ".pdf"), Buffer.from(data, "base64"));
  await chromium.ask("Emulation.setScriptExecutionDisabled", { value: false });
  const marks = await chromium.evaluate(`[...document.querySelectorAll("figure")].map((f) => [f.id,
    [...f.querySelectorAll(".panel")].every((p) => p.querySelector(".data path, image, circle") && p.querySelector(".axis text"))])`);
  expect(marks.length > 0 && await chromium.evaluate("!document.documentElement.dataset.ready"), `${name}: without scripts`);
  for (const [figure, whole] of marks) expect(whole, `${name}: ${figure} is empty without scripts`);
}

// The look at a cell: by mouse, by keyboard.
async function check_look(chromium, file) {
  await chromium.open(file, {});
  await chromium.evaluate(open_folds);
  const [x, y] = await chromium.evaluate(`(() => {
    const hit = document.querySelector("#heads_mixing .cells .hit");
    hit.scrollIntoView({ block: "center", behavior: "instant" });
    const b = hit.getBoundingClientRect();
    return [b.left + 0.625 * b.width, b.top + 0.375 * b.height];  // layer 1, head 2 of 4 by 4
  })()`);
  await chromium.click(x, y);
  const title = `document.querySelector("#heads_mixing .look h4")?.textContent`;
  expect(await chromium.evaluate(title) === "layer 1, head 2", "a click opens the head: " + await chromium.evaluate(title));
  const held = await chromium.evaluate(`(() => {
    const look = document.querySelector("#heads_mixing .look");
    return { rows: look.querySelectorAll("tbody tr").length, intervals: (look.textContent.match(/ to /g) || []).length,
      curves: look.querySelectorAll(".profile").length, map: look.querySelectorAll(".map").length };
  })()`);
  expect(held.rows >= 8 && held.intervals >= 8 && held.curves >= 2 && held.map === 1, "the look has numbers, curves, map: " + JSON.stringify(held));
  await chromium.shot("look");
  await chromium.evaluate(`document.querySelector('#heads_mixing .look [data-go="1,0"]').click()`);
  expect(await chromium.evaluate(title) === "layer 2, head 2", "neighbours can be reached");
  await chromium.key("Escape");
  expect(await chromium.evaluate(`document.querySelector("#heads_mixing .look") === null`), "Escape closes the look");
  await chromium.evaluate(`document.querySelector("#heads_norms .cells .hit").focus()`);
  for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "Enter"]) await chromium.key(key);
  expect(await chromium.evaluate(`document.querySelector("#heads_norms .look h4")?.textContent`) === "layer 2, head 1", "keys open the head");
}

// Hovering near a line, legends, zoom, sorted tables, downloads.
async function check_reading(chromium, file) {
  await chromium.open(file, {});
  await chromium.evaluate(open_folds);
  const [x, y, width] = await chromium.evaluate(`(() => {
    const hit = document.querySelector("#similarity .lines .hit");
    hit.scrollIntoView({ block: "center", behavior: "instant" });
    const b = hit.getBoundingClientRect();
    return [b.left, b.top + 0.3 * b.height, b.width];
  })()`);
  await chromium.ask("Input.dispatchMouseEvent", { type: "mouseMoved", x: x + 0.5 * width, y });
  expect(/layer: [0-9]/.test(await chromium.evaluate(`document.querySelector(".tip:not([hidden])")?.textContent`)), "hovering tells the nearest point");
  const view = `document.querySelector("#similarity .data").getAttribute("viewBox")`;
  for (const [type, at] of [["mousePressed", 0.2], ["mouseMoved", 0.6], ["mouseReleased", 0.6]])
    await chromium.ask("Input.dispatchMouseEvent", { type, x: x + at * width, y, button: "left", buttons: 1, clickCount: 1 });
  expect(await chromium.evaluate(view) !== "0 0 1000 1000", "dragging zooms");
  await chromium.evaluate(`[...document.querySelectorAll("#similarity button")].find((b) => b.textContent === "Whole axis" && !b.hidden).click()`);
  expect(await chromium.evaluate(view) === "0 0 1000 1000", "the whole axis comes back");
  const off = await chromium.evaluate(`(() => {
    const key = document.querySelector("figure .legend .key button"), figure = key.closest("figure");
    key.click();
    return [key.getAttribute("aria-pressed"), figure.querySelectorAll(".data .off").length];
  })()`);
  expect(off[0] === "false" && off[1] > 0, "a legend hides its line");
  const order = await chromium.evaluate(`(() => {
    const table = document.querySelector("details:has(#numbers) table"), first = () => table.tBodies[0].rows[0].cells[0].textContent;
    const button = table.querySelector("thead button"), before = first();
    button.click(); button.click();
    return [before, first(), table.querySelector("[aria-sort]").getAttribute("aria-sort")];
  })()`);
  expect(order[0] === "0" && order[1] === "3" && order[2] === "descending", "tables are sorted: " + order);
  // Numbers with errors, filled up with figure spaces to stand below each other.
  const values = await chromium.evaluate(`(() => {
    const table = document.querySelector("details:has(#numbers) table"), cells = [...table.tBodies[0].rows].map((row) => row.cells[1]);
    ["0.5\u2007 \u00b1 0.1", "\u2013", "(1.234\u2007\u2007 \u00b1 0.012)e-08\u2007", "1 - 3e-15 \u00b1 1e-17"].forEach((text, i) => { cells[i].textContent = text; });
    table.querySelectorAll("thead button")[1].click();
    return [...table.tBodies[0].rows].map((row) => row.cells[1].textContent.slice(0, 4));
  })()`);
  expect(values.join() === "(1.2,0.5\u2007,1 - ,\u2013", "numbers with errors are sorted by value: " + values);
  const saved = await chromium.evaluate(`new Promise((done) => {
    const found = [], click = HTMLAnchorElement.prototype.click;
    HTMLAnchorElement.prototype.click = async function () {
      found.push([this.download, (await (await new Response(await fetchBlob(this.href))).blob()).size]);
      if (found.length === 2) { HTMLAnchorElement.prototype.click = click; done(found); }
    };
    const make = URL.createObjectURL, blobs = new Map();
    URL.createObjectURL = (blob) => { const url = make.call(URL, blob); blobs.set(url, blob); return url; };
    const fetchBlob = async (url) => blobs.get(url);
    const tools = document.querySelectorAll("#similarity .tools button");
    tools[1].click(); tools[0].click();
    setTimeout(() => done(found), 8000);
  })`);
  expect(saved.length === 2 && saved.some(([n, size]) => n === "similarity.csv" && size > 200) &&
    saved.some(([n, size]) => n === "similarity.png" && size > 5000), "PNG and CSV: " + JSON.stringify(saved));
}

// Figures for paper, through the program; gnuplot may be missing.
function check_paper() {
  if (spawnSync("which", ["gnuplot"]).status !== 0) return console.log("paper: skipped, gnuplot is not installed");
  writeFileSync(join(work, "style.toml"), 'width = "9cm"\nfont-size = 9\ncolours = ["#123456"]\ntikz = true\n');
  const figure = (ending) => readFileSync(join(work, "probe/figures/similarity." + ending), "utf8");
  run("report", "probe", "--style", "style.toml", "--figure-width", "3.25in");
  expect(figure("svg").includes('width="312"'), "3.25 inches are 312 pixels");
  expect(figure("svg").includes('stroke="#123456"') || figure("svg").includes("rgb( 18,  52,  86)"), "the style's colour is drawn");
  expect(figure("tex").includes("\\fontsize{9}{10.8}"), "TikZ has text of 9 pt");
  expect(readFileSync(join(work, "probe/report.html"), "utf8").includes("figures/similarity.tex"), "the page links TikZ");
  for (const words of [["--figure-width", "3"], ["--figure-width", "1in"], ["--style", "no.toml"], ["--style", "wrong.toml"]]) {
    writeFileSync(join(work, "wrong.toml"), "colors = 3\n");
    const said = spawnSync(program, ["report", "probe", ...words], { cwd: work, encoding: "utf8" });
    expect(said.status === 1 || said.status === 2, `${words.join(" ")} is refused: ${said.status}`);
  }
}

const chromium = new Chromium();
await chromium.start();
const rules = axe();
console.log(rules ? "axe-core checks contrast and names" : "axe-core: skipped, npm did not install it");
for (const [name, make] of Object.entries(pages)) {
  make();
  const file = join(work, name === "figure" ? "figure/tse.fig2/report.html" : name + "/report.html");
  console.log(`${name}: ${(readFileSync(file).length / 1000).toFixed(0)} kB`);
  await check_length(chromium, name, file);
  for (const width of [1280, 390])
    for (const dark of [false, true]) {
      await chromium.open(file, { width, dark });
      await chromium.shot(`${name}-${width}-${dark ? "dark" : "light"}`);
      await check_view(chromium, name, { width, dark }, rules);
    }
  await check_without_scripts(chromium, name, file);
}
await check_folds(chromium, join(work, "probe/report.html"));
await check_look(chromium, join(work, "probe/report.html"));
await check_reading(chromium, join(work, "probe/report.html"));
check_paper();
chromium.child.kill();
console.log(failures.length ? `${failures.length} failures` : "all hold");
process.exit(failures.length ? 1 : 0);
