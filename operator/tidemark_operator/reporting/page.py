"""The report as one HTML file that needs nothing else: readable in the dark, on paper and in two languages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tidemark_operator.reporting import drawing, figures, plain, sentences, shown, words

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5a6472;--line:#d9dee5;--ground:#fff;--panel:#f5f7fa;--bad:#a32b00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00}
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa5b4;--line:#38414e;--ground:#14181e;--panel:#1d232b;
--bad:#ff9a70;--c0:#56b4e9;--c1:#f0894a;--c2:#2fc79b;--c3:#e09cc4;--c4:#f0b93a}}
body{font:15px/1.5 system-ui,"Noto Sans CJK SC","Microsoft YaHei",sans-serif;color:var(--ink);background:var(--ground);
max-width:70em;margin:2em auto;padding:0 1em}
h1{margin-bottom:.2em}h2{margin-top:2em;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%;table-layout:fixed}
td,th{padding:.3em .7em;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top}th{color:var(--soft);font-weight:600}
.n{width:9.5em;text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}.about,.why{color:var(--soft);font-size:.87em}
.u{width:8em}.o{width:10em;overflow-wrap:anywhere}.h{width:42%}
code{font-family:ui-monospace,monospace;font-size:.85em;overflow-wrap:anywhere}
.inputs{margin:.3em 0 0;padding-left:1.2em;font-size:.87em;color:var(--soft)}
summary{cursor:pointer}.warn{border-left:4px solid var(--bad);background:var(--panel);padding:.6em 1em;margin:.6em 0}
.warn b{color:var(--bad)}.tiles{display:flex;flex-wrap:wrap;gap:.8em;margin:1.2em 0}.tile{background:var(--panel);
padding:.7em 1em;border-radius:6px;min-width:10em;flex:1}.tile b{display:block;font-size:1.5em}
.tile small{color:var(--soft)}
svg{width:100%;height:auto;margin:.8em 0;font-size:12px}svg text{fill:var(--ink)}svg .k{fill:var(--soft)}
svg .e{text-anchor:end}svg .t{font-weight:600;font-size:13px}svg .g{stroke:var(--line)}
svg polyline{fill:none;stroke-width:1.6}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--ground:#fff;--panel:#f2f2f2;--bad:#a32b00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00}body{max-width:none;margin:0;font-size:10pt}
tr,svg,.tile{break-inside:avoid}h2{break-after:avoid}details>*{display:block}}
"""
_OPEN_FOR_PRINT = """
const all=()=>document.querySelectorAll("details");let shut=[];
addEventListener("beforeprint",()=>{shut=[...all()].filter(d=>!d.open);shut.forEach(d=>d.open=true)});
addEventListener("afterprint",()=>shut.forEach(d=>d.open=false));
"""
_TILES = (
    "total_tokens",
    "device_hours",
    "peak_devices",
    "busy_share",
    "total_cost",
    "cost_per_million_tokens",
    "devices_saved",
    "prefix_share",
)


def text(report: figures.Report, language: words.Language) -> str:
    """A whole document."""
    title = f"{sentences.heading('title', language)}: {report.period.day(report.period.start)} – {_last_day(report)}"
    lang = "zh-CN" if language is words.Language.ZH else "en"
    parts = [
        "<!doctype html>",
        f'<html lang="{lang}"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        *_warnings(report, language),
        *_tiles(report, language),
        *_pictures(report, language),
        *(_group(report, group, language) for group in figures.Group),
        _rows_of(report, language),
        *_about(report, language),
        f"<script>{_OPEN_FOR_PRINT}</script></body></html>",
        "",
    ]
    return "\n".join(parts)


def _last_day(report: figures.Report) -> str:
    """The last one within: a quarter ends on 30 September, not on 1 October."""
    return report.period.day(report.period.end - 1)


def _warnings(report: figures.Report, language: words.Language) -> list[str]:
    if not report.warnings:
        return []
    head = html.escape(sentences.heading("warnings", language))
    found = "".join(
        f'<p class="warn"><b>!</b> {html.escape(sentences.sentence(remark, language))}</p>'
        for remark in report.warnings
    )
    return [f'<section aria-label="{head}">{found}</section>']


def _tiles(report: figures.Report, language: words.Language) -> list[str]:
    tiles = []
    for key in _TILES:
        figure = report.find(key)
        unit = shown.unit(figure, report, language) if figure.value is not None else ""
        tiles.append(
            f'<div class="tile">{html.escape(shown.name(figure, language))}<b>{html.escape(shown.value(figure))}</b>'
            f"<small>{html.escape(unit)}</small></div>"
        )
    return ['<div class="tiles">', *tiles, "</div>"]


def _pictures(report: figures.Report, language: words.Language) -> list[str]:
    found: list[str] = []
    for key, kind in (("tokens", drawing.bars), ("devices", drawing.lines)):
        curves = report.curves.get(key, ())
        if any(value for curve in curves for _, value in curve.points):
            step = _step(curves)
            title = "tokens_picture_hour" if key == "tokens" and step <= 3600 else f"{key}_picture"
            names = _names(curves, language) if len(curves) > 1 else []
            found.append(kind(sentences.heading(title, language), names, curves, report.period, step))
    used = report.curves.get("utilization", ())
    if used:
        title = sentences.heading("utilization_picture", language)
        found.append(drawing.lines(title, _names(used, language), used, report.period, _step(used), 1.0))
    costs = [report.find(key) for key in ("depreciation", "maintenance", "electricity")]
    split = [(shown.name(each, language), each.value, shown.value(each)) for each in costs if each.value is not None]
    if report.find("total_cost").value:
        title = f"{sentences.heading('cost_picture', language)} ({report.currency})"
        found.append(drawing.split(title, split))
    return found


def _names(curves: Sequence[figures.Curve], language: words.Language) -> list[str]:
    return [words.FIGURES[curve.name].name.of(language) for curve in curves]


def _step(curves: Sequence[figures.Curve]) -> float:
    points = curves[0].points
    return points[1][0] - points[0][0] if len(points) > 1 else 86_400.0


def _group(report: figures.Report, group: figures.Group, language: words.Language) -> str:
    rows = [figure for figure in report.figures if figure.group is group and not figure.of_kind]
    head = f"<h2>{html.escape(words.GROUPS[group.value].of(language))}</h2>"
    return head + _table(report, rows, language, with_of=False) if rows else ""


def _rows_of(report: figures.Report, language: words.Language) -> str:
    rows = [figure for figure in report.figures if figure.of_kind]
    head = f"<h2>{html.escape(sentences.heading('by_service', language))}</h2>"
    return head + _table(report, rows, language, with_of=True) if rows else ""


def _table(report: figures.Report, rows: Iterable[figures.Figure], language: words.Language, *, with_of: bool) -> str:
    names = ["figure", *(["of"] if with_of else []), "value", "unit", "how"]
    cells = "".join(f"<th{_column(name)}>{html.escape(sentences.heading(name, language))}</th>" for name in names)
    body = "".join(_row(report, figure, language, with_of) for figure in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _column(name: str) -> str:
    kind = {"value": "n", "unit": "u", "of": "o", "how": "h"}.get(name)
    return f' class="{kind}"' if kind else ""


def _row(report: figures.Report, figure: figures.Figure, language: words.Language, with_of: bool) -> str:
    about = words.FIGURES[figure.key].about.of(language)
    named = html.escape(shown.name(figure, language))
    first = named if with_of else f'{named}<div class="about">{html.escape(about)}</div>'
    of = f"<td>{html.escape(figure.of)}</td>" if with_of else ""
    why = shown.reason(figure, language)
    reason = f'<div class="why">{html.escape(why)}</div>' if why else ""
    return (
        f'<tr><td>{first}</td>{of}<td class="n">{html.escape(shown.value(figure))}</td>'
        f"<td>{html.escape(shown.unit(figure, report, language))}</td><td>{reason}{_how(figure, language)}</td></tr>"
    )


def _how(figure: figures.Figure, language: words.Language) -> str:
    origin = html.escape(sentences.heading("from", language))
    inputs = "".join(
        f"<li><code>{html.escape(item.name)} = {shown.number(item.value)}</code> {origin} "
        f"<code>{html.escape(shown.origin(item, language))}</code></li>"
        for item in figure.inputs
    )
    formula = f"<code>{html.escape(figure.formula)}</code>"
    if not inputs:
        return formula
    return f'<details><summary>{formula}</summary><ul class="inputs">{inputs}</ul></details>'


def _about(report: figures.Report, language: words.Language) -> list[str]:
    period = report.period
    facts = {
        "period": f"{period.moment(period.start)} – {period.moment(period.end)} ({period.zone})",
        "source": report.prometheus,
        "coverage": f"{report.coverage * 100:.1f} %",
        "gaps": plain.gaps(report, language),
        "baseline": report.baseline_source or sentences.heading("no_baseline", language),
        "made": f"{period.moment(report.made_at)} ({period.zone})",
    }
    rows = "".join(
        f"<tr><td>{html.escape(sentences.heading(key, language))}</td><td>{html.escape(value)}</td></tr>"
        for key, value in facts.items()
    )
    notes = "".join(f"<li>{html.escape(sentences.sentence(remark, language))}</li>" for remark in report.notes)
    return [f"<h2>{html.escape(sentences.heading('notes', language))}</h2><table>{rows}</table><ul>{notes}</ul>"]
