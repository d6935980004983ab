"""`python -m tests.once_more STATUS`: run the failed tests of a run with this exit status again, alone.

`make test` runs tests side by side on all cores, where one may lack time. Why it is still a defect: record 0076.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 5
"""The most failed tests that are tried again: if more fail, something is broken."""
PASSED_ALONE = "passed alone: a defect all the same, of the test or of what it tests, to be mended (decision 0076)\n"


def failed_tests(status: int, last_failed: Path = LAST_FAILED) -> list[str]:
    """Return the ids of the tests to run again; none unless the run ended by a few failed tests."""
    if status != pytest.ExitCode.TESTS_FAILED:
        return []
    failed = sorted(json.loads(last_failed.read_text()))
    return failed if len(failed) <= MOST else []


def main(status: int) -> int:
    failed = failed_tests(status)
    if not failed:
        return status
    names = "".join(f"  {one}\n" for one in failed)
    sys.stdout.write(f"\n{len(failed)} failed, as shown above. Once more, alone:\n{names}")
    sys.stdout.flush()
    # By its cache: an id with spaces, as the tests made from OpenAPI documents have it, is not found by name.
    files = sorted({one.partition("::")[0] for one in failed})
    again = pytest.main([*files, "--last-failed"])
    if again == pytest.ExitCode.OK:
        sys.stdout.write(PASSED_ALONE)
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
