"""Alert rules for the Prometheus operator, and each dashboard as a ConfigMap for Grafana.

The files are those of compose: infra/prometheus/rules.yml and infra/grafana/dashboards/*.json.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap

from infra.foundation import Foundation

HERE = Path(__file__).parent
RULES = HERE / "prometheus" / "rules.yml"
RUNBOOKS = "{{ $externalLabels.runbooks }}"
"""The address of the runbook in the rules: a label of Compose's Prometheus, which is ours; the operator's is not."""
DASHBOARDS = HERE / "grafana" / "dashboards"


def monitoring(foundation: Foundation) -> None:
    wanted = foundation.settings.monitoring
    if wanted is None:
        return
    for path in sorted(DASHBOARDS.glob("*.json")):
        name = f"dashboard-{path.stem.replace('_', '-').lower()}"
        ConfigMap(
            name,
            metadata=foundation.metadata(name, labels={"grafana_dashboard": "1"}),
            data={path.name: path.read_text("utf-8")},
        )
    if RULES.exists():
        rules = RULES.read_text("utf-8").replace(RUNBOOKS, wanted.runbooks)
        CustomResource(
            "alerts",
            api_version="monitoring.coreos.com/v1",
            kind="PrometheusRule",
            metadata=foundation.metadata("alerts", labels={"release": wanted.release_label}),
            spec=yaml.safe_load(rules),
        )
