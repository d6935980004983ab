"""The order that starts the tool agent's process."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class AgentOrder(BaseModel):
    """`queue`: where its Work comes, without the namespace. `agent_urls`: of the replicas whose model answers."""

    model_config = ConfigDict(frozen=True)

    amqp_url: str
    namespace: str = ""
    queue: str
    agent_urls: tuple[str, ...]
