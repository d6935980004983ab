"""`ratchet label`: what a person types becomes labels; what they are shown is blind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from services.cli.label import ask_for_labels
from services.cli.terminal import CommandError


class Fleet:
    """An orchestrator with three tasks to label."""

    def __init__(self) -> None:
        self.labels: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.labels.append(json.loads(request.content))
            return httpx.Response(200, json={"label_id": self.labels[-1]["label_id"]})
        query = dict(request.url.params)
        self.asked.append(query)
        at = len(self.labels) + int(query["skip"])
        answers = [{"sample": 1, "text": "late"}, {"sample": 0, "text": "early"}][
            : 2 if query["pairs"] == "true" else 1
        ]
        found = {"task_id": f"t-{at}", "input": "x", "reference": None, "criteria": None, "answers": answers}
        return httpx.Response(200, json={"found": found if at < 3 else None})


def labelled(fleet: Fleet, *typed: str, pairs: bool = False) -> int:
    words: Iterator[str] = iter(typed)
    client = httpx.Client(base_url="http://fleet", transport=httpx.MockTransport(fleet))
    return ask_for_labels(client, lambda question: next(words), pairs=pairs, agent=None)


def test_each_answer_gets_what_was_typed_until_none_is_left() -> None:
    fleet = Fleet()

    assert labelled(fleet, "10", "7", "0") == 3
    assert [(one["task_id"], one["sample"], one["score"]) for one in fleet.labels] == [
        ("t-0", 1, 1.0),
        ("t-1", 1, 0.7),
        ("t-2", 1, 0.0),
    ]


def test_what_is_no_score_is_asked_again_and_what_is_skipped_gets_none() -> None:
    fleet = Fleet()

    assert labelled(fleet, "11", "good", "s", "5", "q") == 1
    assert [(one["task_id"], one["score"]) for one in fleet.labels] == [("t-1", 0.5)]


def test_of_a_pair_the_first_shown_is_named_beside_the_other() -> None:
    fleet = Fleet()

    assert labelled(fleet, "1", "2", "=", pairs=True) == 3
    assert [(one["sample"], one["other"], one["score"]) for one in fleet.labels] == [
        (1, 0, 1.0),
        (1, 0, 0.0),
        (1, 0, 0.5),
    ]


def test_a_refusal_is_a_sentence() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(403, json={"title": "Not allowed", "detail": "ask for an operator's token"})

    client = httpx.Client(base_url="http://fleet", transport=httpx.MockTransport(refuse))
    with pytest.raises(CommandError, match="ask for an operator's token"):
        ask_for_labels(client, lambda question: "q", pairs=False, agent=None)
