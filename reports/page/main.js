// What happens when: the page is there at once, its verdicts are unpacked when it stands, and
// pictures are drawn when they are seen.
"use strict";

// Goes to what the address names, and opens it.
function goTo(anchor) {
  const place = anchor && document.getElementById(anchor);
  if (!place) return;
  if (place instanceof HTMLDetailsElement) place.open = true;
  place.scrollIntoView();
}

function start(told) {
  const data = new Data(told);
  const address = readAddress();
  const detail = new Detail(data, () => {
    if (readAddress().opened) replaceAddress(readAddress().filters, null);
  });
  const open = (i) => {
    const opened = {id: data.caseId(i), testee: data.testees[data.testee[i]]};
    history.pushState(null, "", addressOf(table.filters, opened));
    detail.show(i);
  };
  const table = new Table(data, document.getElementById("browser"), address.filters, open);
  const follow = ({anchor, filters, opened, asks}) => {
    const place = opened ? data.find(opened.id, opened.testee) : -1;
    const returns = !opened && detail.isOpen();
    if (place >= 0) detail.show(place);
    else detail.hide();
    // A link to one case alone leaves the table as it is.
    if (opened && Object.keys(filters).length === 0) return;
    if (asks && addressOf(filters) !== addressOf(table.filters)) table.show(filters);
    if (!opened && !returns) goTo(anchor);
  };
  window.addEventListener("hashchange", () => follow(readAddress()));
  if (location.hash) follow(address);
  drawFailures(data);
  drawCharts(data);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

// Pictures of a failure, once it is opened.
function drawFailures(data) {
  for (const failure of document.querySelectorAll("details.failure")) {
    const draw = () => {
      const frame = failure.querySelector(".pictures");
      if (failure.open && frame && !frame.hasChildNodes()) {
        drawPictures(frame, data, Number(frame.dataset.at));
      }
    };
    failure.addEventListener("toggle", draw);
    draw();
  }
}

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  const types = event.target.closest("input, select, textarea, dialog");
  if (event.key !== "/" || types || !search || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  search.scrollIntoView({block: "center"});
  search.focus();
});

function complain(why) {
  document.getElementById("browser").replaceChildren(
    make("p", {role: "alert"}, `The verdicts of this page cannot be shown here: ${why}`));
}

if (typeof DecompressionStream === "undefined") {
  complain("this browser does not know DecompressionStream.");
} else {
  // After the first picture of the page.
  requestAnimationFrame(() => setTimeout(
    () => unpacked("data").then(start).catch((error) => complain(error.message)), 0));
}
