"""docs/settings.md says what the code does."""

from __future__ import annotations

from tests.docs.settings_page import PAGE, SECTIONS, page


def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text() == page(), "type `python -m tests.docs.settings_page`"


def test_every_setting_says_what_it_is() -> None:
    silent = [
        name for _, settings in SECTIONS for name, field in settings.model_fields.items() if not field.description
    ]

    assert silent == []
