"""Asks a Prometheus the question of every panel, and says which answers are empty: `python -m infra.grafana.probe URL`.

For after an installation: a panel without data is a target that is not scraped, or something that has not happened yet.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from urllib.parse import urlencode
from urllib.request import urlopen

from infra.grafana.generate import documents


def questions() -> Iterator[tuple[str, str]]:
    """Panel and PromQL; dashboards' variables stand for everything."""
    everything = {"$__rate_interval": "1m", "$agent": ".+", "$namespace": ".*", "$fleet": ".+"}
    for path, text in documents().items():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                if panel["datasource"]["uid"] == "prometheus":
                    expr = target["expr"]
                    for variable, value in everything.items():
                        expr = expr.replace(variable, value)
                    yield f"{path.stem}: {panel['title']}", expr


def series(prometheus: str, expr: str) -> int:
    """Count the series of an answer. Raises OSError if Prometheus can't be reached or refuses the query."""
    with urlopen(f"{prometheus}/api/v1/query?{urlencode({'query': expr})}", timeout=10) as answer:
        return len(json.load(answer)["data"]["result"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.grafana.probe", description=__doc__)
    parser.add_argument("prometheus", help="its address, such as http://127.0.0.1:9090")
    address = parser.parse_args().prometheus.rstrip("/")
    asked = list(questions())
    empty = [(title, expr) for title, expr in asked if not series(address, expr)]
    for title, expr in empty:
        sys.stdout.write(f"empty  {title}\n       {expr}\n")
    sys.stdout.write(f"{len(asked) - len(empty)} of {len(asked)} questions have an answer\n")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
