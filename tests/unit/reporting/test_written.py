"""The report as CSV, HTML, JSON and text."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import re
from html import parser as html_parser
from xml.etree import ElementTree

import made_readings
import pytest

from tidemark_operator.reporting import document, drawing, figures, page, plain, report, sheet, shown, words

EVIL = '=HYPERLINK("x")<script>'


def made(answers=None, costs=made_readings.COSTS) -> figures.Report:
    full = answers or made_readings.full()
    day, start = 86_400, made_readings.QUARTER.start
    points = tuple((start + index * day, None if index in (3, 4) else index * 1e5) for index in range(90))
    shares = tuple((at, None if value is None else 0.5) for at, value in points)
    curves = {
        "tokens": (figures.Curve("prompt_tokens", points), figures.Curve("generated_tokens", points)),
        "devices": (figures.Curve("devices", tuple((at, None if value is None else 4.0) for at, value in points)),),
        "utilization": (figures.Curve("batch_fill", shares), figures.Curve("kv_usage", shares)),
    }
    gap = figures.Gap(start + 3 * day, start + 5 * day)
    answers = dataclasses.replace(full, curves=curves, coverage=0.9, gaps=(gap,))
    now = made_readings.QUARTER.end
    return report.build(answers, made_readings.QUARTER, costs, "http://prometheus:9090", now)


def with_evil_key() -> figures.Report:
    of = {name: dict(total.values) for name, total in made_readings.full().totals.items()}
    return made(made_readings.made({**of, "key_requests": {(("key", EVIL),): 3.0}}))


@pytest.mark.parametrize("language", list(words.Language))
def test_csv_is_read_back(language):
    text = sheet.text(made(), language)
    assert text.startswith(sheet.BYTE_ORDER_MARK)
    rows = list(csv.DictReader(io.StringIO(text.removeprefix(sheet.BYTE_ORDER_MARK), newline="")))
    wanted = made()
    assert len(rows) == len(wanted.figures)
    for row, figure in zip(rows, wanted.figures, strict=True):
        assert row["formula"] == figure.formula
        assert (float(row["value"]) if row["value"] else None) == figure.value
        assert bool(row["reason"]) == (figure.value is None)
        for item in figure.inputs:
            assert item.name in row["inputs"]
            assert item.source in row["sources"]
    assert {row["unit"] for row in rows if row["figure"] == "total_cost"} == {"CNY"}


def test_a_spreadsheet_computes_no_key():
    rows = list(csv.reader(io.StringIO(sheet.text(with_evil_key(), words.Language.EN)[1:], newline="")))
    assert [row[4] for row in rows if EVIL in row[4]] == ["'" + EVIL]
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)


class Tags(html_parser.HTMLParser):
    """Every tag is closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("language", list(words.Language))
def test_html_stands_alone_and_has_a_formula_beside_each_figure(language):
    found = made()
    text = page.text(found, language)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.fetched == []
    assert "@import" not in text
    assert not re.search(r"url\(", text)
    assert text.count("<tr><td>") >= len(found.figures)
    for figure in found.figures:
        assert figure.formula.replace("<", "&lt;") in text
        assert html.escape(shown.name(figure, language)) in text
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text
    assert text.count("<svg") == 4
    assert f'lang="{"zh-CN" if language is words.Language.ZH else "en"}"' in text
    assert 'class="warn"' in text


def test_html_takes_no_tag_from_a_key():
    text = page.text(with_evil_key(), words.Language.EN)
    assert "<script>" in text
    assert text.count("<script>") == 1
    assert "=HYPERLINK(&quot;x&quot;)&lt;script&gt;" in text


def test_pictures_are_xml_and_gaps_are_holes():
    found = made()
    for text in re.findall(r"<svg.*?</svg>", page.text(found, words.Language.EN), re.DOTALL):
        ElementTree.fromstring(text)
    lines = drawing.lines("x", [], found.curves["devices"], found.period, 86_400)
    assert lines.count("<polyline") == 2


def test_stacked_bars_reach_the_sum():
    curves = (figures.Curve("a", ((0.0, 3.0),)), figures.Curve("b", ((0.0, 1.0),)))
    text = drawing.bars("x", [], curves, dataclasses.replace(made_readings.QUARTER, start=0.0, end=86_400.0), 86_400)
    heights = [
        float(found)
        for found in re.findall(r'class="f\d" x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)"', text)
    ]
    assert heights[-2:] == [pytest.approx(heights[-1] * 3, abs=0.2), heights[-1]]


def test_nothing_to_draw_is_no_picture():
    bare = dataclasses.replace(made(costs=made_readings.NO_COSTS), curves={})
    assert "<svg" not in page.text(bare, words.Language.EN)


def test_text_has_formula_inputs_and_queries():
    text = plain.text(made(), words.Language.EN)
    assert "= depreciation + maintenance + electricity" in text
    assert "increase(tidemark_prompt_tokens_total[7776000s])" in text
    assert "2025-07-04 00:00 – 2025-07-06 00:00 (48.0 h)" in text
    assert "! Engines were scraped in 90.0 % of the period" in text
    assert "nan" not in text.lower().replace("maintenance", "")


def test_json_is_strict():
    data = json.loads(json.dumps(document.of(made(), words.Language.ZH), allow_nan=False))
    cost = next(figure for figure in data["figures"] if figure["key"] == "total_cost")
    assert cost["formula"] == "depreciation + maintenance + electricity"
    assert data["period"]["from"] == "2025-07-01T00:00:00+00:00"
    assert data["coverage"] == 0.9


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (1234567.4, "tokens", "1,234,567"),
        (0.9312, "ratio", "93.1 %"),
        (0.00123, "currency", "0.00123"),
        (1234.5, "currency", "1,234.50"),
        (0.0, "currency", "0.00"),
        (1.5e15, "flops", "1.500e+15"),
        (None, "tokens", "–"),
        (2.0, "devices", "2"),
        (2.5, "devices", "2.50"),
    ],
)
def test_numbers_for_people(value, unit, wanted):
    figure = figures.Figure(key="x", group=figures.Group.COST, unit=unit, formula="x", value=value)
    assert shown.value(figure) == wanted
