"""`python -m tests.once_more STATUS`: what failed in the run that ended so, once more, alone. For `make test`.

The suite runs side by side on all cores; a test that lacked time there shows here what it does with it. Why, and what
such a test is worth, is in record 0076.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3
"""Tests that may have lacked time. Where more fail, something is broken."""
PASSED_ALONE = "passed alone: a defect all the same, of the test or of what it tests, to be mended (decision 0076)\n"


def failed_tests(status: int, last_failed: Path = LAST_FAILED) -> list[str]:
    """Ids of the tests to be run once more; none where the run ended otherwise than by a few failed tests."""
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
    again = pytest.main([*failed, "-p", "no:cacheprovider"])
    if again == pytest.ExitCode.OK:
        sys.stdout.write(PASSED_ALONE)
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
