// Pictures of many rows and columns (crossing.h): the columns that most rows catch come first, so
// that what a row misses shows as holes in it.
"use strict";

const crossingTexts = {c: "caught", m: "missed", ".": "not concerned"};
const crossingHeight = 18;

function crossingColour(letter) {
  return letter === "c" ? colour("good") : letter === "m" ? colour("bad") : colour("mute-soft");
}

// Places of columns, those that most rows catch first.
function orderOf(crossing) {
  const caught = crossing.columns.map((name, x) =>
    crossing.letters.filter((row) => row[x] === "c").length);
  return crossing.columns.map((name, x) => x).sort((a, b) => caught[b] - caught[a] || a - b);
}

function paintCrossing(canvas, crossing, order, width) {
  const pen = canvas.getContext("2d");
  crossing.letters.forEach((row, y) => order.forEach((place, x) => {
    pen.fillStyle = crossingColour(row[place]);
    pen.fillRect(x * width, y * crossingHeight, width, crossingHeight - 2);
  }));
}

function shareText(row) {
  const caught = [...row].filter((letter) => letter === "c").length;
  const missed = [...row].filter((letter) => letter === "m").length;
  return `${caught} of ${caught + missed}`;
}

function crossingFigure(crossing) {
  const order = orderOf(crossing), width = Math.max(2, Math.floor(960 / order.length));
  const down = crossing.rows.length;
  const canvas = make("canvas", {width: order.length * width, height: down * crossingHeight,
    role: "img", "aria-label": `${crossing.title}: ` + crossing.rows.map((name, y) =>
      `${name} ${shareText(crossing.letters[y])}`).join(", ")});
  const paintAll = () => paintCrossing(canvas, crossing, order, width);
  paintAll();
  whenColoursChange(paintAll);
  const usual = `${countText(down, "row")}, ${countText(order.length, "column")}: ` +
    "those that most rows catch stand first.";
  const told = make("p", {class: "quiet told"}, usual);
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.floor(event.offsetX / width), y = Math.floor(event.offsetY / crossingHeight);
    if (x < 0 || x >= order.length || y < 0 || y >= down) return;
    const letter = crossing.letters[y][order[x]];
    told.textContent = `${crossing.rows[y]}: ${crossing.columns[order[x]]} ` +
      (crossingTexts[letter] || "");
  });
  canvas.addEventListener("pointerleave", () => { told.textContent = usual; });
  const names = make("ol", {class: "crossing-rows"}, ...crossing.rows.map((name, y) =>
    make("li", {}, make("span", {}, name), " ", make("small", {}, shareText(crossing.letters[y])))));
  const picture = make("div", {class: "scroll crossing-picture", tabindex: "0", role: "group",
    "aria-label": crossing.title}, canvas);
  const kind = {textOf: (letter) => crossingTexts[letter], colourOf: crossingColour};
  return make("figure", {}, make("figcaption", {}, crossing.title),
    make("div", {class: "crossing-frame"}, names, picture), told,
    legendOf(crossing.letters, kind));
}

unpacked("data").then((crossings) => {
  for (const place of document.querySelectorAll(".crossing")) {
    place.replaceChildren(crossingFigure(crossings[Number(place.dataset.at)]));
  }
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
});
