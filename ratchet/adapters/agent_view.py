"""An agent's versions and programs with their aliases and states, as the API and the report show them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from schemas.api.adapters import AgentView, VersionView
from schemas.api.programs import ProgramsStanding, ProgramView
from schemas.messages.work import BASE_VERSION
from schemas.records.registry import AdapterEntry, AgentAdapters, AgentPrograms, Entry, ProgramEntry, Registry


def agent_view(registry: Registry, agent_id: str, most: int | None = None, before: int | None = None) -> AgentView:
    """Return an agent with all versions, or with `most` of the newest and those in use.

    `before`: with `most` of the first so many versions instead, which are in the order they were registered in.
    """
    agent = registry.agent(agent_id)
    entries = list(agent.versions.values())
    listed = entries[:before]
    first = begin(len(listed), most)
    in_use = agent.in_traffic | {BASE_VERSION}
    kept = [one for one in listed[:first] if one.version in in_use] if before is None else []
    shown = [*kept, *(one for one in listed[first:] if before is None or one.version not in in_use)]
    return AgentView(
        agent_id=agent_id,
        revision=registry.revision,
        primary=agent.primary,
        candidate=agent.candidate,
        previous=agent.previous,
        frozen=agent.frozen,
        distrusted=agent.distrusted,
        cool_down_until=agent.cool_down_until,
        experiment=agent.experiment,
        watch=agent.watch,
        versions=[VersionView.model_validate(version_fields(agent, entry)) for entry in shown],
        older=sum(one.version not in in_use for one in listed[:first]),
        joins=_joins(agent, shown),
    )


def begin(count: int, most: int | None) -> int:
    """Return where the last `most` of so many begin."""
    return 0 if most is None else max(0, count - most)


def _joins(agent: AgentAdapters, shown: Iterable[AdapterEntry]) -> dict[str, str]:
    """Map each version to its nearest ancestor that is shown, where its parent is not."""
    there = {one.version for one in shown}
    found = dict[str, str]()
    for one in shown:
        parent = agent.versions.get(one.parent or "")
        while parent is not None and parent.version not in there:
            parent = agent.versions.get(parent.parent or "")
        if parent is not None and parent.version != one.parent:
            found[one.version] = parent.version
    return found


def version_fields(agent: AgentAdapters, entry: AdapterEntry) -> dict[str, object]:
    return dict(entry) | _standing(agent, entry) | {"can_serve": entry.can_serve}


def _standing(contest: AgentAdapters | AgentPrograms, entry: Entry) -> dict[str, object]:
    held = {"primary": contest.primary, "candidate": contest.candidate, "previous": contest.previous}
    aliases = [alias for alias, name in held.items() if name == entry.name]
    return {"sentence": entry.state.sentence, "aliases": aliases}


def programs_standing(registry: Registry, agent_id: str, told: Sequence[Mapping[str, str]] = ()) -> ProgramsStanding:
    """Return where an agent's programs stand. `told`: what each runner says of them, name → revision."""
    agent = registry.agent(agent_id)
    programs = agent.programs
    return ProgramsStanding(
        agent_id=agent_id,
        revision=registry.revision,
        primary=programs.primary,
        candidate=programs.candidate,
        asked=programs.asked,
        previous=programs.previous,
        cool_down_until=agent.cool_down_until,
        experiment=next((one for one in agent.running if one.contest == "programs"), None),
        items=[_program_view(programs, entry, told) for entry in programs.entries.values()],
        runs={name: _common_revision(name, told) for name in sorted({known for one in told for known in one})},
    )


def _program_view(programs: AgentPrograms, entry: ProgramEntry, told: Sequence[Mapping[str, str]]) -> ProgramView:
    runs = _common_revision(entry.name, told)
    changed = None if runs is None or entry.revision is None else runs != entry.revision
    return ProgramView.model_validate(dict(entry) | _standing(programs, entry) | {"changed": changed})


def _common_revision(name: str, told: Sequence[Mapping[str, str]]) -> str | None:
    """Return the revision that all runners have; None where they differ, or none tells."""
    found = {one.get(name) for one in told}
    return found.pop() if len(found) == 1 else None
