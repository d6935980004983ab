"""What became of the conversations: every task has one end, every rollout is whole and taught once, no key is left."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil

from bench.recorded.rig import Plan, Recordings, recording, strike
from ratchet.bus.amqp.short_connection import connected
from ratchet.bus.dead_letters.queue import DeadLetterQueue
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.reader import read, read_json
from schemas.records.interaction import Interaction
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.samples import load_samples
from services.trainer.data.selection import select
from tests.acceptance.brokers import MortalBroker
from tests.waiting import wait_until

AT_REST_S = 120.0


@dataclass
class Books:
    """`rollouts` by how they ended; `ended` tasks without an answer, by their reason."""

    conversations: int
    answered: int = 0
    rollouts: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    taught: int = 0
    keys: int = 0
    complaints: list[str] = field(default_factory=list)


def measure(broker: MortalBroker, folder: Path, plan: Plan, seed: int) -> dict[str, Any]:
    """All of it, once; the figures and the complaints."""
    with recording(broker, folder, plan) as (fleet, recordings):
        strike(broker, fleet, recordings, plan, seed)
        wait_until(lambda: _closed(fleet.logs) >= set(plan.ids), "every task has its end", AT_REST_S)
        reasons = _letters(broker.url, fleet.namespace)
        books = books_of(fleet.logs, plan, recordings)
    books.complaints += [f"a dead letter: {reason}" for reason in reasons]
    books.complaints += [
        f"the command of {task_id} ended with {code}: {recordings.account.said[task_id][-300:]}"
        for task_id, code in recordings.account.exits.items()
        if code != 0 and task_id not in plan.left
    ]
    return _as_json(books, recordings)


def _closed(logs: Path) -> set[str]:
    return {json.loads(line)["task_id"] for line in (logs / "agent_interactions.jsonl").read_text().splitlines()}


def books_of(logs: Path, plan: Plan, recordings: Recordings) -> Books:
    books = Books(plan.tasks * plan.samples)
    groups: dict[str, list[Interaction]] = defaultdict(list)
    for line in read(logs, INTERACTIONS):
        logged = Interaction.decode(line.data)
        groups[logged.task_id].append(logged)
    asked = Counter(record.value["task_id"] for record in read_json(logs, ASSIGNMENTS, dict))
    books.complaints += [f"{task_id} was admitted {count} times" for task_id, count in asked.items() if count > 1]
    books.complaints += [f"{task_id} is unheard of" for task_id in groups.keys() - set(plan.ids)]
    for task_id in plan.ids:
        _count_task(task_id, groups.get(task_id, []), plan, books)
    _count_taught(logs, groups, books)
    for task_id in plan.ids:
        _count_keys(recordings.begun(task_id), books)
    return books


def _count_task(task_id: str, lines: list[Interaction], plan: Plan, books: Books) -> None:
    if [line.sample for line in lines] == [None]:
        (line,) = lines
        books.ended[f"{line.status}: {(line.reason or '').split(':')[0]}"] += 1
        if not line.reason:
            books.complaints.append(f"{task_id} has no answer, and no reason")
        if task_id not in plan.left:
            books.complaints.append(f"{task_id} has no answer, though its command came back: {line.reason}")
        return
    if sorted(line.sample if line.sample is not None else -1 for line in lines) != list(range(plan.samples)):
        books.complaints.append(f"{task_id} has the samples {[line.sample for line in lines]}")
        return
    books.answered += 1
    for line in lines:
        books.rollouts[line.sample_status or "none"] += 1
        books.complaints += [f"{task_id}, sample {line.sample}: {why}" for why in _faults(line, plan)]


def _faults(line: Interaction, plan: Plan) -> list[str]:
    """Of a rollout, if it is not whole."""
    if line.sample_status != "finished":
        return [f"{line.sample_status} has a score"] if line.sample_status == "lost" and line.score is not None else []
    usage, segments = line.usage, line.segments or ()
    if usage is None or len(segments) != 1:
        return [f"{len(segments)} segments where one program asked one thing after the other"]
    (segment,) = segments
    ends = {segment.completion_ids[stop - 1] for _, stop in segment.spans}
    said = "right" if (line.sample or 0) % 2 else "wrong"
    found = {
        "calls": usage.calls == plan.turns == len(segment.spans),
        "answer": line.response == said and line.score == float(said == "right"),
        "ends of its turns": len(ends) == 1,
        "tokens": len(segment.logprobs) == usage.sampled_tokens == segment.sampled_tokens,
    }
    return [f"its {name} are not those of a whole run: {usage}" for name, right in found.items() if not right]


def _count_taught(logs: Path, groups: dict[str, list[Interaction]], books: Books) -> None:
    """What the trainer makes of the log: each rollout's sampled tokens once, and all of them."""
    policy = DataPolicy(agent_id="small", versions={"v1.0.0": None})
    chosen = select(JournalScan(logs, policy).read(0, None), policy)
    rows = load_samples(logs, chosen.groups)
    books.taught = len(rows)
    whole = sum(
        line.sampled_tokens or 0 for lines in groups.values() for line in lines if line.sample_status == "finished"
    )
    if len(rows) != books.rollouts["finished"] or sum(row.tokens for row in rows) != whole:
        books.complaints.append(
            f"{len(rows)} rows of {sum(row.tokens for row in rows):,} tokens are taught, of "
            f"{books.rollouts['finished']} rollouts of {whole:,}: {chosen.counts}"
        )


def _count_keys(begun: Path, books: Books) -> None:
    """Each is worth nothing by now, and its program is gone."""
    runs = [line.split() for line in begun.read_text().splitlines()] if begun.exists() else []
    for pid, url, key in runs:
        books.keys += 1
        if _opens(url, key):
            books.complaints.append(f"the key {key[:12]}… outlived its rollout")
        if psutil.pid_exists(int(pid)) and str(begun) in psutil.Process(int(pid)).cmdline():
            books.complaints.append(f"the program {pid} outlived its rollout")


def _opens(url: str, key: str) -> bool:
    request = Request(f"{url}/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _letters(amqp_url: str, namespace: str) -> list[str]:
    """The reasons of the dead letters."""
    with connected(amqp_url) as connection:
        return [letter.reason for letter, _ in DeadLetterQueue(connection, namespace).letters()]


def _as_json(books: Books, recordings: Recordings) -> dict[str, Any]:
    account = recordings.account
    return {
        "conversations": books.conversations,
        "answered": books.answered,
        "rollouts": dict(books.rollouts),
        "ended": dict(books.ended),
        "taught": books.taught,
        "keys": books.keys,
        "kills": account.kills,
        "refused": account.refused,
        "seconds": round(account.seconds, 1),
        "complaints": books.complaints,
    }
