"""From the logs to an experiment: who was enrolled, how each task ended, and the replay of a whole experiment.

It reads records, not files: give it what `ratchet/logs/reader.py` streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ratchet.experiments.assignment import Assignment
from ratchet.experiments.unit import Audit, Enrolment, Outcome, mean
from ratchet.logs.best_answer import choose_answer
from ratchet.logs.groups import group_by_task
from schemas.messages.reward import ScorerIdentity
from schemas.messages.task import Task
from schemas.messages.work import Arm, Work
from schemas.records.audit import AuditedTask
from schemas.records.interaction import Interaction

REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am) (?:very |so |really )?(?:sorry|afraid)|sorry\b|i apologi[sz]e|unfortunately,? i"
    r"|as an? (?:ai|artificial|language)\b"
    r"|i (?:can['’]?t|cannot|can not|won['’]?t|will not|am unable|am not able|must decline)"
    r"|i['’]?m (?:unable|not able))",
    re.IGNORECASE,
)


def is_refusal(answer: str) -> bool:
    """A blank answer is one."""
    return not answer.strip() or REFUSAL.match(answer) is not None


NO_TYPE = ""
"""The stratum of tasks without a type."""


def unit_of(task: Task) -> tuple[str, bool]:
    """The id of the unit a task belongs to, and whether that is a session."""
    return (task.task_id, False) if task.session_id is None else (task.session_id, True)


def enrolment_of(work: Work) -> Enrolment:
    """Return the enrolment of a Work whose arm names an experiment."""
    unit_id, in_session = unit_of(work)
    return Enrolment(
        sequence=work.arm.sequence,
        unit_id=unit_id,
        in_session=in_session,
        assignment=Assignment(is_candidate=work.arm.is_candidate, propensity=work.arm.propensity),
        stratum=work.task_type or NO_TYPE,
        at=work.admitted_at.timestamp(),
    )


def outcome_of(lines: Sequence[Interaction]) -> Outcome:
    """Make the outcome of all the lines of one task, in the order of its samples: the mean of its group, and what the
    user got.
    """
    answered = answers_of(lines)
    scores = [line.score for line in answered if line.score is not None]
    # those that tell turns: what older lines tell of calls was in no evidence, which a replay must come to again
    talks = [(line.usage.calls, line.usage.turns) for line in answered if line.usage and line.usage.turns is not None]
    return Outcome(
        succeeded=bool(scores),
        score=mean(scores),
        served=choose_answer(answered).score if answered else None,
        scored=len(scores) / len(lines),
        length=mean([float(tokens) for line in answered if (tokens := line.sampled_tokens) is not None]),
        latency_s=mean([line.latencies.total_s for line in answered]),
        refused=mean([float(is_refusal(line.response or "")) for line in answered]),
        calls=mean([float(calls) for calls, _ in talks]),
        turns=mean([float(turns) for _, turns in talks]),
        answered=bool(answered),
        is_choice=len(answered) > 1,
        scorer=next((name for name in map(scorer_of, answered) if name is not None), None),
    )


def answers_of(lines: Sequence[Interaction]) -> list[Interaction]:
    """The lines of a task that have an answer: among these the user's was chosen."""
    return [line for line in lines if line.status == "ok" and line.sample is not None]


def audit_of(line: AuditedTask) -> Audit:
    """Every sample of the task counts: what the auditor did not score is missing."""
    scores = [score for score in line.scores if score is not None]
    samples = max(len(line.judged), 1)
    auditors = (name_of_scorer(line.auditor),) if line.auditor and scores else ()
    served = line.scores[line.served] if line.served is not None and line.scores else None
    return Audit(known=sum(scores) / samples, scored=len(scores) / samples, auditors=auditors, served=served)


def scorer_of(line: Interaction) -> str | None:
    """The identity of whoever gave the score: any change in it is a change of scorer."""
    if line.score is None:
        return None
    return line.scoring_agent_id if line.scorer is None else name_of_scorer(line.scorer)


def name_of_scorer(scorer: ScorerIdentity) -> str:
    return "@".join(filter(None, (scorer.id, scorer.revision, scorer.rubric_sha256)))


def ended_tasks(interactions: Iterable[Interaction]) -> Iterator[tuple[Arm, Outcome]]:
    """Arm and outcome of every task whose lines are all there, whatever experiment it belongs to."""
    return ((lines[0].arm, outcome_of(lines)) for lines in group_by_task(interactions))
