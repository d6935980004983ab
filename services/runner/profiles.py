"""The profiles of this runner: who plays the roles of a rollout that other providers' models play."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ratchet.rollouts.foreign import ForeignRole
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.profiles import read_profiles
from ratchet.rollouts.providers import ForeignClient, ForeignModel
from ratchet.rollouts.rollout import Budget, TextRole
from ratchet.service.prices import AgentPrices, Prices
from schemas.messages.task import Constraints
from schemas.messages.work import Work
from services.runner.settings import RunnerSettings


class Profiles:
    """Read once. Each model has one client, which all rollouts share."""

    def __init__(self, settings: RunnerSettings, environment: Mapping[str, str] | None = None) -> None:
        """Raises SettingsError."""
        self._profiles = read_profiles(settings.profiles, os.environ if environment is None else environment)
        self._prices = Prices.read(settings.prices).agents if settings.prices and self._profiles else {}
        self._clients: dict[ForeignModel, ForeignClient] = {}

    def unknown(self, work: Work) -> str | None:
        """Return why a Work's profile can't be had here; None where it can."""
        if work.profile is None or work.profile in self._profiles:
            return None
        has = ", ".join(sorted(self._profiles)) or "none"
        return f"this runner has no profile {work.profile!r}: it has {has} (RATCHET_PROFILES)"

    def limits(self, work: Work) -> Constraints | None:
        profile = self._profiles.get(work.profile or "")
        return profile.limits if profile else None

    def roles(self, work: Work, budget: Budget, steps: KeptSteps | None) -> dict[str, TextRole]:
        """Return the roles that other providers' models play in a rollout, by name."""
        profile = self._profiles.get(work.profile or "")
        foreign = profile.foreign if profile else {}
        return {
            role: ForeignRole(role, self._client(model), budget, steps, self._price(model))
            for role, model in foreign.items()
        }

    def _client(self, model: ForeignModel) -> ForeignClient:
        if model not in self._clients:
            self._clients[model] = ForeignClient(model)
        return self._clients[model]

    def _price(self, model: ForeignModel) -> AgentPrices | None:
        return self._prices.get(model.prices or model.model)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.stop()
