"""Two fleets of processes decide as one: whatever is killed, no task is lost and the log gives the verdict again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.client import Fleet as Client
from ratchet.experiments.records import PooledLine, experiments
from ratchet.experiments.replay import replay_experiment
from ratchet.logs.names import POOLED
from ratchet.logs.reader import read_json
from schemas import AdapterTrained, Task
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, SCORER, Fleet
from tests.acceptance.ledger import Ledger
from tests.acceptance.loops import DECIDES_SOON
from tests.acceptance.scoring import scored
from tests.ratchet.adapters.making_adapters import published

pytestmark = pytest.mark.broker

RESULTS_BETWEEN_KILLS = 20
BETTER = scored({"v1.0.0": 0.3, "v1.0.1": 0.6})


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_two_fleets_prove_a_candidate_together_while_their_processes_are_killed(
    start_fleet: Callable[..., Fleet], tmp_path: Path, kills: int
) -> None:
    both = DECIDES_SOON | BETTER | {"RATCHET_DECISION_KEYS": str(tmp_path / "keys")}
    first = start_fleet(environment=both | {"RATCHET_POOLED_LOGS": str(tmp_path / "logs")})
    follows = {"RATCHET_POOL": str(first.logs), "RATCHET_FLEET_NUMBER": "1", "RATCHET_LOGS_DIR": str(tmp_path / "logs")}
    shared = {"RATCHET_ADAPTERS_DIR": str(first.folder / "adapters")}
    second = start_fleet(environment=both | follows | shared)
    store = RegistryStore(first.folder / "adapters")
    tell_of_a_candidate(first)

    killed = 0
    shards = {fleet.namespace: fleet.amqp_url for fleet in (first, second)}
    with Client(first.amqp_url, shards=shards, most_open=32, stall_s=200) as client:
        is_over = lambda: killed == kills and store.read().agent("small").primary == "v1.0.1"  # noqa: E731
        victims = cycle(fleet[name] for name in (ORCHESTRATOR, AGENT, SCORER) for fleet in (first, second))
        for number, result in enumerate(client.batch(tasks(is_over)), 1):
            assert result.status == "ok", result.reason
            if number % RESULTS_BETWEEN_KILLS == 0 and killed < kills:
                victim = next(victims)
                victim.kill()
                victim.start()
                killed += 1
        submitted, answered, failed = client.progress

    assert (answered, failed) == (submitted, 0)
    admitted = [of_fleet(first.logs), of_fleet(tmp_path / "logs")]
    assert admitted[0].isdisjoint(admitted[1]) and all(admitted)
    assert len(admitted[0] | admitted[1]) >= submitted  # and the fleet's own
    (record,) = experiments(decision for decision, _ in store.ledger.read())
    assert record.verdict == replay_experiment(record.running, first.logs).final
    assert {line.value.fleet for line in read_json(first.logs, POOLED, PooledLine)} == {0, 1}


def tell_of_a_candidate(fleet: Fleet) -> None:
    """Publish an adapter and say, as a trainer does, that it was trained."""
    folder = published(fleet.folder / "adapters", "small", seed=1)
    trained = AdapterTrained(
        request_id="by-hand",
        agent_id="small",
        status="trained",
        adapter_version=folder.name,
        adapter_sha256=adapter_sha256(folder),
    )
    with open_connection(fleet.amqp_url) as connection:
        connection.channel().basic_publish("", fleet.namespace + "adapters", trained.encode())


def tasks(is_over: Callable[[], bool]) -> Iterator[Task]:
    """Users' tasks, every third of a session, until it is over."""
    for number in count():
        if is_over():
            return
        session = f"session-{number // 6}" if number % 3 == 0 else None
        yield Task(task_id=f"task-{number}", input=f"say {number}", samples=2, session_id=session)


def of_fleet(logs: Path) -> set[str]:
    """Tasks of this fleet, each admitted once and logged whole."""
    ledger = Ledger()
    ledger.read_logs(logs)
    ledger.acknowledged = set(ledger.admitted)
    assert not ledger.unlogged
    return ledger.acknowledged
