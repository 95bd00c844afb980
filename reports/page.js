"use strict";
// Draws the figures: those on the screen first, the others when there is time, all before printing.
(function () {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const waiting = new Map();
  const views = new Map();
  const root = document.documentElement;
  let drawn = 0;

  function fail(place, error) {
    place.textContent = "This figure could not be drawn: " + error;
    root.dataset.failed = Number(root.dataset.failed || 0) + 1;
    console.error(error);
  }

  async function draw(name) {
    const place = waiting.get(name);
    if (!place) return;
    waiting.delete(name);
    try {
      const result = await vegaEmbed(place, specs[name], {
        actions: false,
        renderer: "svg",
        mode: "vega-lite",
        ast: true, // expressions are interpreted: the page's policy lets no text become code
        defaultStyle: false,
        tooltip: { disableDefaultStyle: true },
      });
      views.set(name, result.view);
      const image = place.querySelector("svg");
      image.setAttribute("role", "img");
      image.setAttribute("aria-label", place.dataset.alt);
      place.closest("figure").querySelector("button").disabled = false;
    } catch (error) {
      fail(place, error);
    }
    drawn += 1;
    root.dataset.drawn = drawn;
  }

  async function drawRest() {
    for (const name of [...waiting.keys()]) {
      await draw(name);
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  function drawAll() {
    return Promise.all([...waiting.keys()].map(draw));
  }

  async function save(name) {
    const svg = await views.get(name).toSVG();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    link.download = name + ".svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target.dataset.figure);
      }
    },
    { rootMargin: "400px" },
  );

  for (const place of document.querySelectorAll(".plot")) {
    waiting.set(place.dataset.figure, place);
    seen.observe(place);
    const button = place.closest("figure").querySelector("button");
    button.addEventListener("click", () => save(place.dataset.figure));
  }
  window.addEventListener("beforeprint", drawAll);
  window.addEventListener("load", () => setTimeout(drawRest, 200));
})();
