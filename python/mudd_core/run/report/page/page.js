"use strict";
// Shows the values at the pointer, at a touch and by the arrow keys; draws the steps of heat maps.
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
const whole = new Intl.NumberFormat("en");
const across = (values) => values.across[Number(document.querySelector('input[name="across"]:checked')?.value ?? 0)];
const valuesOf = (figure) => JSON.parse(figure.querySelector('script[type="application/json"]').textContent);

// A value with its unit, which may be empty.
const measured = (value, unit) => (value === null ? "not finite" : `${number.format(value)} ${unit}`.trim());

// An element with text, which is never read as HTML.
function element(kind, text = "", name = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = name;
  return made;
}

// The place in an ascending list that is nearest to a value.
function nearest(list, value) {
  let low = 0;
  let high = list.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - list[low - 1] < list[low] - value ? low - 1 : low;
}

function place(tip, plot, x) {
  tip.hidden = false;
  const room = plot.clientWidth - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(room, x > plot.clientWidth / 2 ? x - tip.offsetWidth - 12 : x + 12))}px`;
}

// Hides what is shown when the pointer leaves; after a touch, which leaves at once, at the next one elsewhere.
function whenLeft(plot, hide) {
  plot.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") hide();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!plot.contains(event.target)) hide();
  });
}

function lineChart(figure) {
  const plot = figure.querySelector(".plot");
  const cursor = plot.querySelector(".cursor");
  const tip = plot.querySelector(".tip");
  const values = valuesOf(figure);
  let at = null; // the value across that is shown

  function show(x) {
    const { name } = across(values);
    const [low, high] = values.ends[name];
    const found = values.series
      .map((one) => ({ one, row: nearest(one[name], x) }))
      .filter(({ one, row }) => row < one.values.length);
    if (!found.length) return;
    const gap = ({ one, row }) => Math.abs(one[name][row] - x);
    const best = found.reduce((a, b) => (gap(b) < gap(a) ? b : a));
    at = best.one[name][best.row];
    const pixels = ((at - low) / (high - low || 1)) * plot.clientWidth;
    const near = ((high - low) * 12) / plot.clientWidth;
    cursor.hidden = false;
    cursor.style.left = `${pixels}px`;
    const [head, ...more] = values.across.map((one) => {
      const value = best.one[one.name][best.row];
      return one.text.replace("#", one.whole ? whole.format(Math.round(value)) : number.format(value));
    });
    tip.replaceChildren(element("b", head), element("div", more.join(", ")));
    for (const { one, row } of found) {
      if (Math.abs(one[name][row] - at) > near) continue;
      const line = element("div", "", `of c${one.color}`);
      line.append(element("span", one.name), element("b", one.texts?.[row] ?? measured(one.values[row], values.unit)));
      tip.append(line);
    }
    for (const mark of values.marks) {
      if (Math.abs(mark[name] - at) <= near) tip.append(element("div", mark.text));
    }
    place(tip, plot, pixels);
  }

  function hide() {
    cursor.hidden = tip.hidden = true;
    at = null;
  }

  function pointed(event) {
    const box = plot.getBoundingClientRect();
    const [low, high] = values.ends[across(values).name];
    show(low + ((event.clientX - box.left) / box.width) * (high - low));
  }

  function key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    event.preventDefault();
    const list = values.series[0][across(values).name];
    const row = at === null ? (step > 0 ? 0 : list.length - 1) : nearest(list, at) + step;
    show(list[Math.max(0, Math.min(list.length - 1, row))]);
  }
  plot.addEventListener("pointermove", pointed);
  plot.addEventListener("pointerdown", pointed);
  whenLeft(plot, hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", key);
}

function heatMap(figure) {
  const plot = figure.querySelector(".plot");
  const picture = plot.querySelector("svg");
  const tip = plot.querySelector(".tip");
  const slider = figure.querySelector('input[type="range"]');
  const values = valuesOf(figure);
  const width = values.columns.length;
  const height = values.rows.length;
  let frame = values.frames[values.frames.length - 1];

  function draw() {
    const paths = new Map();
    frame.forEach((value, cell) => {
      if (value === null) return;
      const part = (value - (values.middle ?? 0)) / values.largest;
      const level = Math.round(Math.sign(part) * Math.sqrt(Math.min(1, Math.abs(part))) * values.levels);
      const path = `M${cell % width} ${Math.floor(cell / width)}h1v1h-1z`;
      if (level) paths.set(level, (paths.get(level) ?? "") + path);
    });
    picture.replaceChildren();
    for (const [level, path] of paths) {
      const made = document.createElementNS("http://www.w3.org/2000/svg", "path");
      made.setAttribute("class", level > 0 ? "above" : "under");
      made.setAttribute("fill-opacity", Math.abs(level) / values.levels);
      made.setAttribute("d", path);
      picture.append(made);
    }
  }

  function show(event) {
    const box = plot.getBoundingClientRect();
    const column = Math.min(width - 1, Math.floor(((event.clientX - box.left) / box.width) * width));
    const row = Math.min(height - 1, Math.floor(((event.clientY - box.top) / box.height) * height));
    const value = frame[row * width + column];
    if (column < 0 || row < 0 || value === null || value === undefined) {
      tip.hidden = true;
      return;
    }
    tip.replaceChildren(
      element("div", `${values.rows[row]}, ${values.columns[column]}`),
      element("b", measured(value, values.unit)),
    );
    place(tip, plot, event.clientX - box.left);
  }
  plot.addEventListener("pointermove", show);
  plot.addEventListener("pointerdown", show);
  whenLeft(plot, () => {
    tip.hidden = true;
  });
  slider?.addEventListener("input", () => {
    frame = values.frames[slider.value];
    figure.querySelector("output").textContent = `step ${whole.format(values.steps[slider.value])}`;
    draw();
  });
}

for (const figure of document.querySelectorAll("figure.chart")) {
  if (figure.classList.contains("heat")) heatMap(figure);
  else lineChart(figure);
}
