"use strict";
// Drill-downs: a reading at the pointer or the arrow keys, zoom, and two cells beside each other on common axes.
// The drawings are SVG that stands in the page; without scripts they are all there, and this only moves and reads them.
(() => {
  const section = document.getElementById("drill-downs");
  if (!section) {
    return;
  }
  const [WIDTH, LEFT, PLOT_WIDTH, TOP, PLOT_HEIGHT] = [360, 48, 304, 6, 98];
  const [ACROSS, UP] = [4000, 1000];

  const make = (tag, attributes = {}, text = "") => {
    const found = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => found.setAttribute(name, value));
    found.textContent = text;
    return found;
  };
  const written = (value) => {
    const size = Math.abs(value);
    return size >= 100 && size < 1e7 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
  };
  const ticks = (low, high, most) => {
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const step = power * [1, 2, 5, 10, 20].find((k) => (high - low) / (k * power) <= most);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k += 1) {
      found.push(k * step);
    }
    return found;
  };

  // A series as it stands in its path: relative moves, one for each point.
  const pointsOf = (path) => {
    const [xs, ys] = [[], []];
    let [x, y] = [0, 0];
    for (const [, a, b] of path.getAttribute("d").matchAll(/[ml](-?\d+) ?(-?\d+)/g)) {
      xs.push((x += Number(a)));
      ys.push((y += Number(b)));
    }
    return { name: path.dataset.n, isMark: path.classList[0].startsWith("m"), xs, ys };
  };

  // One panel: what it holds, and what of it is shown.
  const panelOf = (figure) => {
    const svg = figure.querySelector("svg");
    const plot = svg.querySelector("svg");
    const [end, low, high] = ["x", "lo", "hi"].map((name) => Number(svg.dataset[name]));
    const cursor = plot.appendChild(document.createElementNS(svg.namespaceURI, "path"));
    cursor.setAttribute("class", "now");
    const grid = plot.insertBefore(document.createElementNS(svg.namespaceURI, "path"), plot.querySelector("path[data-n]"));
    grid.setAttribute("class", "g");
    const reading = make("span", { class: "reading", "aria-hidden": "true" });
    figure.querySelector("figcaption").append(reading);
    const series = [...plot.querySelectorAll("path[data-n]")].map(pointsOf);
    const across = (t) => (ACROSS * t) / end;
    const up = (value) => UP - (UP * (value - low)) / (high - low);
    const panel = { figure, svg, end, low, high, unit: svg.dataset.u, key: figure.dataset.k, prefix: "" };

    const label = (name, places) => {
      svg.querySelector(`text.${name}`).replaceChildren(
        ...places.map(([x, y, text]) => {
          const found = document.createElementNS(svg.namespaceURI, "tspan");
          found.setAttribute("x", x);
          found.setAttribute("y", y);
          found.textContent = text;
          return found;
        }),
      );
    };

    panel.show = (x0, x1, y0, y1) => {
      Object.assign(panel, { x0, x1 });
      const box = [across(x0), up(y1), across(x1) - across(x0), up(y0) - up(y1)];
      plot.setAttribute("viewBox", box.join(" "));
      panel.box = box;
      const heights = ticks(y0, y1, 4);
      grid.setAttribute("d", heights.map((v) => `M${box[0]} ${up(v)}h${box[2]}`).join(""));
      label("y", heights.map((v) => [LEFT - 5, Math.round(TOP + PLOT_HEIGHT * ((y1 - v) / (y1 - y0))) + 4, written(v)]));
      const times = ticks(x0, x1, 6);
      label("x", times.map((t, k) => {
        const text = `${Number(t.toPrecision(6)).toLocaleString("en-US")}${k === times.length - 1 ? " s" : ""}`;
        return [Math.round(Math.min(LEFT + PLOT_WIDTH * ((t - x0) / (x1 - x0)), WIDTH - 3.6 * text.length)), 120, text];
      }));
    };

    // The point next to a time; of requests without a value only what is close.
    const nearest = (one, x) => {
      let best = 0;
      one.xs.forEach((other, k) => {
        best = Math.abs(other - x) < Math.abs(one.xs[best] - x) ? k : best;
      });
      return one.isMark && Math.abs(one.xs[best] - x) > panel.box[2] / 60 ? -1 : best;
    };
    panel.read = (t) => {
      const x = across(t);
      cursor.setAttribute("d", `M${x} ${panel.box[1]}v${panel.box[3]}`);
      const said = series.flatMap((one) => {
        const k = nearest(one, x);
        if (k < 0) {
          return [];
        }
        const value = low + ((UP - one.ys[k]) / UP) * (high - low);
        return [one.isMark ? one.name : `${one.name} ${written(value)}`];
      });
      reading.textContent = said.length ? ` ${said.join(", ")}` : " nothing here";
      return `${panel.prefix}${figure.querySelector("b").textContent}: ${said.join(", ") || "nothing"} ${panel.unit}`;
    };
    return panel;
  };

  // Panels that share a time: one reading and one zoom for all of them.
  const explore = (holder, panels) => {
    const end = Math.max(...panels.map((p) => p.end));
    const heights = {};
    panels.forEach((p) => {
      const [low, high] = heights[p.key] || [p.low, p.high];
      heights[p.key] = [Math.min(low, p.low), Math.max(high, p.high)];
    });
    let [from, to, at] = [0, end, null];
    const said = make("output", { class: "said", "aria-live": "polite" });
    const read = (t, aloud) => {
      at = Math.min(Math.max(t, from), to);
      const all = panels.map((p) => p.read(at));
      said.textContent = `at ${written(at)} s`;
      said.append(make("span", { class: "aloud" }, aloud ? all.join("; ") : ""));
    };
    const show = (x0, x1) => {
      const length = Math.min(end, Math.max(x1 - x0, end / 400));
      from = Math.min(Math.max(x0, 0), end - length);
      to = from + length;
      panels.forEach((p) => p.show(from, to, ...heights[p.key]));
      if (at !== null) {
        read(at, false);
      }
    };
    const zoom = (factor) => {
      const middle = at === null ? (from + to) / 2 : at;
      show(middle - (middle - from) * factor, middle + (to - middle) * factor);
    };
    const bar = make("div", { class: "bar" });
    for (const [text, label, act] of [
      ["+", "zoom in", () => zoom(0.5)],
      ["−", "zoom out", () => zoom(2)],
      ["all", "show all of the time", () => show(0, end)],
    ]) {
      const button = make("button", { type: "button", title: label, "aria-label": label }, text);
      button.addEventListener("click", act);
      bar.append(button);
    }
    bar.append(said);
    holder.before(bar);
    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", "Plots. Left and right arrow keys read values, plus and minus zoom, Escape shows all of the time.");
    holder.addEventListener("keydown", (event) => {
      const step = (to - from) / 50;
      const act = {
        ArrowLeft: () => read((at === null ? to : at) - step, true), ArrowRight: () => read((at === null ? from : at) + step, true),
        "+": () => zoom(0.5), "-": () => zoom(2), Escape: () => show(0, end),
      }[event.key];
      if (act && !event.ctrlKey && !event.altKey && !event.metaKey) {
        event.preventDefault();
        act();
      }
    });
    panels.forEach((panel) => {
      const timeAt = (event) => {
        const box = panel.svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) * WIDTH) / box.width;
        return from + ((x - LEFT) / PLOT_WIDTH) * (to - from);
      };
      let began = null;
      panel.svg.addEventListener("pointermove", (event) => read(timeAt(event), false));
      panel.svg.addEventListener("pointerdown", (event) => {
        began = [event.clientX, timeAt(event)];
      });
      panel.svg.addEventListener("pointerup", (event) => {
        if (began && Math.abs(event.clientX - began[0]) > 8) {
          const ends = [began[1], timeAt(event)].sort((a, b) => a - b);
          show(...ends);
        }
        began = null;
      });
      panel.svg.addEventListener("dblclick", () => show(0, end));
    });
    show(0, end);
  };

  const figuresOf = (cell) => [...cell.querySelectorAll(".plots figure")];
  const done = new WeakSet();
  const prepare = (cell) => {
    const figures = figuresOf(cell);
    if (figures.length && !done.has(cell)) {
      done.add(cell);
      explore(cell.querySelector(".plots"), figures.map(panelOf));
    }
  };

  // Two cells: for each panel the one and the other, on the same axes. Copies are made before anything was added to them.
  const cells = [...section.querySelectorAll("details.cell")];
  const originals = new Map(cells.map((cell) => [cell, cell.cloneNode(true)]));
  const nameOf = (cell) => `${cell.closest("details.config").querySelector("summary").textContent.trim()}, ${cell.querySelector("summary").textContent.trim()}`;
  const beside = make("div", { class: "beside" });
  const field = make("fieldset");
  field.append(make("legend", {}, "Two cells side by side"));
  const choices = ["A", "B"].map((letter) => {
    const label = make("label", {}, `${letter} `);
    const select = make("select");
    select.append(make("option", { value: "" }, "choose a cell"), ...cells.map((cell, k) => make("option", { value: k }, nameOf(cell))));
    label.append(select);
    field.append(label);
    return select;
  });
  const result = make("div", { class: "both" });
  const lay = () => {
    result.replaceChildren();
    if (choices.some((select) => select.value === "")) {
      return;
    }
    const chosen = choices.map((select) => cells[Number(select.value)]);
    const sides = chosen.map((cell) => originals.get(cell).cloneNode(true));
    const keys = [...new Set(sides.flatMap((side) => figuresOf(side).map((figure) => figure.dataset.k)))];
    const holder = make("div", { class: "plots pairs" });
    const panels = [];
    keys.forEach((key) => sides.forEach((side, k) => {
      const letter = "AB"[k];
      const figure = figuresOf(side).find((one) => one.dataset.k === key);
      if (!figure) {
        holder.append(make("p", { class: "gap" }, `${letter}: no plot of it; what it says stands below`));
        return;
      }
      figure.querySelector("figcaption").prepend(make("span", { class: "letter" }, letter));
      const svg = figure.querySelector("svg");
      svg.setAttribute("aria-label", `${letter}: ${svg.getAttribute("aria-label")}`);
      holder.append(figure);
      panels.push(Object.assign(panelOf(figure), { prefix: `${letter}: ` }));
    }));
    const facts = make("div", { class: "pairs" });
    sides.forEach((side, k) => {
      const one = side.querySelector(".facts");
      one.prepend(make("p", { class: "name" }, `${"AB"[k]}: ${nameOf(chosen[k])}`));
      facts.append(one);
    });
    result.append(holder, facts);
    if (panels.length) {
      explore(holder, panels);
    }
  };
  choices.forEach((select) => select.addEventListener("change", lay));
  beside.append(field, result);
  section.querySelector("details.config").before(beside);

  // "toggle" does not bubble.
  section.addEventListener("toggle", (event) => event.target.open && event.target.matches("details.cell") && prepare(event.target), true);
  cells.filter((cell) => cell.open).forEach(prepare);

  // A link to a cell opens what it lies in.
  const open = () => {
    const target = /^#cell-\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    for (let folded = target; folded && folded !== section; folded = folded.parentElement) {
      if (folded.tagName === "DETAILS") {
        folded.open = true;
      }
    }
    if (target) {
      target.scrollIntoView();
      target.querySelector("summary").focus({ preventScroll: true });
    }
  };
  addEventListener("hashchange", open);
  open();
})();
