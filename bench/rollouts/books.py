"""The outcome of the rollouts, by the log: each sample once and whole, each token one rollout's, no null taught.

A rollout names itself in each of its calls (rig.py), and what was recorded is compared with that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from bench.rollouts.rig import TURNS
from bench.rollouts.taught import measure_taught
from demos.toy.byte_tokenizer import byte_tokenizer
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read
from schemas.messages.response import Segment
from schemas.records.interaction import Interaction
from tests.acceptance.ledger import Ledger

TOKENIZER = byte_tokenizer(8192)
RIGHT, WRONG = "right", "wrong"
OWN = 16
"""Letters of a run's own word; an answer that was given up may have fewer of it."""


@dataclass
class Books:
    """`rollouts` by how they ended, `ended` tasks without an answer by their status."""

    tasks: int = 0
    rollouts: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    nulls: int = 0
    unfinished: int = 0
    failed: int = 0
    """Both: rollouts of tasks that had more than seconds."""
    calls: int = 0
    tokens: int = 0
    taught: int = 0
    taught_tokens: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    lost: int = 0
    logged_twice: int = 0
    nulls_taught: int = 0
    complaints: list[str] = field(default_factory=list)


def books_of(logs: Path, ledger: Ledger, samples: int) -> Books:
    """Read the books from the log. Raises ValueError if bytes of it are missing."""
    ledger.read_logs(logs)
    books = Books(len(ledger.acknowledged), complaints=ledger.complaints())
    books.lost, books.logged_twice = len(ledger.lost), len(ledger.logged_twice) + len(ledger.admitted_twice)
    lines = {line.position: Interaction.decode(line.data) for line in read(logs, INTERACTIONS)}
    groups: dict[str, list[Interaction]] = defaultdict(list)
    for line in lines.values():
        groups[line.task_id].append(line)
    own: dict[str, tuple[str, int]] = {}
    for task_id, group in groups.items():
        if group[0].sample is None:
            books.ended[group[0].status] += 1
            if not group[0].reason or task_id not in ledger.may_expire:
                books.complaints.append(f"{task_id} ended without an answer: {group[0].status}: {group[0].reason}")
        # answers that came after the deadline had closed the task are logged behind its line
        answers = group[1:] if group[0].sample is None else group
        if answers and sorted(-1 if line.sample is None else line.sample for line in answers) != list(range(samples)):
            books.complaints.append(f"{task_id} has the samples {[line.sample for line in answers]}")
        for line in answers:
            _count(line, own, books, hurried=task_id in ledger.may_expire)
    found = measure_taught(logs, lines)
    books.taught, books.taught_tokens, books.nulls_taught = found.rollouts, found.tokens, found.nulls
    books.left_out = found.left_out
    books.complaints += found.complaints
    return books


def _count(line: Interaction, own: dict[str, tuple[str, int]], books: Books, *, hurried: bool) -> None:
    books.rollouts[line.sample_status or "none"] += 1
    books.nulls += line.score is None
    books.unfinished += line.sample_status != "finished" and not hurried
    books.failed += line.sample_status == "failed" and not hurried
    books.calls += line.usage.calls if line.usage else 0
    books.tokens += line.sampled_tokens or 0
    books.complaints += [f"{line.task_id}, sample {line.sample}: {why}" for why in _faults(line, own, hurried=hurried)]


def _faults(line: Interaction, own: dict[str, tuple[str, int]], *, hurried: bool) -> list[str]:
    """Return the faults of one rollout."""
    found = []
    words = {word for segment in line.segments or () for word in _sampled_texts(segment)}
    whose = f"{line.task_id} {line.sample} "
    names = {word.removeprefix(whose).partition(" ")[0] for word in words if word.startswith(whose)} - {""}
    whole = {name for name in names if len(name) == OWN}
    cut = {name for name in names - whole if not any(name == one[: len(name)] for one in whole)}
    if len(whole) > 1 or (whole and cut) or not all(word.startswith(whose) or whose.startswith(word) for word in words):
        found.append(f"it has tokens of others: {sorted(words)}")
    this = (line.task_id, line.sample or 0)
    found += [f"{own[name]} has its tokens, too" for name in whole if own.setdefault(name, this) != this]
    if line.sample_status == "lost" and line.score is not None:
        found.append(f"it was lost, and has the score {line.score}")
    if line.sample_status == "finished":
        found += _not_whole(line, whole, hurried=hurried)
    return found


def _sampled_texts(segment: Segment) -> list[str]:
    """Decode what was sampled, a text for each call."""
    ids = segment.completion_ids
    return [TOKENIZER.decode(list(ids[start:stop]), skip_special_tokens=True) for start, stop in segment.spans]


def _not_whole(line: Interaction, names: set[str], *, hurried: bool) -> list[str]:
    if line.usage is None or len(line.segments or ()) != 1 or len(names) != 1:
        return [f"{len(line.segments or ())} segments by {len(names)} runs, where one asked one thing after the other"]
    (segment,), (name,) = line.segments or (), names
    said = [f"{line.task_id} {line.sample} {name} {turn}" for turn in range(TURNS)]
    ends = {segment.completion_ids[stop - 1] for _, stop in segment.spans}
    patch = line.artifact.patch if line.artifact else ""
    right = RIGHT if (line.sample or 0) % 2 else WRONG
    holds = {
        "calls": _sampled_texts(segment) == said and line.usage.calls == TURNS,
        "ends": len(ends) == 1,
        "tokens": len(segment.logprobs) == line.usage.sampled_tokens == segment.sampled_tokens,
        "patch": all(f"+{name} {turn}" in patch for turn in range(TURNS)) and patch.count(name) == TURNS,
        "answer": line.response == right,
        "score": line.score == float(right == RIGHT) or (hurried and line.score is None),
    }
    return [f"its {what} are not those of a whole run" for what, right in holds.items() if not right]
