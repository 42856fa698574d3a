// What lies compressed in the page: all verdicts, as columns (columns.h).
"use strict";

// An element with attributes and content; text never becomes markup.
function make(tag, attributes = {}, ...content) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...content);
  return element;
}

// Compressed JSON in an element of that id.
async function unpacked(id) {
  const digits = atob(document.getElementById(id).textContent.trim());
  const bytes = new Uint8Array(digits.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = digits.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A number of two digits (code.h).
function valueOf(code) {
  if (code === -1) return NaN;
  if (code === -2) return Infinity;
  if (code === 0) return 0;
  const digits = (code - 1) % 90 + 10, exponent = Math.floor((code - 1) / 90) - 40;
  return Number(`${digits}e${exponent - 1}`);
}

function textOf(code) {
  const value = valueOf(code);
  return Number.isNaN(value) ? "nan" : value === Infinity ? "inf" : String(value);
}

function timeText(code) {
  const seconds = valueOf(code);
  if (seconds < 1e-3) return `${Number((seconds * 1e6).toPrecision(2))} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(2))} ms`;
  return `${seconds} s`;
}

// Codes in the order of what they stand for; NaN is worse than anything.
function rankOf(code) {
  return code >= 0 ? code : code === -2 ? 30000 : 30001;
}

function countText(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

const tones = {
  PASS: "good", WARN: "warn", UNSUPPORTED: "mute", INCONCLUSIVE: "warn", NOT_RUN: "warn",
};

function toneOf(outcome) {
  return tones[outcome] || "bad";
}

// Neither conformant nor a refusal (digest.h).
function isFailure(outcome) {
  return outcome !== "PASS" && outcome !== "WARN" && outcome !== "UNSUPPORTED";
}

class Data {
  constructor(told) {
    Object.assign(this, told);
    const columns = told.verdicts;
    this.count = columns.testee.length;
    this.testee = Uint16Array.from(columns.testee);
    this.outcome = Uint8Array.from(columns.outcome);
    this.saidOf = Uint16Array.from(columns.said);
    this.clauseList = Uint16Array.from(columns.clauses);
    this.tensorList = Uint16Array.from(columns.tensors);
    this.time = Int16Array.from(columns.time);
    this.reproOf = Uint16Array.from(columns.repro);
    this.group = Uint32Array.from(columns.group);
    this.ratio = Int16Array.from(columns.ratio);
    this.caseOf = new Uint32Array(this.count);
    this.cases.verdicts.reduce((at, many, number) => {
      this.caseOf.fill(number, at, at + many);
      return at + many;
    }, 0);
    this.findRatios();
    this.evidenceAt = new Map(this.evidence.map((each) => [each.at, each]));
  }

  // Where the ratios of a verdict begin, and which of them is the worst.
  findRatios() {
    this.firstRatio = new Uint32Array(this.count + 1);
    this.worst = new Uint16Array(this.count);  // its rank
    this.worstTensor = new Int8Array(this.count).fill(-1);
    let at = 0;
    for (let i = 0; i < this.count; ++i) {
      this.firstRatio[i] = at;
      for (const tensor of this.tensor_lists[this.tensorList[i]]) {
        const rank = rankOf(this.ratio[at++]);
        if (this.worstTensor[i] >= 0 && rank <= this.worst[i]) continue;
        this.worst[i] = rank;
        this.worstTensor[i] = tensor;
      }
    }
    this.firstRatio[this.count] = at;
  }

  caseId(i) { return this.cases.id[this.caseOf[i]]; }
  dtype(i) { return this.dtypes[this.cases.dtype[this.caseOf[i]]]; }
  outcomeName(i) { return this.outcomes[this.outcome[i]]; }
  clausesOf(i) { return this.clause_lists[this.clauseList[i]].map((each) => this.clauses[each]); }
  reproText(i) { return this.repro[this.reproOf[i]].replace("\x01", () => this.caseId(i)); }

  // [tensor, code] of each that was compared.
  ratiosOf(i) {
    const first = this.firstRatio[i];
    return this.tensor_lists[this.tensorList[i]].map(
      (tensor, place) => [this.tensors[tensor], this.ratio[first + place]]);
  }

  worstText(i) {
    if (this.worstTensor[i] < 0) return "";
    const rank = this.worst[i];
    const code = rank === 30001 ? -1 : rank === 30000 ? -2 : rank;
    return `${this.tensors[this.worstTensor[i]]} ${textOf(code)}`;
  }

  // The verdict of a case and a testee; -1 if there is none.
  find(caseId, testee) {
    const number = this.cases.id.indexOf(caseId), whose = this.testees.indexOf(testee);
    let at = this.caseOf.indexOf(number);
    if (number < 0 || at < 0) return -1;
    for (; at < this.count && this.caseOf[at] === number; ++at) {
      if (this.testee[at] === whose) return at;
    }
    return -1;
  }
}
