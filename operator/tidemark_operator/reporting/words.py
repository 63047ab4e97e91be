"""Names and explanations of figures, in English and Chinese. `sentences` has the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Language(StrEnum):
    """Of the report. Keys, formulas and queries are the same in each."""

    EN = "en"
    ZH = "zh"


@dataclass(frozen=True, slots=True)
class Both:
    """One text in the two languages."""

    en: str
    zh: str

    def of(self, language: Language) -> str:
        return self.zh if language is Language.ZH else self.en


@dataclass(frozen=True, slots=True)
class Named:
    """A figure's name, and what it is in a sentence."""

    name: Both
    about: Both


def _named(en: str, zh: str, about_en: str, about_zh: str) -> Named:
    return Named(Both(en, zh), Both(about_en, about_zh))


FIGURES: Mapping[str, Named] = {
    "prompt_tokens": _named(
        "prompt tokens", "输入 token", "Prompt tokens of accepted requests.", "已接受请求的输入 token。"
    ),
    "generated_tokens": _named(
        "generated tokens", "生成 token", "Tokens generated for clients.", "为客户端生成的 token。"
    ),
    "total_tokens": _named("tokens", "token 合计", "Prompt and generated tokens.", "输入与生成 token 之和。"),
    "requests": _named("requests", "请求", "Requests that ended, by how they ended.", "已结束的请求，按结束方式分列。"),
    "key_requests": _named(
        "requests by key",
        "按密钥的请求",
        "Requests that ended, by the name of the API key.",
        "已结束的请求，按 API 密钥名分列。",
    ),
    "key_prompt_tokens": _named(
        "prompt tokens by key", "按密钥的输入 token", "By the name of the API key.", "按 API 密钥名分列。"
    ),
    "key_generated_tokens": _named(
        "generated tokens by key", "按密钥的生成 token", "By the name of the API key.", "按 API 密钥名分列。"
    ),
    "device_hours": _named(
        "device hours",
        "设备小时",
        "Devices held times hours, loading included.",
        "占用的设备数乘以小时数，含加载时间。",
    ),
    "mean_devices": _named(
        "devices on average", "平均设备数", "Device hours over the hours of the period.", "设备小时除以报告期小时数。"
    ),
    "peak_devices": _named(
        "devices at the peak",
        "峰值设备数",
        "Most devices held at once; looked at every five minutes.",
        "同时占用的最多设备数；每五分钟观察一次。",
    ),
    "busy_share": _named(
        "busy share",
        "忙碌占比",
        "Share of the time held that was spent on steps.",
        "占用时间中用于计算步的比例。",
    ),
    "batch_fill": _named(
        "batch fill",
        "批填充率",
        "Sequences in a step over the most allowed, mean of all samples.",
        "每步序列数与上限之比，所有采样的平均。",
    ),
    "kv_usage": _named(
        "KV memory in use",
        "KV 缓存使用率",
        "Used pages over all pages, mean of all samples.",
        "已用页与总页数之比，所有采样的平均。",
    ),
    "device_utilization": _named(
        "utilization as NVML has it",
        "NVML 利用率",
        "Share of the time in which a kernel ran on the card, mean of all samples.",
        "显卡上有内核运行的时间比例，所有采样的平均。",
    ),
    "baseline_devices": _named("devices before", "优化前设备数", "As stated in the baseline.", "来自所给的基线。"),
    "devices_saved": _named(
        "devices saved",
        "设备节省比例",
        "Peak of this period against the baseline.",
        "本期峰值与基线相比。",
    ),
    "baseline_concurrency_per_device": _named(
        "requests at once a device, before", "优化前每设备并发", "As stated in the baseline.", "来自所给的基线。"
    ),
    "concurrency_per_device": _named(
        "requests at once a device",
        "每设备并发",
        "Most sequences in the running batches over devices held, looked at every five minutes.",
        "运行批中的序列数与占用设备数之比的最大值；每五分钟观察一次。",
    ),
    "concurrency_gain": _named(
        "requests at once, against before", "并发提升倍数", "After over before.", "优化后与优化前之比。"
    ),
    "baseline_tokens_per_device_hour": _named(
        "tokens a device hour, before", "优化前每设备小时 token", "As stated in the baseline.", "来自所给的基线。"
    ),
    "tokens_per_device_hour": _named(
        "tokens a device hour", "每设备小时 token", "All tokens over device hours.", "token 合计除以设备小时。"
    ),
    "tokens_gain": _named(
        "tokens a device hour, against before",
        "每设备小时 token 提升倍数",
        "After over before.",
        "优化后与优化前之比。",
    ),
    "baseline_device_hours": _named(
        "device hours it would have taken",
        "按基线所需设备小时",
        "The tokens of this period at the speed of the baseline.",
        "以基线速度处理本期 token 所需的设备小时。",
    ),
    "hours_saved": _named(
        "device hours saved", "设备小时节省比例", "Against what it would have taken.", "与按基线所需相比。"
    ),
    "depreciation": _named(
        "depreciation",
        "折旧",
        "Of all devices owned, straight line, held or not.",
        "所有自有设备直线折旧，不论是否占用。",
    ),
    "maintenance": _named(
        "maintenance", "维保", "A stated percentage of the price each year.", "按所给的每年价格百分比计算。"
    ),
    "energy_kwh": _named(
        "energy of devices held", "占用设备耗电", "Device hours times the draw of a device.", "设备小时乘以单设备功率。"
    ),
    "idle_energy_kwh": _named(
        "energy of devices not held",
        "闲置设备耗电",
        "Hours owned and not held times the stated idle draw.",
        "自有而未占用的小时数乘以所给的闲置功率。",
    ),
    "electricity": _named("electricity", "电费", "Energy times price times PUE.", "耗电乘以电价乘以 PUE。"),
    "total_cost": _named("cost", "总成本", "Sum of what is stated above it.", "以上各项之和。"),
    "cost_per_device_hour": _named(
        "cost of a device hour", "每设备小时成本", "Cost over device hours.", "总成本除以设备小时。"
    ),
    "service_cost": _named(
        "cost by service",
        "按服务的成本",
        "A service bears the share of the cost that it has of the device hours.",
        "每个服务按其设备小时占比分摊。",
    ),
    "cost_per_million_tokens": _named(
        "cost of a million tokens",
        "每百万 token 成本",
        "Cost over prompt and generated tokens.",
        "成本除以 token 合计。",
    ),
    "cost_per_million_generated": _named(
        "cost of a million generated tokens",
        "每百万生成 token 成本",
        "All of the cost over generated tokens alone.",
        "全部成本只除以生成 token。",
    ),
    "prefix_share": _named(
        "tokens found in the prefix cache",
        "前缀缓存命中率",
        "Share of the known tokens that were not computed again.",
        "无需重新计算的已知 token 比例。",
    ),
    "prefix_tokens": _named("tokens not computed", "免计算 token", "Found in the prefix cache.", "在前缀缓存中找到。"),
    "prefix_hours": _named(
        "hours of computing saved",
        "节省的计算小时",
        "An estimate: tokens found times the mean time of a computed token, prompt and generated ones alike.",
        "估算：命中 token 乘以每个已计算 token（含输入与生成）的平均时间。",
    ),
    "prefix_flops": _named(
        "operations saved",
        "节省的浮点运算",
        "Two for each parameter and token found; attention comes on top.",
        "每个参数与命中 token 计两次；未含注意力计算。",
    ),
    "kv_saved": _named(
        "KV memory saved",
        "KV 缓存节省比例",
        "What a token takes as stored, against 16 bits; below 0 where it is kept wider.",
        "每 token 实际占用与 16 位相比；存得更宽时为负。",
    ),
    "kv_concurrency": _named(
        "requests that fit, against 16 bits",
        "相对 16 位可容纳的请求",
        "So many times as many tokens fit the same KV memory.",
        "同样的 KV 缓存可容纳的 token 倍数。",
    ),
    "weights_saved": _named(
        "weights' memory saved",
        "权重内存节省比例",
        "What they take, against two bytes for each parameter.",
        "权重实际占用与每参数两字节相比。",
    ),
}

GROUPS: Mapping[str, Both] = {
    "traffic": Both("Tokens and requests", "Token 与请求"),
    "devices": Both("Devices", "设备"),
    "utilization": Both("Utilization", "利用率"),
    "comparison": Both("Before and after", "优化前后"),
    "cost": Both("Cost", "成本"),
    "saved": Both("Saved by prefix cache and quantization", "前缀缓存与量化的节省"),
}

UNITS: Mapping[str, Both] = {
    "tokens": Both("tokens", "token"),
    "tokens_per_hour": Both("tokens an hour", "token/小时"),
    "requests": Both("requests", "请求"),
    "hours": Both("hours", "小时"),
    "devices": Both("devices", "台"),
    "ratio": Both("share", "比例"),
    "times": Both("times", "倍"),
    "kwh": Both("kWh", "kWh"),
    "flops": Both("operations", "次运算"),
    "currency": Both("{currency}", "{currency}"),
    "currency_per_hour": Both("{currency} an hour", "{currency}/小时"),
    "currency_per_million": Both("{currency} a million tokens", "{currency}/百万 token"),
}
