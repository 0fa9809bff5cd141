// Drill-downs: uPlot draws the columns of a cell when it is opened. All plots of a cell share a cursor and a zoom.
(() => {
  const section = document.getElementById("drill-downs");
  const blanks = [...section.querySelector("template").content.children];
  const cells = [...section.querySelectorAll("details.cell")];
  const css = (name) => getComputedStyle(section).getPropertyValue(name).trim();
  const COLOURS = [["--calm", "--tax", "--deep"], ["--b0", "--b1", "--b2"]];
  const HEIGHT = 150;
  const dataOf = (cell) => JSON.parse(cell.querySelector("script").textContent);
  const nameOf = (one) => one.querySelector("summary").textContent.trim();

  // One figure; none where nothing of it was recorded. A second cell is drawn over the first, on the same axes.
  const drawOne = (plots, blank, key, sources, end) => {
    const figure = blank.cloneNode(true);
    const names = [...figure.querySelectorAll("i")];
    names.forEach((name) => name.remove());
    const tables = sources.map((source) => source[figure.dataset.table]);
    // Both ends without a value: every plot of the cell spans the same time.
    const times = tables.flatMap((table, k) => (table.t || []).map((t, i) => [t, k, i])).sort((a, b) => a[0] - b[0]);
    const rows = [[0], ...times, [end]];
    const series = tables.flatMap((table, k) => names.filter((name) => name.dataset.series in table).map((name) => {
      const column = table[name.dataset.series];
      const raw = rows.map(([, of, i]) => (of !== k ? undefined : Array.isArray(column) ? column[i] : column));
      const isMark = name.dataset.series === "failed";
      const isLine = figure.dataset.table === "samples" || name.dataset.series === "median";
      const stroke = css(isMark ? "--bad" : COLOURS[k][names.indexOf(name)]);
      const options = { label: name.textContent + (k ? ", other cell" : ""), stroke, width: 1.5, scale: isMark ? "mark" : "y" };
      if (!isLine) {
        Object.assign(options, { paths: () => null, points: { show: true, size: isMark ? 7 : 4, fill: stroke } });
      }
      if (isMark) {
        options.value = (plot, value, s, i) => (i == null ? "--" : sources[k].statuses[raw[i]]);
      }
      return { options, values: isMark ? raw.map((v) => (v == null ? v : 1)) : raw };
    }));
    if (!series.length) {
      return [];
    }
    plots.append(figure);
    const shade = (plot) => {
      const { left, top, width, height } = plot.bbox;
      const [from, to] = sources[0].times.map((t) => Math.min(Math.max(plot.valToPos(t, "x", true), left), left + width));
      plot.ctx.fillStyle = css("--faint");
      plot.ctx.fillRect(left, top, from - left, height);
      plot.ctx.fillRect(to, top, left + width - to, height);
    };
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      width: figure.clientWidth,
      height: HEIGHT,
      scales: { x: { time: false }, y: { range: (u, low, high) => [Math.min(0, low), 1.06 * Math.max(0, high) || 1] }, mark: { range: [0, 1.03] } },
      axes: [{ ...axis, size: 28, values: (u, ticks) => ticks.map((t) => `${t} s`) }, { ...axis, size: 58 }],
      series: [{ label: "at", value: (u, t) => (t == null ? "--" : `${t} s`) }, ...series.map((one) => one.options)],
      cursor: { y: false, sync: { key, scales: ["x", null] }, hover: { skip: [null], prox: 30 } },
      hooks: { drawClear: [shade] },
    }, [rows.map(([t]) => t), ...series.map((one) => one.values)], figure);
    const said = series.map(({ options, values }) => {
      const known = values.filter(Number.isFinite);
      return options.scale === "mark" ? `${known.length} ${options.label}` : `${options.label} from ${Math.min(...known)} to ${Math.max(...known)}`;
    });
    const picture = plot.root.querySelector(".u-wrap");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `${figure.querySelector("figcaption").textContent}: ${said.join("; ")}`);
    return [plot];
  };

  const open = (cell) => {
    const plots = cell.querySelector(".plots");
    let drawn = [];
    const draw = (sources) => {
      drawn.forEach((plot) => plot.destroy());
      plots.replaceChildren();
      const end = Math.max(0.001, ...sources.map((source) => source.times[2]));
      drawn = blanks.flatMap((blank) => drawOne(plots, blank, cell.id, sources, end));
    };
    draw([dataOf(cell)]);

    const select = document.createElement("select");
    select.append(new Option("none", ""), ...[...section.querySelectorAll(".config")].map((config) => {
      const group = document.createElement("optgroup");
      group.label = nameOf(config);
      const others = [...config.querySelectorAll("details.cell")].filter((other) => other !== cell);
      group.append(...others.map((other) => new Option(nameOf(other), other.id)));
      return group;
    }));
    select.addEventListener("change", () => draw([cell, document.getElementById(select.value)].filter(Boolean).map(dataOf)));
    const label = document.createElement("label");
    label.className = "beside";
    label.append("Other cell in the same plots: ", select);
    plots.before(label);

    plots.tabIndex = 0;
    plots.setAttribute("role", "group");
    plots.setAttribute("aria-label", "Plots. Left and right arrow keys read values.");
    plots.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && drawn.length) {
        event.preventDefault();
        const width = drawn[0].over.clientWidth;
        const left = Math.min(Math.max(drawn[0].cursor.left + (step * width) / 50, 0), width);
        drawn.forEach((plot) => plot.setCursor({ left, top: 0 }));
      }
    });
    new ResizeObserver(() => {
      if (plots.clientWidth) {
        drawn.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: HEIGHT }));
      }
    }).observe(plots);
  };

  // "toggle" does not bubble.
  const opened = new Set();
  section.addEventListener("toggle", ({ target }) => {
    if (target.open && cells.includes(target) && !opened.has(target)) {
      opened.add(target);
      open(target);
    }
  }, true);
})();
