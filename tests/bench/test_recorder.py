"""The benchmark of the recorder: what it measures is what was said, and its bars can be missed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bench.recorder.compare import Found, settings
from bench.recorder.contestants import BARE, LIGHTNING, RECORDER
from bench.recorder.conversations import Contestant, Measured, Route, Talk, measure, unknown
from bench.recorder.engine import Engine
from bench.recorder.recording import Recordings, summary
from bench.recorder.report import as_json, bars, table
from bench.recorder.script import CONTEXT, MODEL, answers
from ratchet.openai.client import http_client
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.vllm import VllmTokens
from schemas.messages.work import Sampling
from tests.ratchet.conversation.speakers import template

TOKENS = 8
AGENTS, TURNS = 3, 3


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_what_is_recorded_is_what_the_engine_sent_and_the_agents_were_told(tmp_path: Path, stream: bool) -> None:
    said = answers(TOKENS)
    engine, recorder, recorded = Engine(said), Recorder(), list[tuple[int, ...]]()
    server = await asyncio.get_running_loop().create_server(engine.connection, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, http_client(url, None, streams=True) as http, recorder.serving() as base_url:

        def make(number: int) -> RecordedRollout:
            tokens = VllmTokens(http, model=MODEL, context=CONTEXT, sampling=Sampling())
            return RecordedRollout(template("qwen2_5"), tokens, model=MODEL)

        recordings = Recordings(recorder, make, tmp_path)

        async def begin(agents: int) -> list[Route]:
            keys = [await recordings.begin() for _ in range(agents)]
            return [Route(base_url, {"Authorization": f"Bearer {key}"}, key) for key in keys]

        async def end(route: Route) -> None:
            record = summary(await recordings.end(route.key))
            assert (record["segments"], record["breaks"]) == (1, {})
            recorded.extend(record["calls"])

        async def bare(agents: int) -> list[Route]:
            return [Route(f"{url}/v1", {})] * agents

        for contestant in (Contestant(RECORDER, (), begin, end), Contestant(BARE, (), bare)):
            engine.sent.clear()
            measured = await measure(contestant, Talk(AGENTS, TURNS, stream))
            assert Counter(measured.texts) == {said[number].text: count for number, count in engine.sent.items()}
            assert not unknown(measured.texts, {answer.text for answer in said})
            assert [len(first) for first in measured.first_s] == [TURNS] * AGENTS
        assert len(recorded) == AGENTS * TURNS
        assert set(recorded) <= {answer.ids for answer in said}


def measured(seconds: float, first_s: float, turns: list[float] | None = None) -> Measured:
    return Measured(seconds, 0.1, ["a"] * 100, [[first_s] * 100], [turns or [first_s] * 100])


def test_a_bar_is_met_or_missed_by_what_was_measured() -> None:
    slower = [0.010 + 0.001 * turn for turn in range(50)]
    found = Found(
        {
            ("paced, streamed", BARE): [measured(1.0, 0.030), measured(1.0, 0.020)],
            ("paced, streamed", RECORDER): [measured(1.1, 0.034), measured(1.25, 0.024)],
            ("flat out, whole", BARE): [measured(1.0, 0.001)],
            ("flat out, whole", RECORDER): [measured(3.0, 0.003)],
            ("flat out, whole", LIGHTNING): [measured(2.0, 0.002)],
            ("one long, streamed", BARE): [measured(1.0, 0.001, [0.001] * 50)],
            ("one long, streamed", RECORDER): [measured(1.0, 0.001, slower)],
        },
        {RECORDER: "Ratchet's"},
        {"litellm": "no such package"},
        [],
        ["a machine, load 1.0", "a machine, load 2.0"],
    )
    of = settings(TOKENS, quick=False)
    told = {bar["what"]: (round(bar["value"], 2), bar["met"]) for bar in bars(found, of, TOKENS)}

    assert told == {
        "recorder: added to the first token, ms": (4.0, True),
        "recorder: tokens/s of the bare engine's": (0.85, False),
        "tokens/s over agent-lightning's, whole, flat out": (0.67, False),
        "recorder, streamed: turn 50 over turn 1": (5.7, False),
    }
    assert "litellm is not there: no such package" in table(found, of, TOKENS)
    assert as_json(found, of, TOKENS)["by_turn"]["one long, streamed"][RECORDER][10] == pytest.approx(18.0)
