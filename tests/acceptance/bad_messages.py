"""Bad messages, generated: for each queue of the fleet, bodies and properties that can't be what they should be.

Each has words of which the reason for its refusal must name one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

TYPES = {
    "tasks": "task.v1",
    "work.small": "work.v1",
    "work.small.high": "work.v1",
    "responses": "response.v1",
    "responses.draft": "response.v1",
    "rewards": "reward.v1",
    "feedback": "feedback.v1",
    "adapters": "adapter_trained.v1",
    "adapters.reports": "adapter_report.v1",
}
"""Every queue that the orchestrator, the agent and the scorer consume."""
MAX_MESSAGE_BYTES = 1_048_576


@dataclass(frozen=True)
class BadMessage:
    """`about`: the reason must have one of these. `type` is the AMQP property; None sends none."""

    queue: str
    body: bytes
    about: tuple[str, ...]
    type: str | None = None
    headers: dict[str, Any] | None = None


TASK: dict[str, Any] = {"task_id": "bad", "input": "say it", "metadata": {"source": "bad-input"}}
WORK = TASK | {
    "agent_id": "small",
    "deadline": "2100-01-01T00:00:00Z",
    "arm": {"sequence": 1},
    "sampling": {"n": 1},
    "admitted_at": "2026-01-01T00:00:00Z",
}
RESPONSE: dict[str, Any] = {
    "task_id": "bad", "response": "it", "agent_id": "small", "metadata": {}, "samples": [{"text": "it"}], "work": WORK
}  # fmt: skip
REWARD: dict[str, Any] = {
    "task_id": "bad", "score": 0.5, "scoring_agent_id": "judge", "metadata": {}, "scores": [{"score": 0.5}],
    "scored": RESPONSE,
}  # fmt: skip
FEEDBACK: dict[str, Any] = {"task_id": "bad", "score": 0.5, "metadata": {}}
TRAINED: dict[str, Any] = {"request_id": "bad", "agent_id": "small", "status": "failed", "reason": "it", "metadata": {}}
REPORT: dict[str, Any] = {"agent_id": "small", "replica": "bad", "revision": 0, "metadata": {}}
GOOD: dict[str, dict[str, Any]] = {
    "tasks": TASK,
    "work.small": WORK,
    "work.small.high": WORK,
    "responses": RESPONSE,
    "responses.draft": RESPONSE,
    "rewards": REWARD,
    "feedback": FEEDBACK,
    "adapters": TRAINED,
    "adapters.reports": REPORT,
}

not_text: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.integers(), max_size=3), st.just({}),
    st.just(10**400),
)  # fmt: skip
not_object: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=20), st.integers(), st.floats(allow_nan=False), st.booleans(), st.lists(st.none(), max_size=3)
)
bad_identifier: st.SearchStrategy[Any] = st.one_of(
    not_text, st.just(""), st.text("x", min_size=201, max_size=300), st.sampled_from(["a\nb", "\x00", "tab\t"])
)
bad_agent: st.SearchStrategy[Any] = st.one_of(
    st.just(""), st.integers(), st.text("x", min_size=64, max_size=90),
    st.sampled_from(["NO SUCH", "../../etc", "a/b", "-x", "Small", "agent;drop"]),
)  # fmt: skip
bad_score: st.SearchStrategy[Any] = st.one_of(
    st.floats(min_value=1.01), st.floats(max_value=-0.01), st.just(float("nan")), st.just("high"), st.just([])
)
bad_count: st.SearchStrategy[Any] = st.one_of(
    st.integers(max_value=0), st.integers(min_value=65), st.just(10**400), st.just(1.5), st.just("many"),
    st.just(float("inf")),
)  # fmt: skip
bad_version: st.SearchStrategy[Any] = st.sampled_from(["1.0.1", "v1", "latest", "../v1.0.1", "", 7])
bad_time: st.SearchStrategy[Any] = st.sampled_from(["yesterday", "2026-13-01T00:00:00Z", [], {}, "", 10**400])

REQUIRED = {
    "tasks": ("task_id", "input"),
    "work.small": ("task_id", "input", "agent_id", "deadline", "arm", "sampling", "admitted_at"),
    "responses": ("task_id", "response", "agent_id"),
    "rewards": ("task_id", "scoring_agent_id"),
    "feedback": ("task_id", "score"),
    "adapters": ("request_id", "agent_id", "status", "reason"),
    "adapters.reports": ("agent_id", "replica", "revision"),
}
WRONG: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "tasks": {
        "task_id": bad_identifier, "input": not_text, "metadata": not_object, "agent_id": bad_agent,
        "samples": bad_count, "deadline": bad_time, "session_id": st.just(""), "reference": st.just([1]),
        "priority": st.one_of(st.integers(min_value=10), st.integers(max_value=-1), st.just(float("nan"))),
    },
    "work.small": {
        "task_id": bad_identifier, "input": not_text, "agent_id": bad_agent, "deadline": bad_time, "arm": not_object,
        "sampling": not_object, "admitted_at": bad_time,
    },
    "responses": {
        "task_id": bad_identifier, "response": not_text, "agent_id": bad_identifier, "samples": st.just([{"text": 1}]),
        "work": st.one_of(st.integers(), st.just({}), st.just("x")),
    },
    "rewards": {
        "task_id": bad_identifier, "score": bad_score, "scoring_agent_id": bad_identifier, "scores": st.just([{}]),
        "scored": st.one_of(st.integers(), st.just({}), st.just("x")),
    },
    "feedback": {
        "task_id": bad_identifier, "score": bad_score, "metadata": not_object,
        "sample": st.sampled_from([-1, 64, "first"]), "reason": st.sampled_from([1, [], "x" * 2001]),
        "feedback_id": st.sampled_from(["", "a\nb", 7]),
    },
    "adapters": {
        "request_id": bad_identifier, "agent_id": bad_agent, "status": st.sampled_from(["done", "", 1, None]),
        "adapter_version": bad_version, "adapter_sha256": st.sampled_from(["", "sum", "0" * 63]), "counts": not_object,
        "metrics": not_object,
    },
    "adapters.reports": {
        "agent_id": bad_agent, "replica": bad_identifier, "revision": st.sampled_from([-1, 1.5, "first", None]),
        "loaded": st.one_of(bad_version, st.lists(bad_version, min_size=1, max_size=2)),
        "refused": st.one_of(not_object, st.just({"latest": "why"})),
    },
}  # fmt: skip

queues = st.sampled_from(sorted(TYPES))


def kind_of(queue: str) -> str:
    """Return the queue that stands for all queues of its message."""
    return {"work.small.high": "work.small", "responses.draft": "responses"}.get(queue, queue)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def not_json(draw: st.DrawFn) -> BadMessage:
    """Any bytes, cut-off JSON, invalid UTF-8, nothing at all, brackets without end."""
    queue = draw(queues)
    whole = encoded(GOOD[queue])
    body = draw(
        st.one_of(
            st.just(b""),
            st.binary(max_size=200).map(lambda raw: b"\xfe" + raw),
            st.integers(1, len(whole) - 1).map(lambda cut: whole[:cut]),
            st.binary(min_size=1, max_size=10).map(lambda raw: whole[:-2] + b"\xc3\x28" + raw + b'"}'),
            st.integers(1_000, 100_000).map(lambda depth: b"[" * depth),
            st.integers(1_000, 20_000).map(lambda depth: b'{"a":' * depth + b"1" + b"}" * depth),
            st.sampled_from([b"'single'", b"{task_id: 1}", b"<xml/>", b"\x00", b"\xef\xbb\xbf{}", whole + b"}"]),
        )
    )
    return BadMessage(queue, body, ("not JSON",))


@st.composite
def lone_surrogate(draw: st.DrawFn) -> BadMessage:
    """Escapes that are no character, in a key or a value."""
    queue = draw(queues)
    half = draw(st.sampled_from(["\\ud800", "\\udfff", "x\\ud83d"])).encode()
    field = draw(st.sampled_from([b'"task_id": "%s"', b'"input": "%s"', b'"%s": 1']))
    return BadMessage(queue, b"{" + field % half + b', "metadata": {}}', ("not JSON",))


@st.composite
def no_object(draw: st.DrawFn) -> BadMessage:
    """JSON, but no object."""
    queue = draw(queues)
    return BadMessage(queue, encoded(draw(not_object)), ("object", "valid dictionary", "not JSON"))


@st.composite
def missing_field(draw: st.DrawFn) -> BadMessage:
    queue = draw(queues)
    gone = draw(st.sampled_from(REQUIRED[kind_of(queue)]))
    fields = {name: value for name, value in GOOD[queue].items() if name != gone}
    return BadMessage(queue, encoded(fields), (gone,))


@st.composite
def wrong_type(draw: st.DrawFn) -> BadMessage:
    queue = draw(queues)
    name = draw(st.sampled_from(sorted(WRONG[kind_of(queue)])))
    fields = copy.copy(GOOD[queue]) | {name: draw(WRONG[kind_of(queue)][name])}
    return BadMessage(queue, encoded(fields), (name, "not JSON"))


@st.composite
def unknown_agent(draw: st.DrawFn) -> BadMessage:
    queue = draw(st.sampled_from(["tasks", "work.small", "work.small.high", "adapters", "adapters.reports"]))
    agent = draw(st.from_regex(r"[a-z][a-z0-9]{5,20}", fullmatch=True))
    return BadMessage(queue, encoded(GOOD[queue] | {"agent_id": agent}), (agent,))


@st.composite
def unknown_task(draw: st.DrawFn) -> BadMessage:
    """A Reward, a draft-shaped Response, or feedback, for a task that nobody asked."""
    task_id = "nobody-" + draw(st.from_regex(r"[a-z0-9]{12}", fullmatch=True))
    draft = {"task_id": task_id, "response": "it", "agent_id": "small", "metadata": {}}
    reward = {"task_id": task_id, "score": 0.5, "scoring_agent_id": "judge", "metadata": {}}
    feedback = FEEDBACK | {"task_id": task_id}
    about = [("responses", draft), ("responses.draft", draft), ("rewards", reward), ("feedback", feedback)]
    queue, fields = draw(st.sampled_from(about))
    return BadMessage(queue, encoded(fields), (task_id,))


@st.composite
def of_another_task(draw: st.DrawFn) -> BadMessage:
    """A message that contradicts itself: it carries the work, or the response, of another task."""
    queue = draw(st.sampled_from(["responses", "responses.draft", "rewards"]))
    task_id = "other-" + draw(st.from_regex(r"[a-z0-9]{12}", fullmatch=True))
    return BadMessage(queue, encoded(GOOD[queue] | {"task_id": task_id}), (task_id,))


@st.composite
def wrong_amqp_type(draw: st.DrawFn) -> BadMessage:
    """A good body under the name of another message, another version, or nonsense."""
    queue = draw(queues)
    others = [name for name in (*TYPES.values(), "result.v1", "task.v2", "Task", "x" * 255) if name != TYPES[queue]]
    type_ = draw(st.one_of(st.sampled_from(others), st.from_regex(r"[a-z]{1,30}\.v[2-9]", fullmatch=True)))
    return BadMessage(queue, encoded(GOOD[queue]), (type_,), type=type_)


@st.composite
def too_large(draw: st.DrawFn) -> BadMessage:
    size = draw(st.integers(MAX_MESSAGE_BYTES + 1, MAX_MESSAGE_BYTES + 50_000))
    fields = TASK | {"input": ""}
    return BadMessage("tasks", encoded(fields | {"input": "x" * (size - len(encoded(fields)))}), ("too large",))


header_values: st.SearchStrategy[Any] = st.one_of(
    st.text("abcäöü🙂", max_size=20), st.integers(-(2**31), 2**31), st.booleans(), st.none(), st.binary(max_size=20),
    st.lists(st.integers(0, 9), max_size=3), st.dictionaries(st.text("abc", min_size=1, max_size=5), st.integers(0, 9)),
)  # fmt: skip
header_names = st.sampled_from(
    ["traceparent", "x-ratchet-attempt", "x-ratchet-reason", "x-ratchet-queue", "x-ratchet-attempts",
     "x-delivery-count", "x-first-death-queue", "x-death", "content-type", "ä"]
)  # fmt: skip


@st.composite
def bad_headers(draw: st.DrawFn, message: st.SearchStrategy[BadMessage]) -> BadMessage:
    """One of the others, with headers that imitate ours or have any type."""
    bad = draw(message)
    headers = draw(st.dictionaries(header_names, header_values, min_size=1, max_size=4))
    return BadMessage(bad.queue, bad.body, bad.about, bad.type, headers)


kinds = st.one_of(
    not_json(), lone_surrogate(), no_object(), missing_field(), wrong_type(), unknown_agent(), unknown_task(),
    of_another_task(), wrong_amqp_type(),
)  # fmt: skip


def drawn(strategy: st.SearchStrategy[BadMessage], count: int) -> list[BadMessage]:
    """Return that many examples, the same in every run."""
    found: list[BadMessage] = []

    @settings(
        max_examples=count, database=None, derandomize=True, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(message: BadMessage) -> None:
        found.append(message)

    collector: Callable[[], None] = collect
    collector()
    return found
