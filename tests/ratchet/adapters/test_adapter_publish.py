"""Publishing: whole or not at all, one number each, never changed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.adapters.check import adapter_faults
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.manifest import published_versions, read_card, read_manifest
from ratchet.adapters.publish import publish_adapter, registration
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.retention import remove_version_folder
from ratchet.service.errors import AdapterError
from schemas.records.decision import DecisionDraft
from tests.quick import rounds
from tests.ratchet.adapters.making_adapters import BASE, NOON, card, files, published
from tests.ratchet.adapters.making_decisions import archived

LIMITS = AdapterLimits(max_rank=16, base=BASE)


def test_a_published_adapter_is_whole_readable_by_all_and_writable_by_none(tmp_path: Path) -> None:
    # when an adapter is published
    folder = publish_adapter(files(), card(metrics={"loss": 0.5}), tmp_path, "small")
    # then it is the first version, fit for traffic, read-only, with nothing left beside it
    assert folder == tmp_path / "small" / "v1.0.1"
    assert adapter_faults(folder, LIMITS) == []
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    assert folder.stat().st_mode & 0o777 == 0o555
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "v1.0.1"]
    assert read_card(folder).metrics == {"loss": 0.5}
    assert set(read_manifest(folder).files) == {"adapter_card.json", "adapter_config.json", "adapter_model.safetensors"}


def test_writers_at_the_same_time_never_take_the_same_number(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda seed: published(tmp_path, seed=seed), range(16)))
    assert len(set(folders)) == 16
    assert published_versions(tmp_path, "small") == [f"v1.0.{n}" for n in range(1, 17)]


def test_the_same_run_publishes_once(tmp_path: Path) -> None:
    # given a trainer that died after publishing, before it said so
    first = published(tmp_path, run_id="run-7")
    # when it publishes again
    again = published(tmp_path, run_id="run-7")
    # then nothing new appears; another run does get a version of its own
    assert again == first
    assert published(tmp_path, run_id="run-8").name == "v1.0.2"


def test_the_number_of_a_removed_version_is_never_given_again(tmp_path: Path) -> None:
    # given a version that was registered, archived and removed
    store = RegistryStore(tmp_path)
    folder = published(tmp_path)
    archived(store, registration(folder, tmp_path))
    remove_version_folder(store, "small", "v1.0.1", who="orchestrator", at=NOON)
    assert not folder.exists()
    # then the next one is another
    assert published(tmp_path).name == "v1.0.2"


def test_what_is_no_adapter_is_not_published(tmp_path: Path) -> None:
    without_weights = {"adapter_config.json": b"{}"}
    with_pickle = files() | {"optimizer.pt": b"\x80\x04"}
    with_manifest = files() | {"manifest.json": b"{}"}
    with_config_of_a_model = files() | {"config.json": b'{"auto_map": {}}'}
    for source in (without_weights, with_pickle, with_manifest, with_config_of_a_model):
        with pytest.raises(AdapterError, match=r"adapter_model|optimizer|manifest|config"):
            publish_adapter(source, card(), tmp_path, "small")
    assert not (tmp_path / "small").exists()


def test_readers_ignore_what_has_no_whole_manifest(tmp_path: Path) -> None:
    # given a good version, and folders as a copy, a crash or a person might leave them
    folder = published(tmp_path)
    (tmp_path / "small" / "v1.0.5").mkdir()
    (tmp_path / "small" / "v1.0.5" / "adapter_model.safetensors").write_bytes(b"half")
    renamed = tmp_path / "small" / "v1.0.6"
    renamed.mkdir()
    for path in folder.iterdir():
        (renamed / path.name).write_bytes(path.read_bytes())
    # then only the good one counts, and no number of the others is taken
    assert published_versions(tmp_path, "small") == ["v1.0.1"]
    assert published(tmp_path).name == "v1.0.7"


KILLED_SAVES = """
import os, random, signal, sys, time
from pathlib import Path
from ratchet.adapters.check import adapter_faults
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.manifest import published_versions
from tests.ratchet.adapters.making_adapters import published

def save_until_killed(folder, started):
    os.write(started, b".")
    while True:
        published(folder)

def main(folder, kills, chance):
    one_save = 1.0
    for _ in range(6):  # the quickest: others' work doesn't make all of them slow
        began = time.monotonic()
        published(folder)
        one_save = min(one_save, time.monotonic() - began)
    in_the_middle = checked = 0
    saves, started = os.pipe()
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            save_until_killed(folder, started)
        os.read(saves, 1)
        time.sleep(chance.uniform(0, 3 * one_save))  # real time: a moment nobody chose
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        in_the_middle += any((folder / "small").glob(".tmp-*"))
        visible = sorted(path.name for path in (folder / "small").iterdir() if path.name.startswith("v"))
        new = [name for name in visible if int(name.rpartition(".")[2]) > checked]
        for name in new:
            faults = adapter_faults(folder / "small" / name, AdapterLimits(max_rank=16))
            assert not faults, faults
        assert set(visible) == set(published_versions(folder, "small"))
        checked += len(new)
    assert len(list((folder / "small").glob(".tmp-*"))) <= 1, "killed saves pile up"
    print(in_the_middle)

main(Path(sys.argv[1]), int(sys.argv[2]), random.Random(7))
"""


def test_a_save_killed_again_and_again_never_leaves_a_visible_half_adapter(tmp_path: Path) -> None:
    # when a process that saves without end is killed 40 times, at any moment (the script checks after each)
    kills = rounds(40, quick=30)
    script = [sys.executable, "-c", KILLED_SAVES, str(tmp_path), str(kills)]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=200, check=False)
    # then all was whole, though many a kill came in the middle of a save
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= rounds(5, quick=1)


@pytest.mark.parametrize("step", ["adapter-copied", "adapter-manifest", "adapter-renamed"])
def test_a_save_killed_at_each_step_is_there_or_not_and_can_be_repeated(tmp_path: Path, step: str) -> None:
    # given a save killed at the step
    save = "import sys; from pathlib import Path; from tests.ratchet.adapters.making_adapters import published; "
    save += "published(Path(sys.argv[1]), run_id='run-1')"
    ended = subprocess.run([sys.executable, "-c", save, str(tmp_path)], env={"RATCHET_FAILPOINT": step}, check=False)
    assert ended.returncode == -9
    assert published_versions(tmp_path, "small") == (["v1.0.1"] if step == "adapter-renamed" else [])
    # when the same run saves again
    folder = published(tmp_path, run_id="run-1")
    # then there is one whole version, and nothing else
    assert adapter_faults(folder, LIMITS) == []
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "v1.0.1"]


def test_registering_what_was_published(tmp_path: Path) -> None:
    folder = published(tmp_path, parent="v1.0.0")
    move = registration(folder, tmp_path)
    draft = DecisionDraft(agent_id="small", move=move, who="trainer", at=NOON, reason="trained")
    entry = RegistryStore(tmp_path).change(0, draft).agent("small").versions["v1.0.1"]
    assert (entry.folder, entry.state, entry.base) == ("small/v1.0.1", "trained", BASE)
