"""The rules for agents that play the roles of one program: one role is changed at a time, beside partners that stay.

The tasks of the first role's agent are the units of all roles' experiments. It decides nothing: each role's promoter
asks what its partners leave it to do.
"""

from __future__ import annotations

from schemas.records.decision import RunningExperiment
from schemas.records.registry import AgentAdapters, EntryState, Registry
from services.orchestrator.promotion.arms import Arms


class Team:
    """One role's view of its partners; of an agent without a team nothing is in its way."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms

    def may_try(self) -> bool:
        """Return True if an experiment may begin: no partner is in one."""
        return all(mate.adapters.experiment is None for mate in self._arms.mates)

    def may_watch(self) -> bool:
        """Return True if a watch may begin: no partner is watched, and this role is the one that was changed last."""
        changed = _changed_by(self._arms.adapters)
        return all(mate.adapters.watch is None and _changed_by(mate.adapters) <= changed for mate in self._arms.mates)

    def is_taken(self, experiment: RunningExperiment, registry: Registry) -> bool:
        """Return True if the registry has a partner in an experiment of that kind."""
        partners = (registry.agent(mate.agent_id) for mate in self._arms.mates)
        return any(one.watch if experiment.kind == "watch" else one.experiment for one in partners)

    def why_void(self, running: RunningExperiment) -> str | None:
        """Say which role is played by another partner than when the experiment began; None where all are the same."""
        then, now = running.partners or {}, self._arms.partner_versions or {}
        for role in sorted({*then, *now}):
            if then.get(role) != now.get(role):
                was, is_now = (f"by {one}" if one else "by nobody" for one in (then.get(role), now.get(role)))
                return f"role {role} is played {is_now} now, and was {was} when it began: what it showed is void"
        return None

    def why_to_roll_back(self) -> str | None:
        """Say beside which version, rolled back since, the primary was proved; None where all are still there."""
        promoted_mine = _changed_by(self._arms.adapters)
        for mate in self._arms.mates:
            for entry in mate.adapters.versions.values():
                promoted = max((one.decision for one in entry.outcomes if one.verdict == "promoted"), default=0)
                if entry.state is EntryState.ROLLED_BACK and 0 < promoted < promoted_mine < entry.decision:
                    return f"it was proved beside {mate.agent_id} {entry.version}, which was rolled back"
        return None


def _changed_by(adapters: AgentAdapters) -> int:
    """Return the decision that made the primary what it is; 0 where it was there from the start."""
    return adapters.versions[adapters.primary].decision
