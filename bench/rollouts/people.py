"""Rollouts that ask a person three times each, while runner, orchestrator, broker and programs are killed: then the
books.

A person, played here, answers each question once and tries a second time. The program's tool draws a word that the
model then repeats: a call that was done twice would have two words, and the rollout would not go on. A program that is
killed has failed, and is scored as it stands: it may have asked less. The agent is not killed, and counts the tokens
that its engine sampled: as many as are logged, or some were sampled twice.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.long_run import EarlyEnd, Pace
from bench.rollouts import kills
from bench.rollouts.kills import BROKER, REST_S, Plan, Strike, settle, strike_until_over
from bench.rollouts.rig import LOOK_EVERY_S, Rig, rollouts
from ratchet.logs.names import APPROVALS, INTERACTIONS
from ratchet.logs.reader import read
from schemas.records.approval import LoggedApproval
from schemas.records.interaction import Interaction
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, RUNNER

QUESTIONS = 3
PROGRAM = """
import json, os, sys, urllib.request

def post(path, body):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/" + path
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

def tool(turn):
    known = post("tool_calls", {"name": "draw", "arguments": {"turn": turn}})
    if "answer" not in known:
        known = {"answer": {"word": os.urandom(6).hex()}, "changes": {}, "call": known["call"]}
        post("tool_calls/" + known["call"], {"answer": known["answer"], "changes": {}})
    return known["answer"]["word"]

task, sample = os.environ["RATCHET_TASK_ID"], os.environ["RATCHET_SAMPLE"]
messages = []
for turn in range(int(sys.argv[2])):
    messages.append({"role": "user", "content": f"{task} {sample} {tool(turn)} {turn}"})
    answer = post("chat/completions", {"model": "any", "messages": messages})["choices"][0]["message"]
    messages.append({"role": "assistant", "content": answer["content"]})
    open("did.txt", "a").write(f"{turn}\\n")
    decided = post("ask_person", {"question": f"{task} {sample} {turn}", "options": ["yes", "no"]})
    assert decided["decision"] == "approve", decided
print("right" if int(sample) % 2 else "wrong")
"""
STRIKES = (
    *(Strike(RUNNER, RUNNER, step) for step in ("received", "rollout-begun", "call-sampled", "rollout-waits")),
    *(Strike(RUNNER, RUNNER, step) for step in ("rollout-ended", "rollout-kept", "before-ack")),
    *(Strike(ORCHESTRATOR, ORCHESTRATOR, step) for step in ("admitted", "approval-logged", "settled")),
    *(Strike(BROKER, RUNNER, step) for step in ("call-sampled", "rollout-waits")),
    Strike(BROKER, ORCHESTRATOR, "approval-logged"),
    Strike(kills.PROGRAM, RUNNER, "call-sampled"),
    *(Strike(victim) for victim in (RUNNER, ORCHESTRATOR, BROKER)),
)


@dataclass
class PeoplesBooks:
    """`killed`: rollouts that failed since their program was killed. `asked` and `decided`: lines of the log of
    approvals; `accepted`: answers that the API took, `unheard` those whose reply a kill cut off; `refused`: second
    answers, by status. `calls` and `tokens`: of the model, as logged; `sampled_beyond`: tokens that the engine sampled
    beyond those: twice, or for a program that was killed; `given_again`: those that the agent gave again to a runner
    that had lost them. `most_held_while_waiting`: processes and places of the runner while all open rollouts waited."""

    rollouts: int = 0
    finished: int = 0
    killed: int = 0
    asked: int = 0
    decided: int = 0
    accepted: int = 0
    unheard: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    segments: int = 0
    calls: int = 0
    tokens: int = 0
    sampled_beyond: int = 0
    given_again: int = 0
    looks: int = 0
    most_held_while_waiting: int = 0
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)


async def measure(
    broker: MortalBroker, folder: Path, plan: Plan, end: EarlyEnd | None = None
) -> tuple[PeoplesBooks, Rig, Pace]:
    """Run the whole plan once. `folder` is one that every user may pass."""
    end, pace, began, books = end or EarlyEnd(), Pace(plan.tasks), time.monotonic(), PeoplesBooks()
    async with rollouts(broker, folder, plan.seed, samples=plan.samples, turns=QUESTIONS, program=PROGRAM) as rig:
        person = Person(rig, books, plan.samples)
        due = 0

        def raise_due(number: int) -> None:
            nonlocal due
            due = plan.tasks * (number + 1) // (len(plan.strikes) + 1)  # each strike finds new tasks

        publishing = asyncio.create_task(rig.publish(plan.tasks, end, lambda: due))
        answering = asyncio.create_task(person.answer_all())
        await strike_until_over(plan, rig, pace, end, raise_due)
        due = plan.tasks
        await publishing
        await rig.user.wait_for_answers(REST_S)
        answering.cancel()
        person.note()
        await settle(rig)
        tokens = await _tokens_of_calls(rig)
    _read(rig, plan, books)
    books.given_again = tokens["kept"]
    books.sampled_beyond = tokens["sampled"] - books.tokens
    books.seconds = round(time.monotonic() - began, 1)
    rig.complaints += books.complaints + rig.supervisor.complaints()
    if books.sampled_beyond and not rig.struck[kills.PROGRAM]:
        rig.complaints.append(f"{books.sampled_beyond} tokens were sampled twice")
    return books, rig, pace


class Person:
    """Answers each question once by its id, and tries each a second time."""

    def __init__(self, rig: Rig, books: PeoplesBooks, samples: int) -> None:
        self._rig = rig
        self._books = books
        self._samples = samples
        self._answered: set[str] = set()
        self._unheard: set[str] = set()

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._rig.fleet[name].port}"

    async def answer_all(self) -> None:
        async with httpx.AsyncClient(timeout=10.0, trust_env=False) as http:
            while True:
                with suppress(httpx.HTTPError, ValueError, KeyError):
                    found = (await http.get(f"{self._url(ORCHESTRATOR)}/v1/approvals")).json()["items"]
                    await self._look(http, len(found))
                    for one in found if self._books.looks else ():  # nobody is answered before all were seen to wait
                        await self._answer(http, one["approval_id"])
                await asyncio.sleep(LOOK_EVERY_S)

    async def _answer(self, http: httpx.AsyncClient, approval_id: str) -> None:
        url = f"{self._url(ORCHESTRATOR)}/v1/approvals/{approval_id}"
        try:
            first = await http.post(url, json={"decision": "approve", "text": "yes"})
        except httpx.HTTPError:
            self._unheard.add(approval_id)
            raise
        if not first.is_success:
            return
        self._answered.add(approval_id)
        second = await http.post(url, json={"decision": "reject", "text": "no"})
        self._books.refused[second.status_code] += 1

    def note(self) -> None:
        """Write the person's part of the books."""
        self._books.accepted = len(self._answered)
        self._books.unheard = len(self._unheard - self._answered)

    async def _look(self, http: httpx.AsyncClient, questions: int) -> None:
        """Count what the runner holds beyond the open rollouts that don't wait."""
        if questions == 0 or self._rig.user.open * self._samples > questions:
            return
        now: dict[str, Any] = (await http.get(f"{self._url(RUNNER)}/v1/rollouts")).json()
        held = len(now["items"]) + now["waiting"]
        self._books.looks += 1
        self._books.most_held_while_waiting = max(held, self._books.most_held_while_waiting)


async def _tokens_of_calls(rig: Rig) -> dict[str, int]:
    """Return the agent's counts, by source."""
    async with httpx.AsyncClient(timeout=10.0, trust_env=False) as http:
        told = (await http.get(f"http://127.0.0.1:{rig.fleet[AGENT].port}/metrics")).text
    found = (
        re.search(rf'ratchet_agent_call_tokens_total{{source="{one}"}} (\S+)', told) for one in ("sampled", "kept")
    )
    sampled, kept = (int(float(one[1])) if one else 0 for one in found)
    return {"sampled": sampled, "kept": kept}


def _read(rig: Rig, plan: Plan, books: PeoplesBooks) -> None:
    """Read the logs: each rollout once, in one segment, with three questions asked once and answered once.

    A rollout whose program was killed may have fewer questions, and none of its tokens.
    """
    lines = [Interaction.decode(line.data) for line in read(rig.fleet.logs, INTERACTIONS)]
    approvals = [LoggedApproval.decode(line.data) for line in read(rig.fleet.logs, APPROVALS)]
    books.rollouts = len({(line.task_id, line.sample) for line in lines})
    books.finished = sum(line.sample_status == "finished" for line in lines)
    killed = {(line.task_id, line.sample) for line in lines if line.sample_status == "failed"}
    books.killed = len(killed)
    if books.killed > rig.struck[kills.PROGRAM]:
        books.complaints.append(
            f"{books.killed} rollouts failed, of {rig.struck[kills.PROGRAM]} programs that were killed"
        )
    books.segments = sum(len(line.segments or ()) for line in lines)
    books.calls = sum(line.usage.calls for line in lines if line.usage)
    books.tokens = sum(line.usage.sampled_tokens for line in lines if line.usage)
    for state in ("asked", "decided"):
        of_state = [line for line in approvals if line.state == state]
        counts = Counter((line.task_id, line.sample) for line in of_state)
        setattr(books, state, len(of_state))
        books.complaints += [
            f"{whose}: {state} {n} times"
            for whose, n in counts.items()
            if n > QUESTIONS or (n < QUESTIONS and whose not in killed)
        ]
        if len({line.approval_id for line in of_state}) != len(of_state):
            books.complaints.append(f"a question was {state} twice")
    expected = plan.tasks * plan.samples
    if (len(lines), books.rollouts, books.finished + books.killed) != (expected, expected, expected):
        books.complaints.append(f"{len(lines)} lines, {books.rollouts} rollouts, {books.finished} finished")
    many = sum(len(line.segments or ()) != 1 for line in lines if (line.task_id, line.sample) not in killed)
    if many or any(len(line.segments or ()) > 1 for line in lines):
        books.complaints.append(f"{books.segments} segments of {books.rollouts} linear rollouts")
