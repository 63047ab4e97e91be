"""The report of `tidemark inspect` as one HTML file: no asset from elsewhere, readable in the dark, fit to print.

Pure.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark_operator.commands import inspect_words as words
from tidemark_operator.commands import status_text
from tidemark_operator.monitoring.rules.model import Language

_STYLE = """\
:root { color-scheme: light dark; --line: #d0d7de; --dim: #59636e; --card: #f6f8fa;
  --critical: #b3261e; --warning: #8a5a00; --info: #0a58a8; --fine: #1a6b33; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --dim: #9aa4af; --card: #1c2128;
  --critical: #ff8a80; --warning: #e8b04b; --info: #79b8ff; --fine: #6fd08c; } }
body { font: 15px/1.5 system-ui, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .3rem 0 } .dim { color: var(--dim) } code { font-size: .9em; overflow-wrap: anywhere }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; list-style: none }
.counts li { border: 1px solid var(--line); border-radius: .4rem; padding: .3rem .8rem }
.counts b { font-size: 1.3rem; margin-right: .3rem }
article { background: var(--card); border-left: .3rem solid var(--line); border-radius: .3rem; padding: .6rem 1rem;
  margin: .6rem 0; break-inside: avoid }
.critical { border-color: var(--critical) } .warning { border-color: var(--warning) }
.info { border-color: var(--info) }
h2.critical, b.critical { color: var(--critical) } h2.warning, b.warning { color: var(--warning) }
h2.info, b.info { color: var(--info) } h2.fine, b.fine { color: var(--fine) }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0;
  text-align: left; vertical-align: top }
@media print { body { max-width: none; margin: 0 } article { border: 1px solid var(--line); border-left-width: .3rem } }
"""


def render(document: Mapping[str, Any]) -> str:
    """The whole file."""
    language = Language(document["language"])
    title = f"{words.TITLE.of(language)} {document['at']}"
    body = "\n".join(_body(document, language))
    return (
        f'<!doctype html>\n<html lang="{"zh-CN" if language is Language.ZH else "en"}">\n<head>\n'
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(document: Mapping[str, Any], language: Language) -> Iterator[str]:
    yield f"<h1>{words.TITLE.of(language)}</h1>"
    asked = [status_text.source(item) if isinstance(item, Mapping) else item for item in document["source"]["asked"]]
    history = words.history(document, language)
    for line in (document["at"], *asked, history):
        yield f'<p class="dim">{_text(line)}</p>'
    yield from _counts(document["summary"], language)
    for severity, title in words.SEVERITIES.items():
        found = [item for item in document["findings"] if item["severity"] == severity]
        if found:
            yield f'<h2 class="{severity}">{title.of(language)}</h2>'
        for item in found:
            yield from _finding(item, language)
    if not document["services"]:
        yield f"<p>{words.NO_SERVICE.of(language)}</p>"
    elif not document["findings"]:
        yield f"<p>{words.NO_FINDING.of(language)}</p>"
    yield from _checks(document["checks"], language)


def _counts(summary: Mapping[str, int], language: Language) -> Iterator[str]:
    shown = [(key, summary[key], word.of(language)) for key, word in words.COUNTED.items()]
    shown.append(("fine", summary["fine"], words.FINE.of(language).lower()))
    shown.append(("", summary["notChecked"], words.NOT_CHECKED.of(language).lower()))
    items = "".join(f'<li><b class="{name}">{number}</b>{word}</li>' for name, number, word in shown)
    yield f'<ul class="counts">{items}</ul>'


def _finding(item: Mapping[str, Any], language: Language) -> Iterator[str]:
    where = " ".join(filter(None, (item["service"] or words.SITE.of(language), item["pod"])))
    yield f'<article class="{item["severity"]}">'
    yield f'<p class="dim"><code>{_text(where)}</code> · {_text(item["check"])}</p>'
    yield f"<p><strong>{_text(item['what'])}</strong></p>"
    yield f"<p>{words.DO.of(language)}: {_text(item['advice'])}</p>"
    evidence = "; ".join(item["evidence"])
    yield f'<p class="dim">{words.SEEN.of(language)}: <code>{_text(evidence)}</code></p>'
    if item["runbook"]:
        link = f'<a href="{html.escape(item["runbookUrl"], quote=True)}">{_text(item["runbook"])}</a>'
        yield f"<p>{words.RUNBOOK.of(language)}: {link}</p>"
    yield "</article>"


def _checks(checks: Sequence[Mapping[str, Any]], language: Language) -> Iterator[str]:
    fine = [check for check in checks if check["state"] == "fine" or check["fine"]]
    yield f'<h2 class="fine">{words.FINE.of(language)}</h2><table>'
    for check in fine:
        partly = check["state"] == "found" or check["notChecked"]
        where = f"<br><code>{_text(', '.join(check['fine']))}</code>" if partly and check["fine"] else ""
        yield f"<tr><td>{_text(check['title'])}</td><td>{_text(check['fineMeans'])}{where}</td></tr>"
    yield "</table>"
    yield f"<h2>{words.NOT_CHECKED.of(language)}</h2><table>"
    for check in checks:
        for gap in check["notChecked"]:
            where = f"<code>{_text(gap['service'])}</code>: " if gap["service"] else ""
            yield f"<tr><td>{_text(check['title'])}</td><td>{where}{_text(gap['why'])}</td></tr>"
    yield "</table>"


def _text(words_: str) -> str:
    return html.escape(words_, quote=False)
