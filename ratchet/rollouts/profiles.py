"""Profiles (RATCHET_PROFILES): which model plays each role of a program, the fleet's own or another provider's.

    [profiles.mixed.roles.reviewer]
    provider = "anthropic"
    model = "claude-sonnet-4-5"
    key = "ANTHROPIC_API_KEY"

    [profiles.mixed.limits]
    calls = 32

    [profiles.mixed.daily]
    cost = 5.0

A task names a profile. Roles that it does not name, and those of the provider `local`, are played by the fleet's
agents. A key is named by the variable of the runner's environment that holds it, and is in no file. Tasks of tenants
that a profile does not name can't use it. A profile has no defaults of trainings: its tasks teach nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ratchet.logs.tenants import DEFAULT
from ratchet.programs.declared import faults
from ratchet.rollouts.providers import URLS, ForeignModel
from ratchet.service.errors import SettingsError
from schemas.messages.base import AgentId, Identifier
from schemas.messages.task import Constraints


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlayedRole(_Part):
    """The player of a role. `url`: that the provider's routes hang below. `prices`: its name in the file of prices."""

    provider: Literal["local", "openai", "anthropic"]
    model: str | None = Field(None, min_length=1)
    url: str | None = Field(None, pattern=r"^https?://[^\s]+$")
    key: str | None = Field(None, min_length=1)
    prices: AgentId | None = None

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if (self.provider == "local") != (self.model is None):
            raise ValueError("name a model, with the provider openai or anthropic alone")
        return self


class Daily(_Part):
    """The most that a runner spends with other providers in a day, of UTC. `cost`: in the file of prices' currency."""

    cost: Decimal | None = Field(None, ge=0, max_digits=15, decimal_places=6)
    tokens: int | None = Field(None, ge=0)
    calls: int | None = Field(None, ge=0)


class DeclaredProfile(_Part):
    roles: dict[Identifier, PlayedRole] = Field(min_length=1)
    limits: Constraints = Constraints()
    tenants: tuple[Identifier, ...] = Field((DEFAULT,), min_length=1)
    daily: Daily = Daily()


class _File(_Part):
    profiles: dict[Identifier, DeclaredProfile] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Profile:
    """`foreign`: the models of other providers, by the role that they play; `*` is every other name."""

    foreign: Mapping[str, ForeignModel]
    limits: Constraints
    tenants: Collection[str]
    daily: Daily


def read_profiles(
    file: Path | None, environment: Mapping[str, str], prices: Collection[str] = ()
) -> dict[str, Profile]:
    """Return the profiles by name; none without a file. `prices`: the models whose prices are known.

    Raises SettingsError, also for a key that is not set, and for a daily cost of models without a price.
    """
    if file is None:
        return {}
    try:
        toml = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
        read = _File.model_validate(toml)
    except (OSError, ValueError) as error:
        why = faults(error) if isinstance(error, ValidationError) else str(error)
        raise SettingsError(f"RATCHET_PROFILES: {file} can't be used: {why}") from None
    found = {}
    for name, profile in read.profiles.items():
        of = {
            role: _model(f"{file}: profiles.{name}.roles.{role}", one, environment)
            for role, one in profile.roles.items()
        }
        foreign = {role: model for role, model in of.items() if model is not None}
        for role, model in foreign.items():
            if profile.daily.cost is not None and (model.prices or model.model) not in prices:
                raise SettingsError(
                    f"{file}: profiles.{name}.daily.cost can't be held: the file of prices (RATCHET_PRICES) has no "
                    f"{model.prices or model.model!r}, which plays {role}"
                )
        found[name] = Profile(foreign, profile.limits, profile.tenants, profile.daily)
    return found


def _model(where: str, played: PlayedRole, environment: Mapping[str, str]) -> ForeignModel | None:
    """Raises SettingsError."""
    if played.provider == "local" or played.model is None:
        return None
    key = environment.get(played.key) if played.key else None
    if played.key and not key:
        raise SettingsError(f"{where}: the variable {played.key}, which has its key, is not set")
    url = played.url or URLS[played.provider]
    return ForeignModel(played.provider, played.model, url, key, played.prices)
