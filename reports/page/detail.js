// All that is known of one verdict, in a dialog.
"use strict";

function factRows(facts) {
  return facts.filter(([, value]) => value).flatMap(
    ([term, value]) => [make("dt", {}, term), make("dd", {}, value)]);
}

// A table of texts; the first column is of names.
function textTable(label, titles, rows) {
  const head = titles.map((title, i) =>
    make("th", {scope: "col", class: i ? "number" : null}, title));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, i) =>
    i ? make("td", {class: "number"}, cell) : make("th", {scope: "row"}, make("code", {}, cell)))));
  return make("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": label},
    make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}

function evidenceTables(data, i, evidence) {
  const tables = [];
  if (evidence.worst) {
    tables.push(textTable("Worst elements", ["Worst element", "actual", "exact", "bound", "ratio",
      "rms error", "compared"], evidence.worst));
  } else {
    const rows = data.ratiosOf(i).map(([tensor, code]) => [tensor, textOf(code)]);
    if (rows.length) {
      tables.push(textTable("Ratios", ["Tensor", "error over bound, at most"], rows));
    }
  }
  if (evidence.slopes) {
    tables.push(textTable("Gradients beside differences",
      ["Gradient", "analytic", "difference", "allowed", "ratio"], evidence.slopes));
  }
  return tables;
}

function detailContent(data, i) {
  const evidence = data.evidenceAt.get(i) || {};
  const outcome = data.outcomeName(i);
  const clauses = make("ul", {class: "plain"}, ...data.clausesOf(i).map(([id, title]) =>
    make("li", {}, make("code", {}, id), ` ${title}`)));
  const facts = make("dl", {class: "facts"}, ...factRows([
    ["Outcome", make("span", {class: `badge ${toneOf(outcome)}`}, outcome)],
    ["Said", evidence.message || data.said[data.saidOf[i]]],
    ["Problem", evidence.problem],
    ["The case hunts", data.because[data.cases.because[data.caseOf[i]]]],
    ["Did you mean", evidence.diagnosis],
    ["Known", evidence.known],
    ["Blamed", evidence.blamed],
    ["Testee", make("code", {}, data.testees[data.testee[i]])],
    ["Format", data.dtype(i)],
    ["Clauses", clauses],
    ["Time", timeText(data.time[i])],
  ]));
  const parts = [facts, ...evidenceTables(data, i, evidence)];
  const pictures = make("div", {class: "pictures"});
  drawPictures(pictures, data, i);
  parts.push(pictures);
  const repro = data.reproText(i);
  if (repro) {
    parts.push(make("p", {}, "Repeat it with"),
      make("pre", {tabindex: "0"}, make("code", {class: "repro"}, repro)));
  }
  if (evidence.captured) {
    parts.push(make("p", {}, "What the testee printed"),
      make("pre", {tabindex: "0"}, evidence.captured));
  }
  if (isFailure(outcome) && !data.evidenceAt.has(i)) {
    parts.push(make("p", {class: "quiet"},
      "Of so many failures the page has no evidence of this one; results.jsonl has."));
  }
  return parts;
}

class Detail {
  // `closed` is told when it is closed by whoever looks.
  constructor(data, closed) {
    this.data = data;
    this.heading = make("h2", {id: "detail-title", tabindex: "-1"});
    this.body = make("div");
    const close = make("button", {type: "button", class: "close"}, "Close");
    close.addEventListener("click", () => this.dialog.close());
    this.dialog = make("dialog", {"aria-labelledby": "detail-title"},
      make("div", {class: "bar-of-title"}, this.heading, close), this.body);
    this.dialog.addEventListener("close", closed);
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    document.body.append(this.dialog);
  }

  show(i) {
    this.heading.textContent = this.data.caseId(i);
    this.body.replaceChildren(...detailContent(this.data, i));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    this.heading.focus();
  }

  isOpen() { return this.dialog.open; }

  hide() {
    if (this.dialog.open) this.dialog.close();
  }
}
