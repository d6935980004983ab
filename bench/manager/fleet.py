"""The manager as a process, with a broker, and with a whole fleet or with one process that answers in its place."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from sqlalchemy import create_engine, func, select

from bench.api.posting import http_request, read_status
from bench.pipeline.cpu import resident_mib
from ratchet.client import AsyncFleet
from ratchet.http.access.roles import Role
from schemas.messages.task import Task
from services.manager.ledger import rebuilt
from services.manager.tables import jobs as job_table
from services.manager.tables import tasks as task_table
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.acceptance.test_manager_faults import manager_of
from tests.private_broker import free_port
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.manager.postgres import Postgres

LATENCY = {"RATCHET_AGENT_ECHO_LATENCY_S": "0.02"}
PART = 5_000
"""Tasks of a job that are sent in one call."""
POLL_S = 0.1
WATCH_S = 0.5
"""Between two looks at a job that is timed: each look costs the manager what a few tasks do."""
RETRY_S = 30.0
WEIGHTS = {"one": 1.0, "two": 2.0, "four": 4.0, "flood": 1.0}
"""Weights of the tenants that share the fleet."""
MOST_TASKS = "1000"
"""So many the queue holds before the one process that answers."""


class House:
    """A manager and its API, the broker, and the processes that answer. `victims`: names of what may be killed."""

    def __init__(
        self,
        members: dict[str, Member],
        broker: MortalBroker,
        fleet: Fleet | None = None,
        database: Postgres | None = None,
    ) -> None:
        self.members, self.manager, self.broker = members, members["manager"], broker
        self._fleet, self._database, manager = fleet, database, self.manager
        self.victims = [*members, "broker", *(["database"] if database else [])]
        self.managers = [name for name in members if name.startswith("manager")]
        self.api = httpx.Client(base_url=f"http://127.0.0.1:{manager.port}", timeout=120.0, trust_env=False)

    def submit(self, job_id: str, count: int, **fields: Any) -> None:
        body = {"job_id": job_id, "samples": 1, **fields}
        for first in range(0, count, PART):
            tasks = [{"input": f"sort: {n}"} for n in range(first, min(first + PART, count))]
            more = first + PART < count
            part = {"tasks": tasks, "more": more}
            path, given = (
                ("/v1/jobs", body | part) if not first else (f"/v1/jobs/{job_id}/tasks", part | {"first": first})
            )
            self.call("POST", path, json=given)

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None
        return self._fleet

    def kill(self, name: str) -> None:
        """Kill a process, the broker or the database, and start it again."""
        if name == "broker":
            self.broker.kill()
            self.broker.start()
        elif name == "database":
            assert self._database is not None
            self._database.stop()
            self._database.start()
        else:
            self.members[name].kill()
            self.members[name].start()

    def look_after(self) -> None:
        """Start again what has ended by itself, as a supervisor does."""
        for member in self.members.values():
            if member.exit_code is not None:
                member.start()

    def call(self, method: str, path: str, **request: Any) -> Any:
        """Call a manager, and another one where that is away, as a caller should."""
        until = time.monotonic() + RETRY_S
        for turn in itertools.count():
            port = self.members[self.managers[turn % len(self.managers)]].port
            try:
                answer = self.api.request(method, f"http://127.0.0.1:{port}{path}", **request)
            except httpx.TransportError as error:
                says = repr(error)
            else:
                if answer.is_success:
                    return answer.json()
                says = f"{answer.status_code} {answer.text}"
            if time.monotonic() > until or says.startswith("4"):
                raise SystemExit(f"{method} {path}: {says}")
            time.sleep(POLL_S)

    def job(self, job_id: str) -> Any:
        """The job; None while the manager is away."""
        try:
            answer = self.api.get(f"/v1/jobs/{job_id}")
        except httpx.HTTPError:
            return None
        return answer.json() if answer.is_success else None

    def results(self, job_id: str) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {"limit": 200}
        while True:
            page = self.call("GET", f"/v1/jobs/{job_id}/results", params=query)
            yield from page["items"]
            if page["next"] is None:
                return
            query["cursor"] = page["next"]


@contextmanager
def whole_fleet(folder: Path, broker: MortalBroker, database: Postgres | None = None) -> Iterator[House]:
    """A fleet with an echo that takes 20 ms a task, and a manager over a `database`, or over SQLite."""
    fleet = Fleet(folder, broker.url, f"m{uuid.uuid4().hex[:6]}.", environment=LATENCY).start()
    manager = manager_of(fleet)
    manager.environment |= {"RATCHET_MANAGER_DB": database.url} if database else {}
    manager.start()
    manager.wait_until_ready()
    try:
        yield House({"manager": manager, ORCHESTRATOR: fleet[ORCHESTRATOR]}, broker, fleet, database)
    finally:
        manager.kill()
        fleet.stop()


@contextmanager
def one_process(
    folder: Path, broker: MortalBroker, database: Postgres | None = None, managers: int = 1, **environment: str
) -> Iterator[House]:
    """Run one process that answers (bench/manager/answering.py), behind a queue of 1,000 tasks, and so many managers
    over a `database`; one over SQLite if none is named."""
    namespace = f"m{uuid.uuid4().hex[:6]}."
    given = {
        "RATCHET_AMQP_URL": broker.url,
        "RATCHET_NAMESPACE": namespace,
        "RATCHET_MANAGER_DB": database.url if database else f"sqlite:///{folder}/jobs.sqlite",
        "RATCHET_API_AUDIT_DIR": str(folder / "audit"),
        "RATCHET_API_REQUESTS_PER_S": "0",
        **environment,
    }
    arguments = (broker.url, namespace, MOST_TASKS)
    answering = Member("answering", "bench.manager.answering", 0, {}, folder / "answering.log", arguments)
    members = {}
    for number in range(managers):
        name, port = "manager" if not number else f"manager-{number}", free_port()
        told = given | {"RATCHET_MANAGER_HTTP_PORT": str(port)}
        members[name] = Member(name, "services.manager", port, told, folder / f"{name}.log")
    members["worker"] = answering
    for member in members.values():
        member.start()
    try:
        for name, member in members.items():
            if name != "worker":
                member.wait_until_ready()
        yield House(members, broker, database=database)
    finally:
        for member in members.values():
            member.kill()


def one_job(house: House, count: int, kills: int) -> dict[str, Any]:
    """Run one job of so many tasks, while the processes, the broker and the database are killed in turn."""
    house.broker.control("set_policy", "bound", r"tasks$", '{"max-length": 1000}', "--apply-to", "queues")
    began = time.monotonic()
    house.submit("large", count)
    memory: list[float] = []
    killed = 0
    while True:
        job = house.job("large")
        if job is not None:
            ended = job["tasks"] - job["waiting"] - job["released"]
            if ended > count / 10 and house.manager.exit_code is None:
                memory.append(resident_mib(house.manager.pid))
            if job["state"] == "done":
                break
            if killed < kills and ended > count * (killed + 1) / (kills + 2):
                house.kill(house.victims[killed % len(house.victims)])
                killed += 1
        house.look_after()
        time.sleep(POLL_S)
    seconds = time.monotonic() - began
    found = list(house.results("large"))
    by_number = Counter(one["n"] for one in found if one["state"] == "ok")
    later = memory[len(memory) // 10 :] or memory
    return {
        "tasks": count,
        "kills": killed,
        "answered_once": sum(1 for number in by_number.values() if number == 1),
        "twice": sum(1 for number in by_number.values() if number > 1),
        "lost": count - len(by_number),
        "tasks_per_s": round(count / seconds, 1),
        "memory_mb": {"median": round(median(later), 1), "least": round(min(later), 1), "most": round(max(later), 1)},
    }


def overtaking(house: House, behind: int) -> dict[str, Any]:
    """The time from the submission of a job of priority 10 to the admission of its task by the orchestrator, and to
    its answer, behind a job of priority 1 with many tasks."""
    house.submit("low", behind, priority=1)
    took, submitted = [], {}
    for number in range(5):
        time.sleep(1.0)
        began, submitted[f"high-{number}/0"] = time.monotonic(), time.time()
        house.submit(f"high-{number}", 1, priority=10)
        while (house.job(f"high-{number}") or {}).get("state") != "done":
            time.sleep(0.02)
        took.append(time.monotonic() - began)
    left = house.job("low")["waiting"]
    house.call("POST", "/v1/jobs/low/cancel")
    lines = map(json.loads, (house.fleet.logs / "assignments.jsonl").read_text().splitlines())
    starts = [
        datetime.fromisoformat(one["admitted_at"]).timestamp() - submitted[one["task_id"]]
        for one in lines
        if one["task_id"] in submitted
    ]
    return {
        "behind": behind,
        "waiting_at_the_end": left,
        "seconds_to_the_start": [round(one, 2) for one in starts],
        "seconds_to_the_answer": [round(one, 2) for one in took],
    }


def beside_direct(house: House, count: int, rounds: int) -> dict[str, Any]:
    """Measure the job path and direct publishing, in turns."""
    jobs, direct = [], []
    for number in range(rounds):
        began = time.time()
        house.submit(f"paired-{number}", count)
        while (job := house.job(f"paired-{number}") or {}).get("state") != "done":
            time.sleep(WATCH_S)
        jobs.append(count / (datetime.fromisoformat(job["changed_at"]).timestamp() - began))
        direct.append(asyncio.run(_directly(house.fleet, number, count)))
    ratios = [job / other for job, other in zip(jobs, direct, strict=True)]
    return {
        "tasks": count,
        "jobs_per_s": [round(one, 1) for one in jobs],
        "direct_per_s": [round(one, 1) for one in direct],
        "ratio": round(median(ratios), 3),
    }


async def _directly(fleet: Fleet, number: int, count: int) -> float:
    tasks = [Task(task_id=f"direct-{number}-{n}", input=f"sort: {n}", samples=1) for n in range(count)]
    began = time.monotonic()
    async with AsyncFleet(fleet.amqp_url, namespace=fleet.namespace) as client:
        came = len([result async for result in client.batch(tasks)])
    if came != count:
        raise SystemExit(f"{came} Results for {count} tasks")
    return count / (time.monotonic() - began)


def budgets(house: House, clients: int, count: int, budget: str, kills: int) -> dict[str, Any]:
    """Run jobs of several clients at once under one tenant's budget, while managers are killed in turn."""
    house.call("PUT", "/v1/tenants/default/quota", json={"budget": budget})
    for client in range(clients):
        house.submit(f"client-{client}", count)
    killed = 0
    while True:
        jobs = house.call("GET", "/v1/jobs", params={"limit": clients})["items"]
        spent = sum(float(job["spent"]) for job in jobs)
        if killed < kills and spent > float(budget) * (killed + 1) / (kills + 1):
            house.kill(house.managers[killed % len(house.managers)])
            killed += 1
        house.look_after()
        if all(job["state"] in ("paused", "done") and not job["released"] for job in jobs):
            break
        time.sleep(POLL_S)
    use = house.call("GET", "/v1/tenants/default/quota")
    database = house.manager.environment["RATCHET_MANAGER_DB"].replace("postgresql://", "postgresql+psycopg://")
    with create_engine(database).connect() as connection:
        by_transfers = rebuilt(connection)
        live = {job.job_id: (job.reserved, job.spent) for job in connection.execute(select(job_table))}
    return {
        "clients": clients,
        "tasks": clients * count,
        "managers": len(house.managers),
        "database": database.partition(":")[0],
        "kills": killed,
        "budget": budget,
        "spent": use["spent"],
        "reserved": use["reserved"],
        "overspend": max(0.0, float(use["spent"]) - float(budget)),
        "rebuilt_equals_live": all(by_transfers.get(name, (0, 0)) == amounts for name, amounts in live.items()),
    }


def many_jobs(house: House, count: int, tasks: int) -> dict[str, Any]:
    """Submit so many jobs at once, and count those whose tasks are each answered once."""
    began = time.monotonic()
    names = [f"many-{number}" for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda name: house.submit(name, tasks), names))
    while len(house.call("GET", "/v1/jobs", params={"limit": count, "state": "done"})["items"]) < count:
        time.sleep(WATCH_S)
    answered = [sorted(one["n"] for one in house.results(name) if one["state"] == "ok") for name in names]
    return {
        "jobs": count,
        "tasks": count * tasks,
        "seconds": round(time.monotonic() - began, 1),
        "jobs_with_each_task_answered_once": answered.count(list(range(tasks))),
    }


def shares(house: House, mint: Mint, flood: int, seconds: float) -> dict[str, Any]:
    """The largest deviation of any minute's shares from the weights, of three tenants beside one that floods, while
    all have work, and for so many seconds at most: by the moments at which their tasks ended."""
    operator = bearer(mint.good(Role.OPERATOR))
    for tenant, weight in WEIGHTS.items():
        house.call("PUT", f"/v1/tenants/{tenant}/quota", headers=operator, json={"weight": int(weight)})
    counts = {tenant: flood if tenant == "flood" else int(flood * weight / 8) for tenant, weight in WEIGHTS.items()}
    for tenant, count in counts.items():
        house.api.headers.update(bearer(mint.good(Role.SUBMITTER, tenant)))
        house.submit(tenant, count)
    began = time.time()
    with create_engine(house.manager.environment["RATCHET_MANAGER_DB"]).connect() as connection:
        left = select(func.min(job_table.c.waiting)).where(job_table.c.job_id != "flood")
        while connection.execute(left).scalar_one() and time.time() < began + seconds:
            connection.rollback()
            time.sleep(1.0)
        until = time.time()
        ends = select(task_table.c.ended_at, task_table.c.job_id).where(task_table.c.ended_at.between(began, until))
        ended = connection.execute(ends.order_by(task_table.c.ended_at)).all()
    deviations, window, first = list[float](), Counter[str](), 0
    expected = {tenant: weight / sum(WEIGHTS.values()) for tenant, weight in WEIGHTS.items()}
    for at, tenant in ended:
        window[tenant] += 1
        while ended[first][0] <= at - 60:
            window[ended[first][1]] -= 1
            first += 1
        if at >= began + 60:
            deviations += (abs(window[one] / window.total() / share - 1) for one, share in expected.items())
    return {
        "seconds": round(until - began, 1),
        "tasks": len(ended),
        "flood": counts["flood"],
        "largest_deviation": round(max(deviations), 4) if deviations else None,
    }


def calls_under_kills(house: House, clients: int, seconds: float) -> dict[str, Any]:
    """Make calls of many clients, each tried again as documented, while processes are killed: twenty in an hour,
    and in a shorter time one every 20 s."""
    pause = max(20.0, seconds / 20)
    until, calls, failed, killed = time.monotonic() + seconds, Counter[str](), Counter[str](), 0

    def call_on(client: int) -> None:
        for turn in itertools.count():
            if time.monotonic() > until:
                return
            job_id = f"c{client}-{turn // 10}"
            body = {"job_id": job_id, "tasks": ["sort: ba"] * (10 if turn % 20 else 1), "samples": 1}
            given: tuple[str, str, dict[str, Any]] = ("GET", f"/v1/jobs/{job_id}", {})
            if turn % 10 == 0:
                given = ("POST", "/v1/jobs", {"json": body})
            calls[given[0]] += 1
            try:
                house.call(given[0], given[1], **given[2])
            except SystemExit as error:
                failed[str(error)[:100]] += 1
            time.sleep(0.05)

    with ThreadPoolExecutor(clients) as pool:
        for client in range(clients):
            pool.submit(call_on, client)
        while time.monotonic() < until - pause:
            time.sleep(pause)
            house.kill(house.victims[killed % len(house.victims)])
            killed += 1
            house.look_after()
        time.sleep(max(0.0, until - time.monotonic()))
    house.look_after()
    return {"seconds": seconds, "kills": killed, "calls": calls.total(), "failed": failed.total(), "why": dict(failed)}


MIXES = {"looks": "g", "mixed": "ggggggtttj", "large": "ggggggtttl"}


def measure_mix(house: House, folder: Path, clients: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Measure looks at a job alone, and looks, submissions of a task and of a job, six to three to one, by so many
    clients, with jobs of five tasks (`mixed`) and of a hundred (`large`). A bare handler takes turns with the manager.
    """
    port = free_port()
    bare = Member("bare", "bench.manager.bare", port, {}, folder / "bare.log", (str(port), f"{folder}/bare.sqlite"))
    bare.start()
    bare.wait_until_ready()
    found: dict[str, Any] = {"clients": clients}
    try:
        for member in (house.manager, bare):
            body = {"job_id": "there", "tasks": [{"input": "sort: 1"}], "samples": 1}
            house.api.post(f"http://127.0.0.1:{member.port}/v1/jobs", json=body).raise_for_status()
        for name, kinds in MIXES.items():
            pairs = [
                [asyncio.run(_load(member.port, clients, seconds, kinds)) for member in (house.manager, bare)]
                for _ in range(rounds)
            ]
            ratios = [ours["requests_per_s"] / its["requests_per_s"] for ours, its in pairs]
            found[name] = {"manager": [ours for ours, _ in pairs], "bare": [its for _, its in pairs]}
            found[name]["of_bare"] = round(median(ratios), 2)
    finally:
        bare.kill()
    return found


def _submission(count: int) -> bytes:
    body = {"tasks": [{"input": f"sort: {n}"} for n in range(count)], "samples": 1}
    return http_request("POST", "/v1/jobs", json.dumps(body).encode())


REQUESTS = {
    "g": http_request("GET", "/v1/jobs/there"),
    **{kind: _submission(count) for kind, count in (("t", 1), ("j", 5), ("l", 100))},
}


async def _load(port: int, clients: int, seconds: float, kinds: str) -> dict[str, Any]:
    """Call over raw connections: a client library would take more of the machine than the manager does."""
    took: list[float] = []
    refused: Counter[int] = Counter()
    until = time.monotonic() + seconds

    async def call(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in itertools.count(number):
            if time.monotonic() > until:
                break
            began = time.monotonic()
            writer.write(REQUESTS[kinds[turn % len(kinds)]])
            status = await read_status(reader)
            took.append(time.monotonic() - began)
            refused[status] += status >= 400
        writer.close()

    await asyncio.gather(*(call(number) for number in range(clients)))
    return {
        "requests_per_s": round(len(took) / seconds, 1),
        "p50_ms": round(1000 * median(took), 1),
        "p99_ms": round(1000 * sorted(took)[int(0.99 * len(took))], 1),
        "refused": sum(refused.values()),
    }
