"""A fleet restored from the backup that docs/operations.md describes remembers every answer and every adapter."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.registry import RegistryStore
from tests.acceptance.fleet import Fleet
from tests.acceptance.traffic import Traffic, traffic
from tests.ratchet.adapters.making_adapters import published

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
AGENT = "small"


def documented(program: str) -> str:
    """The command of the operations page that begins so."""
    found = re.findall(rf"^({program} .+?)(?:\s+#.*)?$", PAGE.read_text(), re.MULTILINE)
    assert len(found) == 1, found
    return str(found[0])


@pytest.fixture
def restored(amqp_url: str, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on queues of its own, in a folder with nothing in it yet; not started."""
    fleet = Fleet(tmp_path / "restored", amqp_url, namespace)
    yield fleet
    fleet.kill()


async def test_a_restored_fleet_knows_its_answers_and_its_adapters(
    start_fleet: Callable[..., Fleet], restored: Fleet, tmp_path: Path
) -> None:
    # given a fleet that answered tasks and registered an adapter, a backup taken while it was down, and its key
    original = start_fleet()
    old = await _lived(original)
    original.stop()
    _run(documented(r"tar --exclude='\*.sqlite\*' -cf ratchet-backup.tar"), original.folder)

    # when it is restored into an empty folder, beside an empty broker
    archive = original.folder / "ratchet-backup.tar"
    (restored.folder / "ratchet-backup.tar").write_bytes(archive.read_bytes())
    _run(documented("tar -xf"), restored.folder)
    shutil.copytree(original.folder / "decision-keys", restored.folder / "decision-keys")
    restored.start()

    # then old tasks get their old answers without being run again, new ones are answered, and the adapters are whole
    logged = _lines(restored)
    async with traffic(restored) as users:
        for task_id in old.answered:
            await users.send("tasks", json.dumps({"task_id": task_id, "input": "other words", "samples": 2}).encode())
        users.asked |= old.asked
        await users.rest()
        assert users.answered == old.answered
        assert _lines(restored) == logged

        await users.until(lambda: len(users.answered) > len(old.answered))
        await users.rest()
        assert users.not_ok == {}
    assert _lines(restored)[: len(logged)] == logged
    assert len(_lines(restored)) > len(logged)
    assert _verified(restored)
    assert RegistryStore(restored.folder / "adapters").read().agent(AGENT).versions.keys() == {"v1.0.0", "v1.0.1"}


async def _lived(fleet: Fleet) -> Traffic:
    """Tasks were answered, and an adapter became known."""
    store = RegistryStore(fleet.folder / "adapters")
    folder = published(store.folder, AGENT)
    trained = {
        "request_id": "run-1",
        "agent_id": AGENT,
        "status": "trained",
        "adapter_version": folder.name,
        "adapter_sha256": adapter_sha256(folder),
    }
    async with traffic(fleet) as users:
        await users.send("adapters", json.dumps(trained).encode())
        await users.until(lambda: folder.name in store.read().agent(AGENT).versions)
        await users.rest()
    assert users.not_ok == {}
    return users


def _run(command: str, folder: Path) -> None:
    subprocess.run(command, shell=True, cwd=folder, check=True)


def _lines(fleet: Fleet) -> list[str]:
    return (fleet.logs / "agent_interactions.jsonl").read_text().splitlines()


def _verified(fleet: Fleet) -> bool:
    command = [sys.executable, "-m", "services.cli", "adapters", "verify"]
    environment = {**fleet["orchestrator"].environment, "PATH": "/usr/bin:/bin", "HOME": str(fleet.folder)}
    return subprocess.run(command, env=environment, check=False).returncode == 0
