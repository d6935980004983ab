"""The audit's file: chained over restarts, on disk before a change, found out where it was touched."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.http.access.audit import AuditLog, read_audit
from ratchet.service.errors import JournalError


def lines(folder: Path, service: str = "agent") -> list[dict[str, Any]]:
    return [fields for _, fields in read_audit(folder / service)]


async def written(folder: Path, *events: str, service: str = "agent") -> None:
    audit = AuditLog(folder, service)
    for event in events:
        await audit.record({"event": event})
    await audit.close()


async def test_what_is_recorded_is_on_disk_and_chained_over_restarts(tmp_path: Path) -> None:
    await written(tmp_path, "one", "two")
    await written(tmp_path, "three")

    found = lines(tmp_path)
    assert [(line["sequence"], line["event"], line["service"]) for line in found] == [
        (1, "one", "agent"),
        (2, "two", "agent"),
        (3, "three", "agent"),
    ]
    assert [line["previous_sha256"] for line in found[1:]] == [line["sha256"] for line in found[:-1]]


async def test_many_at_once_keep_their_order_and_their_numbers(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, "agent")

    numbers = await asyncio.gather(*(audit.record({"event": "e", "number": number}) for number in range(200)))
    audit.note({"event": "last"})
    await audit.close()

    assert numbers == list(range(1, 201))
    assert [line.get("number") for line in lines(tmp_path)] == [*range(200), None]


@pytest.mark.parametrize(
    "touch",
    [
        lambda text: text.replace('"two"', '"TWO"'),
        lambda text: "".join(text.splitlines(keepends=True)[::2]),
        lambda text: "".join(reversed(text.splitlines(keepends=True))),
        lambda text: text.replace('{"at"', '{ "at"', 1),
        lambda text: text + text.splitlines(keepends=True)[-1],
        lambda text: text + "{}\n",
    ],
    ids=["a word", "a line taken out", "the order", "a space", "a line twice", "a line made up"],
)
async def test_whatever_was_touched_is_found(tmp_path: Path, touch: Any) -> None:
    await written(tmp_path, "one", "two", "three")
    file = tmp_path / "agent/audit.jsonl"

    file.write_text(touch(file.read_text()))

    with pytest.raises(JournalError, match="was changed after it was written"):
        lines(tmp_path)


async def test_nothing_is_chained_to_a_last_line_that_was_touched(tmp_path: Path) -> None:
    await written(tmp_path, "one")
    file = tmp_path / "agent/audit.jsonl"
    file.write_text(file.read_text().replace("one", "won"))

    with pytest.raises(JournalError, match="rename it"):
        await written(tmp_path, "two")


async def test_a_second_process_writes_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = AuditLog(tmp_path, "agent"), AuditLog(tmp_path, "agent")

    await first.record({"event": "one"})
    await second.record({"event": "two"})
    await first.close()
    await second.close()

    assert [line["event"] for line in lines(tmp_path)] == ["one"]
    assert [line["event"] for line in lines(tmp_path, "agent-2")] == ["two"]


async def test_what_a_kill_tore_is_cut_off_and_the_chain_goes_on(tmp_path: Path) -> None:
    await written(tmp_path, "one")
    file = tmp_path / "agent/audit.jsonl"
    file.write_bytes(file.read_bytes() + b'{"event":"tor')

    await written(tmp_path, "two")

    assert [line["event"] for line in lines(tmp_path)] == ["one", "two"]


async def test_the_chain_goes_on_over_sealed_segments(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path, "agent", segment_bytes=4096)
    entry = {"event": "e", "filler": "x" * 1000}

    for _ in range(9):
        await audit.record(entry)
    await audit.close()
    await written(tmp_path, "after")

    assert len(list((tmp_path / "agent").glob("audit-*"))) >= 2
    assert [line["sequence"] for line in lines(tmp_path)] == list(range(1, 11))


async def test_a_folder_that_can_t_be_written_is_an_error_and_no_gap_later(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("in the way")
    audit = AuditLog(tmp_path, "agent")

    with pytest.raises(JournalError):
        await audit.record({"event": "lost"})
    assert audit.trouble() is not None

    (tmp_path / "agent").unlink()
    await audit.record({"event": "kept"})
    await audit.close()
    assert audit.trouble() is None
    assert [(line["sequence"], line["event"]) for line in lines(tmp_path)] == [(1, "kept")]


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from ratchet.http.access.audit import AuditLog
from ratchet.service.errors import DiskFull
from ratchet.logs.reader import read

async def main():
    audit = AuditLog(Path(sys.argv[1]), "agent")
    await audit.record({"event": "before"})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
    refused = 0
    for _ in range(3):
        try:
            await audit.record({"event": "during", "filler": "x" * 500})
        except DiskFull:
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await audit.record({"event": "after"})
    await audit.close()
    print(refused)

asyncio.run(main())
"""


def test_a_full_disk_refuses_leaves_no_half_line_and_ends(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "3"
    assert [line["event"] for line in lines(tmp_path)] == ["before", "after"]
    assert json.loads((tmp_path / "agent/audit.jsonl").read_text().splitlines()[-1])["sequence"] == 2


async def test_the_oldest_segments_go_and_what_is_left_is_still_a_chain(tmp_path: Path) -> None:
    for _ in range(2):
        audit = AuditLog(tmp_path, "agent", segment_bytes=2_000, kept_segments=3)
        for number in range(60):
            await audit.record({"event": "e", "number": number})
        await audit.close()

    found = lines(tmp_path)
    assert [line["sequence"] for line in found] == list(range(found[0]["sequence"], 121))
    assert found[0]["sequence"] > 60
    assert len(list((tmp_path / "agent").glob("audit-*"))) <= 5  # three, and those sealed or compressed meanwhile
