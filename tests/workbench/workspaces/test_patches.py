"""What was changed comes out as a patch that git applies, and goes in again; what would lead out does not."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.workbench.workspaces.conftest import Make, left, plain
from workbench.sandbox.job import End, Job, Result, TreeFile
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.errors import PatchRefused
from workbench.workspaces.git_jobs import quote_path
from workbench.workspaces.patching import MOST_CHARS, MOST_TOLD, Changes, changes, shorten_reasons, that_fit
from workbench.workspaces.workspaces import Workspaces

LATIN = "naïve\n".encode("latin-1")
BEFORE = plain(
    {
        "kept.py": "same\n",
        "mended.py": "one\ntwo\nthree\n",
        "gone.py": "bye\n",
        "no-newline": "end",
        "run.sh": "#!/bin/sh\n",
        "data.bin": bytes(range(256)),
        "latin.txt": LATIN,
        "deep/er/file": "x\n",
        ".gitattributes": "* text=auto eol=crlf\n*.py filter=evil diff=evil\n",
        "crlf.txt": "a\r\nb\r\n",
        "link": TreeFile(b"kept.py", is_link=True),
    }
)
AFTER = BEFORE | plain(
    {
        "mended.py": "one\n2\nthree\n",
        "no-newline": "the end",
        "run.sh": TreeFile(b"#!/bin/sh\n", executable=True),
        "data.bin": bytes(reversed(range(256))),
        "latin.txt": LATIN * 2,
        "new/ünï.txt": "new\n",
        "empty": "",
        "crlf.txt": "a\r\nc\r\n",
        "a\nline": "odd\n",
        "bytes\udcff": "odd\n",
        'quo"te\\': "odd\n",
    }
)
del AFTER["gone.py"], AFTER["deep/er/file"]


async def test_every_kind_of_change_survives_the_way_out_and_in(workspaces: Workspaces) -> None:
    before = Tree(BEFORE)

    artifact = await workspaces.artifact(before, left(AFTER), ["mended.py", "data.bin", "nothing"])
    again = await workspaces.apply_patch(before, artifact.patch)

    assert dict(again.files) == dict(sorted(AFTER.items()))
    assert artifact.files == {"mended.py": "one\n2\nthree\n"}
    assert artifact.left_out == {"data.bin": "it is no text in UTF-8", "nothing": "not there"}
    assert artifact.tree_sha256 == before.sha256 != again.sha256
    assert "kept.py" not in artifact.patch


async def test_a_person_can_apply_it(workspaces: Workspaces, tmp_path: Path) -> None:
    before, after = {"a.py": "one\n", "b.py": "two\n"}, {"a.py": "1\n", "new/c.bin": b"\0\1\2"}
    artifact = await workspaces.artifact(Tree(plain(before)), left(after))  # type: ignore[arg-type]
    for name, text in before.items():
        (tmp_path / name).write_text(text)

    await asyncio.to_thread(subprocess.run, ["git", "apply"], input=artifact.patch.encode(), cwd=tmp_path, check=True)

    assert (tmp_path / "a.py").read_text() == "1\n"
    assert (tmp_path / "new" / "c.bin").read_bytes() == b"\0\1\2"
    assert not (tmp_path / "b.py").exists()


async def test_nothing_changed_is_no_patch(workspaces: Workspaces) -> None:
    before = Tree(BEFORE)

    artifact = await workspaces.artifact(before, left(BEFORE))

    assert (artifact.patch, artifact.left_out) == ("", {})
    assert await workspaces.apply_patch(before, artifact.patch) is before


async def test_a_patch_has_a_bound_and_names_what_does_not_fit(make: Make) -> None:
    workspaces = make(workspace_patch_kb=8)
    before = Tree(plain({"small": "a\n"}))

    after = {"small": "b\n", "huge": "\n" * 9000}
    artifact = await workspaces.artifact(before, left(after))  # type: ignore[arg-type]

    assert artifact.left_out == {"huge": "the patch would have more than 8,192 bytes"}
    assert dict((await workspaces.apply_patch(before, artifact.patch)).files) == plain({"small": "b\n"})


def test_what_fits_is_what_is_small() -> None:
    small, large = ("b", None, TreeFile(b"x")), ("a", None, TreeFile(b"x" * 5000))

    assert that_fit([large, small], 4000) == Changes([small], {"a": "the patch would have more than 4,000 bytes"})


def test_what_is_not_known_to_be_gone_is_as_it_was() -> None:
    before = Tree(plain({"a/b": "1", "c": "2"}))

    assert changes(before, {}, {"a": "Permission denied"}).changed == [("c", TreeFile(b"2"), None)]
    assert changes(before, {}, {".": "too many"}).changed == []
    assert changes(before, {}, {}).changed != []


def test_what_is_told_is_bounded_however_much_was_left() -> None:
    left = {f"{number:05}{'p' * 4000}": "it is a link" for number in range(20_000)} | {".": "too many"}

    found = shorten_reasons(left)

    assert (len(found), found["."], found["…"]) == (MOST_TOLD + 1, "too many", "19,901 more")
    assert max(map(len, found)) == MOST_CHARS + 1
    assert shorten_reasons({"a": "it is a link"}) == {"a": "it is a link"}


def test_links_and_what_tools_make_are_left_out_and_said() -> None:
    before = Tree(plain({"a": "1", "kept/node_modules/x.js": "1"}))
    after = before.files | plain(
        {
            "a": TreeFile(b"/etc/passwd", is_link=True),
            "src/__pycache__/a.pyc": b"\0",
            "kept/node_modules/y.js": "2",
        }
    )

    found = changes(before, after, {})

    assert [path for path, _, _ in found.changed] == ["kept/node_modules/y.js"]
    assert found.left_out == {"a": "it is a link", "src/__pycache__": "made by a tool"}


async def test_what_git_takes_for_its_own_folder_spoils_no_patch(workspaces: Workspaces) -> None:
    before = Tree({"a": TreeFile(b"1\n")})
    odd = ("GIT~1", "x/git~1 ", ".GIT/config", "x/.git. .", ".git::$INDEX_ALLOCATION/x", "x\\.git", "y/git~1\\z")
    after = {"a": TreeFile(b"2\n"), ".github/a": TreeFile(b"3\n"), **dict.fromkeys(odd, TreeFile(b"4\n"))}

    artifact = await workspaces.artifact(before, Result(End.EXITED, "", 0, tree=after))

    assert artifact.left_out.keys() == set(odd)
    patched = await workspaces.apply_patch(before, artifact.patch)
    assert patched.files.keys() == {"a", ".github/a"}


def test_odd_names_are_quoted_as_git_does() -> None:
    assert quote_path('a\n"\\\udcffé') == b'"a\\012\\"\\\\\\377\\303\\251"'


NEW = (
    "diff --git a/{0} b/{0}\nnew file mode {1}\nindex 0000000..257cc56\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+foo\n"
)


@pytest.mark.parametrize(
    "patch",
    [
        NEW.format(".git/hooks/post-checkout", 100755),
        NEW.format(".GIT/config", 100644),
        NEW.format("sub/.git/hooks/pre-commit", 100755),
        NEW.format("../out", 100644),
        NEW.format("a/../../out", 100644),
        NEW.format("/tmp/out", 100644),
        NEW.replace("a/{0}", '"a/..\\057out"').replace("b/{0}", '"b/..\\057out"').format("", 100644),
        NEW.format("link/passwd", 100644),
        NEW.format("new-link", 120000),
        "--- a/kept.py\n+++ ../../../tmp/out\n@@ -1 +1 @@\n-same\n+other\n",
        "diff --git a/kept.py b/../out\nsimilarity index 100%\nrename from kept.py\nrename to ../out\n",
        "diff --git a/kept.py b/.git/x\nsimilarity index 100%\ncopy from kept.py\ncopy to .git/x\n",
        "diff --git a/link b/link\nindex 1..2 120000\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-kept.py\n"
        "\\ No newline at end of file\n+/etc/passwd\n\\ No newline at end of file\n",
        "diff --git a/kept.py b/kept.py\n--- a/kept.py\n+++ b/kept.py\n@@ -1 +1 @@\n-other\n+same\n",
        "no patch at all\n",
        "diff --git a/data.bin b/data.bin\nindex 0..1\nGIT binary patch\nliteral 99999999999\nzc$~\n\n",
    ],
    ids=range(16),
)
async def test_what_would_leave_the_workspace_or_does_not_apply_is_refused(workspaces: Workspaces, patch: str) -> None:
    before = Tree(BEFORE | plain({"link": TreeFile(b"/etc", is_link=True)}))

    with pytest.raises(PatchRefused):
        await workspaces.apply_patch(before, patch)


async def test_the_positive_control_of_these_patches_applies(workspaces: Workspaces) -> None:
    patched = await workspaces.apply_patch(Tree(BEFORE), NEW.format("src/new.py", 100644))

    assert patched.files["src/new.py"] == TreeFile(b"foo\n")


async def test_what_hostile_code_does_to_its_workspace_ends_in_a_patch_of_what_is_honest(
    workspaces: Workspaces, sandbox: Sandbox
) -> None:
    """A link swapped in, names that are no text, a hole of a terabyte, hooks, pipes, folders that can't be read."""
    before = Tree(plain({"a.py": "one\n", "b/c.py": "two\n", "shut/d.py": "three\n"}))
    code = (
        "import os\nopen('a.py', 'w').write('1\\n')\nos.remove('b/c.py'); os.rmdir('b'); os.symlink('/etc', 'b')\n"
        "os.symlink('/etc/passwd', 'stolen'); os.mkfifo('pipe')\n"
        "os.makedirs('.git/hooks'); open('.git/hooks/post-checkout', 'w').write('evil')\n"
        "open(b'new\\nline', 'w').write('n\\n'); open(b'\\xff\\xfe', 'w').write('x\\n')\n"
        "open('core', 'wb').truncate(1 << 25)\n"
        "try: open('hole', 'wb').truncate(1 << 40)\nexcept OSError: pass\n"
        "os.chmod('shut', 0)\n"
    )
    job = Job(["python3", "-I", "-c", code], tree=before.files, collect_tree=True)
    result = await sandbox.run(job)
    assert result.succeeded, result

    artifact = await workspaces.artifact(before, result)
    patched = await workspaces.apply_patch(before, artifact.patch)

    assert patched.files["a.py"] == TreeFile(b"1\n")
    assert {"new\nline", "\udcff\udcfe"} <= patched.files.keys()
    assert not any(file.is_link for file in patched.files.values())
    assert not any(".git" in path for path in patched.files)
    assert artifact.left_out["stolen"] == artifact.left_out["b"] == "it is a link"
    assert artifact.left_out["pipe"] == "no plain file"
    assert "core" in artifact.left_out
