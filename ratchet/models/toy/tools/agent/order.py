"""What the process of the tool agent is told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class AgentOrder(BaseModel):
    """`queue`: where its Work comes, without the namespace. `agent_urls`: of the replicas whose model answers."""

    model_config = ConfigDict(frozen=True)

    amqp_url: str
    namespace: str = ""
    queue: str
    agent_urls: tuple[str, ...]
