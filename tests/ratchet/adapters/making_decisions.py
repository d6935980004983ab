"""Decisions for tests: one line each, by default on agent small at noon, by whom such a decision usually is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ratchet.adapters.registry import RegistryStore
from schemas.records.decision import (
    Archive,
    DecisionDraft,
    Move,
    Promote,
    Register,
    RejectVersion,
    RunningExperiment,
    StartExperiment,
    Validate,
)
from schemas.records.registry import Registry
from tests.ratchet.adapters.making_adapters import BASE, NOON


def draft(
    move: Move, who: str = "orchestrator", at: datetime = NOON, agent_id: str = "small", **evidence: Any
) -> DecisionDraft:
    return DecisionDraft(agent_id=agent_id, move=move, who=who, at=at, reason="for a test", evidence=evidence)


def register(version: str, parent: str = "v1.0.0") -> Register:
    return Register(version=version, sha256="a" * 64, folder=f"small/{version}", parent=parent, base=BASE)


def experiment(
    treatment: str, control: str = "v1.0.0", kind: str = "canary", experiment_id: str | None = None
) -> RunningExperiment:
    return RunningExperiment(
        experiment_id=experiment_id or f"{kind}-{treatment}",
        kind=kind,  # type: ignore[arg-type]
        treatment=treatment,
        control=control,
        share=0.05,
        started_at=NOON,
        parameters={"alpha": 0.05, "note": None},
    )


def to_canary(version: str, control: str = "v1.0.0") -> list[Move]:
    return [
        register(version),
        Validate(version=version),
        StartExperiment(experiment=experiment(version, control)),
    ]


def to_primary(version: str, control: str = "v1.0.0") -> list[Move]:
    """Return the moves through a canary; nothing watches the primary yet."""
    return [*to_canary(version, control), Promote(version=version, experiment_id=f"canary-{version}")]


def to_probation(version: str, control: str = "v1.0.0") -> list[Move]:
    """Return the moves of a promotion by an older release: it began a probation, which `Settle` ended."""
    probation = experiment(version, control, "probation")
    promotion = Promote(version=version, experiment_id=f"canary-{version}", probation=probation)
    return [*to_canary(version, control), promotion]


def decided(store: RegistryStore, *moves: Move) -> Registry:
    for move in moves:
        store.change(store.read().revision, draft(move))
    return store.read()


def promoted_by_hand(store: RegistryStore, version: str, agent: str = "small") -> Registry:
    """Promote a new version by hand; nothing watches it yet."""
    for move in (register(version), Validate(version=version)):
        store.change(store.read().revision, draft(move, agent_id=agent))
    return store.change(store.read().revision, draft(Promote(version=version), who="operator:ann", agent_id=agent))


def archived(store: RegistryStore, registered: Register) -> Registry:
    version = registered.version
    return decided(store, registered, RejectVersion(version=version), Archive(version=version))
