"""Writes the dashboards as JSON: `python -m infra.grafana.generate`. With `--check` it only says which are not current.

Grafana reads `dashboards/` (provisioning/dashboards); on Kubernetes each file becomes a ConfigMap.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from infra.grafana.fleet import fleet
from infra.grafana.learning import learning
from infra.grafana.processes import processes
from infra.grafana.queues import queues
from infra.grafana.training import training

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS: tuple[Callable[[], Dashboard], ...] = (fleet, queues, learning, training, processes)


def documents() -> dict[Path, str]:
    """Every dashboard's file and its content. Panels are numbered from 1, in order."""
    return {FOLDER / f"{make.__name__}.json": _document(make()) for make in DASHBOARDS}


def _document(dashboard: Dashboard) -> str:
    document = json.loads(json.dumps(dashboard.build(), cls=JSONEncoder))
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    stale = [path for path, text in documents().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(documents()[path], encoding="utf-8")
    elif stale:
        sys.stderr.write(f"type `python -m infra.grafana.generate`: not current: {', '.join(p.name for p in stale)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
