"""The hidden verifier: only the whole and exact answer is right."""

from __future__ import annotations

import pytest

from demos.real.exact import is_exact

REFERENCE = '{"name": "Anna Bell", "quantity": 3, "price": 12.50}'


@pytest.mark.parametrize(
    "answer",
    [
        REFERENCE,
        ' {"price": 12.5, "quantity": 3, "name": "Anna Bell"}\n',
        '{"name":"Anna Bell","quantity":3,"price":12.500}',
    ],
)
def test_the_same_names_and_values_are_right(answer: str) -> None:
    assert is_exact(answer, REFERENCE)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Anna Bell",
        f"```json\n{REFERENCE}\n```",
        f"{REFERENCE} Thank you!",
        f"[{REFERENCE}]",
        REFERENCE[:-1],
        '{"name": "anna bell", "quantity": 3, "price": 12.50}',
        '{"name": "Anna Bell ", "quantity": 3, "price": 12.50}',
        '{"name": "Anna Bell", "quantity": "3", "price": 12.50}',
        '{"name": "Anna Bell", "quantity": true, "price": 12.50}',
        '{"name": "Anna Bell", "quantity": 3, "price": NaN}',
        '{"name": "Anna Bell", "quantity": 3}',
        '{"name": "Anna Bell", "quantity": 3, "price": 12.50, "note": ""}',
        '{"name": "Tom", "name": "Anna Bell", "quantity": 3, "price": 12.50}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_wrong(answer: str) -> None:
    assert not is_exact(answer, REFERENCE)


def test_one_is_not_true() -> None:
    assert not is_exact('{"quantity": true}', '{"quantity": 1}')
