"""Rules that look at more than one field. Each is a generator of problems; `RULES` lists them.

What an API server can check by itself stands once more, as CEL, in the file of the same name in `crd.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.api import view
from tidemark_operator.api.checks import memory, pods, rule, serving

RULES: tuple[rule.Rule, ...] = (
    pods.one_source,
    pods.pod_memory_is_plausible,
    pods.toleration_makes_sense,
    pods.replicas_within_autoscaling,
    memory.int4_by_name,
    memory.scales_need_8_bits,
    memory.precision_one_way,
    memory.precision_names_once,
    memory.precision_needs_quantization,
    memory.swap_needs_space,
    memory.swap_is_plausible,
    memory.swap_within_memory,
    serving.budget_serves_the_batch,
    serving.soft_limit_within_batch,
    serving.watermark_order,
    serving.degrade_says_whom_and_what,
    serving.degrade_needs_key_file,
    serving.draft_needs_model,
    serving.tokens_need_a_method,
    serving.draft_needs_a_folder,
    pods.deadline_after_drain,
    pods.canary_rises_to_all,
    pods.peers_are_named,
    pods.environment_is_clear,
    pods.own_labels_untouched,
    pods.annotations_within_bounds,
    pods.device_asked_once,
)


def run(doc: view.View) -> Iterator[rule.Found]:
    """Problems of all rules; a rule that needs a value which was refused already is left out."""
    for one in RULES:
        try:
            yield from tuple(one(doc))
        except view.Unusable:
            continue
