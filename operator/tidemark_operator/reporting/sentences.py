"""Sentences of the report: reasons, warnings, notes and headings, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.reporting.figures import Remark
from tidemark_operator.reporting.words import Both, Language

REMARKS: Mapping[str, Both] = {
    "no_samples": Both("no samples of {metric} in the period", "报告期内没有 {metric} 的采样"),
    "no_value": Both("{figure} has no value", "{figure} 没有值"),
    "divides_by_zero": Both("cannot be divided: 0 in {names}", "无法相除：{names} 为 0"),
    "no_baseline": Both(
        "no baseline given; add it under baseline: in the cost file, or with --baseline FILE or --baseline-devices N",
        "未给出基线；请写入成本文件的 baseline:，或用 --baseline FILE、--baseline-devices N",
    ),
    "no_cost_file": Both(
        "not given; add {key}: to the cost file (--hardware FILE)",
        "未给出；请在成本文件（--hardware FILE）中添加 {key}:",
    ),
    "no_maintenance": Both(
        "not given, not counted; maintenancePercent: in the cost file adds it",
        "未给出，未计入；可在成本文件中添加 maintenancePercent:",
    ),
    "no_idle_watts": Both(
        "not given, not counted; idlePowerWatts of all devices in the cost file adds it",
        "未给出，未计入；可在成本文件中为所有设备添加 idlePowerWatts",
    ),
    "too_short": Both(
        "nothing was held at any of the moments looked at, five minutes apart",
        "在每五分钟一次的观察时刻均未占用设备",
    ),
    "no_watts": Both(
        "no power measured, and {key} is not stated for all devices in the cost file",
        "没有实测功率，且成本文件未为所有设备给出 {key}",
    ),
    "no_parameters": Both(
        "parameters of the model of {service} are not stated; add them under models: in the cost file",
        "未给出 {service} 的模型参数量；请写入成本文件的 models:",
    ),
    "not_over": Both(
        "The period ends on {end} and is not over: all figures are up to {now}.",
        "报告期到 {end} 结束，尚未结束：所有数字截至 {now}。",
    ),
    "coverage": Both(
        "Engines were scraped in {share} of the period, less than {least}: what happened in the gaps below is missing "
        "where no engine came back with its counters, and means leave the gaps out.",
        "仅在报告期的 {share} 内有采样，低于 {least}：下列缺口中的数据可能缺失，平均值不含缺口。",
    ),
    "old_engines": Both(
        "Only {share} of the samples of engines come with device seconds: engines of an older version do not have "
        "them. Device hours, and cost by service, are too low.",
        "仅 {share} 的引擎采样带有设备秒数：旧版本引擎没有该指标。设备小时与按服务的成本偏低。",
    ),
    "more_than_owned": Both(
        "{peak} devices were held at once, and the cost file counts {owned}: the cost is too low.",
        "曾同时占用 {peak} 台设备，而成本文件只有 {owned} 台：成本偏低。",
    ),
    "unknown_service": Both(
        "The cost file has a model of service {service}, which was not seen. Seen were: {known}.",
        "成本文件中的服务 {service} 在报告期内未出现。出现的有：{known}。",
    ),
    "increase": Both(
        "Counters are read with increase(), which spans gaps and restarts and extrapolates to the edges of the period: "
        "of each series it may be off by what happened in one scrape interval ({seconds} s) at each end and at each "
        "restart. Totals need not be whole numbers.",
        "计数器用 increase() 读取，可跨越缺口与重启，并外推到报告期边界：每个序列在两端及每次重启处的误差"
        "不超过一个采样间隔（{seconds} 秒）内的量。合计不一定是整数。",
    ),
    "parts": Both(
        "Prometheus answered for {count} parts of the period, which were summed: growth during a gap across the "
        "edge of a part is missing.",
        "Prometheus 分 {count} 段回答后相加：跨段边界的缺口内的增长未计入。",
    ),
    "watts_measured": Both(
        "Power was measured by NVML: of the cards alone, without the servers around them.",
        "功率由 NVML 实测：仅显卡，不含服务器其余部分。",
    ),
    "watts_stated": Both(
        "Power was not measured; the draw stated in the cost file was used.", "没有实测功率；采用成本文件所给的功率。"
    ),
}

HEADINGS: Mapping[str, Both] = {
    "title": Both("Cost report", "成本报告"),
    "period": Both("Period", "报告期"),
    "made": Both("Made", "生成时间"),
    "source": Both("Figures from", "数据来源"),
    "coverage": Both("Scraped", "采样覆盖"),
    "gaps": Both("Spans without samples", "没有采样的时段"),
    "no_gaps": Both("none longer than 15 minutes", "没有超过 15 分钟的"),
    "baseline": Both("Baseline from", "基线来源"),
    "no_baseline": Both("no baseline given", "未给出基线"),
    "warnings": Both("Before you read on", "阅读须知"),
    "notes": Both("How it was computed", "计算方法"),
    "by_service": Both("By service, key, outcome and device", "按服务、密钥、结果与设备"),
    "figure": Both("figure", "指标"),
    "of": Both("of", "对象"),
    "value": Both("value", "数值"),
    "unit": Both("unit", "单位"),
    "formula": Both("formula", "公式"),
    "inputs": Both("inputs", "输入"),
    "how": Both("formula and inputs", "公式与输入"),
    "from": Both("from", "来自"),
    "reason": Both("why there is none", "无值原因"),
    "tokens_picture": Both("tokens a day", "每日 token"),
    "tokens_picture_hour": Both("tokens an hour", "每小时 token"),
    "devices_picture": Both("devices held (most in each window)", "占用设备数（各时段最大值）"),
    "utilization_picture": Both("utilization", "利用率"),
    "cost_picture": Both("cost", "成本构成"),
    "prometheus": Both("Prometheus", "Prometheus"),
    "cost_file": Both("cost file", "成本文件"),
    "figure_origin": Both("figure", "指标"),
    "period_origin": Both("the period", "报告期"),
    "baseline_origin": Both("baseline", "基线"),
}


def sentence(remark: Remark, language: Language) -> str:
    """Filled in. Raises `KeyError` for one that is not known."""
    return REMARKS[remark.key].of(language).format_map(dict(remark.values))


def heading(key: str, language: Language) -> str:
    """Raises `KeyError` for one that is not known."""
    return HEADINGS[key].of(language)
