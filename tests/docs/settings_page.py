"""docs/settings.md, made from the settings of every service.

`python -m tests.docs.settings_page` brings it up to date; a test checks that it is.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.manager.settings import ManagerSettings
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
SECTIONS: tuple[tuple[str, type[FleetSettings]], ...] = (
    ("Every service", FleetSettings),
    ("Orchestrator", OrchestratorSettings),
    ("Agent", AgentSettings),
    ("Scorer", ScorerSettings),
    ("Runner", RunnerSettings),
    ("Manager", ManagerSettings),
    ("Trainer", TrainerSettings),
)
_SHARED = SECTIONS[0][0]
PREFACE = """\
# Settings

<!-- Written by `python -m tests.docs.settings_page` from the settings classes: change a description there. -->

Every service reads `RATCHET_…` from its environment, once, at its start. `ratchet up` sets what a fleet on one machine
needs (`ratchet up --help`); Docker Compose reads them from `.env`, whose template is `.env.example`
([docker.md](docker.md)); on Kubernetes they follow from the stack's configuration ([infra.md](infra.md)).
"""


def page() -> str:
    """Return Markdown: a table of variable, default and meaning for each section; a setting has one row."""
    listed: dict[str, str] = {}
    text = PREFACE
    for title, settings in SECTIONS:
        rows = {_row(name, field): name for name, field in settings.model_fields.items()}
        own = "".join(row for row in rows if row not in listed)
        again = [f"`RATCHET_{name.upper()}`" for row, name in rows.items() if listed.get(row) not in (None, _SHARED)]
        also = f"\nListed above, too: {', '.join(again)}.\n" if again else ""
        text += f"\n## {title}\n\n| variable | default | meaning |\n| --- | --- | --- |\n{own}{also}"
        listed |= dict.fromkeys((row for row in rows if row not in listed), title)
    return text


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`RATCHET_{name.upper()}`", _default(field), (field.description or "").replace("|", "\\|"))
    return f"| {' | '.join(cells)} |\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, dict):
        value = ",".join(f"{key}={' '.join(map(str, listed))}" for key, listed in value.items())
    if value is None or value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page())
