"""The ledger under any order of what users, the fleet and time do: no overspend, and all balances rebuild."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import create_engine, select
from sqlalchemy.pool import StaticPool

from ratchet.http.access.roles import LOCAL
from ratchet.http.problem import Problem
from ratchet.service.errors import NotAllowed
from ratchet.service.prices import MICRO, AgentPrices
from schemas.api.jobs import JobSubmission, TenantQuota
from schemas.messages.result import Result
from services.manager import job_store, limits
from services.manager.ledger import rebuilt
from services.manager.order import Lanes
from services.manager.release import expire, release, store
from services.manager.tables import METADATA, jobs

DAY_S = 86_400.0
JOBS = st.sampled_from(["a/one", "b/two", "a/three"])
"""Jobs of two tenants."""


class Ledger(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        engine = create_engine("sqlite://", poolclass=StaticPool)
        self.connection = engine.connect()
        METADATA.create_all(self.connection)
        self.now = 1_000_000.0
        self.lanes = Lanes(30.0, 6)
        self.prices = {"small": prices_of(1)}
        self.in_fleet: set[str] = set()
        self.answered: list[str] = []

    @rule(job=JOBS, tasks=st.integers(1, 5), budget=st.none() | st.integers(0, 60))
    def submit(self, job: str, tasks: int, budget: int | None) -> None:
        tenant, _, job_id = job.partition("/")
        amount = None if budget is None else Decimal(budget) / 10
        asked = JobSubmission(job_id=job_id, tasks=["x"] * tasks, budget=amount)
        until = self.now + DAY_S
        try:
            job_store.submit(self.connection, asked, "small", tenant, LOCAL, self.prices["small"], self.now, until)
        except Problem as problem:
            assert problem.status in (402, 409)

    @rule()
    def release(self) -> None:
        new = release(self.connection, self.lanes, self.prices, self.now)
        self.in_fleet |= {task.task_id for task in new}

    @rule(data=st.data(), tokens=st.integers(0, 40), status=st.sampled_from(["ok", "failed", "expired", "cancelled"]))
    def answer(self, data: st.DataObject, tokens: int, status: str) -> None:
        """An answer, which may come again, or after its job was cancelled."""
        known = sorted(self.in_fleet) + self.answered
        if not known:
            return
        task_id = data.draw(st.sampled_from(known))
        usage = {"prompt_tokens": 1, "sampled_tokens": tokens}
        result = Result.model_validate({"task_id": task_id, "status": status, "usage": usage})
        store(self.connection, [result, result], self.now)
        self.in_fleet.discard(task_id)
        self.answered.append(task_id)

    @rule(job=JOBS, act=st.sampled_from(["pause", "resume", "cancel", "rerun"]), budget=st.none() | st.integers(1, 90))
    def act(self, job: str, act: str, budget: int | None) -> None:
        job_id = job.partition("/")[2]
        try:
            if act == "resume":
                amount = None if budget is None else budget * MICRO // 10
                job_store.resume(self.connection, job_id, amount, self.now)
            elif act == "rerun":
                job_store.rerun(self.connection, job_id, self.now, self.now + DAY_S)
            else:
                getattr(job_store, act)(self.connection, job_id, self.now)
        except (NotAllowed, Problem):
            pass

    @rule(tenant=st.sampled_from("ab"), budget=st.none() | st.integers(0, 90))
    def set_quota(self, tenant: str, budget: int | None) -> None:
        amount = None if budget is None else Decimal(budget) / 10
        limits.set_quota(self.connection, tenant, TenantQuota(budget=amount, weight=1 + (budget or 0)), self.now)

    @rule(price=st.integers(0, 3))
    def change_prices(self, price: int) -> None:
        self.prices = {"small": prices_of(price)}

    @rule(seconds=st.sampled_from([-DAY_S, 1.0, 1_000.0, DAY_S + 400.0]))
    def pass_time(self, seconds: float) -> None:
        """Time, which a clock that is set may turn back."""
        self.now += seconds
        expire(self.connection, self.now, 3 * DAY_S)

    @invariant()
    def no_job_costs_more_than_its_budget(self) -> None:
        for job in self.connection.execute(select(jobs)):
            assert job.reserved >= 0
            assert job.spent >= 0
            assert job.budget is None or job.reserved + job.spent <= job.budget

    @invariant()
    def balances_are_what_the_transfers_say(self) -> None:
        by_transfers = rebuilt(self.connection)
        for job in self.connection.execute(select(jobs)):
            assert by_transfers.get(job.job_id, (0, 0)) == (job.reserved, job.spent)

    @invariant()
    def what_is_reserved_belongs_to_tasks_in_the_fleet(self) -> None:
        for job in self.connection.execute(select(jobs)):
            assert job.released or not job.reserved
            assert job.tasks == sum(
                getattr(job, name) for name in ("waiting", "released", "ok", "failed", "expired", "cancelled")
            )

    def teardown(self) -> None:
        self.connection.close()


def prices_of(price: int) -> AgentPrices:
    """Up to 1.2 of the currency for a task, at the price 1."""
    return AgentPrices(prompt=Decimal(0), sampled=Decimal(price * 100_000), samples=2, max_tokens=6)


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
