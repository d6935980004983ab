"""Images installed once, by their sum; what a declaration may say of one, and what a program gets of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from ratchet.programs.declared import Program, declared_programs, read_programs
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import Image, NotInstalled
from ratchet.service.errors import SettingsError
from tests.images import docker_save, file, folder, layer, link, oci
from tests.passable import passable_folder

SHELL = file("bin/sh", "a shell", 0o755)
CONFIG = {
    "Entrypoint": ["/app/run"],
    "Cmd": ["--fast"],
    "Env": ["PATH=/app/bin:/bin", "MODE=slow", "OPENAI_API_KEY=theirs", "BROKEN"],
    "WorkingDir": "/app/work",
}


@pytest.fixture
def environments() -> Iterator[Environments]:
    """In a folder that every user may pass."""
    with passable_folder() as place:
        yield Environments(place)


def ignore(_: str) -> None:
    """Nobody reads it."""


def test_an_archive_is_unpacked_once_and_what_it_says_holds_where_the_declaration_says_nothing(
    environments: Environments, tmp_path: Path
) -> None:
    digest = docker_save(tmp_path / "it.tar", [layer(SHELL, folder("etc"))], CONFIG)
    (tmp_path / "programs.toml").write_text(f"""
[agents.small]
programs = ["plain", "changed"]
[programs.plain.image]
archive = "it.tar"
sha256 = "{digest}"
[programs.changed]
command = ["/bin/other"]
directory = "/workspace"
environment = {{ MODE = "fast" }}
image = {{ archive = "it.tar", sha256 = "{digest}" }}
""")
    file = tmp_path / "programs.toml"
    where = environments.images._folder
    with pytest.raises(SettingsError, match=f"it.tar is not unpacked in .*; type: ratchet programs install .*{file}"):
        read_programs(file, ("small",), where)

    declared = declared_programs(file)["plain"].image
    assert declared is not None
    root = environments.images.install(declared, ignore)
    (tmp_path / "it.tar").unlink()
    assert environments.images.install(declared, ignore) == root
    read = read_programs(file, ("small",), where)

    plain, changed = read["plain"], read["changed"]
    assert (plain.command, plain.directory) == (("/app/run", "--fast"), "/app/work")
    assert plain.environment == {"PATH": "/app/bin:/bin", "MODE": "slow"}
    assert (changed.command, changed.directory, changed.environment["MODE"]) == (("/bin/other",), "/workspace", "fast")
    assert plain.image == changed.image == Image(folder=root)
    assert sorted(str(one.relative_to(root)) for one in root.rglob("*")) == [
        "app", "app/work", "bin", "bin/sh", "etc", "etc/group", "etc/passwd",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "gigabytes", "told"),
    [
        ([layer(file("bin/bash", "x", 0o755))], 1, "no /bin/sh"),
        ([layer(link("bin/sh", "/usr/bin/env"))], 1, "no /bin/sh"),
        ([layer(file("bin/sh", "x", 0o644))], 1, "no /bin/sh"),
        ([layer(SHELL, file("big", bytes(3_000_000)))], 0.001, "may take: say `gigabytes`"),
    ],
)
def test_what_can_not_be_used_is_said_and_nothing_of_it_stays(
    layers: list[bytes], gigabytes: float, told: str, environments: Environments, tmp_path: Path
) -> None:
    digest = oci(tmp_path / "it.tar", layers)
    image = Image(archive=tmp_path / "it.tar", sha256=digest, gigabytes=gigabytes)

    with pytest.raises(NotInstalled, match=told):
        environments.images.install(image, ignore)

    assert environments.images.find(image) is None
    assert list((environments.images._folder / ".images").iterdir()) == []


def test_another_file_than_the_one_that_was_meant_is_refused(environments: Environments, tmp_path: Path) -> None:
    digest = oci(tmp_path / "it.tar", [layer(SHELL)])

    with pytest.raises(NotInstalled, match=f"its sum is {digest}, not 0000"):
        environments.images.install(Image(archive=tmp_path / "it.tar", sha256="0" * 64), ignore)
    with pytest.raises(NotInstalled, match=r"gone.tar.* No such file"):
        environments.images.install(Image(archive=tmp_path / "gone.tar", sha256=digest), ignore)


def test_an_image_of_a_registry_is_pulled_by_skopeo_and_by_nothing_else(
    environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image(pull=f"docker://registry.example/our/agent@sha256:{'a' * 64}")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    with pytest.raises(NotInstalled, match="skopeo, which is not installed here: apt-get install skopeo; or `docker"):
        environments.images.install(image, ignore)
    skopeo = tmp_path / "skopeo"
    skopeo.write_text('#!/bin/sh\necho "no such manifest" >&2\nexit 1\n')
    skopeo.chmod(0o755)
    with pytest.raises(NotInstalled, match="can't be pulled: no such manifest"):
        environments.images.install(image, ignore)

    oci(tmp_path / "pulled.tar", [layer(SHELL)])
    skopeo.write_text(
        '#!/bin/sh\nfor place in "$@"; do :; done\necho "$@" > "$0.typed"\n'
        f'/bin/cp {tmp_path}/pulled.tar "${{place#oci-archive:}}"\n'
    )
    root = environments.images.install(image, ignore)

    assert image.pull is not None and image.pull in (tmp_path / "skopeo.typed").read_text()
    assert sorted(one.name for one in root.parent.iterdir()) == ["image.json", "root"]


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({}, "either a folder, or an archive, or pulled"),
        ({"folder": "a", "archive": "b", "sha256": "0" * 64}, "either a folder, or an archive, or pulled"),
        ({"archive": "b"}, "has a sha256"),
        ({"pull": "docker://registry.example/agent:latest"}, "pattern"),
        ({"folder": "a", "sha256": "0" * 64}, "has a sha256"),
    ],
)
def test_an_image_is_one_thing_by_its_sum(declared: dict[str, str], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Image.model_validate(declared)


def test_a_program_in_an_image_has_no_python_of_this_machine(tmp_path: Path) -> None:
    image = Image(folder=tmp_path)

    for given in ({"requirements": ("x",)}, {"tools": True}, {"coroutine": "agent:solve"}):
        with pytest.raises(ValidationError, match="not that of an image"):
            Program.model_validate({"image": image} | given)
    with pytest.raises(SettingsError, match="says nothing to be run: give it a command"):
        Program(image=image).with_requirements("it", Environments(tmp_path), "")
    with pytest.raises(SettingsError, match="gone is no folder here"):
        Program(image=Image(folder=tmp_path / "gone")).with_requirements("it", Environments(tmp_path), "")
