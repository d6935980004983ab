"""What the contract promises beyond the examples."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import MESSAGES, DecodeError, Task, Work
from schemas.messages.base import Message
from schemas.messages.response import Response, Usage
from schemas.messages.work import Arm, Sampling

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda model: model.TYPE)
@given(body=st.binary(max_size=200) | ANY_JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_a_message_or_a_decode_error_that_carries_it(message: type[Message], body: bytes) -> None:
    try:
        message.decode(body)
    except DecodeError as error:
        assert error.body == body
        assert message.TYPE in error.reason


def test_a_work_can_be_read_as_the_task_it_is() -> None:
    work = Work(
        task_id="t1",
        input="hello",
        agent_id="small",
        deadline="2030-01-01T00:00:00Z",
        arm=Arm(sequence=3),
        sampling=Sampling(),
        admitted_at="2029-12-31T00:00:00Z",
    )

    task = Task.decode(work.encode())

    assert (task.task_id, task.input) == ("t1", "hello")
    assert list(json.loads(work.encode()))[:3] == ["task_id", "input", "metadata"]


def test_what_a_publisher_adds_to_metadata_travels_along() -> None:
    task = Task.decode(b'{"task_id": "1", "input": "x", "metadata": {"source": "web", "tenant": {"id": 7}}}')

    assert json.loads(task.encode())["metadata"] == {"source": "web", "tenant": {"id": 7}}


def test_a_time_without_a_zone_is_utc() -> None:
    task = Task.decode(b'{"task_id": "1", "input": "x", "metadata": {"timestamp": "2026-01-01T00:00:00"}}')

    assert task.metadata.timestamp is not None
    assert task.metadata.timestamp.isoformat() == "2026-01-01T00:00:00+00:00"


def test_a_numeric_reference_is_text() -> None:
    assert Task.decode(b'{"task_id": "1", "input": "x", "reference": 42}').reference == "42"


def test_a_record_put_together_from_valid_values_is_the_one_that_was_checked() -> None:
    checked = Task(task_id="1", input="x", samples=3, metadata={"source": "web"})

    put_together = Task.from_valid({"metadata": checked.metadata, "samples": 3, "input": "x", "task_id": "1"})

    assert put_together == checked
    assert put_together.encode() == checked.encode()
    assert put_together.model_copy(update={"samples": 4}) == checked.model_copy(update={"samples": 4})
    assert put_together.model_fields_set == checked.model_fields_set


def test_a_message_can_not_be_changed() -> None:
    task = Task(task_id="1", input="x")

    with pytest.raises(ValueError, match="frozen"):
        task.task_id = "2"  # type: ignore[misc]


@pytest.mark.parametrize("field", ["calls", "sampled_tokens", "seconds"])
def test_a_response_whose_rollout_took_more_than_there_is_is_refused_and_a_line_that_has_it_is_read(field: str) -> None:
    many = b"1e300" if field == "seconds" else b"9" * 400
    usage = b'{"%b": %b}' % (field.encode(), many)
    body = b'{"task_id": "t", "response": "a", "agent_id": "x", "samples": [{"text": "a", "usage": %b}]}'

    with pytest.raises(DecodeError, match="usage of sample 0"):
        Response.decode(body % usage)
    assert Response.decode(body % b'{"calls": 9007199254740991}').samples[0].usage is not None
    assert getattr(Usage.model_validate_json(usage), field) > 2**53
