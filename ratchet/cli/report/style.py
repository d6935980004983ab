"""How the page looks, by day and by night; nothing in it is loaded from anywhere."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#f6f6f4;--card:#fff;--ink:#1c1d20;--muted:#6a6f78;--line:#e5e5e1;--soft:#f1f1ee;
--accent:#3454d1;--good:#178a55;--bad:#c63d37;--warn:#b26a00;--band:#3454d122;
--c0:#8a8f98;--c1:#3454d1;--c2:#d9822b;--c3:#178a55;--c4:#a23fb5;--c5:#0e8a9c;--c6:#c63d6f;--c7:#7a6a00;--c8:#6b55d9}
@media(prefers-color-scheme:dark){:root{--bg:#101214;--card:#181b1e;--ink:#e9eaec;--muted:#989ea8;--line:#2a2e33;
--soft:#1f2327;--accent:#8ba3ff;--good:#45c989;--bad:#f4776f;--warn:#e6ad4a;--band:#8ba3ff26;
--c0:#8d939c;--c1:#8ba3ff;--c2:#f0a35c;--c3:#45c989;--c4:#d68be6;--c5:#4cc3d6;--c6:#f07ba6;--c7:#d3c04a;--c8:#a99bff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:36px 24px 72px}
header h1{font-size:30px;letter-spacing:-.02em;margin:0}
header p,.note,.empty{color:var(--muted);margin:4px 0 0}
nav{display:flex;gap:8px;flex-wrap:wrap;margin-top:14px}
nav a{padding:3px 12px;border:1px solid var(--line);border-radius:99px;color:var(--ink);text-decoration:none}
h2{font-size:24px;letter-spacing:-.015em;margin:44px 0 0}
h3{font-size:17px;margin:38px 0 12px}
h4{font-size:15px;margin:0 0 2px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace;background:var(--soft);padding:1px 6px;border-radius:5px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin-top:18px}
.card,.tile{background:var(--card);border:1px solid var(--line);border-radius:14px}
.tile{padding:14px 16px}.tile b{display:block;font-size:25px;letter-spacing:-.02em;line-height:1.25;font-weight:600}
.tile span{color:var(--muted);font-size:13px;display:block}
.card{padding:18px 20px;margin-bottom:14px;overflow-x:auto}
.card .caption{color:var(--muted);font-size:13px;margin:0 0 8px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:14px 28px}
.pair>.card{margin-bottom:0}
.triple{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:8px 24px}
.head{display:flex;gap:10px;align-items:baseline;flex-wrap:wrap;margin-bottom:2px}
.pill{font-size:12px;font-weight:600;padding:1px 9px;border-radius:99px;border:1px solid currentColor;
white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.over{color:var(--muted)}
.trouble{border-left:3px solid var(--bad);padding:2px 12px;margin:12px 0 0}
.verdict{margin:12px 0 0}.verdict b{font-weight:600}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--muted);text-align:left;padding:3px 14px 5px 0;border-bottom:1px solid var(--line)}
td{padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child>td{border-bottom:0}td.n,th.n{text-align:right;white-space:nowrap}td.who{min-width:114px}.narrow{max-width:480px}td.w,span.w{white-space:nowrap}
details summary{cursor:pointer;color:var(--accent);font-size:12.5px;width:max-content}
details pre{margin:6px 0;max-height:340px;overflow:auto;background:var(--soft);padding:10px;border-radius:8px;
font:12px/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
svg{display:block;font:11.5px system-ui,-apple-system,"Segoe UI",sans-serif}
svg.chart{width:100%;height:auto;min-width:420px}.triple svg.chart,.narrow svg.chart{min-width:0}
svg text{fill:var(--ink)}svg .tick{fill:var(--muted);font-size:11px}
.arms{max-width:640px;margin-top:8px}svg .strong{fill:var(--ink)}svg .said{font-weight:600;font-size:12px;
paint-order:stroke;stroke:var(--card);stroke-width:4px;
stroke-linejoin:round}svg .said.muted{font-weight:400;fill:var(--muted)}
svg .grid{stroke:var(--line)}svg .zero{stroke:var(--muted);stroke-dasharray:2 3}
svg .threshold{stroke:var(--warn);stroke-dasharray:5 4}svg .ramp{stroke:var(--muted);stroke-dasharray:1 4}
svg .band{fill:var(--band)}svg .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .line.effect{stroke:var(--accent)}svg .line.gain{stroke:var(--good)}svg .line.harm{stroke:var(--bad)}
svg .line.trunk{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:4 4}
svg .dot{stroke:var(--card);stroke-width:1.5}svg .dot.effect{fill:var(--accent)}
svg .dot.gain{fill:var(--good)}svg .dot.harm{fill:var(--bad)}
svg .said.effect{fill:var(--accent)}svg .said.gain{fill:var(--good)}svg .said.harm{fill:var(--bad)}
svg .bar{stroke-width:3;stroke-linecap:round;opacity:.55}svg .diamond{stroke-width:1.6;fill:var(--card)}
svg .edge{fill:none;stroke:var(--line);stroke-width:2}svg .edge.taken{stroke:var(--good)}
svg .box{fill:var(--card);stroke:var(--line);stroke-width:1.4}svg .name{font-weight:600;font-size:14px}
svg .state{font-size:12px;fill:var(--muted)}svg .lamp{fill:currentColor}svg .node{color:var(--muted)}
svg .node.good{color:var(--good)}svg .node.bad{color:var(--bad)}svg .node.warn{color:var(--warn)}
svg .node.good .box,svg .node.warn .box{stroke:currentColor}
"""

COLOURED = "".join(
    f"svg .dot.c{n},svg .share.c{n}{{fill:var(--c{n})}}svg .bar.c{n},svg .diamond.c{n}{{stroke:var(--c{n})}}"
    f".key.c{n}{{background:var(--c{n})}}"
    for n in range(9)
) + (".key{display:inline-block;width:10px;height:10px;border-radius:3px;margin:0 5px 0 8px}")
