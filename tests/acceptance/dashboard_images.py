"""The documentation's pictures of the dashboards: `make dashboard-images`, or `python -m` this module.

A real fleet to which everything happens within minutes, a real Prometheus with our configuration, the generated
dashboards drawn by Grafana's panel library in a headless Chromium. Fails where a panel has no data or its query an
error, and names it. With `--prometheus URL` the data are those of a Prometheus you have. Leaves out Loki and a Grafana
server: what draws is the library that the server's own pages are made with (infra/grafana/drawing).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, ViewportSize

from infra.grafana.generate import documents
from tests.acceptance.browser import chromium
from tests.acceptance.eventful_fleet import eventful_fleet
from tests.infra.prometheus.server import prometheus, scrape_interval_s
from tests.infra.promtool import ROOT
from tests.waiting import wait_until

DRAWING = ROOT / "infra" / "grafana" / "drawing"
IMAGES = ROOT / "docs" / "images"
ORDINARY_S = 150.0
SETTLED_MS = 1000
SIZE: ViewportSize = {"width": 1280, "height": 900}
EMPTY_BY_RIGHT: Mapping[str, str] = {
    "learning: Drift of the scorer": "fixed answers are scored again every RATCHET_ANCHOR_EVERY_S, an hour",
}
"""Panels (`dashboard: title`) that may lack data here, and why."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a picture shows, in seconds since the epoch, of the Prometheus at this address."""

    prometheus: str
    start: float
    end: float

    @property
    def source(self) -> dict[str, Any]:
        interval = scrape_interval_s()
        return {"prometheus": self.prometheus, "from": self.start, "to": self.end, "scrapeInterval": interval}


def build_page() -> None:
    """Install what is pinned and bundle it. Raises RuntimeError with what to type where there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is missing; type: sudo apt-get install -y nodejs npm (version 18 or newer)")
    if not (DRAWING / "node_modules").exists():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=DRAWING, check=True)
    subprocess.run([npm, "run", "--silent", "build"], cwd=DRAWING, check=True)


def take_pictures(window: Window, folder: Path) -> list[str]:
    """Write a picture of each dashboard. Return a line for each query without data, unless it may have none."""
    with _served() as origin, chromium() as browser:
        return [
            line
            for path, text in documents().items()
            for line in _picture(browser, origin, path.stem, text, window, folder)
        ]


def lacking(name: str, panels: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the queries of a dashboard's panels that had an error, or no data where they should."""
    for panel in panels:
        title = f"{name}: {panel['title']}"
        for query in panel["queries"]:
            if error := query.get("error"):
                yield f"{title}: {error} ({query['expr']})"
            elif not query["series"] and title not in EMPTY_BY_RIGHT:
                yield f"{title}: no data ({query['expr']})"


def _picture(browser: Browser, origin: str, name: str, document: str, window: Window, folder: Path) -> list[str]:
    page = browser.new_page(viewport=SIZE)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{name}: {error}"))
    page.goto(origin)
    panels = page.evaluate("([dashboard, source]) => draw(dashboard, source)", [json.loads(document), window.source])
    _shoot(page, folder / f"dashboard-{name}.png")
    page.close()
    return faults + list(lacking(name, panels))


def _shoot(page: Page, file: Path) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(SETTLED_MS)
    page.locator("#dashboard > div").screenshot(path=file)


@contextmanager
def _served() -> Iterator[str]:
    """Serve the page within the block, without a log; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(DRAWING)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _of_an_eventful_fleet(images: Path) -> list[str]:
    """Start a fleet, let it live, and take the pictures while it runs."""
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-dashboards-") as folder,
        eventful_fleet(Path(folder)) as fleet,
        fleet.demo() as demo,
    ):
        _await_answer(f"http://127.0.0.1:{fleet.port}/readyz", demo)
        start = time.time()
        with prometheus(Path(folder) / "prometheus", fleet.targets) as address:
            if demo.wait() != 0:
                raise RuntimeError("the demo failed: see above")
            fleet.after_the_demo(ORDINARY_S)
            return take_pictures(Window(address, start, time.time()), images)


def _await_answer(address: str, demo: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        if demo.poll() is not None:
            raise RuntimeError("the demo ended before its fleet was up: see above")
        try:
            with urlopen(address, timeout=5):
                return True
        except (URLError, OSError):
            return False

    wait_until(answers, address, timeout_s=float("inf"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.dashboard_images", description=__doc__)
    parser.add_argument("--prometheus", help="draw from this one, such as http://127.0.0.1:9090, and start no fleet")
    parser.add_argument("--minutes", type=float, default=30.0, help="with --prometheus: how far to look back")
    parser.add_argument("--folder", type=Path, default=IMAGES, help="where the pictures go")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it started is stopped then, as with Ctrl-C
    given.folder.mkdir(parents=True, exist_ok=True)
    build_page()
    if given.prometheus:
        now = time.time()
        window = Window(given.prometheus.rstrip("/"), now - 60 * given.minutes, now)
        lacks = take_pictures(window, given.folder)
    else:
        lacks = _of_an_eventful_fleet(given.folder)
    sys.stdout.writelines(f"{line}\n" for line in lacks)
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
