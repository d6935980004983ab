"""docs/tools.md says what the operations and the policy are."""

from __future__ import annotations

from tests.docs.tools_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()

    assert text.count("<!-- operations -->") == text.count("<!-- policy -->") == 1
    assert page(text) == text, "python -m tests.docs.tools_page"
