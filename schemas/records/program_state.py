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
    PROBATION = "probation", "It answers by default, while a holdback of the program before it goes on answering."
    STABLE = "stable", "It answers by default, and its probation is over."
    SUPERSEDED = "superseded", "It answered by default until another was promoted; a roll-back can restore it."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the present program stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, or was called off before it began."


DEFAULT_STATES = frozenset({ProgramState.PROBATION, ProgramState.STABLE})
"""The program that answers an agent's tasks by default is in one of these, and no other is."""
