"""A job whose root is a folder of its own: it sees nothing of the machine's, and its way out needs nothing inside."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet.programs.images.archive import open_image
from ratchet.programs.images.layers import lay
from tests.images import docker_save, file, folder, layer, link, with_bash
from tests.passable import passable_folder
from tests.workbench.sandbox.answering import Heard
from tests.workbench.sandbox.conftest import AsUser, Direct
from workbench.sandbox.job import Job, SandboxError
from workbench.sandbox.limits import Limits

PORT = 4712
LOOK = """
shopt -s dotglob nullglob
echo /* /usr/* /etc/*
echo "$PWD $UID $(</own)"
for place in /usr /own /etc/passwd /new; do { : > "$place"; } 2>/dev/null && echo "wrote $place"; done
type -p python3 git ls || echo none
"""
ASK = f"""
exec 3<>/dev/tcp/127.0.0.1/{PORT} || exit 1
echo hello >&3
read -r heard <&3
echo "$heard"
"""
SHELL_THAT_LIMITS_NOTHING = """#!/bin/bash
for one in {1..40}; do (echo started >&2; kill -STOP $BASHPID) & done &
echo
read -r word
ulimit -n
wait
"""
SHOW_VARIABLES = 'while IFS= read -rd "" one; do echo "$one"; done < /proc/self/environ'


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Bash and what it is linked with, a link that leads out, and a few files."""
    more = file("own", "mine"), folder("app/work"), link("out", "/oldroot/var/tmp"), file("etc/passwd")
    with laid(with_bash(*more)) as place:
        yield place


@contextmanager
def laid(*layers: bytes) -> Iterator[Path]:
    """Lay the layers of an image into a folder that every user may enter."""
    with passable_folder() as place:
        docker_save(place / "it.tar", layers)
        (place / "root").mkdir(mode=0o755)
        with open_image(place / "it.tar") as archive:
            lay(archive, place / "root", 10**9)
        yield place / "root"


def test_it_sees_its_root_and_nothing_of_the_machine(root: Path, run_job: Direct | AsUser) -> None:
    result = run_job(Job(["bash", "-c", LOOK], root=root, directory="/app/work", files={"x": b"y"}))

    assert result.succeeded, result
    tops, about, *rest = result.stdout.decode().splitlines()
    assert set(tops.split()) >= {"/app", "/bin", "/own", "/out", "/workspace", "/tmp", "/etc/passwd"}
    assert not {one for one in tops.split() if one.startswith("/usr")} - {"/usr", "/usr/lib"}
    assert set(tops.split()) & {"/home", "/root", "/var", "/sys", "/work", "/etc/alternatives", "/oldroot"} == set()
    assert (about, rest) == ("/app/work 1000 mine", ["none"])


def test_what_it_is_given_lies_beside_its_root(root: Path, run_here: Direct) -> None:
    job = Job(
        ["/bin/sh", "-c", "echo $(</given/own) $(</task/input); cd /workspace; echo made > out"],
        root=root, mounts={"/given": root}, data={"/task/input": b"asked"}, collect=["out"],
    )  # fmt: skip

    result = run_here(job)

    assert (result.stdout, result.files) == (b"mine asked\n", {"out": b"made\n"})


def test_its_way_out_is_made_from_outside(root: Path, run_job: Direct | AsUser) -> None:
    result = run_job(Job(["bash", "-c", ASK], root=root, listeners={PORT: Heard()}))
    without = run_job(Job(["bash", "-c", ASK], root=root))

    assert (result.stdout, result.exit_code) == (b"heard hello\n", 0), result
    assert without.exit_code == 1 and b"refused" in without.stderr


def test_it_is_given_no_end_of_what_its_socket_is_handed_over_by(root: Path, run_here: Direct) -> None:
    show = ["bash", "-c", "echo /proc/self/fd/*"]
    without, given = (run_here(Job(show, root=root, listeners=out)).stdout for out in ({}, {PORT: Heard()}))

    assert given == without != b""


def test_nothing_is_set_up_behind_a_link_of_its_root(root: Path, run_here: Direct) -> None:
    """Bubblewrap still sees the machine when it makes a place for what a job is given."""
    name = secrets.token_hex(8)

    with pytest.raises(SandboxError, match="/out is a link"):
        run_here(Job(["bash"], root=root, data={f"/out/{name}": b"x"}))
    with pytest.raises(SandboxError, match="can't be looked into"):
        run_here(Job(["bash"], root=root / "gone"))
    with pytest.raises(SandboxError, match="absolute path"):
        Job(["bash"], root=root, directory="app")
    assert not Path("/var/tmp", name).exists()


def test_an_image_whose_shell_limits_nothing_is_held_to_its_processes_and_open_files(run_job: Direct | AsUser) -> None:
    limits = Limits(processes=8, open_files=64, wall_s=1)

    with laid(with_bash(), layer(file("bin/sh", SHELL_THAT_LIMITS_NOTHING, 0o755))) as hostile:
        result = run_job(Job(["bash"], root=hostile, limits=limits))

    assert result.stdout == b"64\n", result
    assert 1 <= result.stderr.count(b"started") <= 8 - 2, "the first process and the shell count, too"
    assert b"fork: retry: Resource temporarily unavailable" in result.stderr


def test_variables_that_bash_can_not_set_arrive_too(root: Path, run_here: Direct) -> None:
    environment = {"UID": "7", "a.b": "dotted", "PATH": "/bin", "TWO": "one\ntwo", "BASH_FUNC_read%%": "() { exit; }"}

    result = run_here(Job(["bash", "-c", SHOW_VARIABLES], root=root, environment=environment))

    shown = result.stdout.decode().splitlines()
    assert {"UID=7", "a.b=dotted", "PATH=/bin", "TWO=one", "two"} <= set(shown), result
