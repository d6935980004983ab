"""The README's table of settings, made from the settings themselves.

`python -m tests.settings_table` brings the README up to date; a test checks that it is.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from services.agent.settings import AgentSettings
from services.orchestrator.settings import OrchestratorSettings
from services.scorer.settings import ScorerSettings
from services.settings import FleetSettings

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- settings -->\n).*?(<!-- /settings -->)", re.DOTALL)
SECTIONS: tuple[tuple[str, type[FleetSettings]], ...] = (
    ("Every service", FleetSettings),
    ("Orchestrator", OrchestratorSettings),
    ("Agent", AgentSettings),
    ("Scorer", ScorerSettings),
)


def table() -> str:
    """Markdown: a section of rows for each service, variable, default and meaning."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    shared = FleetSettings.model_fields
    for title, settings in SECTIONS:
        lines.append(f"| **{title}** | | |")
        fields = settings.model_fields
        own = {name: field for name, field in fields.items() if settings is FleetSettings or name not in shared}
        lines += [_row(name, field) for name, field in own.items()]
    return "\n".join(lines) + "\n"


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


def readme_with_current_table(text: str) -> str:
    return BLOCK.sub(lambda block: block[1] + table() + block[2], text)


if __name__ == "__main__":
    README.write_text(readme_with_current_table(README.read_text()))
