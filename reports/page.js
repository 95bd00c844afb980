"use strict";
// What scripts add to a page that is whole without them: hovering, legends, zoom, the look at a
// cell, sorted tables, downloads.
(function () {
  const data = JSON.parse(document.getElementById("figures-data").textContent);
  const svgSpace = "http://www.w3.org/2000/svg";

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  function shape(name, attributes) {
    const made = document.createElementNS(svgSpace, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  function button(text, act) {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", act);
    return made;
  }
  // Four digits, or as many as tell a number from -1, 0 and 1.
  function digits(v) {
    if (v === null || v === undefined) return "undefined";
    for (let n = 4; n < 7; ++n) {
      const text = String(Number(v.toPrecision(n)));
      if (Number.isInteger(v) || !["-1", "0", "1"].includes(text)) return text;
    }
    return String(v);
  }
  const clamp = (v, low, high) => Math.min(high, Math.max(low, v));

  // --- tooltip, and what screen readers are told
  const tip = element("div", { class: "tip", hidden: "" });
  const told = element("p", { class: "alt", role: "status" });
  document.body.append(tip, told);
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = clamp(x + 14, 4, innerWidth - box.width - 4) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
  }
  const hideTip = () => { tip.hidden = true; };

  // --- axes: a share of the width or height for a value, and back
  class Span {
    constructor(axis) {
      this.axis = axis;
      this.reset();
    }
    reset() { this.zoom(0, 1); }
    // Shows the part [from, to] of the whole axis.
    zoom(from, to) { this.from = from; this.to = to; }
    whole(v) {
      const { low, high, log } = this.axis;
      return log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);
    }
    value(share) {
      const { low, high, log } = this.axis;
      return log ? low * Math.pow(high / low, share) : low + share * (high - low);
    }
    share(v) { return (this.whole(v) - this.from) / (this.to - this.from); }
    ticks(about) {
      const low = this.value(this.from), high = this.value(this.to), found = [];
      if (this.axis.log && high > 20 * low) {
        for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); ++k)
          for (const f of high > 1e4 * low ? [1] : [1, 3]) found.push(Number(f + "e" + k));
      } else {
        const raw = (high - low) / about, decade = Math.pow(10, Math.floor(Math.log10(raw)));
        let step = [1, 2, 2.5, 5, 10].find((f) => f * decade >= raw * 0.999) * decade;
        if (this.axis.whole) step = Math.max(1, Math.round(step));
        for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
          found.push(Number((k * step).toPrecision(10)));
      }
      return found.filter((v) => v >= low && v <= high);
    }
  }

  // The layer over a panel that takes the pointer and the keys.
  function overlay(panel, label) {
    const box = panel.querySelector(".box"), plot = box.querySelector(".plot");
    const hit = element("div", { class: "hit", tabindex: "0", role: "application", "aria-label": label });
    const place = () => {
      const inner = plot.getBoundingClientRect(), outer = panel.getBoundingClientRect();
      for (const [side, v] of [["left", inner.left - outer.left], ["top", inner.top - outer.top],
        ["width", inner.width], ["height", inner.height]]) hit.style[side] = v + "px";
    };
    panel.append(hit);
    new ResizeObserver(place).observe(panel);
    place();
    return { hit, plot };
  }
  const shareAt = (event, hit) => {
    const box = hit.getBoundingClientRect();
    return [clamp((event.clientX - box.left) / box.width, 0, 1),
      clamp((event.clientY - box.top) / box.height, 0, 1)];
  };

  // --- panels of lines
  function lines(panel, of, figure) {
    const { hit, plot } = overlay(panel, of.title + ". Arrow keys: points; plus, minus, 0: zoom.");
    const x = new Span(of.x), y = new Span(of.y);
    const inside = plot.querySelector(".data"), zoomable = !plot.querySelector(".bubble");
    const cross = shape("line", { class: "cross", y2: "100%", visibility: "hidden" });
    const dot = shape("circle", { r: 4.5, visibility: "hidden" });
    const selection = shape("rect", { class: "selection", height: "100%", visibility: "hidden" });
    plot.append(cross, dot, selection);
    const shown = (s) => !figure.off.has(s.s);
    const points = [];
    for (const s of of.series)
      s.x.forEach((at, i) => {
        const low = s.low ? s.low[i] : null;
        if (s.y[i] !== null && (!of.y.log || s.y[i] > 0))
          points.push({ s, i, x: at, y: s.y[i], low, high: low === null ? null : s.high[i] });
      });
    const told_ = (p) => p.s.name + "\n" + (of.x.title || "x") + ": " + digits(p.x) + "\n" +
      (of.y.title || "y") + ": " + digits(p.y) +
      (p.low !== null && p.low !== undefined ? "\n" + digits(p.low) + " to " + digits(p.high) : "") +
      (p.s.areas ? "\n" + (of.area || "area") + ": " + digits(p.s.areas[p.i]) : "");
    const isIn = (v) => v >= -0.001 && v <= 1.001;
    const visible = () => points.filter((p) => shown(p.s) && isIn(x.share(p.x)) && isIn(y.share(p.y)));
    let current = null;
    function point(p, clientX, clientY) {
      current = p;
      cross.setAttribute("visibility", p ? "visible" : "hidden");
      dot.setAttribute("visibility", p ? "visible" : "hidden");
      if (!p) return hideTip();
      const at = 100 * x.share(p.x), box = hit.getBoundingClientRect();
      cross.setAttribute("x1", at + "%");
      cross.setAttribute("x2", at + "%");
      dot.setAttribute("cx", at + "%");
      dot.setAttribute("cy", 100 * (1 - y.share(p.y)) + "%");
      dot.setAttribute("class", "near " + figure.classes[p.s.s]);
      showTip(told_(p), clientX ?? box.left + (at / 100) * box.width,
        clientY ?? box.top + (1 - y.share(p.y)) * box.height);
    }
    function nearest(event) {
      const [u, v] = shareAt(event, hit), box = hit.getBoundingClientRect();
      let best = null, least = Infinity;
      for (const p of visible()) {
        const away = Math.hypot((x.share(p.x) - u) * box.width, (1 - y.share(p.y) - v) * box.height);
        if (away < least) [best, least] = [p, away];
      }
      return best;
    }
    function redraw() {
      const width = 1000 * (x.to - x.from), height = 1000 * (y.to - y.from);
      inside.setAttribute("viewBox", `${1000 * x.from} ${1000 * (1 - y.to)} ${width} ${height}`);
      for (const [name, span, about] of [["x", x, hit.clientWidth / 64], ["y", y, 5]]) {
        const group = plot.querySelector(".axis." + name);
        group.replaceChildren();
        for (const v of span.ticks(about)) {
          const share = span.share(v), at = 100 * (name === "x" ? share : 1 - share) + "%";
          const text = shape("text", name === "x"
            ? { x: at, y: "100%", dy: 16, "text-anchor": "middle" }
            : { x: -6, y: at, dy: 4, "text-anchor": "end" });
          text.textContent = String(v).replace("e+", "e");
          group.append(shape("line", name === "x" ? { x1: at, x2: at, y2: "100%" }
            : { x2: "100%", y1: at, y2: at }), text);
        }
      }
      for (const mark of plot.querySelectorAll("text.mark"))
        mark.setAttribute("visibility", y.from === 0 && y.to === 1 ? "visible" : "hidden");
      point(null);
      whole.hidden = x.from === 0 && x.to === 1;
    }
    const whole = button("Whole axis", () => { x.reset(); y.reset(); redraw(); hit.focus(); });
    whole.hidden = true;
    panel.querySelector(".panel-title").append(" ", whole);
    // The part [from, to] of what is shown; y follows the lines in it.
    function zoom(from, to) {
      if (!zoomable) return;
      const length = x.to - x.from, a = clamp(x.from + from * length, 0, 1);
      const b = clamp(x.from + to * length, 0, 1);
      if (b - a < 1e-6) return;
      x.zoom(a, b);
      const in_x = points.filter((p) => shown(p.s) && isIn(x.share(p.x)));
      const heights = in_x.flatMap((p) => [p.y, p.low, p.high])
        .filter((v) => typeof v === "number" && (!of.y.log || v > 0)).map((v) => y.whole(v));
      if (a === 0 && b === 1) y.reset();
      else if (heights.length > 1) {
        const low = Math.min(...heights), high = Math.max(...heights), room = 0.06 * (high - low) || 0.05;
        y.zoom(Math.max(0, low - room), Math.min(1, high + room));
      }
      redraw();
    }
    let began = null;
    hit.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || !zoomable) return;
      began = shareAt(event, hit)[0];
      hit.setPointerCapture(event.pointerId);
    });
    hit.addEventListener("pointermove", (event) => {
      if (began === null) return point(nearest(event), event.clientX, event.clientY);
      const to = shareAt(event, hit)[0];
      selection.setAttribute("visibility", "visible");
      selection.setAttribute("x", 100 * Math.min(began, to) + "%");
      selection.setAttribute("width", 100 * Math.abs(to - began) + "%");
    });
    hit.addEventListener("pointerup", (event) => {
      selection.setAttribute("visibility", "hidden");
      if (began === null) return;
      const from = began, to = shareAt(event, hit)[0];
      began = null;
      if (Math.abs(to - from) > 0.02) zoom(Math.min(from, to), Math.max(from, to));
    });
    hit.addEventListener("pointerleave", () => { if (began === null) point(null); });
    hit.addEventListener("blur", () => point(null));
    hit.addEventListener("dblclick", () => { x.reset(); y.reset(); redraw(); });
    hit.addEventListener("keydown", (event) => {
      const zooms = { "+": [0.25, 0.75], "=": [0.25, 0.75], "-": [-0.5, 1.5], 0: [-1e9, 1e9] };
      if (event.key === "Escape") return point(null);
      if (zooms[event.key]) zoom(...zooms[event.key]);
      else {
        const all = visible();
        if (!all.length) return;
        const of_line = all.filter((p) => !current || p.s === current.s);
        const at = of_line.indexOf(current), names = [...new Set(all.map((p) => p.s))];
        const line = names.indexOf(current ? current.s : names[0]);
        const next = {
          ArrowRight: () => of_line[Math.min(at + 1, of_line.length - 1)],
          ArrowLeft: () => of_line[Math.max(at - 1, 0)],
          ArrowDown: () => all.find((p) => p.s === names[(line + 1) % names.length]),
          ArrowUp: () => all.find((p) => p.s === names[(line + names.length - 1) % names.length]),
        }[event.key];
        if (!next) return;
        point(next() || all[0]);
        told.textContent = told_(current).replaceAll("\n", ", ");
      }
      event.preventDefault();
    });
    return redraw;
  }

  // --- panels of cells
  const named = (labels, i, step) => {
    if (labels) return labels[i] === String(i) ? labels[i] : i + ": " + labels[i];
    return step > 1 ? `${i * step} to ${(i + 1) * step - 1}` : String(i);
  };
  const place_of = (grid, i, j) => `${grid.row} ${named(grid.rowLabels, i, grid.step)}, ` +
    `${grid.col} ${named(grid.colLabels, j, grid.step)}`;
  const value_of = (grid, i, j) => (grid.values ? grid.values[i * grid.cols + j] : undefined);

  function cells(panel, of, figure) {
    const grid = of.grid;
    const { hit, plot } = overlay(panel, `${of.title}: ${grid.row} by ${grid.col}. Arrow keys: cells; Enter: its numbers.`);
    const frames = ["frame-of-cell outer", "frame-of-cell"].map((kind) => shape("rect", {
      class: kind, visibility: "hidden", width: 100 / grid.cols + "%", height: 100 / grid.rows + "%" }));
    plot.append(...frames);
    let at = [0, 0];
    const words = () => place_of(grid, ...at) +
      (grid.values ? `\n${grid.value || "value"}: ${digits(value_of(grid, ...at))}` : "");
    function show(i, j) {
      at = [clamp(i, 0, grid.rows - 1), clamp(j, 0, grid.cols - 1)];
      for (const frame of frames) {
        frame.setAttribute("visibility", "visible");
        frame.setAttribute("x", (100 * at[1]) / grid.cols + "%");
        frame.setAttribute("y", (100 * at[0]) / grid.rows + "%");
      }
    }
    const hide = () => {
      hideTip();
      for (const frame of frames) frame.setAttribute("visibility", "hidden");
    };
    const cell_at = (event) => {
      const [u, v] = shareAt(event, hit);
      return [Math.floor(v * grid.rows), Math.floor(u * grid.cols)];
    };
    const open = () => look(figure, grid, ...at, (i, j) => show(i, j));
    hit.addEventListener("pointermove", (event) => {
      show(...cell_at(event));
      showTip(words(), event.clientX, event.clientY);
    });
    hit.addEventListener("pointerleave", hide);
    hit.addEventListener("blur", hide);
    hit.addEventListener("focus", () => { if (hit.matches(":focus-visible")) show(...at); });
    hit.addEventListener("click", (event) => { show(...cell_at(event)); open(); });
    hit.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const move = moves[event.key];
      if (move) {
        show(at[0] + move[0], at[1] + move[1]);
        const box = hit.getBoundingClientRect();
        showTip(words(), box.left + ((at[1] + 1) * box.width) / grid.cols,
          box.top + ((at[0] + 0.5) * box.height) / grid.rows);
        told.textContent = words().replace("\n", ", ");
      } else if (event.key === "Enter" || event.key === " ") open();
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
  }

  // --- the look at a cell: its numbers, its curves, its map, its neighbours
  function profile(title, values, here) {
    const known = values.filter((v) => typeof v === "number");
    if (known.length < 2) return "";
    const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
    const at = (i) => (1000 * (i + 0.5)) / values.length;
    let d = "", pen = false;
    values.forEach((v, i) => {
      if (typeof v === "number") d += `${pen ? "L" : "M"}${at(i)} ${950 - (900 * (v - low)) / span}`;
      pen = typeof v === "number";
    });
    const drawn = shape("svg", { class: "profile", viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" });
    drawn.append(shape("path", { class: "line", d }),
      shape("path", { class: "here", d: `M${at(here)} 0V1000` }));
    return element("div", {}, element("p", {}, `${title}: ${digits(low)} to ${digits(high)}`), drawn);
  }
  function curve(title, points) {
    const drawn = shape("svg", { class: "profile", viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" });
    drawn.append(shape("path", { class: "line", d: points.map(([x, y], i) =>
      `${i ? "L" : "M"}${1000 * x} ${1000 - 1000 * y}`).join("") }));
    return element("div", {}, element("p", {}, title), drawn);
  }
  // The numbers of a head, each with its interval, beside the mean of its layer.
  function numbers(heads, layer, head) {
    const rows = heads.metrics.map((m) => {
      const row = m.cells[layer] || [], own = row[head];
      const known = row.filter(Boolean).map((p) => p[0]);
      const mean = known.length ? known.reduce((a, b) => a + b) / known.length : null;
      return element("tr", {}, element("th", { scope: "row", title: m.title }, m.name),
        element("td", {}, own ? digits(own[0]) : "undefined"),
        element("td", {}, own && own.length === 3 ? `${digits(own[1])} to ${digits(own[2])}` : "\u2013"),
        element("td", {}, mean === null ? "\u2013" : digits(mean)));
    });
    const titles = ["metric", "value", "95 % interval", "mean of the layer"];
    return element("table", {}, element("thead", {}, element("tr", {},
      ...titles.map((t) => element("th", { scope: "col" }, t)))), element("tbody", {}, ...rows));
  }
  // The kept map of a head, with where it is.
  function map_of(layer, head, model) {
    for (const [name, figure] of Object.entries(data.figures)) {
      const k = figure.panels.findIndex((p) => p.grid && p.grid.layer === layer && p.grid.head === head);
      if (k < 0 || model !== Object.keys(data.heads || {})[0]) continue;
      const panel = document.getElementById(name).querySelectorAll(".panel")[k];
      const source = panel.querySelector("image").getAttribute("href");
      return element("div", {}, element("p", {}, element("a", { href: "#" + name }, "Its map")),
        element("img", { class: "map", src: source, alt: `P of layer ${layer}, head ${head}` }));
    }
    return "";
  }
  function look(figure, grid, i, j, moved) {
    const old = figure.place.querySelector(".look");
    const parts = element("div", { class: "parts" });
    const heads = grid.model === undefined ? null : (data.heads || {})[grid.model];
    const text = place_of(grid, i, j);
    const [layer, head] = grid.gallery ? [Number(grid.rowLabels[i]), Number(grid.colLabels[j])] : [i, j];
    if (heads) parts.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of the head" }, numbers(heads, layer, head)));
    else parts.append(element("p", {}, `${grid.value || "value"}: ` +
      (grid.values ? digits(value_of(grid, i, j)) : "the page holds its colour only; maps.npz has it")));
    if (grid.values) {
      const row = grid.values.slice(i * grid.cols, (i + 1) * grid.cols);
      const column = Array.from({ length: grid.rows }, (_, k) => grid.values[k * grid.cols + j]);
      parts.append(profile(`${grid.value} along ${grid.col} (${grid.row} ${i})`, row, j),
        profile(`${grid.value} along ${grid.row} (${grid.col} ${j})`, column, i));
    }
    if (heads && heads.curves[`${layer}:${head}`])
      parts.append(curve("local_acc: attention within a window, by its share of the tokens", heads.curves[`${layer}:${head}`]));
    if (heads) parts.append(map_of(layer, head, grid.model));
    const go = (di, dj) => {
      moved(i + di, j + dj);
      look(figure, grid, i + di, j + dj, moved);
      figure.place.querySelector(`.look [data-go="${di},${dj}"]`)?.focus();
    };
    const ways = [["previous", grid.row, -1, 0], ["next", grid.row, 1, 0],
      ["previous", grid.col, 0, -1], ["next", grid.col, 0, 1]].map(([which, what, di, dj]) => {
      const made = button(`${which} ${what}`, () => go(di, dj));
      made.dataset.go = `${di},${dj}`;
      made.disabled = i + di < 0 || i + di >= grid.rows || j + dj < 0 || j + dj >= grid.cols;
      if (!made.disabled && grid.values) made.title = digits(value_of(grid, i + di, j + dj));
      return made;
    });
    const close = () => { panel.remove(); figure.place.querySelector(".hit").focus(); };
    const panel = element("section", { class: "look", tabindex: "-1", "aria-label": text },
      element("h4", {}, text), element("nav", { "aria-label": "Neighbours" }, ...ways, button("close", close)), parts);
    panel.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
    if (old) old.replaceWith(panel);
    else figure.place.querySelector(".drawing").after(panel);
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
    hideTip();
  }

  // --- legends
  function legend(figure) {
    for (const key of figure.place.querySelectorAll(".key")) {
      const s = Number(key.dataset.s);
      const made = button("", () => {
        if (!figure.off.delete(s)) figure.off.add(s);
        made.setAttribute("aria-pressed", String(!figure.off.has(s)));
        for (const part of figure.place.querySelectorAll(`.data [data-s="${s}"]`))
          part.classList.toggle("off", figure.off.has(s));
      });
      made.append(...key.childNodes);
      made.setAttribute("aria-pressed", "true");
      key.append(made);
    }
  }

  // --- downloads
  function save(content, type, name) {
    const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const quoted = (v) => (/[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : String(v ?? ""));
  function csv(figure) {
    const rows = [["panel", "series", "x", "y", "low", "high"]];
    for (const panel of figure.of.panels) {
      for (const s of panel.series || [])
        s.x.forEach((x, i) => rows.push([panel.title, s.name, x, s.y[i], s.low?.[i], s.high?.[i]]));
      const g = panel.grid;
      for (let k = 0; g && g.values && k < g.values.length; ++k) {
        const i = Math.floor(k / g.cols), j = k % g.cols;
        rows.push([panel.title, `${g.row} ${g.rowLabels?.[i] ?? i * g.step}`,
          g.colLabels?.[j] ?? j * g.step, g.values[k], "", ""]);
      }
    }
    return rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }
  // What is shown, as one SVG without style sheet.
  function standalone(figure) {
    const drawing = figure.place.querySelector(".drawing"), frame = drawing.getBoundingClientRect();
    const whole = shape("svg", { width: frame.width, height: frame.height, viewBox: `0 0 ${frame.width} ${frame.height}`,
      "font-family": "system-ui, 'DejaVu Sans', Arial, sans-serif" });
    const ground = getComputedStyle(document.body);
    whole.append(shape("rect", { width: "100%", height: "100%", fill: ground.backgroundColor }));
    whole.append(document.querySelector(".definitions defs").cloneNode(true));
    for (const hatch of whole.querySelectorAll("pattern rect"))
      hatch.setAttribute("fill", getComputedStyle(document.querySelector(".definitions ." + hatch.getAttribute("class"))).fill);
    const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
      "opacity", "vector-effect", "font-size", "overflow", "image-rendering", "display", "visibility"];
    for (const svg of drawing.querySelectorAll(".plot, .key svg")) {
      const box = svg.getBoundingClientRect(), copy = svg.cloneNode(true);
      const from = svg.querySelectorAll("*"), to = copy.querySelectorAll("*");
      from.forEach((node, i) => {
        const style = getComputedStyle(node);
        for (const key of kept) to[i].setAttribute(key, style.getPropertyValue(key));
      });
      copy.setAttribute("overflow", "visible");
      for (const [key, v] of [["x", box.left - frame.left], ["y", box.top - frame.top], ["width", box.width], ["height", box.height]])
        copy.setAttribute(key, v);
      whole.append(copy);
    }
    for (const title of drawing.querySelectorAll(".panel-title, .key button")) {
      const range = document.createRange();
      range.selectNodeContents(title.classList.contains("panel-title") ? title.firstChild : title.lastChild);
      const box = range.getBoundingClientRect();
      const style = getComputedStyle(title), text = shape("text", { x: box.left - frame.left, y: box.bottom - frame.top - 4,
        fill: style.color, "font-size": style.fontSize, "font-weight": style.fontWeight });
      text.textContent = range.toString();
      whole.append(text);
    }
    return whole;
  }
  function png(figure, name) {
    const drawn = standalone(figure), scale = 2, image = new Image();
    const width = Number(drawn.getAttribute("width")), height = Number(drawn.getAttribute("height"));
    image.onload = () => {
      const canvas = element("canvas", { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(blob, "image/png", name + ".png"));
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(drawn));
  }

  // --- tables, sorted by a column
  function sortable(table) {
    const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
    const key = (row, k) => {
      const text = (row.cells[k]?.textContent || "").trim(), v = parseFloat(text
        .replace(/^\((\S+)\s+\u00b1 .*\)(e\S+)$/, "$1$2") // a number with its error, filled up with spaces
        .replace(/^(-?1) ([-+]) (\S+)/, (_, one, sign, e) => Number(one) + Number(sign + e)));
      return Number.isNaN(v) ? text : v;
    };
    heads.forEach((head, k) => {
      const made = button("", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const kind = (v) => (v === "" || v === "\u2013" ? 2 : typeof v === "string" ? 1 : 0);
        const rows = [...body.rows].map((row) => [key(row, k), row]);
        rows.sort(([a], [b]) => kind(a) - kind(b) ||
          (up ? 1 : -1) * (typeof a === "string" ? a.localeCompare(b) : a - b));
        body.append(...rows.map(([, row]) => row));
      });
      made.append(...head.childNodes);
      head.append(made);
    });
  }

  // --- folds: opened by links to what is inside, and in print
  function reveal() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  // A page that loads itself again keeps its folds open.
  if (document.querySelector('meta[http-equiv="refresh"]')) {
    const key = "tsdiag " + location.pathname, name = (fold) => fold.querySelector("summary [id]")?.id ?? "findings";
    try {
      for (const fold of document.querySelectorAll("details"))
        if ((sessionStorage.getItem(key) ?? "").split(" ").includes(name(fold))) fold.open = true;
      addEventListener("pagehide", () => sessionStorage.setItem(key, [...document.querySelectorAll("details[open]")].map(name).join(" ")));
    } catch { /* a browser that stores nothing */ }
  }
  for (const link of document.querySelectorAll('a[href^="#"]'))
    link.addEventListener("click", () => { if (link.hash === location.hash) setTimeout(reveal); });
  reveal();
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) {
      fold.open = true;
      addEventListener("afterprint", () => { fold.open = false; }, { once: true });
    }
  });

  for (const table of document.querySelectorAll(".scroll > table")) sortable(table);
  for (const [name, of] of Object.entries(data.figures)) {
    const place = document.getElementById(name);
    if (!place) continue;
    const figure = { of, place, off: new Set(), classes: [] };
    for (const group of place.querySelectorAll("[data-s]"))
      figure.classes[Number(group.dataset.s)] = [...group.classList].find((c) => c !== "key");
    legend(figure);
    place.querySelectorAll(".panel").forEach((panel, k) =>
      (of.panels[k].grid ? cells : lines)(panel, of.panels[k], figure));
    const tools = place.querySelector(".tools");
    tools.prepend(button("PNG", () => png(figure, name)), " ", button("CSV", () => save(csv(figure), "text/csv", name + ".csv")), " ");
  }
  document.documentElement.dataset.ready = Object.keys(data.figures).length;
})();
