"""A headless Chromium that notes what goes wrong in it: words on the console, errors, requests that leave the origin.

It uses the system's Chromium, or the one that `playwright install chromium` brought where there is none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)
CABLE_PULLED = "ERR_NETWORK_CHANGED"
"""The error of loads that Chromium aborts when the machine gets or loses a network interface; pages go on."""
WIDE, NARROW = (1280, 860), (390, 844)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium. Raises playwright's Error, which says what to type, where there is none."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """One person's look at the page of one fleet: a context of its own, with nothing stored."""

    page: Page
    origin: str
    console: list[str] = field(default_factory=list)
    left_the_origin: list[str] = field(default_factory=list)
    loads: int = 0

    def go(self, view: str = "overview") -> None:
        """Go to a view of the page, and wait until its data are shown."""
        self.page.goto(f"{self.origin}/#/{view}")
        self.page.wait_for_selector("main h1")
        expect(self.page.locator("main .waiting")).to_have_count(0)

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def wait_for(self, words: str, selector: str = "main", timeout_ms: float = WAIT_MS) -> None:
        """Wait until these words are shown there."""
        self.page.locator(selector).get_by_text(words).first.wait_for(timeout=timeout_ms)

    def complaints(self) -> list[str]:
        return self.console + [f"left the origin: {url}" for url in self.left_the_origin]


@contextmanager
def visiting(browser: Browser, origin: str, *, size: tuple[int, int] = WIDE, theme: str = "light") -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)  # type: ignore[arg-type]
    context.set_default_timeout(WAIT_MS)
    try:
        yield _watched(context, origin)
    finally:
        context.close()


def _watched(context: BrowserContext, origin: str) -> Visit:
    visit = Visit(context.new_page(), origin)

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning") and CABLE_PULLED not in message.text:
            visit.console.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def on_request(request: Any) -> None:
        if not request.url.startswith((origin, "data:")):
            visit.left_the_origin.append(request.url)

    def on_load(_: Any) -> None:
        visit.loads += 1

    visit.page.on("console", on_console)
    visit.page.on("pageerror", lambda error: visit.console.append(f"uncaught: {error}"))
    visit.page.on("request", on_request)
    visit.page.on("load", on_load)
    return visit
