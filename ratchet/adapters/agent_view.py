"""An agent's versions with their aliases and states, as the API and the report show them. Pure."""

from __future__ import annotations

from schemas.api.adapters import AgentView, VersionView
from schemas.records.registry import AdapterEntry, AgentAdapters, Registry


def agent_view(registry: Registry, agent_id: str) -> AgentView:
    agent = registry.agent(agent_id)
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
        versions=[VersionView.model_validate(version_fields(agent, entry)) for entry in agent.versions.values()],
    )


def version_fields(agent: AgentAdapters, entry: AdapterEntry) -> dict[str, object]:
    aliases = {"primary": agent.primary, "candidate": agent.candidate, "previous": agent.previous}
    return {
        "version": entry.version,
        "state": entry.state,
        "sentence": entry.state.sentence,
        "aliases": [name for name, held in aliases.items() if held == entry.version],
        "since": entry.since,
        "decision": entry.decision,
        "parent": entry.parent,
        "replaced": entry.replaced,
        "sha256": entry.sha256,
        "can_serve": entry.can_serve,
        "since_base": entry.since_base,
        "outcomes": list(entry.outcomes),
    }
