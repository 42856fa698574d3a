// The table of all verdicts: filters, order, and rows that exist only while they are seen.
"use strict";

const rowHeight = 36, spareRows = 10;

// Places of verdicts that pass the filters, in order.
function selectedPlaces(data, filters) {
  const words = (filters.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const whose = filters.testee === undefined ? -1 : data.testees.indexOf(filters.testee);
  const clause = data.clauses.findIndex(([id]) => id === filters.clause);
  const lists = data.clause_lists.map((list) => list.includes(clause));
  const outcomes = data.outcomes.map((name) => !filters.outcome || name === filters.outcome ||
    (filters.outcome === "failures" && isFailure(name)));
  const dtype = data.dtypes.indexOf(filters.dtype);
  const lower = (list) => list.map((each) => each.toLowerCase());
  const ids = lower(data.cases.id), testees = lower(data.testees), said = lower(data.said);
  const passes = (i) => {
    const number = data.caseOf[i];
    return outcomes[data.outcome[i]] &&
      (filters.testee === undefined || data.testee[i] === whose) &&
      (!filters.clause || lists[data.clauseList[i]]) &&
      (!filters.dtype || data.cases.dtype[number] === dtype) &&
      (!filters.group || data.group[i] === Number(filters.group)) &&
      (!filters.said || data.saidOf[i] === Number(filters.said)) &&
      words.every((word) => ids[number].includes(word) ||
        testees[data.testee[i]].includes(word) || said[data.saidOf[i]].includes(word));
  };
  const places = [];
  for (let i = 0; i < data.count; ++i) {
    if (passes(i)) places.push(i);
  }
  return sortedPlaces(data, places, filters.sort);
}

// "-ratio": the largest first. By case without a word; what is equal stays in that order.
function sortedPlaces(data, places, sort) {
  if (!sort) return places;
  const down = sort.startsWith("-"), key = down ? sort.slice(1) : sort;
  const columns = {testee: data.testee, outcome: data.outcome, ratio: data.worst,
    time: data.time, case: data.caseOf};
  const dtypes = key === "format" ? data.caseOf.map((each) => data.cases.dtype[each]) : null;
  const column = dtypes || columns[key];
  if (!column) return places;
  const sign = down ? -1 : 1;
  return places.sort((a, b) => sign * (column[a] - column[b]) || a - b);
}

class Table {
  // `open` is told of the place whose row is pressed.
  constructor(data, frame, filters, open) {
    Object.assign(this, {data, frame, filters, open, places: [], first: -1, focused: -1});
    frame.replaceChildren(this.makeForm(), this.makeStatus(), this.makeScroller());
    this.refresh();
  }

  makeForm() {
    const data = this.data;
    const outcomes = data.outcomes.filter((name, i) => data.outcome.includes(i));
    this.search = make("input", {type: "search", id: "search", autocomplete: "off",
      spellcheck: "false", placeholder: "case, testee or message"});
    this.search.addEventListener("input", () => this.change("q", this.search.value));
    this.chosen = {
      testee: this.makeChoice("testee", "Testee", data.testees),
      outcome: this.makeChoice("outcome", "Outcome", ["failures", ...outcomes]),
      dtype: this.makeChoice("dtype", "Format", data.dtypes),
      clause: this.makeChoice("clause", "Clause", data.clauses.map(([id]) => id),
        data.clauses.map(([id, title]) => title ? `${id} ${title}` : id)),
    };
    const clear = make("button", {type: "button"}, "Clear");
    clear.addEventListener("click", () => {
      this.filters = {};
      this.moved();
    });
    const labelled = (id, text, control) =>
      make("span", {class: "control"}, make("label", {for: id}, text), control);
    const choices = Object.entries(this.chosen).map(
      ([key, select]) => labelled(select.id, select.dataset.title, select));
    const form = make("form", {role: "search", "aria-label": "Cases"},
      labelled("search", "Search", this.search), ...choices, clear);
    form.addEventListener("submit", (event) => event.preventDefault());
    return form;
  }

  makeChoice(key, title, values, texts = values) {
    const select = make("select", {id: `filter-${key}`, "data-title": title},
      make("option", {value: ""}, "all"));
    values.forEach((value, i) => select.append(make("option", {value}, texts[i])));
    select.addEventListener("change", () => this.change(key, select.value));
    return select;
  }

  makeStatus() {
    this.status = make("p", {class: "quiet", role: "status"});
    return this.status;
  }

  makeScroller() {
    const columns = [["outcome", "Outcome"], ["case", "Case"], ["testee", "Testee"],
      ["format", "Format"], ["ratio", "Largest ratio"], ["time", "Time"]];
    this.heads = columns.map(([key, title]) => {
      const button = make("button", {type: "button"}, title);
      button.addEventListener("click", () => this.sortBy(key));
      return make("th", {scope: "col", class: `column-${key}`, "data-key": key}, button);
    });
    this.before = make("tbody", {"aria-hidden": "true"}, make("tr", {}, make("td")));
    this.rows = make("tbody");
    this.after = make("tbody", {"aria-hidden": "true"}, make("tr", {}, make("td")));
    this.table = make("table", {class: "cases"}, make("thead", {}, make("tr", {}, ...this.heads)),
      this.before, this.rows, this.after);
    this.scroller = make("div", {class: "scroll virtual", tabindex: "0", role: "group",
      "aria-label": "Cases: arrows go from row to row"}, this.table);
    this.scroller.addEventListener("scroll", () => this.draw(), {passive: true});
    this.scroller.addEventListener("keydown", (event) => this.pressed(event));
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) this.open(this.places[Number(row.dataset.row)]);
    });
    return this.scroller;
  }

  change(key, value) {
    if (value) this.filters[key] = value;
    else delete this.filters[key];
    this.moved();
  }

  sortBy(key) {
    const present = this.filters.sort || "case";
    const down = key === "ratio" || key === "time" ? `-${key}` : key;
    const other = down === key ? `-${key}` : key;
    this.change("sort", present === down ? other : down);
  }

  // The filters are others: the address says so.
  moved() {
    replaceAddress(this.filters, null);
    this.refresh();
  }

  show(filters) {
    this.filters = {...filters};
    this.refresh();
  }

  refresh() {
    const data = this.data, filters = this.filters;
    this.places = selectedPlaces(data, filters);
    if (document.activeElement !== this.search) this.search.value = filters.q || "";
    for (const [key, select] of Object.entries(this.chosen)) select.value = filters[key] || "";
    const more = [filters.group ? `failures of group ${filters.group}` : "",
      filters.said ? `said: ${data.said[Number(filters.said)] || "nothing"}` : ""].filter(Boolean);
    this.status.textContent = `${this.places.length.toLocaleString("en")} of ` +
      countText(data.count, "verdict") + (more.length ? `; ${more.join("; ")}` : "");
    for (const head of this.heads) {
      const sort = filters.sort || "case", key = head.dataset.key;
      const order = sort === key ? "ascending" : sort === `-${key}` ? "descending" : null;
      if (order) head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    }
    this.table.setAttribute("aria-rowcount", String(this.places.length + 1));
    this.scroller.scrollTop = 0;
    this.first = -1;
    this.focused = -1;
    this.draw();
  }

  // The rows that are seen, and some beside.
  draw() {
    const seen = Math.ceil(this.scroller.clientHeight / rowHeight) || 20;
    const top = Math.floor(this.scroller.scrollTop / rowHeight);
    const first = Math.max(0, Math.min(top, this.places.length - seen) - spareRows);
    const last = Math.min(this.places.length, top + seen + spareRows);
    if (this.first >= 0 && first <= Math.max(0, top - 1) && this.first <= Math.max(0, top - 1) &&
        this.last >= Math.min(this.places.length, top + seen + 1)) {
      return;
    }
    this.first = first;
    this.last = last;
    this.before.rows[0].style.height = `${first * rowHeight}px`;
    this.after.rows[0].style.height = `${(this.places.length - last) * rowHeight}px`;
    this.before.hidden = first === 0;
    this.after.hidden = last === this.places.length;
    const rows = [];
    for (let row = first; row < last; ++row) rows.push(this.makeRow(row));
    const held = this.rows.contains(document.activeElement);
    this.rows.replaceChildren(...rows);
    if (held) this.focusRow(this.focused);
  }

  makeRow(row) {
    const data = this.data, i = this.places[row], outcome = data.outcomeName(i);
    const tone = toneOf(outcome), id = data.caseId(i);
    const button = make("button", {type: "button", title: id,
      tabindex: row === Math.max(0, this.focused) ? "0" : "-1"}, id);
    button.addEventListener("focus", () => { this.focused = row; });
    return make("tr", {"aria-rowindex": String(row + 2), "data-row": String(row)},
      make("td", {}, make("span", {class: `badge ${tone}`}, outcome)),
      make("td", {class: "id"}, button),
      make("td", {}, data.testees[data.testee[i]]),
      make("td", {}, data.dtype(i)),
      make("td", {class: "number"}, data.worstText(i)),
      make("td", {class: "number"}, timeText(data.time[i])));
  }

  focusRow(row) {
    const button = this.rows.querySelector(`tr[data-row="${row}"] button`);
    if (button) button.focus({preventScroll: true});
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / rowHeight) - 2);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -this.places.length, End: this.places.length};
    const step = steps[event.key];
    if (step === undefined || this.places.length === 0 || event.target.closest("thead")) return;
    event.preventDefault();
    const wanted = this.focused < 0 ? 0 : this.focused + step;
    this.focused = Math.min(this.places.length - 1, Math.max(0, wanted));
    const top = this.focused * rowHeight, height = this.scroller.clientHeight - 2 * rowHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top > this.scroller.scrollTop + height) this.scroller.scrollTop = top - height;
    this.draw();
    this.focusRow(this.focused);
  }
}
