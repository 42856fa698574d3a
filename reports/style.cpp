#include "reports/style.h"

namespace attest {
namespace {

constexpr char kStyleSheet[] = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --raised: #f5f6f8; --line: #dcdfe4; --text: #1c2024; --quiet: #60646c;
  --link: #0b5cad;
  --good: #18794e; --good-soft: #e3f4ea;
  --bad: #c62a2f; --bad-soft: #fdebeb;
  --warn: #8a5a00; --warn-soft: #fdf3d7;
  --mute: #8b8f97; --mute-soft: #eef0f2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --raised: #1d2024; --line: #33373d; --text: #e8eaed; --quiet: #a0a5ad;
    --link: #7cb7ff;
    --good: #5bd39a; --good-soft: #173226;
    --bad: #ff8a8a; --bad-soft: #3c1d1f;
    --warn: #f2c35b; --warn-soft: #38301a;
    --mute: #7f858e; --mute-soft: #262a2f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 76rem;
  background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
h1 { font-size: 1rem; font-weight: 600; color: var(--quiet); margin: 0 0 .75rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 60rem; }
a { color: var(--link); }
nav a { margin-right: 1.1rem; white-space: nowrap; }
code, pre { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre {
  margin: .25rem 0 .75rem; padding: .6rem .8rem; max-height: 24rem; overflow: auto;
  background: var(--raised); border: 1px solid var(--line); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
.quiet { color: var(--quiet); }
.conclusion {
  margin: 0 0 1rem; padding: 1rem 1.25rem; border-radius: 8px; border-left: 6px solid;
  font-size: 1.3rem; line-height: 1.4; font-weight: 600; max-width: none; overflow-wrap: anywhere;
}
.good { color: var(--good); }
.bad { color: var(--bad); }
.warn { color: var(--warn); }
.mute { color: var(--mute); }
.conclusion.good, td.good { background: var(--good-soft); }
.conclusion.bad, td.bad { background: var(--bad-soft); }
.conclusion.warn, td.warn { background: var(--warn-soft); }
td.bad a { color: inherit; font-weight: 600; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; }
.facts dt { color: var(--quiet); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  padding: .3rem .75rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top;
}
th { font-weight: 600; color: var(--quiet); white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.id { white-space: nowrap; }
td.id code { overflow-wrap: normal; }
.bar {
  display: flex; width: 14rem; height: .8rem; margin-top: .35rem;
  border-radius: 4px; overflow: hidden; background: var(--mute-soft);
}
.bar span { min-width: 2px; }
.bar .good { background: var(--good); }
.bar .bad { background: var(--bad); }
.bar .warn { background: var(--warn); }
.bar .mute { background: var(--mute); }
.interval { width: 14rem; margin-top: .35rem; background: var(--mute-soft); }
.interval span { display: block; height: .8rem; min-width: 2px; background: var(--good); }
details { margin: .3rem 0; }
summary { cursor: pointer; }
.failure { border: 1px solid var(--line); border-radius: 6px; }
.failure > summary { padding: .45rem .75rem; overflow-wrap: anywhere; }
.failure[open] > summary { border-bottom: 1px solid var(--line); }
.failure > section { padding: .6rem .9rem .3rem; }
.failure:target { outline: 2px solid var(--link); }
.badge {
  display: inline-block; padding: 0 .5rem; border-radius: 4px; font-size: .8rem; font-weight: 600;
  border: 1px solid; white-space: nowrap;
}
.repro { user-select: all; }
)css";

}  // namespace

Markup style_sheet() { return Markup::raw(kStyleSheet); }

}  // namespace attest
