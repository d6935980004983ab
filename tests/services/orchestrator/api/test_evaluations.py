"""/v1/evaluations: the leaderboard of what `ratchet eval` wrote, of agents that the caller's tenant may use."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.evaluations import write_evaluation
from ratchet.http.access.roles import Role
from tests.ratchet.adapters.test_leaderboard import evaluation
from tests.services.orchestrator.api.test_tenants import asking


async def test_a_tenant_is_shown_the_evaluations_of_agents_it_may_use(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:  # where the agent `small` is acme's
        found = evaluation(1, {(None, "v1.0.0"): 0.2, ("shell", "v1.0.0"): 0.7})
        write_evaluation(asked.fleet.settings.adapters_dir, found, "<svg/>")
        shown = {}
        for tenant in (None, "acme", "globex"):
            answer = await asked.call("GET", "/v1/evaluations", Role.VIEWER, "v", tenant)
            shown[tenant] = [(one["rank"], one["program"], one["evaluation"]) for one in answer.json()["items"]]

    both = [(1, "shell", "e-1"), (2, None, "e-1")]
    assert shown == {None: both, "acme": both, "globex": []}
