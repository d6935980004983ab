"""Keeps tenants' tasks apart by the key under which logs, queues and the index know a task. Pure.

A task of the tenant `default` has its own id as its key, as every task had before there were tenants. A task of another
tenant has `tenant:NAME/ID`, so one id in two tenants is two tasks, and a key alone says whose it is. Sessions have such
keys, too. Ids that look like a key are refused where they come in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

DEFAULT = "default"
MARK = "tenant:"
KEYED = ("task_id", "session_id", "job_id")
"""Fields of messages and answers that hold a key."""

R = TypeVar("R", bound=BaseModel)


def key_of(tenant: str, own_id: str) -> str:
    """Return the key of a tenant's own id; a key of the tenant stays as it is."""
    beginning = key_beginning(tenant)
    return own_id if own_id.startswith(beginning) else f"{beginning}{own_id}"


def key_beginning(tenant: str) -> str:
    """Return what all keys of a tenant begin with; empty for the tenant `default`."""
    return "" if tenant == DEFAULT else f"{MARK}{tenant}/"


def tenant_of(key: str) -> str:
    """Return the tenant of a task, or of a session."""
    name, slash, _ = key.removeprefix(MARK).partition("/")
    return name if key.startswith(MARK) and slash else DEFAULT


def own_id(key: str) -> str:
    """Return the id by which its tenant knows it."""
    tenant = tenant_of(key)
    return key if tenant == DEFAULT else key.removeprefix(key_beginning(tenant))


def with_own_ids(record: R) -> R:
    """Return a record as its tenant knows it: with own ids in place of keys, in what it holds of others, too."""
    changed: dict[str, object] = {}
    for name, value in record:
        if name in KEYED and isinstance(value, str):
            changed[name] = own_id(value)
        elif name == "result" and isinstance(value, BaseModel):
            changed[name] = with_own_ids(value)
        elif name in ("feedback", "items") and isinstance(value, list):
            changed[name] = [with_own_ids(one) for one in value]
    return record.model_copy(update=changed)


@dataclass(frozen=True, slots=True)
class AgentTenants:
    """The tenant of each agent. An agent that is not named is for all tenants, and learns from the tenant `default`."""

    by_agent: Mapping[str, str] = field(default_factory=dict)
    shared_learning: Collection[str] = ()
    """Agents that learn from every tenant that may use them."""

    def of(self, agent_id: str) -> str | None:
        """Return the tenant that alone may use the agent; None where all may."""
        return self.by_agent.get(agent_id)

    def may_use(self, tenant: str, agent_id: str) -> bool:
        return self.of(agent_id) in (None, tenant)

    def teaches(self, tenant: str, agent_id: str) -> bool:
        """Tell whether the agent learns from this tenant's tasks."""
        return agent_id in self.shared_learning or tenant == (self.of(agent_id) or DEFAULT)
