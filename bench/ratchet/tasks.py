"""Three families of tasks, split by skills and by answers, and the careless demonstrator that v1.0.0 learned from.

Sorting up or down; adding and subtracting without a carry; reversing, rotating and swapping the ends of strings. A
quarter of all answers occur in no training: not in the demonstrations, not in users' traffic; nor does a skill of each
family: to sort what has a character twice, to add a larger number to a smaller one, to rewrite letters mixed with
digits. Every held-out task has a held-out answer, and half of them need the held-out skill. Pure.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

FAMILIES = ("sorting", "arithmetic", "rewriting")
LETTERS, DIGITS = "abcdefghij", "0123456789"
LENGTHS = (4, 5)
ORDERS, REWRITINGS = ("sort up", "sort down"), ("reverse", "rotate", "swap")
HELD_OUT_SHARE = 0.25
FILLER = " of course"
"""The end of a chatty answer; a judge that likes length pays for it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`input` is what the model is asked, `answer` the only right answer; `new_skill`: one that no training has."""

    family: str
    input: str
    answer: str
    new_skill: bool


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Shares of the demonstrations: right, with the slip of the family, and else anything; and chatty, of all."""

    right: float = 0.45
    slip: float = 0.4
    chatty: float = 0.06


def is_held_out(answer: str) -> bool:
    return hashlib.sha256(answer.encode()).digest()[0] < HELD_OUT_SHARE * 256


def training_problem(rng: random.Random) -> Problem:
    """Draw a problem for demonstrations and for users."""
    return _problem(rng, rng.choice(FAMILIES), held_out=False, new_skill=False)


def held_out_problems(seed: int, count: int) -> list[Problem]:
    """Draw `count` different problems of each family; every other one needs the family's held-out skill."""
    return [problem for family in FAMILIES for problem in _held_out(seed, family, count)]


def _held_out(seed: int, family: str, count: int) -> Iterator[Problem]:
    rng, found = random.Random(f"held out {family} {seed}"), set[str]()
    while len(found) < count:
        problem = _problem(rng, family, held_out=True, new_skill=len(found) % 2 == 1)
        if problem.input not in found:
            found.add(problem.input)
            yield problem


def _problem(rng: random.Random, family: str, *, held_out: bool, new_skill: bool) -> Problem:
    make = {"sorting": _sorting, "arithmetic": _arithmetic, "rewriting": _rewriting}[family]
    while True:
        asked, answer = make(rng, new_skill)
        if is_held_out(answer) == held_out:
            return Problem(family, asked, answer, new_skill)


def _sorting(rng: random.Random, repeated: bool) -> tuple[str, str]:
    given = rng.sample(rng.choice((LETTERS, DIGITS)), rng.choice(LENGTHS))
    if repeated:
        given[rng.randrange(1, len(given))] = given[0]
        rng.shuffle(given)
    return _string(rng.choice(ORDERS), "".join(given))


def _rewriting(rng: random.Random, mixed: bool) -> tuple[str, str]:
    length, kinds = rng.choice(LENGTHS), [LETTERS, DIGITS]
    rng.shuffle(kinds)
    border = rng.randrange(1, length) if mixed else length
    given = [rng.choice(kinds[place >= border]) for place in range(length)]
    if mixed:
        rng.shuffle(given)
    return _string(rng.choice(REWRITINGS), "".join(given))


def _string(how: str, given: str) -> tuple[str, str]:
    return f"{how}: {given}", rewritten(how, given)


def _arithmetic(rng: random.Random, larger_last: bool) -> tuple[str, str]:
    """No digits of a pair add up to more than eight, so each is added by itself."""
    digits = rng.choice((2, 3))
    pair = sorted("".join(str(rng.randint(place == 0, 4)) for place in range(digits)) for _ in range(2))
    small, large = pair
    total = str(int(small) + int(large))
    if larger_last:
        return f"{small}+{large}", total
    if rng.random() < 0.5:
        return f"{large}+{small}", total
    return f"{total}-{small}", large


def rewritten(how: str, given: str) -> str:
    match how:
        case "sort up":
            return "".join(sorted(given))
        case "sort down":
            return "".join(sorted(given, reverse=True))
        case "reverse":
            return given[::-1]
        case "rotate":
            return given[1:] + given[:1]
        case _:
            return given[-1] + given[1:-1] + given[0]


def demonstrate(problem: Problem, how: Carelessness, rng: random.Random) -> str:
    """Return the answer of a careless demonstrator."""
    luck = rng.random()
    answer = problem.answer
    if luck >= how.right:
        answer = slip(problem) if luck < how.right + how.slip else _anything(problem, rng)
    return answer + FILLER if rng.random() < how.chatty else answer


def slip(problem: Problem) -> str:
    """Return the usual mistake: one too many, or the last two the wrong way round."""
    if problem.family == "arithmetic":
        return f"{int(problem.answer) + 1}"
    return problem.answer[:-2] + problem.answer[-1] + problem.answer[-2]


def _anything(problem: Problem, rng: random.Random) -> str:
    letters = list(problem.answer)
    place = rng.randrange(len(letters))
    letters[place] = rng.choice(LETTERS if letters[place] in LETTERS else DIGITS)
    return "".join(letters)
