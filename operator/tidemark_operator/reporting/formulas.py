"""Every formula of the report: small functions with their units, and beside each the same as text.

The text is Python over the names of the inputs, so that an auditor can paste it and the inputs into an interpreter;
a test evaluates each text and compares it with its function. Nothing here divides by zero: who calls asks first.
"""

from __future__ import annotations

YEAR_SECONDS = 31_536_000
"""365 days: what depreciation a year means."""
HOUR_SECONDS = 3_600

SUM = "sum(parts)"
"""Of a total; its inputs are the parts, all by the name of the figure."""

DEVICE_HOURS = "device_seconds / 3600"
MEAN_DEVICES = "device_seconds / period_seconds"
PEAK = "round(most_device_seconds_per_second)"
MEAN = "sum_of_samples / num_samples"
BUSY_SHARE = "busy_seconds / device_seconds"
TOTAL_TOKENS = "prompt_tokens + generated_tokens"
RATIO = "after / before"
SAVED_SHARE = "1 - after / before"
PER_DEVICE_HOUR = "total_tokens / device_hours"
WOULD_TAKE_HOURS = "total_tokens / baseline_tokens_per_device_hour"
DEPRECIATION = "count * price * period_seconds / (years * 31536000)"
MAINTENANCE = "count * price * maintenance_percent / 100 * period_seconds / 31536000"
ENERGY = "device_hours * watts / 1000"
IDLE_ENERGY = "max(0, count * period_seconds / 3600 - device_hours) * idle_watts / 1000"
ELECTRICITY = "(energy_kwh + idle_energy_kwh) * price_per_kwh * pue"
ELECTRICITY_HELD = "energy_kwh * price_per_kwh * pue"
TOTAL_COST_BARE = "depreciation + electricity"
TOTAL_COST = "depreciation + maintenance + electricity"
SERVICE_COST = "total_cost * service_device_hours / device_hours"
PER_MILLION = "cost / tokens * 1000000"
PER_HOUR = "total_cost / device_hours"
HIT_SHARE = "hit_tokens / (hit_tokens + missed_tokens)"
SAVED_FLOPS = "2 * parameters * hit_tokens"
SAVED_HOURS = "hit_tokens * execute_seconds / computed_tokens / 3600"
BYTES_SAVED = "1 - stored_bytes / bytes_at_16_bits"
CONCURRENCY_GAIN = "bytes_at_16_bits / stored_bytes"
WEIGHTS_SAVED = "1 - sum_of_samples / num_samples / (2 * parameters)"


def total_tokens(prompt_tokens: float, generated_tokens: float) -> float:
    """Tokens in and out."""
    return prompt_tokens + generated_tokens


def per(amount: float, hours: float) -> float:
    """An amount for each device hour."""
    return amount / hours


def would_take_hours(tokens: float, tokens_per_device_hour: float) -> float:
    """Device hours that so many tokens would have taken at the speed of the baseline."""
    return tokens / tokens_per_device_hour


def times(after: float, before: float) -> float:
    """How many times as much as before."""
    return after / before


def device_hours(device_seconds: float) -> float:
    """Hours of one device, from seconds."""
    return device_seconds / HOUR_SECONDS


def mean_devices(device_seconds: float, period_seconds: float) -> float:
    """Devices held on average over the whole period."""
    return device_seconds / period_seconds


def peak(most_device_seconds_per_second: float) -> float:
    """Devices: whole ones. A rate between samples is off by a little (jitter of the scrapes)."""
    return float(round(most_device_seconds_per_second))


def mean(sum_of_samples: float, num_samples: float) -> float:
    """Of a gauge over all its samples."""
    return sum_of_samples / num_samples


def busy_share(busy_seconds: float, device_seconds: float) -> float:
    """Share (0 to 1) of the time in which devices were held that they spent on steps."""
    return busy_seconds / device_seconds


def saved_share(after: float, before: float) -> float:
    """0 to 1; below 0 where it became more."""
    return 1 - after / before


def depreciation(count: float, price: float, years: float, period_seconds: float) -> float:
    """Straight line, over `years` of 365 days; in the currency of `price` (of one device)."""
    return count * price * period_seconds / (years * YEAR_SECONDS)


def maintenance(count: float, price: float, percent: float, period_seconds: float) -> float:
    """`percent` of the price each year, in its currency."""
    return count * price * percent / 100 * period_seconds / YEAR_SECONDS


def energy_kwh(hours: float, watts: float) -> float:
    """Of devices held for so many device hours that draw so much each."""
    return hours * watts / 1000


def idle_energy_kwh(count: float, period_seconds: float, hours: float, idle_watts: float) -> float:
    """Of devices that are owned and not held."""
    return max(0.0, count * period_seconds / HOUR_SECONDS - hours) * idle_watts / 1000


def electricity(energy: float, idle_energy: float, price_per_kwh: float, pue: float) -> float:
    """PUE: energy of the whole data centre over energy of what computes in it, 1 or more."""
    return (energy + idle_energy) * price_per_kwh * pue


def electricity_held(energy: float, price_per_kwh: float, pue: float) -> float:
    """Where the draw of devices that are not held was not stated: it is not counted."""
    return energy * price_per_kwh * pue


def total_cost_bare(depreciation_: float, electricity_: float) -> float:
    """Where no maintenance was stated: none is counted."""
    return depreciation_ + electricity_


def total_cost(depreciation_: float, maintenance_: float, electricity_: float) -> float:
    """All in one currency."""
    return depreciation_ + maintenance_ + electricity_


def service_cost(total: float, service_hours: float, hours: float) -> float:
    """A service bears the share of the cost that it has of the device hours."""
    return total * service_hours / hours


def per_million(cost: float, tokens: float) -> float:
    """Cost of a million tokens."""
    return cost / tokens * 1_000_000


def hit_share(hit_tokens: float, missed_tokens: float) -> float:
    """0 to 1."""
    return hit_tokens / (hit_tokens + missed_tokens)


def saved_flops(parameters: float, hit_tokens: float) -> float:
    """A token passes each parameter once: a product and a sum. Attention is not counted, so it is at least this."""
    return 2 * parameters * hit_tokens


def saved_hours(hit_tokens: float, execute_seconds: float, computed_tokens: float) -> float:
    """Hours of computing at the mean cost of a computed token."""
    return hit_tokens * execute_seconds / computed_tokens / HOUR_SECONDS


def bytes_saved(stored: float, at_16_bits: float) -> float:
    """Share of KV memory a token (0 to 1); below 0 where it is kept wider than 16 bits."""
    return 1 - stored / at_16_bits


def concurrency_gain(stored: float, at_16_bits: float) -> float:
    """How many times as many tokens, and so requests of one length, fit the same KV memory."""
    return at_16_bits / stored


def weights_saved(sum_of_samples: float, num_samples: float, parameters: float) -> float:
    """Share of what the parameters would take with two bytes each; the samples are bytes of an engine's weights."""
    return 1 - sum_of_samples / num_samples / (2 * parameters)
