"""From a Task to a Work: the agent, the arm, the group size, the deadline. Pure; it knows no clock and no queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ratchet.grammars.grammar import FormatRefused, check_format
from ratchet.logs.best_answer import FIRST_PASSING, is_best
from ratchet.logs.tenants import AgentTenants, tenant_of
from ratchet.service.errors import Reject
from schemas.messages.task import Task
from schemas.messages.work import Arm, Sampling, Work
from workbench.tools.names import unknown_tool


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The choices of the fleet where a task does not say."""

    agents: tuple[str, ...]
    sampling: Sampling
    deadline: timedelta
    """Time that a task may take."""
    longest_deadline: timedelta = timedelta(days=7)
    """Time ahead that a task may name its own deadline."""
    max_logged_bytes: int = 32 * 1024 * 1024
    """Bytes of one task in the log: each line of its group repeats what it was asked."""
    judge_selects: bool = False
    """Tells whether the fleet has a judge that can be asked to choose."""
    tenants: AgentTenants = field(default_factory=AgentTenants)
    has_manager: bool = False

    def agent_for(self, task: Task) -> str:
        """Return the agent that the task names, or the first that its tenant may use.

        Raises Reject for one that is not of this fleet, or is another tenant's.
        """
        tenant = tenant_of(task.task_id)
        agents = [agent for agent in self.agents if self.tenants.may_use(tenant, agent)]
        if task.agent_id is None and agents:
            return agents[0]
        if task.agent_id not in agents:
            there = ", ".join(agents) or "none for this tenant"
            raise Reject(f"unknown agent {task.agent_id!r}: this fleet has {there} (RATCHET_AGENTS)")
        return task.agent_id

    def check_registered(self, task: Task, *, is_managers: bool) -> None:
        """Raises Reject for a task of a registered agent that the manager did not send."""
        if task.registered_agent is not None and not (self.has_manager and is_managers):
            raise Reject(
                "registered_agent is the manager's to set (RATCHET_MANAGER_URL): submit a job of the agent with "
                "`ratchet jobs submit`"
            )

    def check_size(self, task: Task, size: int) -> None:
        """Raises Reject for a task of so many bytes whose group would be too large, in memory and in the log."""
        samples = task.samples or self.sampling.n
        if size * samples > self.max_logged_bytes:
            raise Reject(
                f"too large for {samples} samples: {size:,} bytes for each of them in the log, together at most "
                f"{self.max_logged_bytes:,} (RATCHET_MAX_LOGGED_BYTES): ask for fewer samples, or send a reference to "
                f"the data instead"
            )

    def check_select(self, task: Task) -> None:
        """Raises Reject for a choice that can't be made, or a score that nothing is held against."""
        if task.select == "judge" and not self.judge_selects:
            raise Reject(
                "select: judge needs a judge that may be asked, and this fleet has none: set RATCHET_JUDGE_SELECTS for "
                "orchestrator and scorer, and name the judge (RATCHET_SCORER_JUDGE_MODEL); or select: best"
            )
        if task.pass_score is not None and task.select != FIRST_PASSING:
            raise Reject("pass_score is the score that passes, of select: first-passing: name both, or neither")

    def check_form(self, task: Task) -> None:
        """Raises Reject for a form that no answer can have."""
        if task.format is None:
            return
        try:
            check_format(task.format, task.tools or ())
        except FormatRefused as error:
            raise Reject(f"format: {error}") from None

    def check_constraints(self, task: Task) -> None:
        """Raises Reject for a tool that there is not."""
        if task.constraints and (strange := unknown_tool(task.constraints.tools or ())):
            raise Reject(f"constraints.tools: {strange}")

    def check_deadline(self, task: Task, now: datetime) -> None:
        """Raises Reject for a deadline too far ahead: until then its logs are kept, and an experiment waits for it."""
        if task.deadline is not None and task.deadline - now > self.longest_deadline:
            raise Reject(
                f"its deadline, {task.deadline.isoformat(timespec='seconds')}, is more than "
                f"{self.longest_deadline.total_seconds():,.0f} s ahead (RATCHET_LONGEST_DEADLINE_S): name an earlier "
                f"one, in seconds since 1970 or as ISO 8601, or none"
            )


@dataclass(frozen=True, slots=True)
class Origin:
    """The place to which an answer goes besides the queue of results, and whose task it is, if it came with a token."""

    reply_to: str | None = None
    correlation_id: str | None = None
    owner: str | None = None


def admit(
    task: Task, policy: AdmissionPolicy, *, arm: Arm, now: datetime, origin: Origin, samples: int | None = None
) -> Work:
    """The Work for a task that was not seen before. `samples`: of one that does not say, where not the fleet's group.

    Raises Reject.
    """
    agent_id = policy.agent_for(task)
    teaches = policy.tenants.teaches(tenant_of(task.task_id), agent_id)
    kept_apart = task.kept_apart or bool(task.profile) or not teaches
    fields = task.__dict__ | {
        "agent_id": agent_id,
        "deadline": task.deadline or now + policy.deadline,
        "arm": arm,
        "sampling": _sampling(task, policy.sampling, samples),
        "admitted_at": now,
        "reply_to": origin.reply_to,
        "correlation_id": origin.correlation_id,
        "owner": origin.owner,
        "kept_apart": kept_apart or None,
        "shared_learning": (agent_id in policy.tenants.shared_learning and not kept_apart) or None,
    }
    return Work.from_valid(fields)


def _sampling(task: Task, usual: Sampling, samples: int | None) -> Sampling:
    """The fleet's, but for what the task asks; of tokens it gets no more than the fleet, or its constraints, allow."""
    asked_tokens = [most for most in (task.max_tokens, task.constraints and task.constraints.tokens) if most]
    tokens = min(*asked_tokens, usual.max_tokens) if asked_tokens else None
    may_lower = task.samples is None and is_best(task.select)
    lowered = samples if may_lower and samples is not None and samples < usual.n else None
    if not (task.samples or lowered or tokens or task.stop) and task.temperature is None and task.top_p is None:
        return usual
    asked = {
        "n": task.samples or lowered,
        "lowered_from": usual.n if lowered else None,
        "temperature": task.temperature,
        "top_p": task.top_p,
        "max_tokens": tokens,
        "stop": task.stop,
    }
    return usual.model_copy(update={name: value for name, value in asked.items() if value is not None})
