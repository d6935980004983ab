"""The tables of docs/tools.md, made from the operations and from the policy.

`python -m tests.docs.tools_page` brings them up to date; a test checks that they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from workbench.tools.operation import Decision
from workbench.tools.policy import Policy
from workbench.tools.toolbox import OPERATIONS, SUBJECTS

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
BEGINS, ENDS = "<!-- {} -->\n", "<!-- /{} -->"


def page(text: str) -> str:
    """The page with its two tables anew."""
    for name, made in (("operations", _operations()), ("policy", _policy())):
        begins, ends = BEGINS.format(name), ENDS.format(name)
        before, _, rest = text.partition(begins)
        text = f"{before}{begins}{made}{ends}{rest.partition(ends)[2]}"
    return text


def _operations() -> str:
    lines = [f"| | {' | '.join(one.value for one in Decision)} |", "| --- |" + " --- |" * len(Decision)]
    for subject in SUBJECTS:
        cells = (", ".join(f"`{one.name}`" for one in subject if one.effect.decision is found) for found in Decision)
        lines.append(f"| **{subject.name}** | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _policy() -> str:
    lines = ["| table | entry | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in Policy.model_fields.items():
        part = field.default
        if isinstance(part, BaseModel):
            lines += [_row(f"`[{name}]`", entry, one) for entry, one in type(part).model_fields.items()]
        else:
            lines.append(_row("`[operations]`" if name == "operations" else "", name, field))
    return "\n".join(lines) + "\n"


def _row(table: str, name: str, field: FieldInfo) -> str:
    entry = "an operation" if name == "operations" else f"`{name}`"
    default = "as above" if name == "operations" else f"`{_toml(field.default)}`"
    return f"| {table} | {entry} | {default} | {_cell(field.description or '')} |"


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, int | float):
        return f"{value:_}" if isinstance(value, int) else f"{value:g}"
    return "{}" if value == {} else f'"{value}"'


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    assert len(OPERATIONS) == 55
