"""ProgramState: where one of an agent's programs stands. Which moves between states are allowed is not here."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ProgramState(StrEnum):
    """Each value carries a sentence for people. A program that nobody tried or chose is in none of them."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    ASKED = "asked", "An operator asked for its experiment, which waits for its turn and for what runners say of it."
    REJECTED = "rejected", "It was not fit to be tried: runners do not have it alike, or it failed at the gate."
    CANARY = "canary", "It answers a share of live traffic in a running experiment."
    STABLE = "stable", "It answers by default; a watch beside the program before it takes it back where it does harm."
    SUPERSEDED = "superseded", "It answered by default until another was promoted; a roll-back can restore it."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the present program stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, or was called off before it began."

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Read `probation`, as older versions called a program that was promoted lately, as stable."""
        return cls.STABLE if value == "probation" else None
