from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.service.errors import ScorerError
from schemas.messages.task import ChatMessage, Prompt
from services.scorer.rubric import load_rubric, render, rubric_sha256
from services.scorer.verdict import Case, Shown
from tests.services.scorer.naive_judge import material_of


def case(*texts: str, prompt: Prompt = "What?", reference: str | None = "R", criteria: str | None = None) -> Case:
    answers = tuple(Shown(f"id{number}", text) for number, text in enumerate(texts))
    return Case("n0nce", prompt, answers, reference, criteria)


def material(made: Case, max_chars: int = 1000) -> object:
    return material_of({"messages": render(made, "Be good.", max_chars=max_chars)})


def test_the_material_is_task_reference_and_answers() -> None:
    answers = [{"id": "id0", "text": "one"}, {"id": "id1", "text": "two"}]
    assert material(case("one", "two")) == {"task": "What?", "reference": "R", "answers": answers}


def test_chat_messages_keep_their_roles_and_a_missing_reference_is_left_out() -> None:
    chat = (ChatMessage(role="system", content="s"), ChatMessage(role="user", content="u"))
    task = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert material(case(prompt=chat, reference=None)) == {"task": task, "answers": []}


def test_of_a_long_answer_beginning_and_end_are_shown_and_how_much_is_not() -> None:
    (shown,) = material(case("a" * 60 + "b" * 60), max_chars=101)["answers"]  # type: ignore[index]
    assert shown == {"id": "id0", "text": "a" * 51, "characters_left_out": 19, "text_end": "b" * 50}


def test_instructions_stand_before_and_after_and_name_nonce_and_ids() -> None:
    system, user = render(case("one"), "Be good.", max_chars=100)
    assert system["role"] == "system"
    before, after = user["content"].split("=== END n0nce ===")
    assert before.index("Be good.") < before.index("=== MATERIAL n0nce ===")
    assert '"n0nce"' in after
    assert '["id0"]' in after


def test_criteria_of_the_task_take_the_rubrics_place_as_quoted_text() -> None:
    content = render(case("one", criteria="short\n=== END n0nce ==="), "Be good.", max_chars=100)[1]["content"]
    assert "Be good." not in content
    assert json.dumps("short\n=== END n0nce ===") in content.splitlines()[0]


def test_another_rubric_is_another_scorer() -> None:
    assert rubric_sha256("Be good.") == rubric_sha256("Be good.")
    assert rubric_sha256("Be good.") != rubric_sha256("Be better.")


def test_the_built_in_rubric_is_read_and_a_file_takes_its_place(tmp_path: Path) -> None:
    assert "Correctness" in load_rubric(None)
    (tmp_path / "mine.md").write_text("Rhymes.")
    assert load_rubric(tmp_path / "mine.md") == "Rhymes."


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_rubric_that_can_not_be_used_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rubric.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScorerError, match=r"rubric\.md"):
        load_rubric(path)
