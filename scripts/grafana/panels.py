"""One function a kind of panel. Each is told what it shows, in which unit, and what a person should make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.models import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries

from grafana import parts

_COLOUR_BY_NAME = dashboard.FieldColor(mode=dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
_COLOUR_BY_LIMIT = dashboard.FieldColor(mode=dashboard.FieldColorModeId.THRESHOLDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What every panel says of itself."""

    title: str
    description: str
    unit: str
    width: int
    """Of 24."""
    height: int = 8
    overrides: Sequence[parts.Override] = field(default=())
    thresholds: dashboard.ThresholdsConfig = field(default_factory=parts.steps)
    maximum: float | None = None
    no_value: str | None = None
    """Said instead of `No data`."""


def lines(about: About, *queries: prometheus.Dataquery, stacked: bool = False, limits: bool = False) -> dashboard.Panel:
    """Over time. `stacked`: areas on top of each other; `limits`: thresholds are drawn as dashed lines."""
    style = common.GraphTresholdsStyleMode.DASHED if limits else common.GraphTresholdsStyleMode.OFF
    custom = common.GraphFieldConfig(
        draw_style=common.GraphDrawStyle.LINE,
        line_width=1,
        fill_opacity=40 if stacked else 0,
        show_points=common.VisibilityMode.NEVER,
        span_nulls=False,
        stacking=common.StackingConfig(
            mode=common.StackingMode.NORMAL if stacked else common.StackingMode.NONE, group="A"
        ),
        thresholds_style=common.GraphThresholdsStyleConfig(mode=style),
    )
    options = timeseries.Options(
        legend=common.VizLegendOptions(
            display_mode=common.LegendDisplayMode.TABLE,
            placement=common.LegendPlacement.BOTTOM,
            show_legend=True,
            calcs=["lastNotNull", "max"],
        ),
        tooltip=common.VizTooltipOptions(mode=common.TooltipDisplayMode.MULTI, sort=common.SortOrder.DESCENDING),
    )
    return _panel("timeseries", about, queries, options, _COLOUR_BY_NAME, custom, minimum=0)


def number(about: About, *queries: prometheus.Dataquery, words: list[dashboard.ValueMapping] | None = None,
           spark: bool = False) -> dashboard.Panel:  # fmt: skip
    """A large number, its background coloured by thresholds."""
    options = stat.Options(
        graph_mode=common.BigValueGraphMode.AREA if spark else common.BigValueGraphMode.NONE,
        color_mode=common.BigValueColorMode.BACKGROUND,
        reduce_options=common.ReduceDataOptions(calcs=["lastNotNull"], fields="", values=False),
        text_mode=common.BigValueTextMode.AUTO,
    )
    return _panel("stat", about, queries, options, _COLOUR_BY_LIMIT, mappings=words)


def rows(
    about: About, columns: Sequence[parts.Column], *queries: prometheus.Dataquery, sort: tuple[str, bool] | None = None
) -> dashboard.Panel:
    """A table with these columns in this order and no others. `sort`: a column's title, and whether largest first."""
    options = table.Options(
        show_header=True,
        cell_height=common.TableCellHeight.SM,
        sort_by=[common.TableSortByFieldState(display_name=sort[0], desc=sort[1])] if sort is not None else None,
    )
    panel = _panel(
        "table",
        about,
        queries,
        options,
        _COLOUR_BY_LIMIT,
        common.TableFieldOptions(cell_options=common.TableAutoCellOptions()),
    )
    panel.field_config.overrides = [*(column.override() for column in columns), *about.overrides]
    wanted = [column.field for column in columns]
    if len(queries) > 1:
        panel.transformations.append(dashboard.DataTransformerConfig(id_val="merge", options={}))
    panel.transformations += [
        dashboard.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": wanted}}),
        dashboard.DataTransformerConfig(
            id_val="organize", options={"indexByName": {name: index for index, name in enumerate(wanted)}}
        ),
    ]
    return panel


def heat(about: About, buckets: prometheus.Dataquery) -> dashboard.Panel:
    """How values are spread, over time: the warmer a cell, the more of them. `about.unit` is that of the values."""
    options = heatmap.Options(
        color=heatmap.HeatmapColorOptions(
            mode=heatmap.HeatmapColorMode.SCHEME,
            scheme="Oranges",
            fill="dark-orange",
            scale=heatmap.HeatmapColorScale.EXPONENTIAL,
            exponent=0.5,
            steps=64,
        ),
        rows_frame=heatmap.RowsHeatmapOptions(layout=common.HeatmapCellLayout.AUTO),
        y_axis=heatmap.YAxisConfig(unit=about.unit, axis_placement=common.AxisPlacement.LEFT, reverse=False),
        tooltip=heatmap.HeatmapTooltip(show=True, y_histogram=True),
    )
    linear = common.ScaleDistributionConfig(type_val=common.ScaleDistribution.LINEAR)
    return _panel(
        "heatmap", about, [buckets], options, _COLOUR_BY_LIMIT, heatmap.FieldConfig(scale_distribution=linear)
    )


def bars(about: About, *queries: prometheus.Dataquery) -> dashboard.Panel:
    """One bar a series, as it is now."""
    options = bargauge.Options(
        display_mode=common.BarGaugeDisplayMode.BASIC,
        value_mode=common.BarGaugeValueMode.COLOR,
        show_unfilled=True,
        min_viz_height=10,
        orientation=common.VizOrientation.HORIZONTAL,
        reduce_options=common.ReduceDataOptions(calcs=["lastNotNull"], fields="", values=False),
    )
    return _panel("bargauge", about, queries, options, _COLOUR_BY_LIMIT, minimum=0)


def _panel(
    kind: str,
    about: About,
    queries: Sequence[prometheus.Dataquery],
    options: object,
    colour: dashboard.FieldColor,
    custom: object = None,
    *,
    minimum: float | None = None,
    mappings: list[dashboard.ValueMapping] | None = None,
) -> dashboard.Panel:
    defaults = dashboard.FieldConfig(
        unit=about.unit,
        min_val=minimum,
        max_val=about.maximum,
        thresholds=about.thresholds,
        color=colour,
        mappings=mappings if mappings is not None else [],
        no_value=about.no_value,
        custom=custom,
    )
    return dashboard.Panel(
        type_val=kind,
        title=about.title,
        description=about.description,
        datasource=parts.DATASOURCE,
        targets=list(parts.lettered(queries)),
        grid_pos=dashboard.GridPos(h=about.height, w=about.width),
        options=options,
        field_config=dashboard.FieldConfigSource(defaults=defaults, overrides=list(about.overrides)),
    )
