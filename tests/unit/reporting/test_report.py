"""The report as a whole: parts sum to totals, every figure can be recomputed, and what cannot be known has a reason."""

from __future__ import annotations

import dataclasses
import math
import string

import made_readings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_operator.reporting import cost_file, figures, formulas, queries, report, sentences, words

NOW = made_readings.QUARTER.end + 100


def build(answers, costs=made_readings.COSTS, period=made_readings.QUARTER):
    return report.build(answers, period, costs, "http://prometheus:9090", NOW)


def recomputed(figure: figures.Figure) -> float:
    """As an auditor would: the text of the formula over the inputs."""
    if figure.formula == formulas.SUM:
        return math.fsum(item.value for item in figure.inputs)
    inputs = {item.name: item.value for item in figure.inputs}
    assert len(inputs) == len(figure.inputs), f"{figure.key}: two inputs of one name"
    return float(eval(figure.formula, {"max": max, "round": round}, inputs))


def of_quantities() -> st.SearchStrategy:
    amounts = st.floats(0, 1e12, allow_nan=False)
    services = [made_readings.CONTRACTS, made_readings.CHAT, ()]

    def one(each: queries.Quantity) -> st.SearchStrategy:
        places = services if each.by == queries.SERVICE else [((each.by[0], "one"),), ((each.by[0], "two"),)]
        return st.dictionaries(st.sampled_from(places), amounts)

    return st.fixed_dictionaries({each.name: one(each) for each in queries.QUANTITIES})


@settings(max_examples=25, deadline=None)
@given(of_quantities(), st.sampled_from([made_readings.COSTS, made_readings.NO_COSTS]))
def test_whatever_prometheus_answers_every_figure_is_a_number_or_has_a_reason(of, costs):
    made = build(made_readings.made(of), costs)
    for figure in made.figures:
        assert (figure.value is None) != (figure.reason is None), figure.key
        if figure.value is None:
            assert sentences.sentence(figure.reason, words.Language.ZH)
        else:
            assert math.isfinite(figure.value)
            assert figure.value == pytest.approx(recomputed(figure), rel=1e-9, abs=1e-9), figure.key


@settings(max_examples=25, deadline=None)
@given(of_quantities())
def test_parts_sum_to_the_total(of):
    made = build(made_readings.made(of))
    additive = ("prompt_tokens", "generated_tokens", "requests", "key_requests", "device_hours", "prefix_tokens")
    for key in (*additive, "depreciation", "maintenance"):
        total = made.find(key).value
        if total is not None:
            parts = [part.value for part in made.parts(key) if part.value is not None]
            assert math.fsum(parts) == pytest.approx(total, rel=1e-9, abs=1e-6), key


def test_services_bear_the_whole_cost():
    made = build(made_readings.full())
    shares = [figure.value for figure in made.parts("service_cost")]
    assert len(shares) == 2
    assert math.fsum(shares) == pytest.approx(made.find("total_cost").value)


def test_a_quarter_by_hand():
    """One service, a million prompt tokens and a million generated, 2160 device hours on the one L that is owned."""
    seconds = 90 * 86_400.0
    of = {
        "engine_samples": {made_readings.CONTRACTS: 10.0},
        "device_samples": {made_readings.CONTRACTS: 10.0},
        "prompt_tokens": {made_readings.CONTRACTS: 1e6},
        "generated_tokens": {made_readings.CONTRACTS: 1e6},
        "device_seconds": {made_readings.CONTRACTS: seconds},
        "busy_seconds": {made_readings.CONTRACTS: seconds / 4},
    }
    costs = cost_file.Costs(
        currency="EUR",
        devices=(cost_file.Device("L", 1, 36_500, 1, 500, None),),
        power=cost_file.Power(0.25, 2.0),
    )
    made = build(made_readings.made(of, peak=1.02), costs)
    values = {figure.key: figure.value for figure in made.figures if not figure.of_kind}
    assert values["device_hours"] == pytest.approx(2160)
    assert values["peak_devices"] == 1
    assert values["busy_share"] == pytest.approx(0.25)
    assert values["depreciation"] == pytest.approx(9000)  # 100 a day
    assert values["energy_kwh"] == pytest.approx(1080)
    assert values["electricity"] == pytest.approx(540)
    assert values["total_cost"] == pytest.approx(9540)
    assert values["cost_per_million_tokens"] == pytest.approx(4770)
    assert values["cost_per_million_generated"] == pytest.approx(9540)
    assert values["cost_per_device_hour"] == pytest.approx(9540 / 2160)


def test_measured_power_wins_over_stated_and_the_report_says_which():
    measured = build(made_readings.full())
    of = {name: dict(total.values) for name, total in made_readings.full().totals.items() if "power" not in name}
    stated = build(made_readings.made(of))
    watts = {
        name: next(item for item in made.find("energy_kwh").inputs if item.name == "watts")
        for name, made in (("measured", measured), ("stated", stated))
    }
    assert watts["measured"].origin is figures.From.PROMETHEUS
    assert watts["stated"].value == pytest.approx((4 * 275 + 700) / 5)
    assert watts["stated"].origin is figures.From.COST_FILE
    assert "watts_measured" in {remark.key for remark in measured.notes}
    assert "watts_stated" in {remark.key for remark in stated.notes}


def test_without_a_baseline_nothing_is_compared_and_the_rows_say_how_to_give_one():
    made = build(made_readings.full(), dataclasses.replace(made_readings.COSTS, baseline=cost_file.Baseline()))
    for key in ("baseline_devices", "devices_saved", "concurrency_gain", "tokens_gain", "hours_saved"):
        figure = made.find(key)
        assert figure.value is None
        assert "no baseline given" in sentences.sentence(figure.reason, words.Language.EN)
        assert "--baseline" in sentences.sentence(figure.reason, words.Language.EN)
    assert made.find("peak_devices").value == 4


def test_a_baseline_of_devices_alone_compares_devices_alone():
    costs = dataclasses.replace(made_readings.COSTS, baseline=cost_file.Baseline("stated", devices=8))
    made = build(made_readings.full(), costs)
    assert made.find("devices_saved").value == pytest.approx(0.5)
    assert made.find("devices_saved").inputs[1].source == "baseline_devices"
    assert made.find("tokens_gain").value is None


def test_no_traffic_is_no_division():
    of = {name: dict.fromkeys(total.values, 0.0) for name, total in made_readings.full().totals.items()}
    made = build(made_readings.made(of))
    for key in ("busy_share", "prefix_share", "cost_per_million_tokens", "kv_concurrency", "tokens_per_device_hour"):
        figure = made.find(key)
        assert figure.value is None, key
        assert figure.reason.key == "divides_by_zero"
        assert figure.reason.values["names"]
    assert made.find("total_cost").value > 0


@pytest.mark.parametrize(
    ("answers", "costs", "period", "wanted"),
    [
        (made_readings.full(), made_readings.COSTS, made_readings.QUARTER, set()),
        (
            dataclasses.replace(made_readings.full(), coverage=0.9499),
            made_readings.COSTS,
            made_readings.QUARTER,
            {"coverage"},
        ),
        (
            dataclasses.replace(made_readings.full(), coverage=0.95),
            made_readings.COSTS,
            made_readings.QUARTER,
            set(),
        ),
        (
            dataclasses.replace(
                made_readings.full(),
                peak_devices=dataclasses.replace(made_readings.full().peak_devices, values={(): 6.0}),
            ),
            made_readings.COSTS,
            made_readings.QUARTER,
            {"more_than_owned"},
        ),
        (
            made_readings.full(),
            dataclasses.replace(made_readings.COSTS, parameters=(("other/one", 1e9),)),
            made_readings.QUARTER,
            {"unknown_service"},
        ),
        (
            made_readings.full(),
            made_readings.COSTS,
            dataclasses.replace(made_readings.QUARTER, asked_end=made_readings.QUARTER.end + 5),
            {"not_over"},
        ),
    ],
)
def test_warnings(answers, costs, period, wanted):
    # engines of this version have a sample of device seconds for each of the others
    totals = {**answers.totals, "device_samples": answers.totals["engine_samples"]}
    made = build(dataclasses.replace(answers, totals=totals), costs, period)
    assert {remark.key for remark in made.warnings} == wanted
    for remark in made.warnings:
        assert "{" not in sentences.sentence(remark, words.Language.EN)


def test_engines_of_an_older_version_are_told():
    full = made_readings.full()
    few = dataclasses.replace(full.totals["device_samples"], values={made_readings.CHAT: 1.0})
    made = build(dataclasses.replace(full, totals={**full.totals, "device_samples": few}))
    assert "old_engines" in {remark.key for remark in made.warnings}


def test_every_figure_unit_group_and_remark_has_words():
    for answers in (made_readings.full(), made_readings.made({}, peak=None, running=None)):
        for costs in (made_readings.COSTS, made_readings.NO_COSTS):
            made = build(answers, costs)
            for figure in made.figures:
                assert figure.key in words.FIGURES
                assert figure.unit in words.UNITS
                assert figure.group.value in words.GROUPS
    used = {figure.key for figure in build(made_readings.full()).figures}
    assert used == set(words.FIGURES)


def test_both_languages_fill_in_the_same():
    fields = lambda text: {name for _, name, _, _ in string.Formatter().parse(text) if name}
    for key, both in sentences.REMARKS.items():
        assert fields(both.en) == fields(both.zh), key
        assert both.en != both.zh
    for named in words.FIGURES.values():
        assert named.name.en
        assert named.name.zh
        assert named.about.en.endswith(".")
        assert named.about.zh.endswith("。")
