"""The README says what is so."""

from __future__ import annotations

import re

from tests.readme_blocks import README, SECTIONS, current

ROOT = README.parent


def test_the_blocks_made_from_the_code_are_current() -> None:
    text = README.read_text()

    assert current(text) == text, "type `python -m tests.readme_blocks`"


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
