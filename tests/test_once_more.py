"""A few tests that failed in company are run once more, alone; anything else that ended the suite stays its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.once_more import MOST, failed_tests, main

FAILED, INTERRUPTED = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("status", "failed", "again"),
    [(FAILED, 1, 1), (FAILED, MOST, MOST), (FAILED, MOST + 1, 0), (INTERRUPTED, 1, 0), (pytest.ExitCode.OK, 1, 0)],
)
def test_only_a_few_failed_tests_are_run_once_more(tmp_path: Path, status: int, failed: int, again: int) -> None:
    names = [f"tests/test_x.py::test_{number}" for number in range(failed)]
    (tmp_path / "lastfailed").write_text(json.dumps(dict.fromkeys(names, True)))

    assert failed_tests(status, tmp_path / "lastfailed") == names[:again]


@pytest.mark.parametrize("status", [INTERRUPTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR])
def test_a_run_that_was_cut_short_stays_failed(status: int) -> None:
    assert main(status) == status
