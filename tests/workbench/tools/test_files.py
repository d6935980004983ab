"""The 14 operations on files, each with a good, a bad and a hostile call."""

from __future__ import annotations

import os
import socket

import pytest

from tests.workbench.tools.world import Case, World, bad, good, hold, hostile

LINK = "policy: link"
LINKED = "arguments: a link"
"""Of what would have to be a folder."""


def planted(world: World) -> None:
    """Files to work on, and ways out."""
    world.write("a.txt", "one\ntwo\nthree\n")
    world.write("src/app.py", "def add(a, b):\n    return a - b\n")
    world.write("src/deep/more.py", "add = 1\n")
    world.write(".git/config", "[core]\n")
    (world.root / "empty").mkdir()
    (world.root / "bytes").write_bytes(b"\xff\xfe\x00")
    (world.root / "out").symlink_to(world.outside)
    (world.root / "secret.txt").symlink_to(world.outside / "secret.txt")
    (world.root / "magic").symlink_to("/proc/self/root")
    os.mkfifo(world.root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(world.root / "s"))
    server.close()


def text_of(path: str, text: str) -> object:
    def check(world: World) -> None:
        assert (world.root / path).read_text() == text

    return check


def unchanged(world: World) -> None:
    assert (world.root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (world.root / "src/app.py").read_text() == "def add(a, b):\n    return a - b\n"
    assert [path.name for path in (world.root / ".git").iterdir()] == ["config"]


MOVED = "--- a/a.txt\n+++ b/b.txt\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n"
PATCH = """\
--- a/src/app.py
+++ b/src/app.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
--- /dev/null
+++ b/new/file.txt
@@ -0,0 +1,2 @@
+x
+y
"""
HALF = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+ONE\n--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-no\n+yes\n"

CASES = [
    good("file_read", {"path": "a.txt"}, {"text": "one\ntwo\nthree\n", "whole": True, "bytes": 14}),
    good("file_read", {"path": "a.txt", "max_bytes": 4}, {"text": "one\n", "whole": False}, name="part"),
    bad("file_read", {"path": "none.txt"}, "not_found: none.txt is not there"),
    bad("file_read", {"path": "bytes"}, "arguments: no text in UTF-8", name="bytes"),
    bad("file_read", {"path": "src"}, "arguments: a folder", name="folder"),
    bad("file_read", {"path": "a.txt", "nonsense": 1}, "arguments: nonsense", name="extra"),
    hostile("file_read", {"path": "secret.txt"}, LINK),
    hostile("file_read", {"path": "out/secret.txt"}, LINK, name="folder"),
    hostile("file_read", {"path": "../outside/secret.txt"}, "arguments: leads up", name="up"),
    hostile("file_read", {"path": "/etc/passwd"}, "arguments: absolute", name="absolute"),
    hostile("file_read", {"path": "magic/etc/passwd"}, LINK, name="magic"),
    hostile("file_read", {"path": "fifo"}, "arguments: no plain file", name="fifo"),
    hostile("file_read", {"path": "a\0b"}, "arguments: NUL", name="nul"),
    good("file_read_lines", {"path": "a.txt", "first": 2, "last": 2}, {"lines": 3, "text": "2: two"}),
    bad("file_read_lines", {"path": "a.txt", "first": 9, "last": 12}, "arguments: there is no line 9"),
    bad("file_read_lines", {"path": "a.txt", "first": 3, "last": 2}, "arguments: comes before", name="order"),
    hostile("file_read_lines", {"path": "out/secret.txt"}, LINK),
    good("file_list", {"path": "src"}, lambda it: [one["path"] for one in it["entries"]] == ["src/app.py", "src/deep"]),
    bad("file_list", {"path": "a.txt"}, "arguments: no folder"),
    hostile("file_list", {"path": "out"}, LINKED),
    hostile("file_list", {"path": "magic"}, LINKED, name="magic"),
    good("file_tree", {"path": "src"}, {"text": "app.py\ndeep/\n  more.py"}),
    bad("file_tree", {"depth": 99}, "arguments: depth"),
    hostile("file_tree", {"path": "out"}, LINKED),
    good("file_search", {"pattern": "add(", "glob": "*.py"}, lambda it: [one["line"] for one in it["hits"]] == [1]),
    good("file_search", {"pattern": "^t\\w+$", "regex": True}, lambda it: len(it["hits"]) == 2, name="regex"),
    good("file_search", {"pattern": "ADD", "ignore_case": True, "max_results": 1}, lambda it: it["more"], name="more"),
    bad("file_search", {"pattern": "(?<=a)b", "regex": True}, "arguments: none of RE2"),
    hostile("file_search", {"pattern": "secret"}, None),
    hostile("file_search", {"pattern": "secret", "path": "out"}, LINKED, name="link"),
    hostile(
        "file_search",
        {"pattern": "(a+)+$", "regex": True},
        None,
        name="exponential",
        before=lambda world: world.write("long.txt", "a" * 100_000 + "b"),
    ),
    good("file_find", {"glob": "*.py"}, {"paths": ["src/app.py", "src/deep/more.py"], "more": False}),
    good("file_find", {"glob": "src/*.py"}, {"paths": ["src/app.py"]}, name="path"),
    good("file_find", {"glob": "**/more.py"}, {"paths": ["src/deep/more.py"]}, name="deep"),
    bad("file_find", {"glob": ""}, "arguments: glob"),
    hostile("file_find", {"glob": "**", "path": "out"}, LINKED),
    hostile("file_find", {"glob": "*a" * 100 + "*b"}, None, name="exponential"),
    good("file_stat", {"path": "a.txt"}, {"kind": "file", "bytes": 14, "mode": "0644"}),
    bad("file_stat", {"path": "none"}, "not_found: "),
    hostile("file_stat", {"path": "out/secret.txt"}, LINKED),
    good("file_write", {"path": "n/e/w.txt", "content": "é"}, {"bytes": 2}, after=text_of("n/e/w.txt", "é")),
    good("file_write", {"path": "none", "content": "", "if_sha256": "absent"}, {"bytes": 0}, name="absent"),
    bad(
        "file_write", {"path": "a.txt", "content": "x", "if_sha256": "0" * 64}, "conflict: has changed", after=unchanged
    ),
    bad("file_write", {"path": "src", "content": "x"}, "conflict: a folder", name="folder"),
    hostile("file_write", {"path": "secret.txt", "content": "x"}, "conflict: a link"),
    hostile("file_write", {"path": "out/new", "content": "x"}, LINKED, name="folder"),
    hostile(
        "file_write",
        {"path": ".git/hooks/post-checkout", "content": "x"},
        "policy: git's own",
        after=unchanged,
        name="hook",
    ),
    hostile("file_write", {"path": "sub/.GIT/config", "content": "x"}, "policy: git's own", name="case"),
    hostile("file_write", {"path": "x", "content": "\ud800"}, "arguments: ", name="surrogate"),
    good(
        "file_append",
        {"path": "a.txt", "content": "four\n"},
        {"bytes": 19},
        after=text_of("a.txt", "one\ntwo\nthree\nfour\n"),
    ),
    bad("file_append", {"path": "none", "content": "x"}, "not_found: "),
    hostile("file_append", {"path": "secret.txt", "content": "x"}, LINK),
    hostile(
        "file_append",
        {"path": "second", "content": "x"},
        "conflict: a second name",
        name="hard-link",
        before=lambda world: os.link(world.outside / "secret.txt", world.root / "second"),
    ),
    hostile("file_append", {"path": "fifo", "content": "x"}, "arguments: no plain file", name="fifo"),
    good(
        "file_replace",
        {"path": "src/app.py", "old": "a - b", "new": "a + b"},
        {"line": 2},
        after=text_of("src/app.py", "def add(a, b):\n    return a + b\n"),
    ),
    bad("file_replace", {"path": "a.txt", "old": "seven", "new": "x"}, "conflict: is not there", after=unchanged),
    bad(
        "file_replace",
        {"path": "a.txt", "old": "e", "new": "x"},
        "conflict: is there 3 times",
        name="thrice",
        after=unchanged,
    ),
    hostile("file_replace", {"path": "secret.txt", "old": "the", "new": "x"}, LINK),
    good(
        "file_patch",
        {"patch": PATCH},
        {"changed": ["src/app.py", "new/file.txt"]},
        after=text_of("new/file.txt", "x\ny\n"),
    ),
    good(
        "file_patch",
        {"patch": MOVED},
        {"changed": ["a.txt", "b.txt"]},
        name="moved",
        after=text_of("b.txt", "ONE\ntwo\nthree\n"),
    ),
    bad("file_patch", {"patch": HALF}, "conflict: does not fit", after=unchanged),
    bad("file_patch", {"patch": "please"}, "arguments: no unified diff", name="none"),
    hostile("file_patch", {"patch": PATCH.replace("src/app.py", "../outside/secret.txt")}, "arguments: leads up"),
    hostile(
        "file_patch",
        {"patch": PATCH.replace("new/file.txt", ".git/hooks/x")},
        "policy: git's own",
        name="hook",
        after=unchanged,
    ),
    hostile("file_patch", {"patch": PATCH.replace("new/", "out/")}, LINKED, name="link"),
    good(
        "file_move",
        {"source": "a.txt", "target": "d/b.txt"},
        {"target": "d/b.txt"},
        after=text_of("d/b.txt", "one\ntwo\nthree\n"),
    ),
    bad("file_move", {"source": "a.txt", "target": "src/app.py"}, "conflict: is there already", after=unchanged),
    hostile("file_move", {"source": "a.txt", "target": "out/a.txt"}, LINKED, after=unchanged),
    hostile("file_move", {"source": "out/secret.txt", "target": "b"}, LINKED, name="from"),
    hostile("file_move", {"source": ".git", "target": "git"}, "policy: git's own", name="git", after=unchanged),
    good("file_remove", {"path": "src", "recursive": True}, {"removed": 4}),
    good("file_remove", {"path": "out"}, {"removed": 1}, name="link-itself"),
    bad("file_remove", {"path": "src"}, "conflict: not empty", after=unchanged),
    hostile("file_remove", {"path": "out/secret.txt"}, LINKED),
    hostile("file_remove", {"path": "out", "recursive": True}, None, name="through-a-link"),
    hostile("file_remove", {"path": ".", "recursive": True}, "policy: git", name="everything", after=unchanged),
    good("file_make_folder", {"path": "x/y/z"}, {"made": ["x", "x/y", "x/y/z"]}),
    bad("file_make_folder", {"path": "a.txt/x"}, "arguments: "),
    hostile("file_make_folder", {"path": "out/x"}, LINKED),
    hostile("file_make_folder", {"path": ".git/hooks"}, "policy: git's own", name="git", after=unchanged),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, world: World) -> None:
    planted(world)

    await hold(case, world)


async def test_a_write_leaves_no_temporary_file_and_keeps_the_mode(world: World) -> None:
    world.write("run.sh", "x")
    (world.root / "run.sh").chmod(0o755)

    assert (await world.call("file_write", path="run.sh", content="y")).ok
    assert [path.name for path in world.root.iterdir()] == ["run.sh"]
    assert (world.root / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_folders_in_each_other_without_end_are_a_clear_error(world: World) -> None:
    """Two thousand of them took a call more than three seconds."""
    (world.root / "/".join("a" * 65)).mkdir(parents=True)

    result = await world.call("file_tree")

    assert "more than 64 folders in each other" in result.text
    assert (await world.call("file_tree", path="a/a")).ok
