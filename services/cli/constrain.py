"""The option `--constrain`: what each rollout of a task may take at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from schemas.messages.base import explain
from schemas.messages.task import Constraints
from services.cli.terminal import UsageError

Constrain = Annotated[
    list[str] | None,
    typer.Option(
        help="Lower a limit of the program: calls=N, tokens=N, seconds=N, tools=NAME,NAME. May be given several times."
    ),
]


def constraints_of(given: Sequence[str] | None) -> Constraints | None:
    """Return the constraints that are typed as NAME=VALUE. Raises UsageError."""
    if not given:
        return None
    fields: dict[str, Any] = {}
    for one in given:
        name, is_one, value = one.partition("=")
        if not is_one or name in fields:
            raise UsageError(f"--constrain {one}: write each limit once, as calls=8")
        fields[name] = tuple(filter(None, value.split(","))) if name == "tools" else value
    try:
        return Constraints.model_validate(fields)
    except ValidationError as error:
        raise UsageError(explain("--constrain", error)) from None
