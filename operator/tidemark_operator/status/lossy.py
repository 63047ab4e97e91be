"""Whether K and V are kept in a dtype that loses facts: the condition `LossyKV`. Pure.

Such a service is not broken: somebody accepted the loss by name (`kvCache.allowLossy`). The condition stands as long
as that is so, for whoever reads the answers and has not read the manifest. Elsewhere it is not there at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator import api
from tidemark_operator.status import conditions
from tidemark_runtime.contract import settings
from tidemark_runtime.contract.status import EngineStatus

TYPE = "LossyKV"
REASON = "AcceptedByName"


def condition(
    service: api.InferenceService, engines: Sequence[EngineStatus], previous: Mapping[str, Any]
) -> conditions.Condition | None:
    """None where nothing is lossy. `previous`: the condition of the last status, kept while no engine has loaded."""
    if not service.spec.kv_cache.allow_lossy:
        return None
    loaded = [engine.memory.kv_bytes for engine in engines if engine.memory.kv_bytes]
    share = max((_share(kv_bytes) for kv_bytes in loaded), default=0.0)
    if share:
        dtypes = sorted({name for kv_bytes in loaded for name in kv_bytes if name in settings.LOSSY_KV_DTYPES})
        text = f"{' and '.join(dtypes)} holds {share:.0%} of the KV memory, accepted by spec.kvCache.allowLossy. "
        return conditions.Condition(TYPE, "True", REASON, text + settings.LOSSY_COST + ".")
    dtype = service.spec.kv_cache.dtype
    if dtype in settings.LOSSY_KV_DTYPES:
        text = f"{dtype} is asked for, accepted by spec.kvCache.allowLossy. {settings.LOSSY_COST}."
        return conditions.Condition(TYPE, "True", REASON, text)
    if not loaded and previous.get("status") == "True":  # a map in a ConfigMap: only an engine knows what it says
        return conditions.Condition(TYPE, "True", REASON, str(previous.get("message", "")))
    return None


def _share(kv_bytes: Mapping[str, int]) -> float:
    return sum(size for name, size in kv_bytes.items() if name in settings.LOSSY_KV_DTYPES) / sum(kv_bytes.values())
