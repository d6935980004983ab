"""The README says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from tests.settings_table import README, SECTIONS, readme_with_current_table

ROOT = README.parent


def test_the_table_of_settings_is_current() -> None:
    text = README.read_text()

    assert readme_with_current_table(text) == text, "type `python -m tests.settings_table`"


def test_every_setting_says_what_it_is() -> None:
    silent = [
        name for _, settings in SECTIONS for name, field in settings.model_fields.items() if not field.description
    ]

    assert silent == []


def test_every_file_the_readme_points_to_is_there() -> None:
    pointed = re.findall(r"\]\(((?!https?:)[^)#]+)", README.read_text())

    missing = [path for path in pointed if not (ROOT / path).exists()]

    assert pointed
    assert missing == []


def test_the_tree_in_the_readme_names_every_folder_of_services() -> None:
    tree = README.read_text()
    folders = [path.parent.name for path in Path(ROOT / "services").glob("*/__init__.py")]

    assert [folder for folder in folders if f"{folder}/" not in tree] == []
