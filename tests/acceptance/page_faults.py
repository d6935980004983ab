"""Faults a page may have for people who can't see it well or use no mouse, found by a script in the page itself.

Checked: the contrast of every text with what is behind it (WCAG 2.2, 1.4.3), a name for every control and picture,
one main heading, a title and a language, headers in every table, nothing wider than the window.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SCRIPT = Path(__file__).with_suffix(".js").read_text()


def faults(page: Page) -> list[str]:
    """Return a sentence for each fault."""
    found: list[str] = page.evaluate(SCRIPT)
    return found
