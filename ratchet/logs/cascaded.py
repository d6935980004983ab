"""The lines of a task that a small model answered and a big one may have: whose answer the user gets. Pure.

The big model is asked in a task of the fleet's own. Its answer stands on the first line of the small model's group too,
so the Result is a function of the task's own lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ratchet.logs.names import BIG_TASKS, VALIDATION
from ratchet.logs.tenants import key_of, own_id, tenant_of
from schemas.records.cascade import Routing
from schemas.records.interaction import Interaction

LONGEST = 200
"""Characters of an id."""
EXPERIMENT = "-cascade"
"""The end of the experiment ids of the big model's tasks."""


def big_task_of(task_id: str) -> str:
    """Return the id under which the big model is asked the same, of the same tenant."""
    tenant, own = tenant_of(task_id), own_id(task_id)
    found = key_of(tenant, f"{BIG_TASKS}{own}")
    return found if len(found) <= LONGEST else key_of(tenant, f"{BIG_TASKS}{hashlib.sha256(own.encode()).hexdigest()}")


def experiment_of(agent_id: str) -> str:
    """Return the experiment id of the tasks that the big model of this agent's cascade is asked."""
    return f"{VALIDATION}{agent_id}{EXPERIMENT}"


def is_asked_of_big(experiment_id: str | None) -> bool:
    """Tell whether a user waits for this task of the fleet's own."""
    return experiment_id is not None and experiment_id.startswith(VALIDATION) and experiment_id.endswith(EXPERIMENT)


def with_routing(lines: Sequence[Interaction], routing: Routing) -> list[Interaction]:
    return [lines[0].model_copy(update={"cascade": routing}), *lines[1:]]


def served_lines(lines: Sequence[Interaction]) -> list[Interaction]:
    """Return the lines that the user's answer is chosen from: where the big model's is served, that alone."""
    routing = lines[0].cascade
    if routing is None or routing.served == "small":
        return list(lines)
    big = routing.big if routing.served == "big" else None
    served = {
        "response": big and big.response,
        "score": big and big.score,
        "finish_reason": big and big.finish_reason,
        "sample": None if big is None else 0,
        "status": "expired" if big is None else "ok",
        "reason": routing.reason,
        "group_size": 0 if big is None else 1,
        "select": None,
        "stopped_at": None,
    }
    if big is not None:
        served |= {"agent_id": big.agent_id, "adapter_version": big.adapter_version, "adapter_sha256": None}
    of_sampling = ("segments", "trajectory", "completion_ids", "logprobs", "token_texts", "prompt_ids", "usage")
    of_rollout = ("artifact", "tool_audit", "program", "ended_at", "sample_status", "sample_says", "engine", "place")
    return [lines[0].model_copy(update=served | dict.fromkeys((*of_sampling, *of_rollout)))]
