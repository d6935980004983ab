"""OpenAI's own client drives a running fleet by changing its base URL; feedback goes in by every door, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from ratchet.http.access.roles import Role
from ratchet.logs.reader import read_json
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.acceptance.ratchet_command import Ratchet
from tests.ratchet.http.access.tokens_for_tests import Mint
from tests.waiting import until

pytestmark = pytest.mark.broker

ANSWER_S = 0.3


class Door:
    """The fleet's front with its keys: a client for whoever has a token."""

    def __init__(self, fleet: Fleet, mint: Mint) -> None:
        self.fleet = fleet
        self.url = f"http://127.0.0.1:{fleet[ORCHESTRATOR].port}"
        self._mint = mint

    def token(self, role: Role = Role.SUBMITTER, name: str = "app") -> str:
        return self._mint.good(role, name)

    def client(self, *, token: str | None = None, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=token or self.token(), **{"max_retries": 0, **options})

    def log(self, name: str) -> list[dict[str, Any]]:
        return [record.value for record in read_json(self.fleet.logs, name, dict)]


@pytest.fixture(scope="module")
def door(start_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Answers take a moment; ten requests a second of one caller, twenty in a burst."""
    mint = Mint(tmp_path_factory.mktemp("keys"))
    environment = {
        "RATCHET_API_PUBLIC_KEYS": str(mint.keys.jwks),
        "RATCHET_API_REQUESTS_PER_S": "10",
        "RATCHET_AGENT_ECHO_LATENCY_S": str(ANSWER_S),
        "RATCHET_SAMPLES": "4",
    }
    yield Door(start_fleet(environment=environment), mint)


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def test_a_question_is_answered_scored_logged_and_seen_like_any_task(door: Door) -> None:
    answer = door.client().chat.completions.create(
        model="small", messages=user("sort: dbca"), metadata={"reference": "sort: dbca"}, user="session-1"
    )

    extras = answer.model_extra["ratchet"] if answer.model_extra else {}
    assert (answer.choices[0].message.content, answer.model) == ("sort: dbca", "small@v1.0.0")
    assert (extras["score"], extras["group_size"]) == (1.0, 4)
    lines = [line for line in door.log("agent_interactions") if line["task_id"] == extras["task_id"]]
    assert [line["input"] for line in lines] == ["sort: dbca"] * 4
    assert {line["session_id"] for line in lines} == {"session-1"}


async def test_the_asynchronous_client_streams(door: Door) -> None:
    client = openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key=door.token(), max_retries=0)
    turns: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "be short"},
        *user("some words to stream"),
    ]
    async with client:
        stream = await client.chat.completions.create(
            model="small@v1.0.0", messages=turns, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]

    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == "some words to stream"
    assert len([piece for piece in pieces if piece]) == 4
    assert chunks[-1].usage is not None
    asked = [line["input"] for line in door.log("assignments")]
    assert [{"role": "system", "content": "be short"}, *user("some words to stream")] in asked


def test_every_error_is_the_clients_own_exception(door: Door) -> None:
    ask = door.client().chat.completions.create
    with pytest.raises(openai.AuthenticationError):
        door.client(token="nonsense").models.list()
    with pytest.raises(openai.PermissionDeniedError):
        door.client(token=door.token(Role.VIEWER)).chat.completions.create(model="small", messages=user("x"))
    with pytest.raises(openai.NotFoundError):
        ask(model="gpt-4o", messages=user("x"))
    with pytest.raises(openai.BadRequestError) as refused:
        ask(model="small", messages=user("x"), top_logprobs=7)
    assert refused.value.param == "top_logprobs"
    with pytest.raises(openai.APITimeoutError):
        ask(model="small", messages=user("x"), timeout=ANSWER_S / 3)
    with pytest.raises(openai.RateLimitError):
        flood = door.client(token=door.token(name="flood"))
        for _ in range(1000):
            flood.models.list()


async def test_feedback_comes_by_the_api_the_queue_and_the_command_line_and_outlives_a_kill(
    door: Door, tmp_path: Path
) -> None:
    # given an answered task
    answer = door.client().chat.completions.create(model="small", messages=user("x"))
    task_id = answer.id.removeprefix("chatcmpl-")
    fleet, orchestrator = door.fleet, door.fleet[ORCHESTRATOR]
    ratchet = Ratchet(tmp_path, {"RATCHET_AMQP_URL": fleet.amqp_url, "RATCHET_NAMESPACE": fleet.namespace})

    # when feedback comes by three doors, and the orchestrator is killed in between
    by_api = {"task_id": task_id, "thumbs": "down", "feedback_id": f"api-{task_id}"}
    door.client().post("/feedback", body=by_api, cast_to=object)
    ran = ratchet("feedback", task_id, "--score", "0.5", "--id", f"command-{task_id}")
    await publish(fleet, {"task_id": task_id, "score": 0.25, "feedback_id": f"queue-{task_id}"})
    await until(lambda: len(feedback_of(door, task_id)) == 3, "three are logged")
    orchestrator.kill()
    orchestrator.start()
    orchestrator.wait_until_ready()
    door.client().post("/feedback", body=by_api, cast_to=object)
    await publish(fleet, {"task_id": task_id, "score": 0.25, "feedback_id": f"queue-{task_id}"})
    await publish(fleet, {"task_id": task_id, "score": 1})
    await until(lambda: len(feedback_of(door, task_id)) == 4, "the new one is logged")

    # then each counted once, and the task tells of all
    assert ran.code == 0, ran.err
    assert sorted(line["score"] for line in feedback_of(door, task_id)) == [0.0, 0.25, 0.5, 1]
    seen: Any = door.client(token=door.token(Role.VIEWER)).get(f"/tasks/{task_id}", cast_to=object)
    assert len(seen["feedback"]) == 4


def feedback_of(door: Door, task_id: str) -> list[dict[str, Any]]:
    return [line for line in door.log("feedback") if line["task_id"] == task_id]


async def publish(fleet: Fleet, fields: dict[str, Any]) -> None:
    """As an application in any language would."""
    async with await aio_pika.connect(fleet.amqp_url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.get_exchange(f"{fleet.namespace}ratchet")
        await exchange.publish(aio_pika.Message(json.dumps(fields).encode()), f"{fleet.namespace}feedback")
