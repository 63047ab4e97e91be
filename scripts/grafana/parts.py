"""What panels are put together from: queries, thresholds, words for values, columns, and looks of single series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.models import common, dashboard, prometheus

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"

Query = prometheus.Dataquery
Property = dashboard.DynamicConfigValue
Override = dashboard.DashboardFieldConfigSourceOverrides


def query(expr: str, legend: str = "") -> prometheus.Dataquery:
    """Over the time shown; a panel gives it its letter."""
    return _query(expr, legend, instant=False, form=prometheus.PromQueryFormat.TIME_SERIES)


def now(expr: str, legend: str = "") -> prometheus.Dataquery:
    """Its value at the end of the time shown."""
    return _query(expr, legend, instant=True, form=prometheus.PromQueryFormat.TIME_SERIES)


def rows(expr: str) -> prometheus.Dataquery:
    """As rows of a table: a column for each label, and one for the value."""
    return _query(expr, "", instant=True, form=prometheus.PromQueryFormat.TABLE)


def buckets(expr: str) -> prometheus.Dataquery:
    """Of a histogram, for a heatmap."""
    return _query(expr, "{{le}}", instant=False, form=prometheus.PromQueryFormat.HEATMAP)


def _query(expr: str, legend: str, *, instant: bool, form: prometheus.PromQueryFormat) -> prometheus.Dataquery:
    return prometheus.Dataquery(
        expr=expr,
        legend_format=legend or "__auto",
        instant=instant,
        range_val=not instant,
        format_val=form,
        editor_mode=prometheus.QueryEditorMode.CODE,
        datasource=DATASOURCE,
    )


def steps(*limits: tuple[float, str], base: str = GREEN) -> dashboard.ThresholdsConfig:
    """Coloured `base` below the first limit, and from each limit on as it says."""
    return dashboard.ThresholdsConfig(
        mode=dashboard.ThresholdsMode.ABSOLUTE,
        steps=[dashboard.Threshold(value=None, color=base), *(dashboard.Threshold(*limit) for limit in limits)],
    )


def words(values: Mapping[str, tuple[str, str]]) -> list[dashboard.ValueMapping]:
    """Value -> (text, colour; empty: as it is)."""
    results = {
        value: dashboard.ValueMappingResult(text=text, color=colour or None, index=index)
        for index, (value, (text, colour)) in enumerate(values.items())
    }
    return [dashboard.ValueMap(options=results)]


def dashed(letter: str, colour: str) -> Override:
    """A line that is drawn over the others: not stacked, not filled."""
    return _override(
        "byFrameRefID",
        letter,
        Property("custom.lineStyle", common.LineStyle(fill="dash", dash=[10, 8])),
        Property("custom.lineWidth", 2),
        Property("custom.fillOpacity", 0),
        Property("custom.stacking", common.StackingConfig(mode=common.StackingMode.NONE, group="A")),
        Property("color", dashboard.FieldColor(mode=dashboard.FieldColorModeId.FIXED, fixed_color=colour)),
    )


def coloured(name: str, colour: str) -> Override:
    """The series of this name."""
    fixed = dashboard.FieldColor(mode=dashboard.FieldColorModeId.FIXED, fixed_color=colour)
    return _override("byName", name, Property("color", fixed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table. Its field is a label, or `Value`, or `Value #A` where there are several queries."""

    field: str
    title: str
    unit: str = ""
    width: int = 0
    decimals: int | None = None
    thresholds: dashboard.ThresholdsConfig | None = None
    """Colours the cell's background."""
    words: Mapping[str, tuple[str, str]] | None = None
    """Instead of values: text and colour."""
    link: tuple[str, str] | None = None
    """Title and address."""

    def override(self) -> Override:
        return _override("byName", self.field, *self._properties())

    def _properties(self) -> list[Property]:
        found = [Property("displayName", self.title)]
        if self.unit:
            found.append(Property("unit", self.unit))
        if self.width:
            found.append(Property("custom.width", self.width))
        if self.decimals is not None:
            found.append(Property("decimals", self.decimals))
        if self.words is not None:
            found.append(Property("mappings", words(self.words)))
        if self.thresholds is not None:
            found.append(Property("thresholds", self.thresholds))
        if self._is_coloured():
            cell = common.TableColoredBackgroundCellOptions(mode=common.TableCellBackgroundDisplayMode.BASIC)
            found.append(Property("custom.cellOptions", cell))
        if self.link is not None:
            found.append(Property("links", [{"title": self.link[0], "url": self.link[1], "targetBlank": True}]))
        return found

    def _is_coloured(self) -> bool:
        return self.thresholds is not None or any(colour for _, colour in (self.words or {}).values())


def _override(matcher: str, options: str, *properties: Property) -> Override:
    return Override(matcher=dashboard.MatcherConfig(id_val=matcher, options=options), properties=list(properties))


def lettered(queries: Sequence[prometheus.Dataquery]) -> list[prometheus.Dataquery]:
    """Named A, B, C, in their order."""
    for letter, each in zip("ABCDEFGHIJKLMNOP", queries, strict=False):
        each.ref_id = letter
    return list(queries)
