"""`python -m bench.shards`: what two fleets that decide as one cost, compared with one fleet, and with two that don't.

All are started on one private broker and take turns under full load. A turn is tasks answered for each CPU-second of
the broker and all processes of the fleets; the client's is left out. The ratios of a round are of its own turns.
The bar is for two fleets that decide as one beside two that decide apart, which are as many processes on the same
cores. With `--experiment` all tasks are units of a live experiment: evidence is pooled, and each fleet counts all.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.machine import machine, write_figures
from bench.pipeline.compare import in_own_process
from bench.pipeline.contestants import FLEET_ENVIRONMENT
from bench.pipeline.load import Measured, Round
from bench.rig import private_broker
from ratchet.adapters.registry import RegistryStore
from tests.acceptance.fleet import Fleet
from tests.acceptance.scoring import scored
from tests.acceptance.test_pooled_fleets import tell_of_a_candidate

SIZE = 500
BAR = 0.95
ONE, APART, POOLED = "one fleet", "two that decide apart", "two that decide as one"
BEGINS_WITHIN_S = 60.0
UNDECIDED = scored({"v1.0.0": 0.5, "v1.0.1": 0.6}) | {
    "RATCHET_EXPERIMENT_MIN_UNITS_PER_ARM": "1000000",
    "RATCHET_EXPERIMENT_MIN_AGE_S": "86400",
    "RATCHET_EXPERIMENT_MAX_UNITS": "10000000",
    "RATCHET_WATCH_SHARE": "0",
}
"""An experiment that no round ends."""


@contextmanager
def fleets(kind: str, url: str, number: int, *, experiment: bool = False) -> Iterator[list[Fleet]]:
    """Fleets that are ready; their folders go away with them."""
    with tempfile.TemporaryDirectory(prefix="ratchet-shards-") as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        logs, namespace = Path(folder) / "second-logs", f"r{number}-{kind.rpartition(' ')[2]}."
        shared = FLEET_ENVIRONMENT | {"RATCHET_DECISION_KEYS": str(Path(folder) / "keys")}
        shared |= UNDECIDED if experiment else {}
        pooled = {"RATCHET_POOLED_LOGS": str(logs)} if kind == POOLED else {}
        started = [_fleet(first, url, namespace, shared | pooled)]
        try:
            if kind == POOLED:
                follows = {"RATCHET_POOL": str(started[0].logs), "RATCHET_FLEET_NUMBER": "1"}
                follows |= {"RATCHET_LOGS_DIR": str(logs), "RATCHET_ADAPTERS_DIR": str(first / "adapters")}
                started.append(_fleet(second, url, f"{namespace}1.", shared | follows))
            elif kind == APART:
                own_keys = {"RATCHET_DECISION_KEYS": str(Path(folder) / "other-keys")}
                started.append(_fleet(second, url, f"{namespace}1.", shared | own_keys))
            if experiment:
                for one in started if kind == APART else started[:1]:
                    _begin_experiment(one)
            yield started
        finally:
            for one in started:
                one.stop()


def _begin_experiment(first: Fleet) -> None:
    """Begin an experiment. Raises SystemExit where none begins."""
    tell_of_a_candidate(first)
    store, ends = RegistryStore(first.folder / "adapters"), time.monotonic() + BEGINS_WITHIN_S
    while store.read().agent("small").experiment is None:
        if time.monotonic() > ends:
            raise SystemExit(f"no experiment began within {BEGINS_WITHIN_S:.0f} s")
        time.sleep(0.2)


def _fleet(folder: Path, url: str, namespace: str, environment: dict[str, str]) -> Fleet:
    folder.mkdir()
    return Fleet(folder, url, namespace=namespace, environment=environment).start()


def tasks_per_cpu_s(kind: str, url: str, broker_pid: int, seconds: float, number: int, *, experiment: bool) -> float:
    """Measure one turn; each fleet has a client of its own, as its share of the tasks."""
    with fleets(kind, url, number, experiment=experiment) as started, ThreadPoolExecutor(len(started)) as clients:
        rounds = []
        for place, one in enumerate(started):
            groups = {"workers": list(one.pids.values())} | ({} if place else {"broker": [broker_pid]})
            rounds.append(Round(url, one.namespace, SIZE, seconds, groups))
        found: list[Measured] = list(clients.map(in_own_process, rounds))
        store = RegistryStore(started[0].folder / "adapters")
        if experiment and store.read().agent("small").experiment is None:
            *_, (last, _) = store.ledger.read()
            raise SystemExit(f"the experiment ended, so nothing was measured of it: {last.reason}")
    if missing := sum(one.missing for one in found):
        raise SystemExit(f"{missing} tasks were not answered")
    used = sum(spent for one in found for name, spent in one.cpu_s.items() if name != "client")
    return sum(one.answered for one in found) / used


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.shards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--experiment", action="store_true", help="all tasks are units of a live experiment")
    given = parser.parse_args()
    rounds = []
    with private_broker() as (url, broker_pid):
        for number in range(given.rounds):
            turns = (ONE, APART, POOLED) if number % 2 == 0 else (POOLED, APART, ONE)
            took = {
                kind: tasks_per_cpu_s(kind, url, broker_pid, given.seconds, number, experiment=given.experiment)
                for kind in turns
            }
            rounds.append(took)
            told = ", ".join(f"{kind} {took[kind]:.0f}" for kind in (ONE, APART, POOLED))
            print(f"round {number + 1}, tasks per CPU-second: {told}", file=sys.stderr)
    ratios = {beside: sorted(took[POOLED] / took[beside] for took in rounds) for beside in (APART, ONE)}
    write_figures("shards", {"machine": machine(), "tasks_per_cpu_s": rounds, "ratios": ratios})
    print(machine())
    for beside, found in ratios.items():
        print(f"{POOLED} over {beside}: {statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})")
    met = statistics.median(ratios[APART]) >= BAR
    print(f"bar over {APART}, {BAR}: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
