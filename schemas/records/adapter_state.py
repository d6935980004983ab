"""AdapterState: where an adapter version stands in its life. Which moves between states are allowed is not here."""

from __future__ import annotations

from typing import Self

from schemas.messages.base import Sentences


class AdapterState(Sentences):
    """Each value carries a sentence for people."""

    TRAINED = "trained", "Published and registered; the gate has not judged it yet."
    VALIDATED = "validated", "It loads on every replica, and its shadow replay proved no harm."
    CANARY = "canary", "It answers a share of live traffic in a running experiment."
    STABLE = "stable", "It is the primary; a watch beside the version before it takes it back where it does harm."
    SUPERSEDED = "superseded", "It was the primary until another was promoted; a roll-back can restore it."
    ARCHIVED = "archived", "It is out of use for good; its folder may be removed once it has drained."
    REJECTED = "rejected", "It failed a check before it saw any traffic."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the primary stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, through no fault of its own, and was stopped."

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Read `probation`, as older versions called a primary that was promoted lately, as stable."""
        return cls.STABLE if value == "probation" else None


BEFORE_TRAFFIC = frozenset({AdapterState.TRAINED, AdapterState.VALIDATED})
"""States of versions that are still to be tried."""
