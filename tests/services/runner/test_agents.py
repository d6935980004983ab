"""What a runner knows of the agents whose model its programs talk to."""

from __future__ import annotations

import httpx
import pytest

from schemas.api.generate import ServedModel
from services.runner import agents
from services.runner.agents import Agents
from tests.ratchet.conversation.speakers import template


async def test_what_a_template_can_not_bridge_is_said_once_before_the_first_rollout(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedModel(agent_id="small", engine="echo", tokenizer="somewhere", revision=None, context=99)
    monkeypatch.setattr(agents, "template_for", lambda served, tokenizer: template("qwen3"))

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=served.model_dump_json())

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        known = Agents(http, {"small": ("http://agent",)}, None)
        with caplog.at_level("WARNING"):
            assert [(await known.model("small")).served for _ in range(2)] == [served, served]

    told = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "template-limit"]
    assert len(told) == 2 and all("each such turn begins a new segment" in sentence for sentence in told)
