// What the page shows, in its address: "#cases?clause=MASK-3&testee=fa2&sort=-ratio".
"use strict";

const filterKeys = ["q", "testee", "outcome", "clause", "dtype", "group", "said", "sort"];

// {anchor, filters, opened}: `opened` is a case and a testee, or null.
function readAddress() {
  const hash = location.hash.slice(1), cut = hash.indexOf("?");
  const asked = new URLSearchParams(cut < 0 ? "" : hash.slice(cut + 1));
  const filters = {};
  for (const key of filterKeys) {
    if (asked.get(key)) filters[key] = asked.get(key);
  }
  const opened = asked.get("case") ? {id: asked.get("case"), testee: asked.get("of")} : null;
  return {anchor: cut < 0 ? hash : hash.slice(0, cut), filters, opened, asks: cut >= 0};
}

function addressOf(filters, opened) {
  const words = new URLSearchParams();
  for (const key of filterKeys) {
    if (filters[key]) words.set(key, filters[key]);
  }
  if (opened) {
    words.set("case", opened.id);
    words.set("of", opened.testee);
  }
  const text = words.toString().replace(/\+/g, "%20");
  return text ? `#cases?${text}` : "#cases";
}

// In place of the present one, so that going back leaves the page and not a letter of a word.
function replaceAddress(filters, opened) {
  history.replaceState(null, "", addressOf(filters, opened));
}
