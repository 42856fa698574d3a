// Pictures of many rows and columns (catches.h): the columns that most rows catch come first, so
// that what a row misses shows as holes in it.
"use strict";

const catchTexts = {c: "caught", m: "missed", ".": "not concerned"};
const catchHeight = 18;

function catchColour(letter) {
  return letter === "c" ? colour("good") : letter === "m" ? colour("bad") : colour("mute-soft");
}

// Places of columns, those that most rows catch first.
function orderOf(table) {
  const caught = table.columns.map((name, x) =>
    table.letters.filter((row) => row[x] === "c").length);
  return table.columns.map((name, x) => x).sort((a, b) => caught[b] - caught[a] || a - b);
}

function paintCatches(canvas, table, order, width) {
  const pen = canvas.getContext("2d");
  table.letters.forEach((row, y) => order.forEach((place, x) => {
    pen.fillStyle = catchColour(row[place]);
    pen.fillRect(x * width, y * catchHeight, width, catchHeight - 2);
  }));
}

function shareText(row) {
  const caught = [...row].filter((letter) => letter === "c").length;
  const missed = [...row].filter((letter) => letter === "m").length;
  return `${caught} of ${caught + missed}`;
}

function catchesFigure(table) {
  const order = orderOf(table), width = Math.max(2, Math.floor(960 / order.length));
  const down = table.rows.length;
  const canvas = make("canvas", {width: order.length * width, height: down * catchHeight,
    role: "img", "aria-label": `${table.title}: ` + table.rows.map((name, y) =>
      `${name} ${shareText(table.letters[y])}`).join(", ")});
  const paintAll = () => paintCatches(canvas, table, order, width);
  paintAll();
  whenColoursChange(paintAll);
  const usual = `${countText(down, "row")}, ${countText(order.length, "column")}: ` +
    "those that most rows catch stand first.";
  const told = make("p", {class: "quiet told"}, usual);
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.floor(event.offsetX / width), y = Math.floor(event.offsetY / catchHeight);
    if (x < 0 || x >= order.length || y < 0 || y >= down) return;
    const letter = table.letters[y][order[x]];
    told.textContent = `${table.rows[y]}: ${table.columns[order[x]]} ` +
      (catchTexts[letter] || "");
  });
  canvas.addEventListener("pointerleave", () => { told.textContent = usual; });
  const names = make("ol", {class: "catches-rows"}, ...table.rows.map((name, y) =>
    make("li", {}, make("span", {}, name), " ", make("small", {}, shareText(table.letters[y])))));
  const picture = make("div", {class: "scroll catches-picture", tabindex: "0", role: "group",
    "aria-label": table.title}, canvas);
  const kind = {textOf: (letter) => catchTexts[letter], colourOf: catchColour};
  return make("figure", {}, make("figcaption", {}, table.title),
    make("div", {class: "catches-frame"}, names, picture), told,
    legendOf(table.letters, kind));
}

unpacked("data").then((tables) => {
  for (const place of document.querySelectorAll(".catches")) {
    place.replaceChildren(catchesFigure(tables[Number(place.dataset.at)]));
  }
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
});
