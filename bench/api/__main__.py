"""`python -m bench.api`: the orchestrator's API beside a bare handler, and its stream of events with many clients."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.api import compare, events
from bench.machine import machine
from bench.pipeline.compare import private_broker

OUT = Path(__file__).parents[1] / "out" / "api.json"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds measured at each number of clients (4)")
    parser.add_argument("--tasks", type=int, default=1000, help="tasks answered while clients listen (1000)")
    parser.add_argument("--per-s", type=float, default=50.0, help="of them each second (50)")
    parser.add_argument("--quick", action="store_true", help="one short round and 50 listeners: does it run at all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    given = parser.parse_args(arguments)
    if given.quick:
        given.rounds, given.seconds, given.tasks = 1, 1.0, 100
    return given


def main() -> int:
    """0 if every listening client got every event, else 1."""
    given = options()
    clients = (1, 50) if given.quick else events.CLIENTS
    with private_broker() as (url, _):
        posted = compare.compare(url, rounds=given.rounds, seconds=given.seconds)
        heard = events.listen(url, tasks=given.tasks, per_s=given.per_s, clients=clients)
    on = machine()
    found = {"machine": on, "posting": compare.as_json(posted), "events": [asdict(one) for one in heard]}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if given.json else text(on, given, posted, heard))
    return 0 if all(one.heard.least == one.tasks and not one.heard.gaps for one in heard) else 1


def text(on: str, given: argparse.Namespace, posted: list[compare.Line], heard: list[events.Line]) -> str:
    parts: list[Any] = [
        on,
        f"\nPOST /v1/tasks, 500-byte tasks; medians of {given.rounds} rounds of {given.seconds:.0f} s",
        compare.table(posted),
        f"\nGET /v1/events: {given.tasks} tasks at {given.per_s:g} a second; stopped: one more that reads nothing",
        events.table(heard),
        f"\nwritten to bench/out/{OUT.name}",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
