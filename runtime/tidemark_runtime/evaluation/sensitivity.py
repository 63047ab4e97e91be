"""`tidemark eval sensitivity`: which layers and heads cost most when quantized, and the smallest map that helps.

Three stages. Layers: K, and then V, of one layer after the other is quantized, all else is not; the KL of that is what
the layer costs. Heads: the same for the heads of those layers that together cost most; heads of the others are told
apart no further. Search: units go into the map in the order of cost for each byte that keeping them takes; the loss of
such maps is measured, and halving finds the shortest beginning of the order that is within the limit.

KLs of single units add up only about, because errors of one layer go through the next: so the order is a guess, but
the loss of the map that comes out is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidemark_runtime.evaluation import configurations, journal
from tidemark_runtime.planning import page_layout, precision_map

Progress = Callable[[str, int, int], None]
"""What is measured, measurements done, measurements expected."""

QUANTIZE, KEEP = "quantize", "keep"
METHODS = (QUANTIZE, KEEP)
"""quantize: only the unit is quantized. keep: only the unit is not; finds what is dear in company."""
LAYERS, HEADS, AUTO = "layers", "heads", "auto"
DETAILS = (AUTO, LAYERS, HEADS)
_DEFAULT_SHARE = 0.5
_DETAIL_SHARE = 0.8
"""auto looks at the heads of the layers that hold this share of the loss."""


class Losses(Protocol):
    """What measures."""

    @property
    def shape(self) -> page_layout.KVShape: ...

    @property
    def base_dtype(self) -> str: ...

    @property
    def tokens(self) -> int:
        """Of the text."""
        ...

    def kl(self, configuration: configurations.Configuration) -> float:
        """Mean over the text, in nats."""
        ...


@dataclass(frozen=True, slots=True)
class Unit:
    """K or V of a layer, all heads or one."""

    layer: int
    kind: page_layout.Kind
    head: int | None = None

    @property
    def name(self) -> str:
        head = "" if self.head is None else f" head {self.head}"
        return f"layer {self.layer}{head} {self.kind}"

    def places(self, shape: page_layout.KVShape) -> list[tuple[int, int, page_layout.Kind]]:
        heads = range(shape.num_kv_heads) if self.head is None else (self.head,)
        return [(self.layer, head, self.kind) for head in heads]


@dataclass(frozen=True, slots=True)
class Cost:
    """What quantizing a unit costs, and what keeping it does."""

    unit: Unit
    kl: float
    """Nats: the loss that is the unit's."""
    extra_bytes: float
    """Of a token, when it is kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """A map of the first `kept` units of the ranking."""

    kept: int
    kl: float
    kv_token_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that was found."""

    dtype: str
    keep_dtype: str
    tokens: int
    """Of the text."""
    ranking: tuple[Cost, ...]
    """Dearest first: by loss for each byte."""
    plain: Point
    """No map."""
    points: tuple[Point, ...]
    """Maps that were measured, shortest first, `plain` included."""
    chosen: Point | None
    """The shortest within the limit; None where there is none."""
    limit: float
    """Nats."""
    segments: precision_map.Segments
    """Of the chosen map."""


@dataclass(frozen=True, slots=True)
class Search:
    """A model, a text, and where measurements are kept."""

    losses: Losses
    dtype: str
    keep_dtype: str
    kept: journal.Journal
    progress: Progress

    def run(self, max_kl: float | None, max_extra_bytes: float | None, method: str, detail: str) -> Found:
        """`max_kl` in nats, None: half of the loss without a map; `max_extra_bytes`: share of the bytes without."""
        plain = self._point((), 0)
        limit = plain.kl * _DEFAULT_SHARE if max_kl is None else max_kl
        ranking = self._ranking(method, detail, plain.kl)
        points = {0: plain}
        chosen = self._shortest(ranking, points, limit, max_extra_bytes)
        kept = () if chosen is None else ranking[: chosen.kept]
        return Found(
            dtype=self.dtype,
            keep_dtype=self.keep_dtype,
            tokens=self.losses.tokens,
            ranking=tuple(ranking),
            plain=plain,
            points=tuple(points[kept] for kept in sorted(points)),
            chosen=chosen,
            limit=limit,
            segments=self._keeping(kept),
        )

    @property
    def _shape(self) -> page_layout.KVShape:
        return self.losses.shape

    def _ranking(self, method: str, detail: str, plain_kl: float) -> list[Cost]:
        layers = [Unit(layer, kind) for layer in range(self._shape.num_layers) for kind in page_layout.KINDS]
        if detail == HEADS or self._shape.num_kv_heads == 1:
            units = [Unit(one.layer, one.kind, head) for one in layers for head in range(self._shape.num_kv_heads)]
            return _ranked(self._costs(units if detail == HEADS else layers, method, plain_kl))
        costs = self._costs(layers, method, plain_kl)
        if detail == LAYERS:
            return _ranked(costs)
        dear = _dearest(costs, _DETAIL_SHARE)
        units = [
            Unit(cost.unit.layer, cost.unit.kind, head) for cost in dear for head in range(self._shape.num_kv_heads)
        ]
        return _ranked([*self._costs(units, method, plain_kl), *(cost for cost in costs if cost not in dear)])

    def _costs(self, units: Sequence[Unit], method: str, plain_kl: float) -> list[Cost]:
        found = []
        whole = self._bytes({})
        for index, unit in enumerate(units):
            self.progress(unit.name, index, len(units))
            places = unit.places(self._shape)
            if method == QUANTIZE:
                kl = self._kl(f"quantize {unit.name}", self.losses.base_dtype, dict.fromkeys(places, self.dtype))
            else:
                kl = plain_kl - self._kl(f"keep {unit.name}", self.dtype, dict.fromkeys(places, self.keep_dtype))
            found.append(Cost(unit, kl, self._bytes(dict.fromkeys(places, self.keep_dtype)) - whole))
        return found

    def _shortest(
        self, ranking: Sequence[Cost], points: dict[int, Point], limit: float, max_extra_bytes: float | None
    ) -> Point | None:
        """Halving between too little and enough; every map that was measured goes into `points`."""
        if points[0].kl <= limit:
            return points[0]
        most = len(ranking) - 1  # all kept is no map
        if max_extra_bytes is not None:
            allowed = points[0].kv_token_bytes * (1 + max_extra_bytes)
            most = max(n for n in range(most + 1) if n == 0 or self._bytes(self._keeping(ranking[:n])) <= allowed)
        points[most] = self._point(ranking, most)
        if points[most].kl > limit:
            return None
        too_few, enough = 0, most
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            points[middle] = self._point(ranking, middle)
            too_few, enough = (middle, enough) if points[middle].kl > limit else (too_few, middle)
        return points[enough]

    def _point(self, ranking: Sequence[Cost], kept: int) -> Point:
        segments = self._keeping(ranking[:kept])
        self.progress(f"a map of {kept} entries" if kept else f"all {self.dtype}", 0, 1)
        names = journal.fingerprint({"units": sorted(map(str, segments)), "keep": self.keep_dtype})
        return Point(kept, self._kl(f"map {names}", self.dtype, segments), self._bytes(segments))

    def _keeping(self, costs: Iterable[Cost]) -> precision_map.Segments:
        return {place: self.keep_dtype for cost in costs for place in cost.unit.places(self._shape)}

    def _bytes(self, segments: precision_map.Segments) -> float:
        return configurations.Configuration("", self.dtype, segments).layout(self._shape).token_bytes

    def _kl(self, key: str, dtype: str, segments: precision_map.Segments) -> float:
        """Mean over the text, in nats; measured once."""
        known = self.kept.known(key)
        if known is None:
            known = {"kl": self.losses.kl(configurations.Configuration("tried", dtype, segments))}
            self.kept.put(key, known)
        return float(known["kl"])


def _ranked(costs: Iterable[Cost]) -> list[Cost]:
    """Loss for each byte, then by name. What is kept may be of 8 bits, too, and take no more bytes."""
    return sorted(costs, key=lambda cost: (-cost.kl / max(cost.extra_bytes, 1.0), cost.unit.name))


def _dearest(costs: Sequence[Cost], share: float) -> list[Cost]:
    """The fewest units that together hold `share` of the sum."""
    total = sum(max(0.0, cost.kl) for cost in costs)
    found: list[Cost] = []
    for cost in sorted(costs, key=lambda cost: -cost.kl):
        if sum(max(0.0, entry.kl) for entry in found) >= share * total:
            break
        found.append(cost)
    return found
