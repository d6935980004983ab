"""The 12 operations on git. The hostile calls are made in a repository that would run something at every turn."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.tools.world import SECRET, Case, World, bad, good, hold, hostile

RAN = "RAN-OF-THE-REPOSITORY"
HOOKS = (
    "pre-commit prepare-commit-msg commit-msg post-commit post-checkout post-index-change reference-transaction "
    "post-rewrite post-merge pre-auto-gc fsmonitor-watchman"
)


def run_git(folder: Path, *arguments: str, check: bool = True) -> str:
    """As its user would, with the repository's own configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
    }
    ran = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=check)
    return ran.stdout + ran.stderr


def repository(world: World) -> None:
    """Two commits on `main`, a branch `side`, and a change that is not staged."""
    run_git(world.root, "init", "-q", "-b", "main")
    world.write("a.txt", "one\ntwo\n")
    world.write("src/app.py", "x = 1\n")
    run_git(world.root, "add", ".")
    run_git(world.root, "commit", "-q", "-m", "first")
    run_git(world.root, "branch", "side")
    world.write("a.txt", "one\ntwo\nthree\n")
    run_git(world.root, "commit", "-q", "-a", "-m", "second")
    world.write("src/app.py", "x = 2\n")


def marked(world: World) -> str:
    """What says that it ran: to whom looks at output or workspace, and outside."""
    return f"echo {RAN}; echo {RAN} >&2; touch {RAN}; touch {world.outside}/{RAN} 2>/dev/null"


def hostile_repository(world: World) -> None:
    repository(world)
    world.write("secret.bin", "smudged?")
    world.write(
        ".gitattributes", "*.txt diff=evil filter=evil merge=evil\n*.py diff=evil filter=evil\n*.bin filter=evil\n"
    )
    runs = marked(world)
    program = f"sh -c '{runs}; cat'"
    for name, value in {
        "core.fsmonitor": f"sh -c '{runs}' x",
        "core.hooksPath": "",
        "core.pager": program,
        "core.editor": program,
        "core.sshCommand": program,
        "core.askPass": program,
        "core.alternateRefsCommand": program,
        "pager.log": program,
        "diff.external": program,
        "diff.evil.command": program,
        "diff.evil.textconv": f"sh -c '{runs}; cat \"$0\"'",
        "filter.evil.clean": program,
        "filter.evil.smudge": program,
        "filter.evil.required": "true",
        "merge.evil.driver": program,
        "commit.gpgSign": "true",
        "gpg.program": program,
        "log.showSignature": "true",
        "credential.helper": f"!{program}",
        "include.path": str(world.outside / "secret.txt"),
        "remote.origin.url": f"ext::{program}",
        "remote.origin.uploadpack": program,
        "branch.main.remote": "origin",
        "branch.main.merge": "refs/heads/main",
        "alias.status": f"!{program}",
        "core.attributesFile": str(world.outside / "secret.txt"),
        "core.excludesFile": str(world.outside / "secret.txt"),
    }.items():
        if value:
            with (world.root / ".git" / "config").open("a") as config:
                section, _, key = name.rpartition(".")
                top, _, below = section.partition(".")
                quoted = value.replace("\\", "\\\\").replace('"', '\\"')
                config.write(f'[{top}{f" {chr(34)}{below}{chr(34)}" if below else ""}]\n\t{key} = "{quoted}"\n')
    for name in HOOKS.split():
        hook = world.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{runs}\n")
        hook.chmod(0o755)
    (world.root / ".git" / "info").mkdir(exist_ok=True)
    (world.root / ".git" / "info" / "attributes").write_text("* diff=evil filter=evil\n")
    other = world.root.parent / "other"
    other.mkdir()
    run_git(other, "init", "-q")
    (other / "x").write_text(SECRET)
    (world.root / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (world.root / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    world.write("blob", run_git(other, "hash-object", "-w", "x").strip())


def staged(world: World) -> None:
    repository(world)
    run_git(world.root, "add", "src/app.py")


def stashed(world: World) -> None:
    repository(world)
    run_git(world.root, "stash")


def is_whole(world: World) -> None:
    assert run_git(world.root, "fsck", "--strict", "--no-dangling") == ""


def has(arguments: tuple[str, ...], words: str) -> Callable[[World], None]:
    """What git says of the repository afterwards, which is whole."""

    def check(world: World) -> None:
        assert words in run_git(world.root, *arguments)
        is_whole(world)

    return check


def evil(operation: str, expected: str | None = None, name: str = "", **arguments: Any) -> Case:
    return hostile(operation, arguments, expected, name=name, before=hostile_repository)


def refused(operation: str, expected: str, name: str = "", **arguments: Any) -> Case:
    return hostile(operation, arguments, expected, name=name, before=repository)


def of(operation: str, arguments: dict[str, Any], expected: Any, **more: Any) -> Case:
    return good(operation, arguments, expected, **{"before": repository, **more})


def wrong(operation: str, arguments: dict[str, Any], expected: str) -> Case:
    return bad(operation, arguments, expected, before=repository)


CASES = [
    of("git_status", {}, {"branch": "main", "clean": False, "text": " M src/app.py\n"}),
    bad("git_status", {}, "not_found: no git repository"),
    evil("git_status"),
    hostile(
        "git_status",
        {},
        "not_found: leads elsewhere",
        name="file",
        before=lambda world: world.write(".git", f"gitdir: {world.outside}"),
    ),
    hostile(
        "git_status",
        {},
        "not_found: leads elsewhere",
        name="link",
        before=lambda world: (world.root / ".git").symlink_to(world.outside),
    ),
    of("git_diff", {}, lambda it: "+x = 2" in it["text"]),
    of("git_diff", {"base": "HEAD~1", "target": "HEAD"}, lambda it: "+three" in it["text"], name="revisions"),
    of("git_diff", {"staged": True}, {"text": ""}, name="staged"),
    wrong("git_diff", {"target": "HEAD"}, "arguments: needs a base"),
    evil("git_diff"),
    evil("git_diff", name="revisions", base="HEAD~1", target="HEAD"),
    refused("git_diff", "arguments: base", name="option", base="--output=x"),
    refused("git_diff", "arguments: leads up", name="path", paths=["../outside/secret.txt"]),
    of("git_log", {}, lambda it: [one["subject"] for one in it["commits"]] == ["second", "first"]),
    of("git_log", {"path": "src/app.py"}, lambda it: len(it["commits"]) == 1, name="path"),
    wrong("git_log", {"revision": "nobody"}, "failed: bad revision"),
    evil("git_log"),
    refused("git_log", "arguments: revision", name="ext", revision="ext::sh -c id"),
    of("git_show", {}, lambda it: "+three" in it["text"] and "second" in it["text"]),
    of("git_show", {"revision": "HEAD~1", "path": "a.txt"}, {"text": "one\ntwo\n"}, name="file"),
    wrong("git_show", {"path": "none"}, "failed: does not exist"),
    evil("git_show"),
    evil("git_show", name="file", path="a.txt"),
    of("git_blame", {"path": "a.txt", "first": 3, "last": 3}, lambda it: "three" in it["text"] and "Ann" in it["text"]),
    of("git_blame", {"path": "a.txt"}, lambda it: it["text"].count("\n") == 3, name="whole"),
    wrong("git_blame", {"path": "none"}, "failed: no such path"),
    evil("git_blame", path="a.txt"),
    refused("git_blame", "policy: git's own", name="git", path=".git/config"),
    of("git_branches", {}, lambda it: "* main" in it["text"] and "side" in it["text"]),
    bad("git_branches", {}, "not_found: no git repository"),
    evil("git_branches"),
    of("git_create_branch", {"name": "b/c", "start": "side"}, {"branch": "b/c"}, after=has(("branch",), "b/c")),
    wrong("git_create_branch", {"name": "side"}, "failed: already exists"),
    hostile("git_create_branch", {"name": "b"}, None, name="hooks", before=hostile_repository),
    hostile("git_create_branch", {"name": "--upload-pack=x"}, "arguments: name", name="option", before=repository),
    of("git_checkout", {"revision": "side"}, {}, after=has(("status",), "On branch side")),
    of("git_checkout", {"revision": "HEAD~1"}, {}, name="detached", after=has(("log", "--format=%s"), "first")),
    wrong("git_checkout", {"revision": "nobody"}, "failed: "),
    evil("git_checkout", revision="side"),
    refused("git_checkout", "arguments: revision", name="option", revision="--orphan"),
    of(
        "git_add",
        {"paths": ["."]},
        lambda it: it["text"] == "M\tsrc/app.py\n",
        after=has(("status", "-s"), "M  src/app.py"),
    ),
    wrong("git_add", {"paths": ["none"]}, "failed: did not match"),
    evil("git_add", paths=["."]),
    refused("git_add", "policy: git's own", name="git", paths=[".git/config"]),
    good("git_commit", {"message": "third\n\nwhy"}, {}, before=staged, after=has(("log", "--format=%s"), "third")),
    of("git_commit", {"message": "all", "everything": True}, {}, name="all", after=has(("show",), "+x = 2")),
    wrong("git_commit", {"message": "nothing is staged"}, "failed: "),
    evil("git_commit", message="x", everything=True),
    refused("git_commit", "arguments: no NUL", name="nul", message="a\0b"),
    of("git_restore", {"paths": ["src/app.py"]}, {}, after=has(("status", "-s"), "")),
    good(
        "git_restore",
        {"paths": ["src/app.py"], "staged": True},
        {},
        name="staged",
        before=staged,
        after=has(("status", "-s"), " M src/app.py"),
    ),
    wrong("git_restore", {"paths": ["none"]}, "failed: did not match"),
    evil("git_restore", paths=["a.txt"], source="HEAD~1"),
    refused("git_restore", "arguments: source", name="option", paths=["a.txt"], source="-x"),
    of("git_stash", {"action": "push", "message": "later"}, {}, after=has(("stash", "list"), "later")),
    good("git_stash", {"action": "pop"}, {}, name="pop", before=stashed, after=has(("diff",), "+x = 2")),
    good("git_stash", {"action": "list"}, lambda it: "stash@{0}" in it["text"], name="list", before=stashed),
    wrong("git_stash", {"action": "pop"}, "failed: No stash entries"),
    evil("git_stash", action="push"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, sandboxed: World) -> None:
    result = await hold(case, sandboxed)

    assert RAN not in result.text
    assert not (sandboxed.root / RAN).exists()
    if case.before is hostile_repository:
        assert result.ok or case.expected, result.text
        assert RAN not in (sandboxed.root / "a.txt").read_text()


async def test_what_alternates_would_bring_in_is_not_there(sandboxed: World) -> None:
    hostile_repository(sandboxed)
    blob = (sandboxed.root / "blob").read_text()
    assert SECRET in run_git(sandboxed.root, "cat-file", "-p", blob, check=False), "the positive control"

    result = await sandboxed.call("git_show", revision=blob)

    assert not result.ok
    assert SECRET not in result.text


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("diff",),
        ("log", "-p"),
        ("show", "HEAD"),
        ("blame", "a.txt"),
        ("add", "."),
        ("checkout", "side"),
        ("commit", "-a", "-m", "x"),
        ("branch", "b"),
        ("stash",),
        ("fetch", "-c", "protocol.ext.allow=always"),
    ],
    ids=" ".join,
)
def test_the_repository_is_hostile(command: tuple[str, ...], tmp_path: Path) -> None:
    """The positive control: git as its user would call it runs what the repository says."""
    world = World(tmp_path)
    hostile_repository(world)
    arguments = ["-c", "protocol.ext.allow=always", "fetch"] if command[0] == "fetch" else list(command)
    run_git(world.root, *arguments, check=False)

    assert (world.outside / RAN).exists()


async def test_a_change_leaves_configuration_and_hooks_as_they_were(sandboxed: World) -> None:
    hostile_repository(sandboxed)
    kept = {
        path: path.read_bytes()
        for path in (sandboxed.root / ".git").rglob("*")
        if path.is_file() and path.parent.name in ("hooks", "info", ".git") and path.name not in ("index", "HEAD")
    }

    assert (await sandboxed.call("git_add", paths=["."])).ok
    assert (await sandboxed.call("git_commit", message="x")).ok

    left = {path: path.read_bytes() for path in kept}
    assert left == kept | {path: content for path, content in left.items() if path.name == "COMMIT_EDITMSG"}
