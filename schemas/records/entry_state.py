"""EntryState: where an adapter's version, or a program, stands in its life. Which moves are allowed is not here."""

from __future__ import annotations

from typing import Self

from schemas.messages.base import Sentences


class EntryState(Sentences):
    """Each value carries a sentence for people. A program that nobody tried or chose is in none of them."""

    TRAINED = "trained", "Published and registered; the gate has not judged it yet."
    VALIDATED = "validated", "It loads on every replica, and its shadow replay proved no harm."
    ASKED = "asked", "An operator asked for its experiment, which waits for its turn and for what runners say of it."
    CANARY = "canary", "It answers a share of live traffic in a running experiment."
    STABLE = "stable", "It is the primary; a watch beside the one before it takes it back where it does harm."
    SUPERSEDED = "superseded", "It was the primary until another was promoted; a roll-back can restore it."
    ARCHIVED = "archived", "It is out of use for good; its folder may be removed once it has drained."
    REJECTED = "rejected", "It failed a check before it saw any traffic."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the primary stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, or was called off, through no fault of its own."

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Read `probation`, as older versions called what was promoted lately, as stable."""
        return cls.STABLE if value == "probation" else None


BEFORE_TRAFFIC = frozenset({EntryState.TRAINED, EntryState.VALIDATED})
"""States of versions that are still to be tried."""
