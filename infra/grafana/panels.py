"""The few kinds of panel the dashboards are made of, over Grafana's own typed builders.

Every panel says in its description what it shows and what is normal. Data come from the sources `prometheus` and
`loki`, which `provisioning/datasources` declares under these ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, logs, loki, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import prometheus as prometheus_models

PROMETHEUS = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
LOKI = dashboard.DataSourceRef(type_val="loki", uid="loki")
HEIGHT, LOW = 8, 4
HALF, THIRD, QUARTER, SIXTH, WHOLE = 12, 8, 6, 4, 24
"""Heights and widths in cells of Grafana's grid, which has 24 columns."""

_LEGEND = (
    common_builders.VizLegendOptions()
    .display_mode(common.LegendDisplayMode.LIST)
    .placement(common.LegendPlacement.BOTTOM)
    .show_legend(True)
)
_TOOLTIP = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
_DASHED = common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.DASHED)


FLEET = 'namespace=~"$namespace", fleet=~"$fleet"'
"""The matchers of every series: the chosen fleet. On Compose the variable of the namespace is empty."""
_SERIES = re.compile(r"\b((?:ratchet|rabbitmq|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")


def of_the_fleet(expr: str) -> str:
    """The PromQL expression over the series of the chosen fleet alone."""
    return _SERIES.sub(lambda series: f"{series[1]}{{{', '.join(filter(None, (FLEET, series[2])))}}}", expr)


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the name of its series (`{{label}}` stands for a label's value). The fleet is added."""

    expr: str
    legend: str = ""


def _target(query: Query, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(of_the_fleet(query.expr)).legend_format(query.legend or "__auto").ref_id(ref)


def _targets(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    return [_target(query, chr(ord("A") + number)) for number, query in enumerate(queries)]


def _limits(steps: Sequence[tuple[float | None, str]]) -> builders.ThresholdsConfig:
    thresholds = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(thresholds)


def lines(
    title: str,
    about: str,
    *queries: Query,
    unit: str = "short",
    span: int = THIRD,
    height: int = HEIGHT,
    limit: float | None = None,
    stacked: bool = False,
    logarithmic: bool = False,
    from_zero: bool = True,
    steps: bool = False,
) -> timeseries.Panel:
    """Series over time. `limit` draws a dashed red line where something happens."""
    panel = timeseries.Panel().title(title).description(about).datasource(PROMETHEUS).targets(_targets(queries))
    panel = (
        panel.unit(unit).span(span).height(height).fill_opacity(40 if stacked else 8).legend(_LEGEND).tooltip(_TOOLTIP)
    )
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if steps:
        panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if logarithmic:
        panel.scale_distribution(common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    elif from_zero:
        panel.min(0)
    if limit is not None:
        panel.thresholds(_limits([(None, "transparent"), (limit, "red")])).thresholds_style(_DASHED)
    return panel


def number(
    title: str,
    about: str,
    query: Query,
    *,
    unit: str = "short",
    span: int = SIXTH,
    height: int = LOW,
    limits: Sequence[tuple[float | None, str]] = ((None, "text"),),
) -> stat.Panel:
    """One figure, coloured by `limits`: (from, colour) in rising order, the first from None."""
    panel = stat.Panel().title(title).description(about).datasource(PROMETHEUS).targets(_targets([query]))
    panel = (
        panel.unit(unit)
        .span(span)
        .height(height)
        .thresholds(_limits(limits))
        .color_mode(common.BigValueColorMode.VALUE)
    )
    options = common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    return panel.reduce_options(options).graph_mode(common.BigValueGraphMode.NONE).no_value("none")


def heat(title: str, about: str, query: Query, *, span: int = THIRD) -> heatmap.Panel:
    """A histogram over time: `query` must keep the label `le`."""
    target = _target(query, "A").format(prometheus_models.PromQueryFormat.HEATMAP)
    panel = heatmap.Panel().title(title).description(about).datasource(PROMETHEUS).targets([target])
    return panel.span(span).height(HEIGHT).calculate(False)


def log_lines(title: str, about: str, expr: str, *, span: int = WHOLE) -> logs.Panel:
    """Lines from Loki; `expr` is LogQL."""
    panel = logs.Panel().title(title).description(about).datasource(LOKI)
    panel = panel.with_target(loki.Dataquery().expr(expr).ref_id("A").datasource(LOKI))
    return panel.span(span).height(10).show_time(True).enable_log_details(True)


def _variable(name: str, query: str) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).label(name.capitalize()).datasource(PROMETHEUS).query(query)
    return variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)


def agent_variable() -> builders.QueryVariable:
    """`$agent`: one of the fleet's agents, or all."""
    query = f"label_values({of_the_fleet('ratchet_tasks_admitted_total')}, agent)"
    return _variable("agent", query).include_all(True).multi(True)


def page(uid: str, title: str, about: str) -> builders.Dashboard:
    """An empty dashboard of one fleet among those that Prometheus reads, with links to the others."""
    link = builders.DashboardLink("Ratchet").type(dashboard.DashboardLinkType.DASHBOARDS).tags(["ratchet"])
    return (
        builders.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["ratchet"])
        .link(link.keep_time(True).include_vars(True))
        .with_variable(_variable("namespace", 'label_values(up{fleet!=""}, namespace)'))
        .with_variable(_variable("fleet", 'label_values(up{namespace=~"$namespace", fleet!=""}, fleet)'))
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    )


def row(board: builders.Dashboard, title: str, panels: Sequence[Builder[dashboard.Panel]]) -> None:
    """Panels side by side, under a title that folds them away."""
    board.with_row(builders.Row(title))
    for panel in panels:
        board.with_panel(panel)
