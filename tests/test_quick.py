"""What `make check` leaves out is what needs a model, a browser, a broker or a second Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.ratchet_command import ForkedRatchet
from tests.quick import FLEETS, HEAVY_LIBRARIES, LONG, ROOT, is_heavy, libraries, pytest_ignore_collect


def test_what_a_file_imports_is_found_at_every_remove(tmp_path: Path) -> None:
    sampling = ROOT / "tests" / "services" / "agent" / "engines" / "test_sampling.py"
    page = ROOT / "tests" / "acceptance" / "test_page.py"

    assert "torch" in libraries(sampling)
    assert "playwright" in libraries(page)
    assert not HEAVY_LIBRARIES & libraries(ROOT / "services" / "orchestrator" / "__main__.py")


def test_imports_inside_a_function_wait_for_its_call(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("import json\nfrom collections import (\n    abc,\n)\n\n\ndef work():\n    import torch\n")

    assert libraries(file) == {"json", "collections"}


def test_a_file_that_is_no_python_is_left_to_pytest(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    packed = tmp_path / "log.jsonl.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    before, pytestconfig.option.quick = pytestconfig.option.quick, True
    try:
        assert pytest_ignore_collect(packed, pytestconfig) is None
    finally:
        pytestconfig.option.quick = before


def in_another_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


class Command:
    def __call__(self) -> None:
        in_another_python()


def uses_a_command() -> None:
    Command()()


def test_what_starts_python_is_found_in_the_functions_and_classes_a_test_names() -> None:
    assert is_heavy(in_another_python)
    assert is_heavy(uses_a_command)
    assert is_heavy(ForkedRatchet.__call__)
    assert not is_heavy(test_no_conftest_keeps_a_whole_folder_out)


def test_files_that_are_left_out_by_name_are_there() -> None:
    assert [file for file in LONG if not file.is_file()] == []


def test_no_conftest_keeps_a_whole_folder_out() -> None:
    conftests = [path for path in (ROOT / "tests").rglob("conftest.py") if FLEETS not in path.parents]

    assert conftests
    assert [path for path in conftests if HEAVY_LIBRARIES & libraries(path)] == []
