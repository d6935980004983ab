"""OpenAI's and Anthropic's own clients, in Python and in Node, whole and streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agents.conftest import Note
from tests.agents.driving import PROGRAMS, Driven, LosingRecorder, Turn, call, drive
from tests.agents.environments import NODE, PYTHON

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

CLIENTS = {
    "openai.py": f"`{PYTHON['openai'][0]}`",
    "openai.mjs": f"npm `{NODE[0]}`",
    "anthropic.py": f"`{PYTHON['anthropic'][0]}`",
    "anthropic.mjs": f"npm `{NODE[1]}`",
}
OPENAI = [client for client in CLIENTS if client.startswith("openai")]
Client = Callable[..., Any]


@pytest.fixture(params=["whole", "stream"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(request: pytest.FixtureRequest, way: str, folder: Path, note: Note) -> Client:
    """Drives one through a scenario; what is recorded is exact, whichever it is."""
    name = request.node.callspec.params["named"]
    stem, _, suffix = name.partition(".")
    file = PROGRAMS / f"{stem}_client.{suffix}"

    async def driven(scenario: str, turns: Sequence[Turn], **given: Any) -> Driven:
        if suffix == "py":
            interpreter, environment = request.getfixturevalue("python")(stem), {}
        else:
            interpreter, modules = request.getfixturevalue("node")
            environment = {"NODE_PATH": str(modules)}
        found = await drive((interpreter, file, scenario, way), turns, folder, environment=environment, **given)
        note(CLIENTS[name], found)
        return found

    return driven


every_client = pytest.mark.parametrize("named", CLIENTS)
LOOK = Turn("What is in the red box?", f"I look.\n{call('look', box='red')}")
COIN = Turn("a coin in the red box", "There is a coin in it.")


@every_client
async def test_a_tool_call_and_its_result_are_one_segment(named: str, client: Client) -> None:
    driven = await client("tools", [LOOK, COIN])

    finish = "tool_use" if named.startswith("anthropic") else "tool_calls"
    assert driven.printed_json == {"tool": "look", "finish": finish, "answer": COIN.says}
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


@pytest.mark.parametrize("named", [client for client in CLIENTS if client.startswith("anthropic")])
async def test_a_tool_runner_is_told_that_no_thread_is_kept_and_sends_the_whole_history(
    named: str, client: Client
) -> None:
    driven = await client("runner", [LOOK, COIN])

    assert driven.printed_json == {"answer": COIN.says}
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_vercels_sdk_takes_two_steps_with_its_default_models(
    provider: str, way: str, folder: Path, note: Note, node: tuple[Path, Path]
) -> None:
    interpreter, modules = node

    driven = await drive(
        (interpreter, PROGRAMS / "vercel_client.mjs", provider, way),
        [LOOK, COIN],
        folder,
        environment={"NODE_PATH": str(modules)},
    )

    note(f"npm `{NODE[2]}`, {provider}", driven)
    assert driven.printed_json == {"answer": COIN.says, "steps": 2}
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


@pytest.mark.parametrize("named", OPENAI)
async def test_so_they_are_by_the_responses_api(named: str, client: Client) -> None:
    driven = await client("respond", [LOOK, COIN])

    assert driven.printed_json == {"tool": "look", "answer": COIN.says}
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


@every_client
async def test_a_stop_string_ends_the_answer_before_it(named: str, client: Client) -> None:
    driven = await client("stop", [Turn("Count.", "One, two, three, four, five, six.")])

    said = driven.printed_json
    assert said.pop("sampled") == len(driven.engine.sampled[0]) < len("One, two, three, four, five, six.")
    if named.startswith("anthropic"):
        assert said == {"answer": "One, two, three,", "finish": "stop_sequence", "found": " four"}
    else:
        assert said == {"answer": "One, two, three,", "finish": "stop"}
    driven.assert_exact()


@every_client
async def test_a_context_that_is_too_long_is_an_error_the_client_knows(named: str, client: Client) -> None:
    driven = await client("long", [], context=4096)

    code = "invalid_request_error" if named.startswith("anthropic") else "context_length_exceeded"
    assert (driven.printed_json["error"], driven.printed_json["code"]) == ("BadRequestError", code)
    said = "prompt is too long: " if named.startswith("anthropic") else "maximum context length is 4096 tokens"
    assert said in driven.printed_json["message"]
    assert (driven.engine.seen, driven.sample.segments) == ([], None)


@every_client
async def test_a_client_that_goes_away_ends_the_generation_and_may_ask_again(
    named: str, client: Client, way: str
) -> None:
    counted = "One, two, three."
    driven = await client("abort", [Turn("Count.", counted), Turn("Count.", counted)], held=True)

    said = driven.printed_json
    assert said["answer"] == counted
    assert counted.startswith(said["heard"]) if way == "stream" else "Timeout" in said["heard"]
    assert (driven.breaks, driven.segments) == ({"aborted": 1}, 2)
    driven.assert_exact()


@every_client
async def test_a_request_that_is_sent_again_gets_the_stored_answer(named: str, client: Client) -> None:
    turns = [Turn("What is in it?", "A coin."), Turn("Sure?", "Quite sure.")]
    driven = await client("retry", turns, recorder=LosingRecorder())

    assert driven.printed_json == {"answer": "A coin.", "again": "Quite sure."}
    driven.assert_exact()
    assert driven.sample.usage is not None
    assert (driven.segments, driven.breaks, driven.sample.usage.replayed) == (1, {}, 1)
