"""The agents whose model programs talk to: what each serves now, and how its conversations are written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import httpx

from ratchet.conversation.bridge import limits_of
from ratchet.conversation.template import ChatTemplate
from ratchet.rollouts.agent import Model, served_by, template_for
from ratchet.service.errors import EngineError
from ratchet.service.telemetry import Log
from schemas.api.generate import ServedModel
from schemas.messages.work import Work

log = Log("runner")


class Agents:
    def __init__(self, http: httpx.AsyncClient, urls: Mapping[str, tuple[str, ...]], tokenizer: str | None) -> None:
        self._http = http
        self._urls = urls
        self._tokenizer = tokenizer
        self._templates: dict[tuple[str | None, str | None], ChatTemplate] = {}
        self._loading = asyncio.Lock()

    async def model(self, agent: str) -> Model:
        """Asked of the first replica that answers. Raises ServerUnavailable where none does, EngineError where programs
        can't talk with its model."""
        urls = self._urls[agent]
        served = await served_by(self._http, urls)
        return Model(served, await self._template(served), urls)

    async def model_for(self, work: Work) -> Model:
        """The model of the Work's agent, with those of the other roles of its programs. Raises as `model`."""
        model, roles = await self.model(work.agent_id), work.arm.roles or {}
        partners = {role: one.agent_id for role, one in roles.items() if one.agent_id != work.agent_id}
        if unknown := sorted(set(partners.values()) - set(self._urls)):
            raise EngineError(f"RATCHET_RUNNER_AGENTS does not say where {unknown[0]} is, which plays a role")
        return replace(model, partners={role: await self.model(agent) for role, agent in partners.items()})

    async def _template(self, served: ServedModel) -> ChatTemplate:
        key = (served.tokenizer, served.revision)
        async with self._loading:
            if key not in self._templates:
                template = await asyncio.to_thread(template_for, served, self._tokenizer)
                for limit in limits_of(template):
                    log.warning("template-limit", limit, engine=served.engine)
                self._templates[key] = template
            return self._templates[key]
