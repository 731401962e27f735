"""How the page looks: light and dark, on a wide screen, a narrow one and paper; Okabe and Ito's colours."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root {
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2126; --soft: #59616b; --line: #e3e0d8; --faint: #f1efe9;
  --usual: #2f6fa8; --suspect: #d55e00; --accent: #0b6e4f;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9;
  --c5: #8a7f00; --c6: #6b6f76; --c7: #7a4b94;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1c2024; --ink: #e7e5df; --soft: #a3a9b1; --line: #31373d; --faint: #24292e;
    --usual: #6cacdf; --suspect: #ff8f45; --accent: #63c7a2;
    --c0: #5aa9e0; --c1: #f0b840; --c2: #35c39a; --c3: #e09cc2; --c4: #8fd0f5;
    --c5: #cfc24a; --c6: #a7abb2; --c7: #b58ccf;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; max-width: 1100px; padding: 56px 32px 40px; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word;
}
header .kind {
  margin: 0 0 6px; color: var(--accent); font-size: 13px; font-weight: 600; letter-spacing: .08em;
  text-transform: uppercase;
}
h1 { margin: 0; font-size: clamp(28px, 5vw, 42px); line-height: 1.12; letter-spacing: -.02em;
  font-weight: 680; overflow-wrap: anywhere; text-wrap: balance; }
h2 { margin: 0 0 16px; font-size: 23px; line-height: 1.25; letter-spacing: -.01em; font-weight: 650; }
h3 { margin: 28px 0 10px; font-size: 16px; font-weight: 650; }
p { margin: 0 0 16px; max-width: 72ch; }
.lead { margin: 12px 0 0; color: var(--soft); font-size: 18px; overflow-wrap: anywhere; }
.muted, .sub { color: var(--soft); }
.sub { font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px;
  margin: 32px 0 20px; }
.tile { display: flex; flex-direction: column; gap: 2px; padding: 16px 18px; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; min-width: 0; }
.tile .label { color: var(--soft); font-size: 13px; line-height: 1.35; }
.tile .figure { font-size: 27px; line-height: 1.2; font-weight: 640; letter-spacing: -.02em; margin-top: auto;
  padding-top: 6px; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 4px 2px 0; font-size: 14px; }
nav a { color: var(--soft); text-decoration: none; border-bottom: 1px solid var(--line); }
nav a:hover, nav a:focus { color: var(--accent); border-color: currentColor; }
section { margin-top: 28px; padding: 28px 28px 24px; background: var(--card); border: 1px solid var(--line);
  border-radius: 14px; }
section > :last-child { margin-bottom: 0; }
.note { padding: 10px 14px; background: var(--faint); border-left: 3px solid var(--soft);
  border-radius: 0 8px 8px 0; color: var(--soft); }
.verdict, .advice { font-weight: 600; margin: 18px 0 8px; }
.verdict { color: var(--accent); }
.advice { color: var(--suspect); }
dl.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 0 36px;
  margin: 0; }
.pair dl.facts { grid-template-columns: 1fr; }
dl.facts div { display: flex; justify-content: space-between; gap: 24px; padding: 7px 0;
  border-top: 1px solid var(--line); min-width: 0; }
dt { color: var(--soft); flex: none; width: 170px; }
dd { margin: 0; flex: 1; min-width: 0; overflow-wrap: anywhere; }
.pair dt { width: auto; }
.pair dd { text-align: right; }
.pair { display: grid; grid-template-columns: minmax(0, 1.25fr) minmax(0, 1fr); gap: 24px 40px;
  align-items: start; }
figure { margin: 0; min-width: 0; }
figcaption { margin-top: 8px; color: var(--soft); font-size: 13.5px; max-width: 72ch; }
.scroll { overflow-x: auto; margin: 0 -4px; padding: 0 4px; }
table { width: 100%; border-collapse: collapse; font-size: 14.5px; }
th { padding: 6px 16px 8px 0; text-align: left; color: var(--soft); font-size: 13px; font-weight: 500;
  vertical-align: bottom; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { padding: 8px 16px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td:first-child { min-width: 6.6em; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; white-space: nowrap; }
.bar { display: block; position: relative; height: 8px; min-width: 60px; background: var(--faint);
  border-radius: 4px; overflow: hidden; }
td > .bar { margin-top: 8px; min-width: 110px; }
.bar i { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 2px; min-width: 2px; }
.bar i.usual { background: var(--usual); }
.bar i.suspect { background: var(--suspect); }
.bar.both::after { content: ""; position: absolute; left: 50%; top: 0; bottom: 0; width: 1px;
  background: var(--soft); }
table.suspects td.id { min-width: 110px; max-width: 220px; overflow-wrap: anywhere; }
table.suspects .sub { display: block; }
.why { display: grid; gap: 3px; min-width: 520px; }
.feature { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) 180px 58px; gap: 0 14px;
  align-items: center; font-size: 13.5px; line-height: 1.4; }
.feature .name { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; font-weight: 550; }
.feature .value, .feature .part { white-space: nowrap; }
.feature .part { text-align: right; }
.bar i.none { display: none; }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--accent); font-size: 14.5px; font-weight: 550; padding: 4px 0; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
svg text { fill: var(--soft); font-size: 12px; }
svg.picture .name { font-size: 11px; }
svg .marked { fill: var(--suspect); font-weight: 600; }
.grid { stroke: var(--line); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.threshold { stroke: var(--suspect); stroke-width: 1.5; stroke-dasharray: 5 4; }
rect.usual { fill: var(--usual); }
rect.suspect { fill: var(--suspect); }
.dots { fill: var(--usual); fill-opacity: .55; }
.frame { fill: var(--faint); stroke: var(--line); }
.picture circle { fill-opacity: .5; }
.class0 { fill: var(--c0); } .class1 { fill: var(--c1); } .class2 { fill: var(--c2); }
.class3 { fill: var(--c3); }
.class4 { fill: var(--c4); }
.class5 { fill: var(--c5); } .class6 { fill: var(--c6); } .class7 { fill: var(--c7); }
.crosses path, .cross { fill: none; stroke: var(--suspect); stroke-width: 1.6; stroke-opacity: .9; }
.crosses .beyond, .beyond { fill: var(--suspect); stroke: none; fill-opacity: .75; }
.centre { fill: var(--ink); stroke: var(--card); stroke-width: 2; }
ul.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 0 0 12px; padding: 0; list-style: none;
  font-size: 14px; }
ul.legend li { display: flex; align-items: center; gap: 7px; }
ul.legend svg { width: 14px; height: 14px; flex: none; }
footer { margin-top: 28px; color: var(--soft); font-size: 13px; text-align: center; }
@media (max-width: 820px) {
  .pair { grid-template-columns: minmax(0, 1fr); }
}
@media (max-width: 640px) {
  body { padding: 28px 14px 24px; }
  section { padding: 20px 16px 18px; border-radius: 12px; margin-top: 16px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tile { padding: 12px 14px; }
  .tile .figure { font-size: 22px; }
  .lead { font-size: 16px; }
  svg text { font-size: 17px; }
  svg.picture .name { font-size: 24px; }
  dl.facts div { gap: 14px; }
  table.suspects, table.suspects tbody, table.suspects tr, table.suspects td { display: block; }
  table.suspects thead { display: none; }
  table.suspects tr { padding: 12px 0; border-bottom: 1px solid var(--line); }
  table.suspects tr:last-child { border-bottom: 0; }
  table.suspects td { padding: 0; border: 0; max-width: none; }
  table.suspects td.n { display: inline-block; margin: 2px 16px 8px 0; color: var(--soft);
    font-size: 13.5px; }
  table.suspects td.n::before { content: attr(data-name) " "; }
  .why { min-width: 0; gap: 6px; }
  .feature { grid-template-columns: minmax(0, 1fr) auto 58px; }
  .feature .value, .feature .sub + .sub { grid-column: 2 / -1; text-align: right; }
  .feature .bar { grid-column: 1 / 3; }
  dt { width: 42%; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc; --faint: #f2f2f2; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 16pt 0 0; }
  h2, h3 { break-after: avoid; }
  figure, .tile, tr, .feature, dl.facts div { break-inside: avoid; }
  .scroll { overflow: visible; }
  .why { min-width: 0; }
  summary { display: none; }
  details::details-content { content-visibility: visible; height: auto; }
}
""".strip()
