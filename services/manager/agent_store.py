"""Agents that are registered at run time, each act on one a transaction: add, change, retire, and what runners report.

An agent is a program, a model of the fleet, and rules. Its state is made of what the runners say that were heard of
lately; a retired one stays as long as it has open tasks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, delete, exists, func, insert, literal, select, true, update

from ratchet.http.access.roles import Caller
from ratchet.http.problem import Problem
from ratchet.logs.tenants import DEFAULT
from ratchet.programs.declared import Program, ProgramLimits, faults
from ratchet.programs.shipped import inside
from ratchet.service.errors import NotAllowed
from ratchet.service.prices import AgentPrices, micros, units
from schemas.api.agents import (
    MOST_AGENTS,
    MOST_OF_ONE,
    AgentChange,
    AgentKind,
    AgentMetrics,
    AgentRules,
    AgentsProgram,
    AgentState,
    NewAgent,
    RegisteredAgent,
    RunnerReport,
)
from schemas.messages.result import Result
from services.manager.job_store import OPEN, RATE_S
from services.manager.submission import Route
from services.manager.tables import IS_HELD, agent_reports, agents, daily_usage, jobs, tasks, usage
from workbench.tools.names import unknown_tool

HEARD_S = 15.0
"""Seconds for which a runner's last word counts."""
WRITTEN_EVERY_S = 5.0
NEWEST_SCORES = 100
MOST_FOR_STRANGERS = {"seconds": 86_400, "output_kb": 65_536, "disk_mb": 4096, "processes": 4096}
"""Limits of a program may not be higher where it is registered: the runner itself holds its output and its files."""
MOST_FILES = 1000
PACKAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?( *,? *(===?|[~!<>]=|[<>]) *[A-Za-z0-9.*+!_-]+)*"
)
"""A requirement that pip can't read as an option, a path or an address."""
NO_RUNNER = "no runner has taken it yet: one takes it that has RATCHET_MANAGER_URL and RATCHET_RUNNER_AGENTS"


_HAS_JOBS = exists().where(jobs.c.agent_id == agents.c.name)
_HAS_USED = exists().where(daily_usage.c.agent_id == agents.c.name)


class Registration(NamedTuple):
    """An agent, as the release of its tasks sees it. `left`: micro-units of its budget, None: it has none."""

    name: str
    model: str
    kind: AgentKind
    adapter_version: str | None
    needs_approval: bool
    state: AgentState
    reason: str
    left: int | None
    reserved: int
    limits: ProgramLimits

    def find_prices(self, prices: Mapping[str, AgentPrices]) -> AgentPrices | None:
        """Return its prices, or those of its model, for as many calls as its program may make."""
        found = prices.get(self.name) or prices.get(self.model)
        if found is None:
            return None
        calls = min(self.limits.calls, self.limits.tokens)  # each samples a token at least
        return found.model_copy(update={"calls": calls, "tokens": self.limits.tokens})

    @property
    def route(self) -> Route:
        return Route(self.model, self.adapter_version, self.kind.kept_apart)

    @property
    def is_served(self) -> bool:
        """Tell whether its tasks may be released: a retired one's, too, which runners keep until they have ended."""
        return self.state in (AgentState.READY, AgentState.RETIRED)


def add(
    connection: Connection, asked: NewAgent, model: str, caller: Caller, prices: AgentPrices | None, now: float
) -> RegisteredAgent:
    """Register an agent. The same one again changes nothing. Raises Problem."""
    owner, tenant = caller.owner if caller.own_only else None, caller.tenant
    rules = AgentRules.model_validate(asked.model_dump())
    check_rules(rules, asked.name, prices, caller)
    known = _find(connection, asked.name)
    if known is not None and not known.retired:
        if (known.tenant, known.owner, known.model, _rules(known)) != (tenant, owner, model, rules):
            raise Problem(409, "Another agent", f"the agent {asked.name!r} is another one", "other-agent")
        return _show(connection, known, now)
    if known is not None and _open_tasks(connection, known.name):
        raise NotAllowed(
            f"agent {asked.name!r} was removed, and jobs of it still run: cancel them, or take another name"
        )
    if known is not None and (known.tenant, known.owner) != (tenant, owner) and _was_used(connection, asked.name):
        raise NotAllowed(f"agent {asked.name!r} was somebody else's, who had jobs of it: take another name")
    there = select(func.count()).select_from(agents).where(~agents.c.retired)
    own = there.where(agents.c.tenant == tenant, agents.c.owner == owner)
    of_submitter = [(own, MOST_OF_ONE, "a submitter")] if caller.own_only else []
    for count, most, whose in ((there, MOST_AGENTS, "a manager"), *of_submitter):
        if connection.execute(count).scalar_one() >= most:
            raise Problem(429, "Too many agents", f"{whose} has at most {most:,} agents", "too-many-agents")
    values: dict[str, Any] = {
        "owner": owner,
        "tenant": tenant,
        "model": model,
        "rules": rules.model_dump_json(),
        "budget": None if rules.budget is None else micros(rules.budget),
        "revision": 1 if known is None else known.revision + 1,
        "created_at": now,
        "changed_at": now,
        "retired": False,
    }
    if known is None:
        connection.execute(insert(agents).values(name=asked.name, **values))
    else:
        connection.execute(update(agents).where(agents.c.name == asked.name).values(values))
    return _show(connection, _must_find(connection, asked.name), now)


def change(
    connection: Connection,
    name: str,
    wanted: AgentChange,
    prices: Mapping[str, AgentPrices],
    caller: Caller,
    now: float,
) -> RegisteredAgent:
    """Change the fields that are given. Another program is another revision. Raises Problem, NotAllowed."""
    row = _must_find(connection, name)
    if row.retired:
        raise NotAllowed(f"agent {name!r} was removed: register it again")
    before = _rules(row)
    given = {field: getattr(wanted, field) for field in wanted.model_fields_set}
    if empty := [field for field in ("kind", "program", "tools", "needs_approval") if given.get(field, 0) is None]:
        raise Problem(422, "Not an agent", f"{empty[0]} can't be null", "bad-agent")
    rules = before.model_copy(update=given)
    check_rules(rules, name, prices.get(name) or prices.get(row.model), caller)
    values = {
        "rules": rules.model_dump_json(),
        "budget": None if rules.budget is None else micros(rules.budget),
        "revision": row.revision + (_program_of(rules) != _program_of(before)),
        "changed_at": now,
    }
    connection.execute(update(agents).where(agents.c.name == name).values(values))
    return _show(connection, _must_find(connection, name), now)


def retire(connection: Connection, name: str, now: float) -> RegisteredAgent:
    """Take no further job of it; those that it has go on."""
    connection.execute(update(agents).where(agents.c.name == name).values(retired=True, changed_at=now))
    return _show(connection, _must_find(connection, name), now)


def check_rules(rules: AgentRules, name: str, prices: AgentPrices | None, caller: Caller) -> None:
    """Raises Problem for a program that can't be run for strangers, and for a kind that lacks what it needs."""
    try:
        program = Program.model_validate(rules.program)
    except ValidationError as error:
        raise _bad(f"program.{faults(error)}") from None
    if program.binds:
        raise _bad("program.binds: it can bind no folder of a runner: give it its files as `data`")
    if program.image is not None and program.image.pull is None:
        raise _bad("program.image: only an image that is pulled by its digest")
    if program.image is not None and (caller.own_only or caller.is_bound):
        raise _bad("program.image: a runner asks the image's host for it, so only an operator of all tenants names one")
    for limit, most in MOST_FOR_STRANGERS.items():
        if getattr(program.limits, limit) > most:
            raise _bad(f"program.limits.{limit}: at most {most:,}")
    if len(program.data) > MOST_FILES:
        raise _bad(f"program.data: at most {MOST_FILES:,} files: make a package of them (requirements)")
    if odd := next((one for one in program.requirements if not PACKAGE.fullmatch(one)), None):
        raise _bad(f"program.requirements: {odd[:100]!r} is no name and version of a package")
    if strange := unknown_tool(rules.tool_policy or ()):
        raise _bad(f"tool_policy: {strange}")
    if program.tools and not rules.tools:
        raise _bad("program.tools: the agent says that its program has no tools (tools)")
    if odd := next((path for path in program.data if path.startswith(f"{inside.TOOLS}/")), None):
        raise _bad(f"program.data: {odd[:100]!r} is where the tools of Ratchet lie")
    if rules.kind is AgentKind.RESEARCH and rules.adapter_version is None:
        raise _bad("adapter_version: a research agent names the version that answers")
    if rules.kind is AgentKind.REAL and rules.budget is None:
        raise _bad("budget: a real agent has one")
    if rules.kind is AgentKind.REAL and program.tools and rules.tool_policy is None:
        raise _bad("tool_policy: a real agent says which tools its program may call: {} for those that are safe")
    if rules.budget is not None and prices is None:
        why = f"the manager has no prices of agent {name!r}, so it can hold no budget (RATCHET_PRICES)"
        raise Problem(422, "No prices", why, "no-prices")


def find_usable(connection: Connection, name: str, caller: Caller, now: float) -> Registration | None:
    """Return an agent that the caller may submit jobs of; None where there is none. Raises NotAllowed for a retired
    one."""
    row = _find(connection, name)
    if row is None or not is_visible(row, caller):
        return None
    if row.retired:
        raise NotAllowed(f"agent {name!r} was removed: it takes no further jobs")
    return registrations(connection, now, name)[name]


def is_visible(row: Row[Any], caller: Caller) -> bool:
    """Tell whether the caller may use it. What an operator of `default` registers is for all tenants."""
    is_for_all = row.tenant == DEFAULT and row.owner is None
    if caller.is_bound and row.tenant != caller.tenant and not is_for_all:
        return False
    return not caller.own_only or row.owner in (None, caller.owner)


def _may_change(row: Row[Any], caller: Caller) -> bool:
    return caller.may_change(row.tenant) and (not caller.own_only or row.owner == caller.owner)


def check_visible(connection: Connection, name: str, caller: Caller, *, change: bool) -> None:
    """Raises Problem 404 for an agent that there is not, that the caller may not see, or may not `change`."""
    row = _find(connection, name)
    if row is None or not is_visible(row, caller) or (change and not _may_change(row, caller)):
        raise no_such_agent(name)


def get(connection: Connection, name: str, now: float) -> RegisteredAgent:
    return _show(connection, _must_find(connection, name), now)


def page(connection: Connection, caller: Caller, after: str, limit: int, now: float) -> list[RegisteredAgent]:
    """Return agents that the caller may see, by name, those after the name `after`."""
    query = select(agents).where(agents.c.name > after).order_by(agents.c.name).limit(limit)
    if caller.own_only:
        query = query.where(agents.c.owner.is_(None) | (agents.c.owner == caller.owner))
    if caller.is_bound:
        is_for_all = (agents.c.tenant == DEFAULT) & agents.c.owner.is_(None)
        query = query.where((agents.c.tenant == caller.tenant) | is_for_all)
    rows = connection.execute(query).all()
    states = _states(connection, rows, now)
    return [_show_as(row, *states[row.name]) for row in rows]


def registrations(connection: Connection, now: float, name: str | None = None) -> dict[str, Registration]:
    """Return all agents that are registered, or this one, by name."""
    query = select(agents) if name is None else select(agents).where(agents.c.name == name)
    rows = connection.execute(query).all()
    if not rows:
        return {}
    states = _states(connection, rows, now)
    reserved = _sums(connection, select(jobs.c.agent_id, func.sum(jobs.c.reserved)).where(IS_HELD), name)
    spent = _sums(connection, select(daily_usage.c.agent_id, func.sum(daily_usage.c.spent)), name)
    found = {}
    for row in rows:
        rules = _rules(row)
        state, reason = states[row.name]
        held = reserved.get(row.name, 0)
        left = None if row.budget is None else row.budget - held - spent.get(row.name, 0)
        version, approval = rules.adapter_version, rules.needs_approval
        limits = ProgramLimits.model_validate(rules.program.get("limits", {}))
        found[row.name] = Registration(
            row.name, row.model, rules.kind, version, approval, state, reason, left, held, limits
        )
    return found


def take_report(connection: Connection, report: RunnerReport, now: float) -> list[AgentsProgram]:
    """Note how far a runner is, and return the programs that it is to have."""
    known = {
        row.name: row
        for row in connection.execute(select(agent_reports).where(agent_reports.c.runner == report.runner))
    }
    for one in {each.name: each for each in report.agents}.values():  # the last word on each counts
        row = known.pop(one.name, None)
        said = (one.revision, one.state, one.reason)
        if row is not None:
            is_news = (row.revision, row.state, row.reason) != said
            if not is_news and abs(now - row.reported_at) < WRITTEN_EVERY_S:
                continue
            mine = (agent_reports.c.runner == report.runner) & (agent_reports.c.name == one.name)
            connection.execute(update(agent_reports).where(mine).values(_report(said, now)))
        else:
            values = {"runner": report.runner, "name": one.name, **_report(said, now)}
            connection.execute(insert(agent_reports).values(values))
    gone = (agent_reports.c.runner == report.runner) & agent_reports.c.name.in_(list(known))
    if known:
        connection.execute(delete(agent_reports).where(gone))
    has = {one.name: one.revision for one in report.agents} if report.keeps_programs else {}
    return wanted_programs(connection, has)


def wanted_programs(connection: Connection, has: Mapping[str, int]) -> list[AgentsProgram]:
    """Return the programs of agents that are not retired, and of those that have open tasks still.

    `has`: revisions whose programs the runner has: they may have a megabyte each, and it asks twice a second.
    """
    has_tasks = exists().where(jobs.c.agent_id == agents.c.name, IS_HELD)
    rows = connection.execute(select(agents).where(~agents.c.retired | has_tasks).order_by(agents.c.name))
    return [
        AgentsProgram(
            name=row.name,
            model=row.model,
            revision=row.revision,
            program=None if has.get(row.name) == row.revision else _program_of(_rules(row)),
        )
        for row in rows
    ]


def _program_of(rules: AgentRules) -> dict[str, Any]:
    """Return its program as runners have it: with the policy of its agent, which goes before its own."""
    if not rules.program.get("tools") or rules.tool_policy is None:
        return rules.program
    own = {inside.ALL: {}} | rules.program.get("tool_policy", {})
    return rules.program | {"tool_policy": {role: table | rules.tool_policy for role, table in own.items()}}


def forget_old(connection: Connection, now: float, keep_s: float) -> None:
    """Forget what runners said that have been silent for long, and agents that were removed long ago."""
    connection.execute(delete(agent_reports).where(agent_reports.c.reported_at < now - 20 * HEARD_S))
    old = agents.c.retired & (agents.c.changed_at <= now - keep_s) & ~_HAS_JOBS & ~_HAS_USED
    connection.execute(delete(agents).where(old))


def metrics(connection: Connection, name: str, tenant: str | None, owner: str | None, now: float) -> AgentMetrics:
    """Return an agent's figures: of one `tenant`'s jobs, and of those of one `owner`, where these are named."""
    its = (jobs.c.agent_id == name) & (true() if tenant is None else jobs.c.tenant == tenant)
    used = (usage.c.agent_id == name) & (true() if tenant is None else usage.c.tenant == tenant)
    if owner is not None:
        its &= jobs.c.owner == owner
        used &= usage.c.job_id.in_(select(jobs.c.job_id).where(jobs.c.owner == owner))
    names = ("waiting", "released", "ok", "failed", "expired", "cancelled", "reserved")
    sums = [func.coalesce(func.sum(jobs.c[one]), 0).label(one) for one in names]
    counted = connection.execute(select(*sums).where(its)).one()
    is_open = select(func.count()).where(its, jobs.c.state.in_(OPEN))
    newest = select(jobs.c.job_id).where(its).order_by(jobs.c.served_at.desc()).limit(5).scalar_subquery()
    mine = tasks.c.job_id.in_(newest)
    ended = select(func.count()).where(mine, tasks.c.place.isnot(None), tasks.c.ended_at > now - RATE_S)
    last = select(tasks.c.result).where(mine, tasks.c.state == "ok").order_by(tasks.c.ended_at.desc())
    answers = connection.execute(last.limit(NEWEST_SCORES)).scalars()  # one at a time: each may have megabytes
    scores = [score for one in answers if one and (score := Result.decode(one).score) is not None]
    columns = ("prompt_tokens", "sampled_tokens", "spent")
    took = connection.execute(select(*(func.coalesce(func.sum(usage.c[one]), 0) for one in columns)).where(used)).one()
    return AgentMetrics(
        name=name,
        jobs=connection.execute(is_open).scalar_one(),
        **{one: int(getattr(counted, one)) for one in names[:-1]},
        ended_last_minute=connection.execute(ended).scalar_one(),
        mean_score=sum(scores) / len(scores) if scores else None,
        prompt_tokens=int(took[0]),
        sampled_tokens=int(took[1]),
        reserved=units(int(counted.reserved)),
        spent=units(int(took[2])),
    )


def _sums(connection: Connection, query: Select[Any], name: str | None) -> dict[str, int]:
    """Return the sum of each agent, or of this one. `query`: agents and sums, which are not grouped yet."""
    agent_id = query.selected_columns.agent_id
    rows = connection.execute((query if name is None else query.where(agent_id == name)).group_by(agent_id))
    return {agent: int(amount or 0) for agent, amount in rows}


def _report(said: tuple[int, str, str | None], now: float) -> dict[str, Any]:
    return dict(zip(("revision", "state", "reason"), said, strict=True)) | {"reported_at": now}


def _states(connection: Connection, rows: Iterable[Row[Any]], now: float) -> dict[str, tuple[AgentState, str]]:
    heard: dict[str, list[Row[Any]]] = {}
    lately = agent_reports.c.reported_at.between(now - HEARD_S, now + HEARD_S)  # what is later, a clock set back left
    for one in connection.execute(select(agent_reports).where(lately)):
        heard.setdefault(one.name, []).append(one)
    return {row.name: state_of(row.retired, row.revision, heard.get(row.name, [])) for row in rows}


def state_of(retired: bool, revision: int, reports: Iterable[Any]) -> tuple[AgentState, str]:
    """Return an agent's state and the reason for it, by what runners say of it. Pure."""
    if retired:
        return AgentState.RETIRED, AgentState.RETIRED.sentence
    reports = list(reports)
    current = [one for one in reports if one.revision == revision]
    if broken := next((one for one in current if one.state == "broken"), None):
        return AgentState.BROKEN, f"runner {broken.runner}: {broken.reason}"
    if not reports:
        return AgentState.INSTALLING, NO_RUNNER
    if len(current) < len(reports) or any(one.state != "ready" for one in current):
        return AgentState.INSTALLING, AgentState.INSTALLING.sentence
    return AgentState.READY, AgentState.READY.sentence


def _open_tasks(connection: Connection, name: str) -> int:
    count = select(func.sum(jobs.c.waiting + jobs.c.released)).where(jobs.c.agent_id == name, IS_HELD)
    return int(connection.execute(count).scalar() or 0)


def _was_used(connection: Connection, name: str) -> bool:
    """Tell whether there are jobs of it, or tokens or money that its jobs used."""
    used = select(literal(1)).where(_HAS_JOBS | _HAS_USED, agents.c.name == name)
    return connection.execute(used).first() is not None


def _rules(row: Row[Any]) -> AgentRules:
    return AgentRules.model_validate(json.loads(row.rules))


def _find(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(select(agents).where(agents.c.name == name).with_for_update()).one_or_none()


def _must_find(connection: Connection, name: str) -> Row[Any]:
    if (found := _find(connection, name)) is None:
        raise no_such_agent(name)
    return found


def _show(connection: Connection, row: Row[Any], now: float) -> RegisteredAgent:
    return _show_as(row, *_states(connection, [row], now)[row.name])


def _show_as(row: Row[Any], state: AgentState, reason: str) -> RegisteredAgent:
    return RegisteredAgent(
        **_rules(row).__dict__,
        name=row.name,
        model=row.model,
        owner=row.owner,
        revision=row.revision,
        state=state,
        reason=reason,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        changed_at=datetime.fromtimestamp(row.changed_at, UTC),
    )


def no_such_agent(name: str) -> Problem:
    return Problem(404, "No such agent", f"no agent {name!r} is registered; GET /v1/agents lists them", "unknown-agent")


def _bad(detail: str) -> Problem:
    return Problem(422, "Not an agent", detail, "bad-agent")
