"""A folder of logs with its index, as after very many answered tasks, written in seconds."""

from __future__ import annotations

import json
from pathlib import Path

from ratchet.logs.best_answer import result_of
from ratchet.logs.names import TASK_INDEX
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.catch_up import ASSIGNMENTS, INTERACTIONS
from services.orchestrator.ledger.index import TaskIndex

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples" / "good"
ID, SEQUENCE = "task-in-its-place", 987_654_321


def write_tasks(logs: Path, count: int) -> None:
    """Write `task-0000000` and so on, all answered, each like the examples of the contract."""
    logs.mkdir(parents=True, exist_ok=True)
    work = _lined(_at_its_place("work.v1.json", Work))
    line = _lined(_at_its_place("interaction.v1.json", Interaction))
    result = result_of([Interaction.decode(line)]).encode()
    index = TaskIndex(logs / TASK_INDEX)
    ends = [0, 0]
    with (logs / f"{ASSIGNMENTS}.jsonl").open("wb") as asked, (logs / f"{INTERACTIONS}.jsonl").open("wb") as answered:
        for number in range(count):
            task_id = f"task-{number:07d}"
            places = (ID.encode(), task_id.encode()), (str(SEQUENCE).encode(), str(number).encode())
            own_work, own_line, own_result = work, line, result
            for mark, value in places:
                own_work, own_line, own_result = (one.replace(mark, value) for one in (own_work, own_line, own_result))
            index.admit(number, task_id, 2e9, b"", ends[0])
            index.settle(task_id, logged=1, result=own_result, lines=ends[1])
            ends = [ends[0] + asked.write(own_work), ends[1] + answered.write(own_line)]
    index.commit({ASSIGNMENTS: ends[0], INTERACTIONS: ends[1]})
    index.close()


def _at_its_place(example: str, kind: type[Work] | type[Interaction]) -> bytes:
    fields = json.loads((EXAMPLES / example).read_text())
    fields |= {"task_id": ID, "arm": fields["arm"] | {"sequence": SEQUENCE}}
    if kind is Interaction:
        fields |= {"sample": 0, "group_size": 1}
    return kind.decode(json.dumps(fields).encode()).encode()


def _lined(encoded: bytes) -> bytes:
    return encoded + b"\n"
