"""Jobs that have ended stay for weeks: what is done all the time may not take longer for each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from ratchet.http.access.roles import LOCAL, Caller, Role
from schemas.api.jobs import JobKind, JobState, TaskState
from services.manager import agent_store, dispatcher, job_store, limits, release
from services.manager.database import Database
from services.manager.ledger import limits_of
from services.manager.order import Lanes
from services.manager.tables import agents, daily_usage, jobs, quotas, tasks, usage

NOW, DAY = 1_700_000_000.0, "2023-11-14"
FEW, MANY = 20, 4_000
RULES = '{"model": "small", "program": {"command": ["x"]}, "kind": "simulation"}'
OWNER = Caller("o", Role.SUBMITTER, "token", own_only=True)
OTHER = Caller("v", Role.VIEWER, "token", tenant="other", is_bound=True)
STEPS_EACH = 100
"""Steps of SQLite's machine between two counts."""

ACTS: dict[str, Callable[[Connection], object]] = {
    "look at a job": lambda connection: job_store.get(connection, "j0", LOCAL, NOW),
    "list the newest jobs": lambda connection: job_store.page(connection, LOCAL, None, None, 5),
    "list own jobs": lambda connection: job_store.page(connection, OWNER, None, None, 5),
    "list a tenant's jobs": lambda connection: job_store.page(connection, OTHER, None, None, 5),
    "a tenant's limits": lambda connection: limits_of(connection, NOW, ["t"]),
    "agents and their budgets": lambda connection: agent_store.registrations(connection, NOW),
    "usage by day": lambda connection: limits.usage_by(connection, "day", 5, "t"),
    "release": lambda connection: release.release(connection, Lanes(30, 256), {}, NOW),
    "expire": lambda connection: release.expire(connection, NOW, 86_400),
    "show open jobs": dispatcher.show_open_jobs,
}


async def steps_with(folder: Path, count: int) -> dict[str, int]:
    """Return the steps of each act beside so many jobs that have ended, the first with as many tasks."""
    database = Database(f"sqlite:///{folder}/jobs-{count}.sqlite")
    await database.open()
    moments = dict.fromkeys(("created_at", "changed_at", "served_at", "deadline"), NOW - 3600)
    job = {"tenant": "t", "agent_id": "a", "state": JobState.DONE, "asked": "{}", "priority": 1, "ok": 1, "tasks": 1}
    every = job | moments | {"kind": JobKind.TASKS, "places": count, "bytes": 9}
    used = dict.fromkeys(("tasks", "prompt_tokens", "sampled_tokens", "spent"), 1) | {"tenant": "t", "agent_id": "a"}
    ended = {"job_id": "j0", "state": TaskState.OK, "body": "{}", "ended_at": NOW - 3600}
    agent = {"name": "a", "model": "small", "rules": RULES, "revision": 1, "retired": False, "budget": 10**9}

    def fill(connection: Connection) -> None:
        rows = [every | {"job_id": f"j{n}", "owner": None if n else "o", "created_at": n} for n in range(count)]
        connection.execute(insert(jobs), rows)
        connection.execute(insert(tasks), [ended | {"n": n, "place": n + 1} for n in range(count)])
        connection.execute(insert(usage), [used | {"day": DAY, "job_id": f"j{n}"} for n in range(count)])
        connection.execute(insert(daily_usage), used | {"day": DAY})
        connection.execute(insert(quotas).values(tenant="t", weight=1, open_tasks=5, budget=10**9, tokens_a_day=10**9))
        connection.execute(insert(agents), agent | {"created_at": NOW, "changed_at": NOW})

    await database.write(fill)
    taken: dict[str, int] = {}

    def count_steps(connection: Connection) -> None:
        raw: Any = connection.connection.dbapi_connection
        for name, act in ACTS.items():
            steps = [0]

            def step(steps: list[int] = steps) -> int:
                steps[0] += STEPS_EACH
                return 0

            raw.set_progress_handler(step, STEPS_EACH)
            act(connection)
            taken[name] = steps[0]
        raw.set_progress_handler(None, 0)

    await database.write(count_steps)
    await database.close()
    return taken


async def test_jobs_that_have_ended_cost_nothing(tmp_path: Path) -> None:
    few, many = await steps_with(tmp_path, FEW), await steps_with(tmp_path, MANY)
    assert {name: many[name] for name in ACTS} == {name: pytest.approx(few[name], rel=0.5, abs=1_000) for name in ACTS}
