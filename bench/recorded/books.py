"""The outcome of the conversations: every task ends once, every rollout is whole and taught once, no key is left."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.long_run import EarlyEnd
from bench.recorded.rig import Given, Plan, Recordings, recording, strike
from bench.rollouts.left_behind import dead_letters
from bench.rollouts.taught import measure_taught
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.reader import read, read_json
from schemas.records.interaction import Interaction
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
    taught_tokens: int = 0
    keys: int = 0
    complaints: list[str] = field(default_factory=list)


def measure(broker: MortalBroker, folder: Path, plan: Plan, seed: int, end: EarlyEnd | None = None) -> dict[str, Any]:
    """Run the whole plan once; return figures and complaints."""
    with recording(broker, folder, plan) as (fleet, recordings):
        tasks = strike(broker, fleet, recordings, plan, seed, end or EarlyEnd())
        wait_until(lambda: _closed_tasks(fleet.logs) >= set(tasks), "every task has its end", AT_REST_S)
        letters = dead_letters(broker.url, fleet.namespace)
        books = books_of(fleet.logs, tasks, plan, recordings)
    books.complaints += recordings.account.complaints
    books.complaints += [f"a dead letter: {one}" for one in letters]
    books.complaints += [
        f"the command of {task_id} ended with {code}: {recordings.account.said[task_id][-300:]}"
        for task_id, code in recordings.account.exits.items()
        if code != 0 and task_id not in plan.left
    ]
    figures = ("keys_refused", "kills", "refused", "seconds", "load", "ended_early")
    return vars(books) | {name: getattr(recordings.account, name) for name in figures}


def _closed_tasks(logs: Path) -> set[str]:
    return {json.loads(line)["task_id"] for line in (logs / "agent_interactions.jsonl").read_text().splitlines()}


def books_of(logs: Path, tasks: Collection[str], plan: Plan, recordings: Recordings) -> Books:
    books = Books(len(tasks) * plan.samples)
    lines = {line.position: Interaction.decode(line.data) for line in read(logs, INTERACTIONS)}
    groups: dict[str, list[Interaction]] = defaultdict(list)
    for line in lines.values():
        groups[line.task_id].append(line)
    asked = Counter(record.value["task_id"] for record in read_json(logs, ASSIGNMENTS, dict))
    books.complaints += [f"{task_id} was admitted {count} times" for task_id, count in asked.items() if count > 1]
    books.complaints += [f"{task_id} is unheard of" for task_id in groups.keys() - set(tasks)]
    for task_id in tasks:
        _count_task(task_id, groups.get(task_id, []), plan, books)
        _count_keys(recordings.start_file(task_id), recordings.programs_of(task_id), books)
    found = measure_taught(logs, lines)
    books.taught, books.taught_tokens = found.rollouts, found.tokens
    books.complaints += found.complaints
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
    """Return why a rollout is not whole; a deadline may cut off only those that nobody comes back for."""
    if line.sample_status != "finished":
        wrong = {
            f"it is {line.sample_status}, though its command came back": line.task_id not in plan.left,
            f"it was lost, and has the score {line.score}": line.sample_status == "lost" and line.score is not None,
        }
        return [why for why, is_so in wrong.items() if is_so]
    usage, segments = line.usage, line.segments or ()
    if usage is None or len(segments) != 1:
        return [f"{len(segments)} segments where one program asked one thing after the other"]
    (segment,) = segments
    ends = {segment.completion_ids[stop - 1] for _, stop in segment.spans}
    said = "right" if (line.sample or 0) % 2 else "wrong"
    holds = {
        "calls": usage.calls == plan.turns == len(segment.spans),
        "answer": line.response == said and line.score == float(said == "right"),
        "ends of its turns": len(ends) == 1,
        "tokens": len(segment.logprobs) == usage.sampled_tokens == segment.sampled_tokens,
    }
    return [f"its {name} are not those of a whole run: {usage}" for name, right in holds.items() if not right]


def _count_keys(begun: Path, given: Collection[Given], books: Books) -> None:
    """Count the keys: each must be worth nothing by now, and its program gone."""
    books.keys += len(given)
    for one in given:
        if one.refuses_key() is False:
            books.complaints.append(f"the key {one.key[:12]}… outlived its rollout")
        if one.runs(begun):
            books.complaints.append(f"the program {one.pid} outlived its rollout")
