"""A fleet restored from a backup that was made under load remembers every answer and every adapter."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.registry import RegistryStore
from ratchet.logs.names import INTERACTIONS, active_path
from ratchet.logs.segments import sealed_segments
from tests.acceptance.fleet import Fleet
from tests.acceptance.traffic import Traffic, traffic
from tests.programs import REPOSITORY, Ran, run_module
from tests.ratchet.adapters.making_adapters import published

pytestmark = pytest.mark.broker

AGENT = "small"


@pytest.fixture
def restored(amqp_url: str, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on queues of its own, in a folder with nothing in it yet; not started."""
    fleet = Fleet(tmp_path / "restored", amqp_url, namespace, forked=True)
    yield fleet
    fleet.kill()


@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_backup_under_load_has_all_that_was_confirmed_before_it(
    start_fleet: Callable[..., Fleet], restored: Fleet, tmp_path: Path, encrypted: bool
) -> None:
    # given a fleet that answers tasks all the while, and that registered an adapter
    original = start_fleet()
    key = tmp_path / "backup.key"
    key.write_bytes(base64.b64encode(bytes(range(32))))
    with_key = ["--key-file", str(key)] if encrypted else []
    archive = tmp_path / "fleet.ratchet"
    async with traffic(original) as users:
        await _register_an_adapter(original, users)
        await users.until(lambda: bool(users.answered))
        confirmed = dict(users.answered)

        # when a backup is made of it as it runs
        making = asyncio.create_task(asyncio.to_thread(_ratchet, original, "backup", *with_key, str(archive)))
        await users.until(making.done)
        made = making.result()
        assert made.code == 0, made.err
        await users.until(lambda: len(users.answered) > len(confirmed))
        await users.rest()
        assert users.not_ok == {}
    original.stop()

    # and restored into an empty folder, beside an empty broker
    back = _ratchet(restored, "restore", *with_key, str(archive))
    assert back.code == 0, back.err
    if not encrypted:
        assert b"signing-key" not in archive.read_bytes()
        shutil.copytree(original.folder / "decision-keys", restored.folder / "decision-keys")
    verified = _ratchet(restored, "adapters", "verify")
    assert verified.code == 0, verified.out + verified.err
    logged = _lines(restored)
    restored.start()

    # then old tasks get their old answers without being run again, and the adapters are whole
    async with traffic(restored) as users:
        for task_id in confirmed:
            await users.send("tasks", json.dumps({"task_id": task_id, "input": "other words", "samples": 2}).encode())
        await users.until(lambda: users.answered.items() >= confirmed.items())
        await users.rest()
    assert _lines(restored)[: len(logged)] == logged
    again = {json.loads(line)["task_id"] for line in _lines(restored)[len(logged) :]}
    assert not again & set(confirmed)
    assert RegistryStore(restored.folder / "adapters").read().agent(AGENT).versions.keys() == {"v1.0.0", "v1.0.1"}


async def _register_an_adapter(fleet: Fleet, users: Traffic) -> None:
    store = RegistryStore(fleet.folder / "adapters")
    folder = published(store.folder, AGENT)
    trained = {
        "request_id": "run-1",
        "agent_id": AGENT,
        "status": "trained",
        "adapter_version": folder.name,
        "adapter_sha256": adapter_sha256(folder),
    }
    await users.send("adapters", json.dumps(trained).encode())
    await users.until(lambda: folder.name in store.read().agent(AGENT).versions)


def _ratchet(fleet: Fleet, *arguments: str) -> Ran:
    settings = {**fleet["orchestrator"].environment, "HOME": str(fleet.folder)}
    return run_module("services.cli", *arguments, folder=REPOSITORY, settings=settings)


def _lines(fleet: Fleet) -> list[str]:
    """Return the lines of all segments: the first leader of a restored folder seals what it finds."""
    segments = [segment.open().read() for segment in sealed_segments(fleet.logs, INTERACTIONS)]
    return b"".join([*segments, active_path(fleet.logs, INTERACTIONS).read_bytes()]).decode().splitlines()
