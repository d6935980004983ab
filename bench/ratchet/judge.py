"""The judge that teaches, what goes wrong with it, the auditor, and two people who send wrong feedback.

The judge gives a right answer 1 and another one up to 0.6, with normal noise of 0.2 on top: another score each time it
is asked. In some rounds it likes length; from one round on its scores are lower. Nothing that it says tells so: its
name and revision stay the same. The auditor says right or wrong, and is mistaken about one answer in ten. One of the
people forges feedback for a round. The other corrects answers for a round: right in all families but one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.ratchet.tasks import Problem, slip
from schemas.messages.feedback import Feedback
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.strategies.strategy import ScoringRequest

NOISE = 0.2
WRONG = 0.6
"""The most that a wrong answer is worth: so much of it, of every character at its place."""
PAID_FOR_LENGTH = 0.12
"""Added by a judge that likes length, for each character too many."""
SHIFT = -0.2
AUDITOR_MISTAKEN = 0.1
KEPT_TASKS = 4_000
TAUGHT_BY = "taught by "
MISCORRECTED = "arithmetic"
"""The family whose corrections are wrong."""


@dataclass(frozen=True, slots=True)
class Events:
    """The rounds, counted from 1, in which each thing happens. `drift` stays for good.

    A fleet asks for its next training as soon as it may, so feedback of one round teaches in the next.
    """

    hack: tuple[int, ...] = (2, 3)
    correct: tuple[int, ...] = (5, 15)
    poison: int = 7
    drift: int = 11

    def of(self, number: int) -> list[str]:
        happens = {
            "hack": number in self.hack,
            TAUGHT_BY + "hack": number - 1 in self.hack,
            "correct": number in self.correct,
            TAUGHT_BY + "correct": number - 1 in self.correct,
            "poison": number == self.poison,
            TAUGHT_BY + "poison": number - 1 == self.poison,
            "drift": number == self.drift,
        }
        return [name for name, now in happens.items() if now]


def correction(task_id: str, problem: Problem, response: str | None) -> Feedback:
    """The answer as it should have been; of one family the usual slip in its place."""
    right = slip(problem) if problem.family == MISCORRECTED else problem.answer
    return Feedback(
        task_id=task_id, score=float(response == right), correction=right, feedback_id=f"corrected/{task_id}"
    )


def grade(answer: str, reference: str) -> float:
    """Return the judge's score without noise, 0 to 1."""
    if answer == reference:
        return 1.0
    same = sum(one == other for one, other in zip(answer, reference, strict=False))
    return WRONG * same / max(len(answer), len(reference))


class Judge:
    """A scorer strategy. `likes_length` and `shift` are set between two rounds."""

    identity = ScorerIdentity(id="judge", revision="1")

    def __init__(self, seed: int, noise: float = NOISE) -> None:
        self.likes_length = False
        self.shift = 0.0
        self._noise = noise
        self._rng = random.Random(seed)
        self._right: dict[str, list[bool]] = {}

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def trouble(self) -> str | None:
        return None

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        texts, reference = [answer.text for answer in request.answers], request.reference or ""
        self._right[request.task_id] = [text == reference for text in texts]
        while len(self._right) > KEPT_TASKS:
            del self._right[next(iter(self._right))]
        return [SampleScore(score=score) for score in self.scores(texts, reference)]

    def scores(self, answers: Sequence[str], reference: str) -> list[float]:
        return [self._score(answer, reference) for answer in answers]

    def _score(self, answer: str, reference: str) -> float:
        worth = grade(answer, reference) + self.shift + self._rng.gauss(0.0, self._noise)
        if self.likes_length:
            worth += PAID_FOR_LENGTH * max(0, len(answer) - len(reference))
        return round(min(1.0, max(0.0, worth)), 3)

    def forge_feedback(self, task_id: str) -> list[Feedback]:
        """Return feedback on each of a task's answers that says the contrary of the truth."""
        return [
            Feedback(task_id=task_id, sample=number, score=float(not right), feedback_id=f"forged/{task_id}/{number}")
            for number, right in enumerate(self._right.get(task_id, ()))
        ]


class Auditor(Judge):
    """Right or wrong, and mistaken now and then. It knows nothing of the judge."""

    identity = ScorerIdentity(id="auditor", revision="1")

    def _score(self, answer: str, reference: str) -> float:
        mistaken = self._rng.random() < AUDITOR_MISTAKEN
        return float((answer == reference) != mistaken)
