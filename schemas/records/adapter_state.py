"""AdapterState: where an adapter version stands in its life. Which moves between states are allowed is not here."""

from __future__ import annotations

from schemas.messages.base import Sentences


class AdapterState(Sentences):
    """Each value carries a sentence for people."""

    TRAINED = "trained", "Published and registered; the gate has not judged it yet."
    VALIDATED = "validated", "It loads on every replica, and its shadow replay proved no harm."
    CANARY = "canary", "It answers a share of live traffic in a running experiment."
    PROBATION = "probation", "It is the primary, while a holdback of the version before it goes on answering."
    STABLE = "stable", "It is the primary, and its probation is over."
    SUPERSEDED = "superseded", "It was the primary until another was promoted; a roll-back can restore it."
    ARCHIVED = "archived", "It is out of use for good; its folder may be removed once it has drained."
    REJECTED = "rejected", "It failed a check before it saw any traffic."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the primary stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, through no fault of its own, and was stopped."


BEFORE_TRAFFIC = frozenset({AdapterState.TRAINED, AdapterState.VALIDATED})
"""Of versions that are still to be tried."""

PRIMARY_STATES = frozenset({AdapterState.PROBATION, AdapterState.STABLE})
"""At any time exactly one version of an agent is in one of these."""
