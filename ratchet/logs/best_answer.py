"""Chooses the answer of a group that the user gets; nothing else chooses. Pure.

The Result is a function of the logged lines alone, so that the one sent and the one rebuilt from the log are the same.
How it is chosen is the task's `select`, which its lines have:

- `best`, also where there is none: the best-scored; among equals one that ended by itself before one that was cut at
  the token limit, then the first; no score is worse than any. A cut never overrules a score: the scorer knew of it.
- `majority`: what most of the answers say that have a vote (votes.py); where as many say something else, what has the
  better score, then what was sampled first. Of those that say it, the best-scored. Where none has a vote, the best.
- `judge`: the first in the judge's order; where the judge put none in order, the best.
- `first-passing`: of those whose score passes the first in time, or without times the first; where none passes, the
  best.

An answer that was lost, or called off, is chosen by none of them while there is another; by `best`, where the task does
not say it, such a one has no score, which is as bad as any other without one.

Where no rollout ended by itself, called the model or earned anything, there was no answer to choose: the Result is
`failed`, with what the first of them ended with as its reason. Who left nothing, no text and no change of a file, has
earned nothing, whatever a scorer gives an empty text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from ratchet.logs.cascaded import served_lines
from ratchet.logs.votes import Voting, has_vote, vote_of
from schemas.messages.base import Metadata
from schemas.messages.result import Result, RolloutEnd, TaskUsage
from schemas.messages.task import Select
from schemas.records.interaction import Interaction

FIRST_PASSING: Select = "first-passing"
PASSES = 1.0
"""The score that passes where the task names none."""
NOT_THERE = ("lost", "cancelled")
"""Ends of a rollout that left no answer."""
LATE = datetime.max.replace(tzinfo=UTC)


class Scored(Protocol):
    """A line of the log, or a view of one."""

    @property
    def score(self) -> float | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def epoch(self) -> int | None: ...


class Answered(Scored, Voting, Protocol):
    """The same, with all that a choice looks at."""

    @property
    def sample(self) -> int | None: ...
    @property
    def sample_says(self) -> str | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def place(self) -> int | None: ...
    @property
    def select(self) -> str | None: ...
    @property
    def pass_score(self) -> float | None: ...


Line = TypeVar("Line", bound=Scored)
AnswerLine = TypeVar("AnswerLine", bound=Answered)


def choose_answer(lines: Sequence[AnswerLine]) -> AnswerLine:
    """Return the line whose answer the user gets, of those of one task, in the order of its samples."""
    select = lines[0].select
    if select is None:
        return best(lines)
    there = [line for line in lines if line.sample_status not in NOT_THERE] or lines
    match select:
        case "majority":
            voting = _voting(lines)
            return best(_most_said(voting) if voting else there)
        case "judge":
            return min(there, key=lambda line: (_place(line), _rank(line)))
        case "first-passing":
            return first_passing(there) or best(there)
        case _:
            return best(there)


def rank_answers(lines: Sequence[AnswerLine]) -> list[AnswerLine]:
    """The chosen one first, then the best of the others first."""
    first = choose_answer(lines)
    return [first, *sorted((line for line in lines if line is not first), key=_rank)]


def best(lines: Iterable[Line]) -> Line:
    """The best-scored; among equals one that was not cut, then the first."""
    return min(lines, key=_rank)


def best_index(scores: Sequence[float | None]) -> int:
    """Return the place of the best of these."""
    return min(range(len(scores)), key=lambda index: _loss(scores[index]))


def passes(score: float | None, pass_score: float | None) -> bool:
    """Return the score that `first-passing` asks for, where the task names one."""
    return score is not None and score >= (PASSES if pass_score is None else pass_score)


def first_passing(lines: Sequence[AnswerLine]) -> AnswerLine | None:
    """The first in time that passes; without times, in the order of the samples."""
    passing = [line for line in lines if passes(line.score, line.pass_score)]
    return min(passing, key=lambda line: line.ended_at or LATE, default=None)


def votes(lines: Sequence[AnswerLine], line: AnswerLine) -> int:
    """Return how many of the answers that have a vote say what this one says, itself included; 0 where it has none."""
    voting = _voting(lines)
    own = vote_of(line).meaning
    return sum(vote_of(other).meaning == own for other in voting) if any(one is line for one in voting) else 0


def is_best(select: str | None) -> bool:
    """Tell whether the user gets the best-scored."""
    return select in (None, "best")


def is_censored(select: str | None) -> bool:
    """Tell whether it depends on the scores of a group which of its answers were made at all: then what there is of
    them is no sample of what the model writes, and nothing is learned, measured or tried on it."""
    return select == FIRST_PASSING


def result_of(lines: Sequence[Interaction]) -> Result:
    """Return the result of a task, from all its lines in the order of its samples."""
    routing, asked = lines[0].cascade, lines
    lines = served_lines(lines)
    line = choose_answer(lines)
    given = line.select is not None and line.sample is not None
    nothing = came_to_nothing(lines)
    late = given and nothing is None and any(_came_too_late(one) for one in lines)
    shared = {"shared_learning": True} if line.shared_learning else {}
    counted = votes(lines, line) if given and line.select == "majority" else 0
    return Result.from_valid(
        {
            "task_id": line.task_id,
            "response": line.response,
            "score": line.score,
            "agent_id": line.agent_id,
            "adapter_version": line.adapter_version,
            "metadata": Metadata(timestamp=line.timestamp, source="ratchet", **shared),
            "status": "failed" if nothing else line.status,
            "reason": (routing and routing.reason)
            or line.reason
            or nothing
            or (_remark(lines, late=late) if given else None),
            "sample": None if routing is not None and routing.served == "big" else line.sample,
            "artifact": line.artifact,
            "tool_audit": line.tool_audit and line.tool_audit.model_copy(update={"lines": ()}),
            "partial": True if late else None,
            "votes": counted or None,
            "usage": usage_of(asked) if line.needs_usage else None,
            "rollouts": _ends(lines),
        }
    )


def usage_of(lines: Sequence[Interaction]) -> TaskUsage:
    """Return the tokens that a task took, by all of its lines, with those of other providers' models."""
    there = [line for line in lines if line.sample_status not in NOT_THERE]
    prompts = [line.usage.prompt_tokens for line in there if line.usage is not None]
    shared = max((len(line.prompt_ids or ()) for line in there if line.usage is None), default=0)
    sampled = (line.sampled_tokens if line.usage is None else line.usage.sampled_tokens for line in there)
    foreign = [part for line in there for part in line.foreign or ()]
    return TaskUsage(
        prompt_tokens=sum(prompts) + shared + sum(part.prompt_tokens for part in foreign),
        sampled_tokens=sum(count or 0 for count in sampled) + sum(part.sampled_tokens for part in foreign),
    )


def came_to_nothing(lines: Sequence[AnswerLine]) -> str | None:
    """Return, for all the lines of one task, why it has no answer although each rollout left one, as a reason; None
    where one of them ended by itself, called the model or earned something. Only those count that say how they
    ended."""
    if any(line.sample_says is None or _called_the_model(line) or _earned_something(line) for line in lines):
        return None
    first = lines[0]
    which = "its rollout" if len(lines) == 1 else f"each of its {len(lines)} rollouts"
    return f"{which} ended before it called the model; sample {first.sample} {first.sample_status}: {first.sample_says}"


def _called_the_model(line: Answered) -> bool:
    return (line.usage is not None and line.usage.calls > 0) or bool(line.foreign)


def _earned_something(line: Answered) -> bool:
    changed = line.artifact is not None and bool(line.artifact.patch.strip() or line.artifact.files)
    return bool(line.score) and (changed or bool((line.response or "").strip()))


def ends_told(ends: Iterable[RolloutEnd]) -> Iterator[str]:
    """A sentence for each rollout that did not end by itself; those that ended alike in one."""
    alike: dict[tuple[str, str | None, str], list[int]] = {}
    for one in ends:
        if one.says is not None:
            alike.setdefault((one.status, one.program, one.says), []).append(one.sample)
    for (status, program, says), samples in alike.items():
        which = f"sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))}"
        yield f"{which}{f' by {program}' if program else ''}: {status}: {says}"


def _ends(lines: Sequence[Interaction]) -> tuple[RolloutEnd, ...] | None:
    """None where all ended by themselves, or nobody said otherwise."""
    if all(line.sample_says is None for line in lines):
        return None
    return tuple(
        RolloutEnd(
            sample=line.sample or 0,
            status=line.sample_status or "finished",
            program=line.program,
            says=line.sample_says,
        )
        for line in lines
    )


def _remark(lines: Sequence[Interaction], *, late: bool) -> str | None:
    """Return what the user of an answered deliberation should know."""
    scored = sum(line.score is not None for line in lines)
    found = []
    if late:
        found.append(f"only {scored} of {len(lines)} answers were made and scored by the deadline")
    if lines[0].select == "judge" and scored and all(line.place is None for line in lines):
        found.append("the judge put the answers into no order: this is the best-scored")
    if is_censored(lines[0].select) and first_passing(lines) is None:
        found.append("no answer passed: this is the best-scored")
    return "; ".join(found) or None


def _came_too_late(line: Interaction) -> bool:
    return line.score is None and (line.score_status == "timeout" or line.sample_status == "lost")


def _voting(lines: Sequence[AnswerLine]) -> list[AnswerLine]:
    return [line for line in lines if line.sample_status not in NOT_THERE and has_vote(line)]


def _most_said(lines: Sequence[AnswerLine]) -> list[AnswerLine]:
    """Those who say what most say; of as many, who has the best score, then the first."""
    saying: dict[str, list[AnswerLine]] = defaultdict(list)
    for line in lines:
        saying[vote_of(line).meaning].append(line)
    return min(saying.values(), key=lambda alike: (-len(alike), _loss(best(alike).score)))


def _place(line: Answered) -> float:
    return float("inf") if line.place is None else line.place


def _rank(line: Scored) -> tuple[float, bool]:
    """The lower the better. Cuts count in lines with an epoch: 0.1.0 had none, and sent the first of equals."""
    return _loss(line.score), line.finish_reason == "length" and line.epoch is not None


def _loss(score: float | None) -> float:
    """The lower the better; scores are from 0 to 1."""
    return 1.0 if score is None else -score
