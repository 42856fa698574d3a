// What Chart.js draws of all verdicts, each beside a table of the same numbers.
"use strict";

const hasCharts = typeof Chart !== "undefined";

// A chart in a figure; `settings` makes what Chart.js takes, anew when the colours change.
function chartFigure(title, settings) {
  const canvas = make("canvas", {role: "img", "aria-label": title});
  const figure = make("figure", {}, make("figcaption", {}, title),
    make("div", {class: "plot"}, canvas));
  if (!hasCharts) return make("figure", {}, make("figcaption", {}, `${title}: no chart library`));
  let chart = null;
  const draw = () => {
    if (chart) chart.destroy();
    chart = canvas.isConnected ? new Chart(canvas, settings()) : null;
  };
  whenColoursChange(draw);
  requestAnimationFrame(draw);
  return figure;
}

function axis(title, more = {}) {
  return {title: {display: true, text: title, color: colour("quiet")},
    ticks: {color: colour("quiet"), maxRotation: 0, autoSkip: true},
    grid: {color: colour("line")}, ...more};
}

function chartOptions(x, y, more = {}) {
  return {animation: false, responsive: true, maintainAspectRatio: false,
    scales: {x, y},
    plugins: {legend: {labels: {color: colour("text"), boxWidth: 12, boxHeight: 8}},
      ...more.plugins},
    ...more.options};
}

// A table that is made once it is opened.
function tableOf(title, titles, rows) {
  const details = make("details", {}, make("summary", {}, title));
  details.addEventListener("toggle",
    () => details.append(textTable(title, titles, rows)), {once: true});
  return details;
}

// Of those that have the same key the one that is the largest.
function largestBy(list, keyOf, rank) {
  const found = new Map();
  for (const each of list) {
    const key = keyOf(each), other = found.get(key);
    if (!other || rank(each) > rank(other)) found.set(key, each);
  }
  return [...found.values()];
}

function choice(id, title, values, changed) {
  const select = make("select", {id}, ...values.map(([value, text]) =>
    make("option", {value}, text)));
  select.addEventListener("change", changed);
  return [make("span", {class: "control"}, make("label", {for: id}, title), select), select];
}

function testeeChoice(id, data, changed) {
  const values = data.testees.map((name, i) => [String(i), name]);
  return choice(id, "Testee", [["-1", "all"], ...values], changed);
}

// ---- Error over bound ----

const leastBin = -16, mostBin = 4;  // powers of 2; what is less or more is in the last ones

function binOf(code) {
  const value = valueOf(code);
  if (!(value < Infinity)) return mostBin;
  if (value === 0) return leastBin;
  return Math.max(leastBin, Math.min(mostBin, Math.ceil(Math.log2(value))));
}

// By tensor and format: how many ratios are in each bin, and all of them.
function ratiosBy(data, testee) {
  const found = new Map();
  for (let i = 0; i < data.count; ++i) {
    if (testee >= 0 && data.testee[i] !== testee) continue;
    let at = data.firstRatio[i];
    for (const tensor of data.tensor_lists[data.tensorList[i]]) {
      const key = tensor * 100 + data.cases.dtype[data.caseOf[i]];
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(data.ratio[at++]);
    }
  }
  return found;
}

function histogramOf(codes, bins) {
  const counts = new Array(mostBin - leastBin + 1).fill(0);
  for (const code of codes) ++counts[bins.get(code) - leastBin];
  return counts.map((count) => 100 * count / codes.length);
}

function binText(bin) {
  return bin === mostBin ? "more" : `2^${bin}`;
}

function distributionFigure(data, tensor, series) {
  const labels = [];
  for (let bin = leastBin; bin <= mostBin; ++bin) labels.push(binText(bin));
  return chartFigure(`${data.tensors[tensor]}: error over bound`, () => ({
    type: "line",
    data: {labels, datasets: series.map(([dtype, counts]) => ({
      label: data.dtypes[dtype], data: counts, stepped: "middle", pointRadius: 0, borderWidth: 2,
      borderColor: seriesColour(dtype), backgroundColor: seriesColour(dtype)}))},
    options: chartOptions(axis("up to so many bounds; beyond 2^0 is wrong"), axis("% of verdicts")),
  }));
}

function drawDistributions(data, frame) {
  const plots = make("div", {class: "charts"}), numbers = make("div");
  const draw = () => {
    const by = ratiosBy(data, Number(select.value));
    const bins = new Map();
    for (const codes of by.values()) {
      for (const code of codes) if (!bins.has(code)) bins.set(code, binOf(code));
    }
    const keys = [...by.keys()].sort((a, b) => a - b);
    const tensors = [...new Set(keys.map((key) => Math.floor(key / 100)))];
    plots.replaceChildren(...tensors.map((tensor) => distributionFigure(data, tensor,
      keys.filter((key) => Math.floor(key / 100) === tensor)
        .map((key) => [key % 100, histogramOf(by.get(key), bins)]))));
    const rows = keys.map((key) => {
      const codes = by.get(key).sort((a, b) => rankOf(a) - rankOf(b));
      const share = (part) => textOf(codes[Math.min(codes.length - 1,
        Math.floor(part * codes.length))]);
      return [`${data.tensors[Math.floor(key / 100)]} ${data.dtypes[key % 100]}`,
        String(codes.length), share(0.5), share(0.99), textOf(codes[codes.length - 1])];
    });
    numbers.replaceChildren(tableOf("As a table: error over bound",
      ["Tensor and format", "verdicts", "median", "99%", "largest"], rows));
  };
  const [control, select] = testeeChoice("distribution-testee", data, draw);
  frame.replaceChildren(make("form", {}, control), plots, numbers);
  draw();
}

// ---- Error over length ----

// Of powers of 10 alone.
function powerText(value) {
  const exponent = Math.log10(value);
  return Math.abs(exponent - Math.round(exponent)) < 1e-6 ? `1e${Math.round(exponent)}` : null;
}

// As growth.h has it.
function pieceOf(length) {
  return length <= 16 ? length : 17 + Math.floor(4 * Math.log2(length / 16));
}

function growthFigure(data, dtype, points) {
  const dots = (place) => points.map((point) => ({x: point[3], y: valueOf(point[place])}))
    .filter((dot) => dot.y > 0);
  return chartFigure(`${dtype}: largest error and its bound`, () => ({
    type: "scatter",
    data: {datasets: [
      {label: "error", data: dots(4), pointRadius: 3, backgroundColor: seriesColour(0)},
      {label: "bound", data: dots(5), pointRadius: 3, pointStyle: "line", borderWidth: 2,
        borderColor: seriesColour(1), backgroundColor: seriesColour(1)}]},
    options: chartOptions(axis("length", {type: "logarithmic"}), axis("", {type: "logarithmic",
      ticks: {color: colour("quiet"), callback: powerText}})),
  }));
}

function drawGrowth(data, frame) {
  if (data.growth.length === 0) {
    frame.replaceChildren(make("p", {class: "quiet"},
      "No case of this run says in its id how long its sequences are."));
    return;
  }
  const plots = make("div", {class: "charts"}), numbers = make("div");
  const tensors = [...new Set(data.growth.map((point) => point[1]))];
  const draw = () => {
    const testee = Number(whose.value), tensor = Number(which.value);
    const points = largestBy(data.growth.filter((point) => point[1] === tensor &&
      (testee < 0 || point[0] === testee)), (point) => `${point[2]} ${pieceOf(point[3])}`,
    (point) => rankOf(point[4]));
    const dtypes = data.dtypes.filter((dtype) => points.some((point) => point[2] === dtype));
    plots.replaceChildren(...dtypes.map((dtype) =>
      growthFigure(data, dtype, points.filter((point) => point[2] === dtype))));
    numbers.replaceChildren(tableOf("As a table: error over length",
      ["Testee", "format", "length", "error", "bound"], points.map((point) =>
        [data.testees[point[0]], point[2], String(point[3]), textOf(point[4]), textOf(point[5])])));
  };
  const [first, whose] = testeeChoice("growth-testee", data, draw);
  const [second, which] = choice("growth-tensor", "Tensor",
    tensors.map((tensor) => [String(tensor), data.tensors[tensor]]), draw);
  frame.replaceChildren(make("p", {class: "quiet"},
    "Of normal inputs, by the longer of both lengths: how far the worst element lies from its " +
    "exact value, beyond the rounding of the result itself, and the bound proven for it. What is " +
    "exact to its rounding has no place on these scales."),
  make("form", {}, first, second), plots, numbers);
  draw();
}

// ---- Gradients beside differences ----

function slopesFigure(data, features, tensors, worst) {
  return chartFigure("How far apart, over what is allowed, by feature", () => ({
    type: "bar",
    data: {labels: features, datasets: tensors.map((tensor, i) => ({
      label: data.tensors[tensor], backgroundColor: seriesColour(i),
      data: features.map((feature) => valueOf(worst.get(`${tensor} ${feature}`) ?? 0) || null)}))},
    options: chartOptions(axis("ratio; beyond 1 is wrong", {type: "logarithmic"}),
      axis("", {ticks: {color: colour("text"), autoSkip: false}}), {options: {indexAxis: "y"}}),
  }));
}

function drawSlopes(data, frame) {
  if (data.slopes.length === 0) {
    frame.replaceChildren();
    return;
  }
  const plots = make("div", {class: "charts wide"}), numbers = make("div");
  const draw = () => {
    const testee = Number(whose.value);
    const rows = largestBy(data.slopes.filter((slope) => testee < 0 || slope[0] === testee),
      (slope) => `${slope[2]} ${slope[1]}`, (slope) => rankOf(slope[4]));
    const worst = new Map(rows.map((slope) => [`${slope[2]} ${slope[1]}`, slope[4]]));
    const features = [...new Set(rows.map((slope) => slope[1]))].sort();
    const tensors = [...new Set(rows.map((slope) => slope[2]))].sort((a, b) => a - b);
    const figure = slopesFigure(data, features, tensors, worst);
    const plot = figure.querySelector(".plot");
    if (plot) plot.style.height = `${6 + features.length * (0.5 + 0.5 * tensors.length)}rem`;
    plots.replaceChildren(figure);
    numbers.replaceChildren(tableOf("As a table: gradients beside differences",
      ["Testee", "feature", "gradient", "directions", "ratio"], rows.map((slope) =>
        [data.testees[slope[0]], slope[1], data.tensors[slope[2]], String(slope[3]),
          textOf(slope[4])])));
  };
  const [control, whose] = testeeChoice("slopes-testee", data, draw);
  frame.replaceChildren(make("form", {}, control), plots, numbers);
  draw();
}

// ---- Schedules ----

function imbalanceFigure(data, list) {
  const testees = [...new Set(list.map((each) => data.testee[each.at]))];
  return chartFigure("Pairs of the busiest worker, in means of all", () => ({
    type: "scatter",
    data: {datasets: testees.map((testee, i) => ({
      label: data.testees[testee], backgroundColor: seriesColour(i), pointRadius: 3,
      data: list.filter((each) => data.testee[each.at] === testee).flatMap((each) =>
        each.schedule.map((call) => ({x: call.threads + (i - testees.length / 2) * 0.06,
          y: Number(call.imbalance)})))}))},
    options: chartOptions(axis("threads"), axis("imbalance", {min: 1})),
  }));
}

function drawSchedules(data, frame) {
  const list = data.evidence.filter((each) => each.schedule);
  if (list.length === 0) {
    frame.replaceChildren(make("p", {class: "quiet"}, "No testee of this run reports its blocks."));
    return;
  }
  const plots = make("div", {class: "charts wide"}, imbalanceFigure(data, list));
  const pictures = make("div", {class: "pictures"}), numbers = make("div");
  const draw = () => {
    const i = Number(which.value);
    drawPictures(pictures, data, i);
    numbers.replaceChildren(tableOf("As a table: blocks of this case",
      ["Pass", "threads", "blocks", "masked", "imbalance", "seen"],
      data.evidenceAt.get(i).schedule.map((call) => [call.pass, String(call.threads),
        String(call.blocks), String(call.masked), call.imbalance, call.seen ? "yes" : "no"])));
  };
  const [control, which] = choice("schedule-case", "Case and testee", list.map((each) =>
    [String(each.at), `${data.caseId(each.at)} ${data.testees[data.testee[each.at]]}`]), draw);
  frame.replaceChildren(plots, make("form", {}, control), pictures, numbers);
  draw();
}

// Each when it is nearly seen.
function drawCharts(data) {
  const draws = {distributions: drawDistributions, growths: drawGrowth, differences: drawSlopes,
    workers: drawSchedules};
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draws[entry.target.id](data, entry.target);
      entry.target.dataset.drawn = "yes";
    }
  }, {rootMargin: "300px"});
  for (const id of Object.keys(draws)) watch.observe(document.getElementById(id));
}
