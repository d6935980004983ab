"""The agents whose model programs talk to: what each serves now, and how its conversations are written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from ratchet.conversation.bridge import limits_of
from ratchet.conversation.template import ChatTemplate
from ratchet.rollouts.agent import Model, served_by, template_for
from ratchet.service.telemetry import Log
from schemas.api.generate import ServedModel

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

    async def _template(self, served: ServedModel) -> ChatTemplate:
        key = (served.tokenizer, served.revision)
        async with self._loading:
            if key not in self._templates:
                template = await asyncio.to_thread(template_for, served, self._tokenizer)
                for limit in limits_of(template):
                    log.warning("template-limit", limit, engine=served.engine)
                self._templates[key] = template
            return self._templates[key]
