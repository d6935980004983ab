"""The time from the registration of an agent that requires nothing to its first answer, no process restarted."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from bench.rig import save_tokenizer
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import Fleet
from tests.acceptance.test_manager_faults import manager_of
from tests.acceptance.test_registered_agents import Managing
from tests.private_broker import free_port


def first_answers(folder: Path, broker: MortalBroker, count: int) -> dict[str, Any]:
    """Register so many agents one after the other. Each has a program, and a job of one task that is sent at once."""
    port = free_port()
    environment = {
        "RATCHET_MANAGER_URL": f"http://127.0.0.1:{port}",
        "RATCHET_AGENT_TOKENIZER": save_tokenizer(folder / "tokenizer"),
    }
    fleet = Fleet(folder, broker.url, f"m{uuid.uuid4().hex[:6]}.", environment=environment).start()
    manager = manager_of(fleet, port=port)
    manager.start()
    manager.wait_until_ready()
    house, took = Managing(fleet, manager), []
    try:
        before = house.pids()
        for number in range(count):
            name = f"new-{number}"
            house.register(name)
            began = time.monotonic()
            house.submit(name, name)
            while house.job(name)["state"] != "done":
                time.sleep(0.02)  # real time: each look costs the manager a little
            took.append(round(time.monotonic() - began, 2))
            if house.answers(name) != [f"{name} sort: 0"]:
                raise SystemExit(f"{name} answered {house.answers(name)}: {house.job(name)['failures']}")
        return {"agents": count, "restarts": house.pids() != before, "seconds_to_the_first_answer": took}
    finally:
        manager.kill()
        fleet.stop()
