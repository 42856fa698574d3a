// Pictures of one verdict, from grids of letters (harness/judge/pictures.h).
"use strict";

const seriesCount = 8;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function seriesColour(number) {
  return colour(`series-${number % seriesCount + 1}`);
}

// Errors within their bounds in shades of green, beyond them of red: the further, the stronger.
function heatColour(letter) {
  if (letter === ".") return colour("mute-soft");
  if (letter <= "9") return mixed("good-soft", "good", Number(letter) / 9 * 0.7);
  return mixed("bad-soft", "bad", 0.25 + 0.75 * Math.min(1, (letter.charCodeAt(0) - 97) / 12));
}

// A colour of the page between two of it.
function mixed(from, to, share) {
  return `color-mix(in srgb, ${colour(to)} ${Math.round(share * 100)}%, ${colour(from)})`;
}

function heatText(letter) {
  if (letter === ".") return "nothing compared";
  if (letter <= "9") return `${letter === "9" ? "at most 1" : `less than 0.${Number(letter) + 1}`}`;
  return letter === "z" ? "without end" : `up to ${2 ** (letter.charCodeAt(0) - 96)}`;
}

const maskTexts = {"#": "seen", ".": "hidden", "+": "partly seen"};

function maskColour(letter) {
  if (letter === "#") return colour("series-1");
  return letter === "+" ? mixed("mute-soft", "series-1", 0.5) : colour("mute-soft");
}

function workerOf(letter) {
  return letter === "." ? -1 : parseInt(letter, 36);
}

// Of each kind: what its axes, letters and colours are.
const pictureKinds = {
  heat: {title: (of) => `Error over bound of ${of}`, rows: "batch and head", columns: "position",
    colourOf: heatColour, textOf: heatText},
  mask: {title: (of) => `Mask, ${of}`, rows: "query", columns: "key",
    colourOf: maskColour, textOf: (letter) => maskTexts[letter] || "hidden"},
  blocks: {title: (of) => `Workers: ${of}`, rows: "query of each head", columns: "key",
    colourOf: (letter) => letter === "." ? colour("mute-soft") : seriesColour(workerOf(letter)),
    textOf: (letter) => letter === "." ? "no block" : `worker ${workerOf(letter)}`},
};

// Which part of so many things a letter stands for: "3", "4 to 7".
function partText(letter, letters, size) {
  const per = Math.ceil(size / letters), first = letter * per;
  const last = Math.min(size, first + per) - 1;
  return first === last ? String(first) : `${first} to ${last}`;
}

function paint(canvas, letters, colourOf) {
  const side = Number(canvas.dataset.side), pen = canvas.getContext("2d");
  const known = new Map();
  letters.forEach((row, y) => [...row].forEach((letter, x) => {
    if (!known.has(letter)) known.set(letter, colourOf(letter));
    pen.fillStyle = known.get(letter);
    pen.fillRect(x * side, y * side, side, side);
  }));
}

// How often each text occurs, the commonest first: what the picture says to who does not see it.
function summaryOf(letters, textOf) {
  const counts = new Map();
  for (const letter of letters.join("")) {
    counts.set(textOf(letter), (counts.get(textOf(letter)) || 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8)
    .map(([text, count]) => `${text}: ${count}`).join(", ");
}

function legendOf(letters, kind) {
  const seen = [...new Set(letters.join(""))].sort();
  const items = new Map();
  for (const letter of seen) items.set(kind.textOf(letter), kind.colourOf(letter));
  return make("ul", {class: "legend"}, ...[...items].slice(0, 12).map(([text, shade]) => {
    const sample = make("i");
    sample.style.background = shade;
    return make("li", {}, sample, text);
  }));
}

function gridPicture(picture) {
  const kind = pictureKinds[picture.kind], letters = picture.letters;
  if (!kind || letters.length === 0 || letters[0].length === 0) return null;
  const across = letters[0].length, down = letters.length;
  const side = Math.max(5, Math.min(18, Math.floor(300 / Math.max(across, down))));
  const canvas = make("canvas", {width: across * side, height: down * side, role: "img",
    "data-side": side,
    "aria-label": `${kind.title(picture.of)}. ${summaryOf(letters, kind.textOf)}`});
  paint(canvas, letters, kind.colourOf);
  const told = make("p", {class: "quiet told"}, `${down} × ${across}, rows: ${kind.rows} ` +
    `(${picture.rows}), columns: ${kind.columns} (${picture.columns})`);
  const usual = told.textContent;
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.min(across - 1, Math.floor(event.offsetX / canvas.clientWidth * across));
    const y = Math.min(down - 1, Math.floor(event.offsetY / canvas.clientHeight * down));
    if (x < 0 || y < 0) return;
    told.textContent = `${kind.rows} ${partText(y, down, picture.rows)}, ${kind.columns} ` +
      `${partText(x, across, picture.columns)}: ${kind.textOf(letters[y][x])}`;
  });
  canvas.addEventListener("pointerleave", () => { told.textContent = usual; });
  whenColoursChange(() => paint(canvas, letters, kind.colourOf));
  return make("figure", {}, make("figcaption", {}, kind.title(picture.of)), canvas, told,
    legendOf(letters, kind));
}

const recolours = [];

function whenColoursChange(draw) {
  recolours.push(draw);
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const draw of recolours) draw();
});

function drawPictures(frame, data, i) {
  const evidence = data.evidenceAt.get(i);
  const pictures = evidence && evidence.pictures ? evidence.pictures : [];
  frame.replaceChildren(...pictures.map(gridPicture).filter(Boolean));
}
