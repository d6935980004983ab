"""The README's blocks that follow from the code: the table of settings, and the tree with a line for every file.

`python -m tests.readme_blocks` brings the README up to date; a test checks that it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.orchestrator.settings import OrchestratorSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SECTIONS: tuple[tuple[str, type[FleetSettings]], ...] = (
    ("Every service", FleetSettings),
    ("Orchestrator", OrchestratorSettings),
    ("Agent", AgentSettings),
    ("Scorer", ScorerSettings),
    ("Trainer", TrainerSettings),
)
LISTED = ("schemas", "services")
LONGEST_LINE = 150
NAMES = 34
"""Characters that the names of the tree's files take."""


def settings_table() -> str:
    """Markdown: a section of rows for each service, variable, default and meaning."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    shared = FleetSettings.model_fields
    for title, settings in SECTIONS:
        lines.append(f"| **{title}** | | |")
        fields = settings.model_fields
        own = {name: field for name, field in fields.items() if settings is FleetSettings or name not in shared}
        lines += [_row(name, field) for name, field in own.items()]
    return "\n".join(lines) + "\n"


def tree() -> str:
    """Every folder and Python file of the contract and the services, with the first sentence of its docstring."""
    return "```\n" + "\n".join(line for top in LISTED for line in _folder(ROOT / top, 0)) + "\n```\n"


def _folder(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", _sentence(folder / "__init__.py"), depth)
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir() and (path / "__init__.py").exists():
            yield from _folder(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            yield _line(path.name, _sentence(path), depth + 1)


def _line(name: str, sentence: str, depth: int) -> str:
    return (f"{'  ' * depth}{name}".ljust(NAMES) + sentence).rstrip()


def _sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line; of a long one what stands before its colon."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = re.split(r"(?<=[.?])\s", " ".join(docstring.split("\n\n")[0].split()), maxsplit=1)[0].rstrip(".")
    room = LONGEST_LINE - NAMES
    return first if len(first) <= room else shorten(first.split(": ")[0], room, placeholder=" …")


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`RATCHET_{name.upper()}`", _default(field), (field.description or "").replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value == "":
        return ""
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def current(text: str) -> str:
    """The README with its blocks as they should be."""
    for name, block in (("settings", settings_table()), ("tree", tree())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, block=block: match[1] + block + match[2], text)
    return text


if __name__ == "__main__":
    README.write_text(current(README.read_text()))
