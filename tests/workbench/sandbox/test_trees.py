"""A whole tree goes in and comes out, whoever runs it; what hostile code makes of it leads nowhere and has a bound."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.workbench.sandbox.conftest import AsUser, Direct
from workbench.sandbox.job import End, Job, SandboxError, TreeFile
from workbench.sandbox.limits import MIB, Limits

TREE = {
    "run": TreeFile(b"#!/bin/sh\necho ran > made; echo more >> a/b; rm gone; chmod +x kept; mkdir none\n", True),
    "a/b": TreeFile(b"some "),
    "gone": TreeFile(b""),
    "kept": TreeFile(b"kept"),
    "away": TreeFile(b"/etc/passwd", is_link=True),
    "odd\n\udcff": TreeFile(b"odd"),
}


def python(code: str, **of_job: object) -> Job:
    return Job(["python3", "-I", "-S", "-c", code], collect_tree=True, **of_job)  # type: ignore[arg-type]


def test_a_tree_goes_in_and_comes_out_as_it_was_left(run_job: Direct | AsUser) -> None:
    result = run_job(Job(["./run"], tree=TREE, collect_tree=True))

    assert result.succeeded, result
    assert dict(result.tree) == {
        "a/b": TreeFile(b"some more\n"),
        "away": TREE["away"],
        "kept": TreeFile(b"kept", True),
        "made": TreeFile(b"ran\n"),
        "odd\n\udcff": TREE["odd\n\udcff"],
        "run": TREE["run"],
    }
    assert dict(result.left_out) == {}


def test_a_program_that_was_just_put_there_runs_while_other_threads_start_processes(run_here: Direct) -> None:
    """Each of those has a copy of every descriptor until its own exec; before it was waited for, a third failed."""
    program = TreeFile(Path("/bin/true").read_bytes() + bytes(4 * MIB), executable=True)
    over = threading.Event()

    def start_processes() -> None:
        while not over.is_set():
            subprocess.run(["/bin/true"], check=True)

    with ThreadPoolExecutor() as threads:
        starting = [threads.submit(start_processes) for _ in range(3)]
        runs = threads.map(lambda _: run_here(Job(["./program"], tree={"program": program})), range(40))
        try:
            failed = [result for result in runs if not result.succeeded]
        finally:
            over.set()
        assert [one.result() for one in starting] == [None] * 3

    assert failed == []


def test_files_of_the_job_come_before_those_of_the_tree(run_here: Direct) -> None:
    result = run_here(Job(["cat", "a/b", "a/c"], tree={**TREE, "a/c": TreeFile(b"tree")}, files={"a/b": b"own "}))

    assert result.stdout == b"own tree"


def test_nothing_is_written_or_read_through_a_link(run_here: Direct, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    tree = {"a": TreeFile(str(tmp_path).encode(), is_link=True), "a/b": TreeFile(b"evil")}
    with pytest.raises(SandboxError, match="does not go into the workspace"):
        run_here(Job(["true"], tree=tree))
    assert list(tmp_path.iterdir()) == []

    code = (
        "import os\nos.symlink('/etc', 'etc'); os.symlink('/etc/passwd', 'passwd'); os.mkfifo('pipe')\n"
        "os.makedirs('.git/hooks'); open('.git/hooks/x', 'w')\n"
    )
    result = run_here(python(code))
    assert dict(result.tree) == {
        "etc": TreeFile(b"/etc", is_link=True),
        "passwd": TreeFile(b"/etc/passwd", is_link=True),
    }
    assert dict(result.left_out) == {"pipe": "no plain file"}


@pytest.mark.parametrize("path", ["../out", "/out", "a/../../out", "", "a//b", "./a", "a\0b"])
def test_a_path_that_leads_out_is_no_jobs(path: str) -> None:
    with pytest.raises(SandboxError, match="no path of a file"):
        Job(["true"], tree={path: TreeFile(b"")})


def test_a_tree_that_is_too_large_is_refused_before_it_is_run() -> None:
    with pytest.raises(SandboxError, match="1,048,576 bytes more"):
        Job(["true"], tree={"a": TreeFile(bytes(2 * MIB))}, limits=Limits(workspace_bytes=MIB))
    with pytest.raises(SandboxError, match="2 files, and there may be 1"):
        Job(["true"], tree={"a": TreeFile(b""), "b": TreeFile(b"")}, limits=Limits(files=1))


def test_a_million_files_end_the_run_and_no_more_than_may_be_come_out(run_here: Direct) -> None:
    limits = Limits(files=2000, wall_s=60, cpu_s=60)

    result = run_here(python("for one in range(10**6): open(str(one), 'w').close()", limits=limits))

    assert result.end is End.FILES
    assert len(result.tree) <= 2000
    assert result.left_out["."] == "there are more than 2,000 files and folders"


def test_what_comes_out_has_a_bound_and_small_files_come_all_the_same(run_here: Direct) -> None:
    code = (
        "open('a', 'wb').truncate(3 << 20)\nopen('b', 'w').write('b')\n"
        "try: open('c', 'wb').truncate(1 << 40)\nexcept OSError: pass\n"
        "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    )
    result = run_here(python(code, limits=Limits(collected_bytes=MIB)))

    assert result.tree["b"] == TreeFile(b"b")
    assert result.left_out["a"] == "with it there would be more than 1,048,576 bytes"
    assert any(why == "File name too long" for why in result.left_out.values())
