"""Numbers as JSON has them: pydantic would also take true for 1 and "5" for 5, which no schema says."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator


def number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("a number is needed")
    return value


JSON_NUMBER = BeforeValidator(number)
"""Goes last in an Annotated, after the bounds: before them it hides them from the schema."""
