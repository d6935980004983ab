"""Two hundred adapters made to do harm: none is accepted, each is refused soon, in few words, and in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings

from ratchet.adapters.check import adapter_faults, check_adapter
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.publish import registration, remove_tree
from ratchet.adapters.verification import entry_faults
from ratchet.service.errors import LONGEST_REASON, AdapterError
from schemas.records.registry import AdapterEntry, EntryState
from tests.quick import rounds
from tests.ratchet.adapters.hostile_adapters import HOSTILE_ADAPTERS, Hostile, many_tensors, spoiled_config
from tests.ratchet.adapters.making_adapters import BASE

LIMITS = AdapterLimits(max_rank=16, base=BASE)
SOON_S = 2.0
MOST_MB = 300


def refusal(hostile: Hostile, adapters_dir: Path) -> str:
    """Why it is refused, whoever asks: at its registration, at the gate, by an agent. Empty if it is not."""
    folder = hostile.write(adapters_dir)
    began = process_time()
    try:
        move = registration(folder, adapters_dir)
    except (AdapterError, OSError) as error:
        return str(error)
    entry = AdapterEntry(version=move.version, state=EntryState.TRAINED, sha256=move.sha256, folder=move.folder)
    assert bool(entry_faults(folder, entry, LIMITS)) == bool(faults := adapter_faults(folder, LIMITS))
    assert process_time() - began < SOON_S, hostile
    assert len("; ".join(faults)) <= LONGEST_REASON
    try:
        check_adapter(folder, LIMITS)
    except AdapterError as error:
        return str(error)
    return ""


@settings(
    max_examples=rounds(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(hostile=HOSTILE_ADAPTERS)
def test_none_of_two_hundred_is_accepted(hostile: Hostile) -> None:
    with TemporaryDirectory() as folder:
        reason = refusal(hostile, Path(folder) / "a" / "adapters")
        assert reason, f"accepted: {hostile}"
        assert len(reason) <= LONGEST_REASON
        assert "\n" not in reason
        assert reason.encode(), "a ledger holds UTF-8"


def test_a_listed_file_that_no_adapter_has_is_refused(tmp_path: Path) -> None:
    """A model's own configuration beside the adapter's is one that a loader may follow."""
    assert "is no file that adapters have" in refusal(Hostile("a model's", {"config.json": b"{}"}), tmp_path / "a")


CHECKED_ALONE = """
import re, sys, time
from pathlib import Path
from ratchet.adapters.check import adapter_faults
from ratchet.adapters.limits import AdapterLimits
from tests.quick import rounds
began = time.process_time()
found = adapter_faults(Path(sys.argv[1]), AdapterLimits(max_rank=16))
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
print(f"{time.process_time() - began:.3f} {peak} {'; '.join(found)}")
"""


@pytest.mark.parametrize("name", ["patterns", "names"])
def test_the_worst_take_neither_the_time_nor_the_memory_of_who_checks_them(tmp_path: Path, name: str) -> None:
    expressions = {"rank_pattern": {r"(([a-z_]+)+[.]?)+!": 4}, "alpha_pattern": {r"(.*)*x": 1.0}}
    hostile = spoiled_config(expressions) if name == "patterns" else many_tensors(1_500_000)
    command = [sys.executable, "-c", CHECKED_ALONE, str(hostile.write(tmp_path))]

    done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=True)

    seconds, megabytes, reason = done.stdout.split(maxsplit=2)
    assert float(seconds) < SOON_S
    assert float(megabytes) < MOST_MB
    assert "is not the end of a module's path" in reason if name == "patterns" else "a header may have" in reason


def test_a_link_is_removed_and_never_what_it_leads_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").touch()
    link = tmp_path / "v1.0.1"
    link.symlink_to(outside)

    remove_tree(link)

    assert not os.path.lexists(link)
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o700
