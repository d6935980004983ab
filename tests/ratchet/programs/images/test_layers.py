"""Layers laid over one another as the OCI specification has it. What is hostile is refused; nothing is made outside."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.programs.images.archive import BadImage, open_image
from ratchet.programs.images.layers import lay
from tests.images import Entry, docker_save, entry, file, folder, hard_link, layer, link, listed, oci

ROOM = 10_000_000


def laid(path: Path, root: Path, room: int = ROOM) -> set[str]:
    root.mkdir()
    with open_image(path) as archive:
        lay(archive, root, room)
    return listed(root)


@pytest.mark.parametrize("written", [docker_save, oci])
def test_an_upper_layer_adds_takes_away_and_replaces(written: Callable[..., str], tmp_path: Path) -> None:
    lower = layer(
        file("usr/bin/one", "one", 0o4755), file("etc/kept", "k"), file("etc/gone", "g"), file("old/a"),
        file("old/deep/b"), link("lib", "usr/lib"), file("was-file"), file("was-folder/x"), link("was-link", "old"),
        folder("usr/lib"), file("dev/null", "no device of ours"),
    )  # fmt: skip
    upper = layer(
        file("etc/.wh.gone"), file("old/new"), file("old/.wh..wh..opq"), file("lib/behind-the-link", mtime=86_400),
        file("was-file/x"), file("was-folder"), folder("was-link"), hard_link("usr/bin/two", "usr/bin/one"),
        file("etc/.wh.never-there"), file(".wh.nothing"),
    )  # fmt: skip
    written(tmp_path / "it.tar", [lower, upper])

    with pytest.raises(BadImage, match="was-file/x"):
        laid(tmp_path / "it.tar", tmp_path / "refused")
    written(tmp_path / "it.tar", [lower, layer(file(".wh.was-file")), upper])
    found = laid(tmp_path / "it.tar", tmp_path / "root")

    assert found == {
        "usr/bin/one", "usr/bin/two", "etc/kept", "old/new", "lib", "usr/lib/behind-the-link", "was-file/x",
        "was-folder",
    }  # fmt: skip
    root = tmp_path / "root"
    assert oct((root / "usr/bin/one").stat().st_mode) == "0o100755"
    assert (root / "usr/bin/two").samefile(root / "usr/bin/one")
    assert (root / "was-link").is_dir() and not (root / "was-link").is_symlink()
    assert (root / "usr/lib/behind-the-link").stat().st_mtime == 86_400


DEVICE = entry("opt/disk", tarfile.BLKTYPE, devmajor=8, devminor=0)
HOSTILE: dict[str, tuple[list[Entry], str]] = {
    "a step back": ([file("usr/../../escaped")], "no path in an image"),
    "a step back at once": ([file("../escaped")], "no path in an image"),
    "a hard link out": ([hard_link("mine", "../../../../etc/passwd")], "no path in an image"),
    "a hard link by an absolute path": ([hard_link("mine", "/etc/passwd")], "No such file"),
    "a hard link behind a link": ([link("up", "/etc"), hard_link("mine", "up/passwd")], "No such file"),
    "a hard link to a folder": ([folder("etc"), hard_link("mine", "etc")], "no file of the image"),
    "a device": ([DEVICE], "a device or a pipe"),
    "a pipe": ([entry("opt/pipe", tarfile.FIFOTYPE)], "a device or a pipe"),
    "behind a link to nothing": ([link("up", "/nowhere"), file("up/x")], "No such file"),
    "behind a link to itself": ([link("up", "up"), file("up/x")], "symbolic links"),
    "below a file": ([file("a"), file("a/b")], "Not a directory"),
    "deeper than anything": ([file("d/" * 200 + "x")], "no path in an image"),
    "a name too long": ([file("n" * 300)], "name too long"),
    "it takes its parent away": ([file("etc/.wh...")], "takes no file away"),
    "it takes itself away": ([file("etc/.wh..")], "takes no file away"),
}


@pytest.mark.parametrize(("entries", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_hostile_is_refused_by_what_it_is(entries: list[Entry], said: str, tmp_path: Path) -> None:
    docker_save(tmp_path / "it.tar", [layer(*entries)])

    with pytest.raises(BadImage, match=said):
        laid(tmp_path / "it.tar", tmp_path / "root")
    assert listed(tmp_path) - {"it.tar"} == {f"root/{name}" for name in listed(tmp_path / "root")}


def test_links_that_lead_out_lead_nowhere_out(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each is followed as if the folder were the root: of what is outside nothing is read, written or taken away."""
    outside = Path("/var/tmp", f"ratchet-outside-{os.getpid()}")
    outside.mkdir()
    request.addfinalizer(lambda: shutil.rmtree(outside))
    (outside / "kept").write_text("kept")
    lower = layer(
        link("absolute", str(outside)), link("relative", f"../../../../../..{outside}"), folder(str(outside)),
        link("to-a-file", str(outside / "kept")),
    )  # fmt: skip
    upper = layer(
        file("absolute/one"), file("relative/two"), file("absolute/.wh.kept"), file("relative/.wh..wh..opq"),
        file("to-a-file", "mine"),
    )  # fmt: skip
    docker_save(tmp_path / "it.tar", [lower, upper])

    found = laid(tmp_path / "it.tar", tmp_path / "root")

    inside = str(outside).lstrip("/")
    assert found == {"absolute", "relative", "to-a-file", f"{inside}/one", f"{inside}/two"}
    assert {one.name: one.read_text() for one in outside.iterdir()} == {"kept": "kept"}
    assert (tmp_path / "root/to-a-file").read_text() == "mine"


def test_a_small_file_does_not_become_a_large_folder_or_a_large_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(layer(file("zeros", bytes(3_000_000))))
    announced = entry("zeros", size=8_000_000_000).tobuf() + bytes(2048)
    header = entry("long", tarfile.XHDTYPE, size=3_000_000)
    with_header = header.tobuf() + bytes(3_000_000 + 512 - 3_000_000 % 512)

    for content, room, said in (
        (bomb, 1_000_000, "unpacks to more than it may take"),
        (announced, ROOM, "unpacks to more than it may take"),
        (with_header, ROOM, "header of 3,000,000 bytes"),
        (bomb[:-20], ROOM, "can't be read"),
        (b"\x28\xb5\x2f\xfd" + os.urandom(100), ROOM, "can't be read"),
        (b"no tar at all" * 100, ROOM, "can't be read"),
    ):
        docker_save(tmp_path / "it.tar", [content])
        root = tmp_path / f"root-{len(content)}-{room}"
        with pytest.raises(BadImage, match=said):
            laid(tmp_path / "it.tar", root, room)
        assert listed(root) == set()


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"manifest.json": b"[]"}, "holds 0 images"),
        ({"manifest.json": b"[" * 100_000}, "can't be read"),
        ({"manifest.json": b'[{"Config": "../../etc/passwd", "Layers": []}]'}, "passwd is not in it"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:../../x"}]}'}, "is not in it"),
        ({"index.json": b"7"}, "can't be read"),
        ({"other": b""}, "neither what `docker save` writes nor"),
    ],
)
def test_what_is_no_image_is_said(contents: dict[str, bytes], said: str, tmp_path: Path) -> None:
    (tmp_path / "it.tar").write_bytes(layer(*(file(name, content) for name, content in contents.items())))

    with pytest.raises(BadImage, match=said), open_image(tmp_path / "it.tar"):
        raise AssertionError


def test_several_images_and_a_packed_file_are_said(tmp_path: Path) -> None:
    docker_save(tmp_path / "two.tar", [layer()], images=2)
    (tmp_path / "packed.tar.gz").write_bytes(gzip.compress((tmp_path / "two.tar").read_bytes()))

    for name, said in (("two.tar", "holds 2 images: save one"), ("packed.tar.gz", "gunzip it")):
        with pytest.raises(BadImage, match=said), open_image(tmp_path / name):
            raise AssertionError
