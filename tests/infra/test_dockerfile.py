"""services/Dockerfile: clean by hadolint, and what it makes an image of. The images themselves need an engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement

from infra.image_requirements import requirements
from ratchet.runtime.container_health import complaint
from tests.infra.installed_sizes import MB, closure, installed

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "services/Dockerfile"
CI = ROOT / ".github/workflows/ci.yml"
TEXT = DOCKERFILE.read_text()
PYPROJECT = (ROOT / "pyproject.toml").read_text()
IMAGES = ("orchestrator", "gateway", "agent", "manager", "runner", "scorer", "trainer", "cli")
HEAVY = ("torch", "transformers", "trl", "peft")
HADOLINT = Path(sys.executable).parent / "hadolint"


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[<>=\[;! ]", line)[0] for line in lines}


def test_hadolint_has_nothing_to_say() -> None:
    run = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr


def test_it_needs_no_syntax_image_and_no_heredoc() -> None:
    assert "# syntax" not in TEXT
    assert "<<" not in TEXT


@pytest.mark.parametrize("image", ["orchestrator", "gateway", "scorer", "cli"])
def test_a_light_image_has_nothing_heavy(image: str) -> None:
    assert names(requirements(PYPROJECT, [image])) & set(HEAVY) == set()


@pytest.mark.parametrize("image", IMAGES)
def test_every_requirement_of_an_image_is_pinned(image: str) -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()
    }

    assert {name.lower().replace("_", "-") for name in names(requirements(PYPROJECT, [image, ""]))} <= pinned


def test_an_unknown_extra_is_refused() -> None:
    with pytest.raises(KeyError):
        requirements(PYPROJECT, ["orchestrator", "nonsense"])


def test_the_containers_are_the_folders_with_a_front_door() -> None:
    folders = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}

    assert folders == set(IMAGES)
    assert "for main in services/*/__main__.py; do" in TEXT


IMPORT_ALL = """
import importlib, pkgutil, sys

service, left_out = sys.argv[1:]
folder = importlib.import_module(f"services.{service}")
for one in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
    if not left_out or not one.name.endswith(left_out):
        importlib.import_module(one.name)
"""


@pytest.mark.parametrize(
    ("service", "extra", "left_out"),
    [
        ("orchestrator", "", ""),
        ("gateway", "", ""),
        ("agent", "", ""),
        ("manager", "", "migrations.env"),
        ("runner", "", ""),
        ("scorer", "", "likelihood"),
        ("scorer", "likelihood", ""),
        ("trainer", "", ""),
    ],
)
def test_the_code_of_a_service_imports_nothing_that_its_image_lacks(
    tmp_path: Path, service: str, extra: str, left_out: str
) -> None:
    for name in closure(map(Requirement, requirements(PYPROJECT, [service, extra]))):
        for place in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (tmp_path / place).symlink_to(Path(str(distribution(name).locate_file(place))))

    run = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_ALL, service, left_out],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )

    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("service", ["orchestrator", "gateway", "scorer", "cli"])
def test_a_light_image_asks_for_nothing_heavy(service: str) -> None:
    wanted = {re.split(r"[^\w-]", line)[0] for line in requirements((ROOT / "pyproject.toml").read_text(), [service])}

    assert wanted & {"numpy", "torch", "transformers", "peft", "trl", "scipy", "pandas"} == set()


@pytest.mark.parametrize("service", ["orchestrator", "gateway", "scorer", "cli"])
def test_a_light_image_stays_below_what_ci_holds_it_to(service: str) -> None:
    """MB, the constants as measured on an engine: the base, symbols that are stripped, Debian's part, our own files."""
    (line,) = re.findall(r"BOUND_MB: .*", CI.read_text())
    named = dict(re.findall(r"matrix\.service == '(\w+)' && (\d+)", line))
    held_to = int(named.get(service) or line.split("|| ")[-1].split()[0])
    names = closure(map(Requirement, requirements(PYPROJECT, [service])))
    dependencies = sum(map(installed, names)) / MB

    expected = 125 + dependencies - 20 + (12 if service == "scorer" else 0) + 7

    assert expected < held_to


def test_the_context_holds_only_what_an_image_is_made_of() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.MULTILINE))
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert {word for words in copied for word in words.split()} == allowed - {".env"}
    assert ".env" in allowed  # looked at while Compose builds, and in no image


def test_the_last_user_is_not_root_and_has_a_health_check() -> None:
    last = TEXT.rpartition("\nFROM ")[2]

    assert "\nUSER 10001:10001\n" in last
    assert "\nHEALTHCHECK " in last
    assert "apt-get" not in last
    assert "pip" not in last


class AliveAndNotReady(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()


def test_the_health_check_tells_well_from_not_ready_from_gone() -> None:
    with HTTPServer(("127.0.0.1", 0), AliveAndNotReady) as server:
        Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        well, not_ready = complaint(f"{url}/healthz"), complaint(f"{url}/readyz")
        server.shutdown()

    assert well is None
    assert not_ready is not None and "503" in not_ready
    assert complaint(f"{url}/healthz") is not None


def test_a_container_of_the_command_line_has_no_server_and_is_well() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ratchet.runtime.container_health"],
        cwd=ROOT,
        env={"SERVICE": "cli"},
        capture_output=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
