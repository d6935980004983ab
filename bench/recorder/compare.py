"""Rounds in which the contestants take turns at one engine, each setting after the other."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from bench.machine import machine
from bench.recorder.contestants import Stage, contestants, process, told
from bench.recorder.conversations import Contestant, Measured, Talk, measure, unknown
from bench.recorder.engine import Pace
from bench.recorder.script import Answer, answers, save_tokenizer

AT_ONCE, TURNS = 64, 8
LONG_TURNS = 50
FIRST_S, TOKEN_S = 0.03, 0.02
"""Of the paced engine: 64 answers at once at 20 ms a token are 3,200 tokens/s."""
WARM_UP = Talk(2, 2, stream=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """`whole`: answers that are not streamed, which is all that some contestants have."""

    name: str
    pace: Pace
    talk: Talk

    @property
    def whole(self) -> bool:
        return not self.talk.stream


def settings(tokens: int, quick: bool) -> list[Setting]:
    agents, turns, long_turns = (16, 2, 10) if quick else (AT_ONCE, TURNS, LONG_TURNS)
    paced, flat_out = Pace(FIRST_S, TOKEN_S), Pace()
    spread_s = FIRST_S + tokens * TOKEN_S
    return [
        Setting("paced, streamed", paced, Talk(agents, turns, True, spread_s)),
        Setting("paced, whole", paced, Talk(agents, turns, False, spread_s)),
        Setting("flat out, streamed", flat_out, Talk(agents, max(1, turns // 4), True)),
        Setting("flat out, whole", flat_out, Talk(agents, turns, False)),
        Setting("one long, streamed", flat_out, Talk(1, long_turns, True)),
        Setting("one long, whole", flat_out, Talk(1, long_turns, False)),
    ]


Rounds = dict[tuple[str, str], list[Measured]]
"""By setting and contestant, in order of the rounds."""


@dataclass
class Found:
    rounds: Rounds
    notes: dict[str, str]
    missing: dict[str, str]
    complaints: list[str]
    loads: list[str]


async def compare(given: argparse.Namespace) -> Found:
    """Raises NotThere where one of ours does not start, Failed where one does not answer."""
    said = answers(given.tokens)
    with tempfile.TemporaryDirectory(prefix="ratchet-recorder-") as name:
        folder = Path(name)
        save_tokenizer(folder / "tokenizer")
        async with engine(folder, said) as http:
            environments = given.environments.absolute()
            stage = Stage(str(http.base_url).rstrip("/"), folder / "tokenizer", folder, environments)
            found = Found({}, {}, {}, stage.complaints, [machine()])
            async with contestants(given.only, stage, found.missing) as there:
                found.notes = {one.name: one.note for one in there}
                for contestant in there:
                    await measure(contestant, WARM_UP)
                for number in range(given.rounds):
                    print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
                    for setting in given.settings:
                        for contestant in there:
                            if setting.whole or contestant.streams:
                                await turn(http, contestant, setting, said, stage, found)
                    found.loads.append(machine())
    return found


@asynccontextmanager
async def engine(folder: Path, said: Sequence[Answer]) -> AsyncIterator[httpx.AsyncClient]:
    """In a process of its own; what sets its pace and asks what it sent."""
    file, log = folder / "answers.json", folder / "engine.log"
    file.write_text(json.dumps([asdict(one) for one in said]))
    async with process((sys.executable, "-m", "bench.recorder.engine", str(file)), log) as started:
        url = f"http://127.0.0.1:{(await told(started, log))['port']}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
            yield http


async def turn(
    http: httpx.AsyncClient,
    contestant: Contestant,
    setting: Setting,
    said: Sequence[Answer],
    stage: Stage,
    found: Found,
) -> None:
    """Measured once; what was told and what was recorded is held against what the engine sent."""
    await http.post("/pace", json=asdict(setting.pace))
    await http.get("/sent")
    stage.calls.pop(contestant.name, None)
    measured = await measure(contestant, setting.talk)
    sent = {int(number): count for number, count in (await http.get("/sent")).json().items()}
    where = f"{contestant.name}, {setting.name}"
    if strange := unknown(measured.texts, {answer.text for answer in said}):
        found.complaints.append(f"{where}: {len(strange)} answers are not the engine's, such as {strange[0]!r}")
    if sum(sent.values()) != len(measured.texts):
        found.complaints.append(f"{where}: {len(measured.texts)} answers of {sum(sent.values())} that were given")
    if (calls := stage.calls.get(contestant.name)) is not None:
        wanted = Counter({said[number].ids: count for number, count in sent.items()})
        if Counter(calls) != wanted:
            found.complaints.append(f"{where}: the recorded ids are not those that were sampled")
    found.rounds.setdefault((setting.name, contestant.name), []).append(measured)
    tokens_per_s = len(measured.texts) * len(said[0].ids) / measured.seconds
    print(f"  {setting.name:20}{contestant.name:20}{tokens_per_s:8.0f} tokens/s", file=sys.stderr)
