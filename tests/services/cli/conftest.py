"""A whole loop's logs and ledger, made once. They are read-only: a test that changes them makes a copy."""

from __future__ import annotations

import pytest

from tests.services.cli.whole_loop import WholeLoop, whole_loop


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> WholeLoop:
    return whole_loop(tmp_path_factory.mktemp("loop"))
