"""The profiles of this runner: who plays the roles of a rollout that other providers' models play, and what it costs.

What is spent in a day lies in a file, to which runners that share the folder add. No call begins once a profile's day
is spent; those that are under way then may pass it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ratchet.logs.tenants import tenant_of
from ratchet.rollouts.foreign import ForeignRole
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.profiles import Daily, read_profiles
from ratchet.rollouts.providers import ForeignClient, ForeignModel
from ratchet.rollouts.rollout import Budget, TextRole
from ratchet.service.prices import AgentPrices, Prices, micros, units
from ratchet.service.telemetry import Log
from schemas.messages.task import Constraints
from schemas.messages.work import Work
from services.runner.settings import RunnerSettings

log = Log("runner")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


class Day:
    """Calls, tokens and cost of the profiles today, in lines of a file for each day."""

    def __init__(self, folder: Path, today: Callable[[], str] = _today) -> None:
        self._folder = folder
        self._today = today
        self._read_to = 0
        self._path = Path()
        self._spent: Counter[tuple[str, str]] = Counter()
        self.trouble: str | None = None

    def add(self, profile: str, tokens: int, cost_micros: int) -> None:
        """Note a call. Where the disk takes nothing, no more is spent until the runner starts again."""
        line = {"profile": profile, "calls": 1, "tokens": tokens, "cost": cost_micros}
        path = self._folder / f"{self._today()}.jsonl"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            self.trouble = f"what profiles spend can't be written to {path} ({error}): mend that, and start again"
            log.error("spending-not-kept", self.trouble)

    def of(self, profile: str) -> Mapping[str, int]:
        """Return the calls, tokens and cost of a profile today. Raises OSError."""
        path = self._folder / f"{self._today()}.jsonl"
        if path != self._path:
            self._path, self._read_to = path, 0
            self._spent.clear()
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read_to)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read_to += len(whole)
            for line in map(json.loads, whole.splitlines()):
                self._spent.update({(line["profile"], what): line[what] for what in ("calls", "tokens", "cost")})
        return {what: self._spent[profile, what] for what in ("calls", "tokens", "cost")}


@dataclass(frozen=True, slots=True)
class ProfileSpending:
    """The day of one profile, within its bounds."""

    name: str
    daily: Daily
    day: Day
    currency: str

    def refusal(self) -> str | None:
        """Return why nothing more may be spent today; None where it may."""
        if self.day.trouble is not None:
            return self.day.trouble
        try:
            spent = self.day.of(self.name)
        except (OSError, ValueError, KeyError) as error:
            return f"what profile {self.name} spent today can't be read: {error}"
        cost = self.daily.cost
        for what, most in (
            ("calls", self.daily.calls),
            ("tokens", self.daily.tokens),
            ("cost", None if cost is None else micros(cost)),
        ):
            if most is not None and spent[what] >= most:
                how = f"{units(most).normalize():f} {self.currency}" if what == "cost" else f"{most:,} {what}"
                return f"profile {self.name} has used up its {how} of today (UTC): ask again tomorrow"
        return None

    def add(self, tokens: int, cost_micros: int) -> None:
        self.day.add(self.name, tokens, cost_micros)


class Profiles:
    """Read once. Each model has one client, which all rollouts share."""

    def __init__(self, settings: RunnerSettings, environment: Mapping[str, str] | None = None) -> None:
        """Raises SettingsError."""
        prices = Prices.read(settings.prices) if settings.prices and settings.profiles else None
        self._prices = prices.agents if prices else {}
        self._currency = prices.currency if prices else ""
        given = os.environ if environment is None else environment
        self._profiles = read_profiles(settings.profiles, given, self._prices)
        self._day = Day(settings.runner_dir / "profiles")
        self._clients: dict[ForeignModel, ForeignClient] = {}

    def unusable(self, work: Work, *, begun: bool) -> str | None:
        """Return why a Work's profile can't be used here now; None where it can. `begun`: what the Work has spent is
        not given up with the day."""
        if work.profile is None:
            return None
        profile = self._profiles.get(work.profile)
        if profile is None:
            has = ", ".join(sorted(self._profiles)) or "none"
            return f"this runner has no profile {work.profile!r}: it has {has} (RATCHET_PROFILES)"
        if (tenant := tenant_of(work.task_id)) not in profile.tenants:
            return f"profile {work.profile!r} is not for tasks of the tenant {tenant}: its `tenants` don't name it"
        return self._spending(work.profile).refusal() if profile.foreign and not begun else None

    def _spending(self, name: str) -> ProfileSpending:
        return ProfileSpending(name, self._profiles[name].daily, self._day, self._currency)

    def limits(self, work: Work) -> Constraints | None:
        profile = self._profiles.get(work.profile or "")
        return profile.limits if profile else None

    def roles(self, work: Work, budget: Budget, steps: KeptSteps | None) -> dict[str, TextRole]:
        """Return the roles that other providers' models play in a rollout, by name."""
        profile = self._profiles.get(work.profile or "")
        foreign = profile.foreign if profile else {}
        spending = self._spending(work.profile) if work.profile and foreign else None
        return {
            role: ForeignRole(role, self._client(model), budget, steps, self._price(model), spending)
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
