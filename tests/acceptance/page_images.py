"""The documentation's pictures of the page, of a fleet that runs: `python -m tests.acceptance.page_images URL FOLDER`.

The test of the page makes them too, of its own fleet; those in docs/images are of the demo's (`ratchet demo --keep`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.acceptance.browser import NARROW, Visit, chromium, visiting

WATCHED_MS = 1500
TALL = (1280, 1080)


def take_pictures(browser: Browser, origin: str, folder: Path, watched_ms: int = WATCHED_MS) -> list[str]:
    """Take pictures by day, by night and on a phone, each after `watched_ms`. Return their names."""
    with visiting(browser, origin, size=TALL) as visit:
        names = [_shot(visit, folder, view, f"page-{view}-light", watched_ms) for view in ("overview", "adapters")]
        names.append(_shot(visit, folder, "training/small/v1.0.1", "page-training-light", watched_ms))
        visit.go("tasks")
        visit.page.locator("tr", has=visit.page.locator(".pill.good")).first.locator("a").first.click()
        visit.wait_for("Samples")
        names.append(_taken(visit, folder, "page-task-light", watched_ms))
    with visiting(browser, origin, size=TALL, theme="dark") as visit:
        names.append(_shot(visit, folder, "overview", "page-overview-dark", watched_ms))
        visit.go("experiments")
        visit.page.locator("tr", has_text="canary").filter(has_text="promoted").first.locator("a").first.click()
        visit.wait_for("Evidence")
        names.append(_taken(visit, folder, "page-experiment-dark", watched_ms))
    with visiting(browser, origin, size=NARROW) as visit:
        names.append(_shot(visit, folder, "overview", "page-narrow", watched_ms))
    return names


def _shot(visit: Visit, folder: Path, view: str, name: str, watched_ms: int) -> str:
    visit.go(view)
    return _taken(visit, folder, name, watched_ms)


def _taken(visit: Visit, folder: Path, name: str, watched_ms: int) -> str:
    expect(visit.page.locator(".live")).to_have_text("Live")
    expect(visit.page.locator("main .waiting")).to_have_count(0)
    visit.page.wait_for_timeout(watched_ms)
    visit.page.screenshot(path=folder / f"{name}.png")
    return name


if __name__ == "__main__":
    with chromium() as opened:
        take_pictures(opened, sys.argv[1].rstrip("/"), Path(sys.argv[2]))
