"""A workspace that is a commit of a git repository: fetched over HTTP, and read by git in a sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from urllib.parse import urljoin

from schemas.messages.workspace import GitSource
from workbench.sandbox.job import End, Job, Result, TreeFile
from workbench.trees import Bounds, Tree, check_path, check_tree, printable
from workbench.workspaces import git_jobs
from workbench.workspaces.download import Downloads
from workbench.workspaces.errors import WorkspaceError
from workbench.workspaces.git_http import fetch_pack

Run = Callable[[Job], Awaitable[Result]]
LINK, EXECUTABLE, SUBMODULE = b"120000", b"100755", b"160000"
DEEPEST = 4
"""Submodules in submodules."""


async def tree_of_commit(source: GitSource, downloads: Downloads, run: Run, bounds: Bounds) -> Tree:
    """Raises WorkspaceError, WorkspaceUnavailable or SandboxError."""
    files = await _files(source.url, source.commit, downloads, run, bounds, DEEPEST if source.submodules else 0)
    return check_tree(files, bounds)


async def _files(
    url: str, commit: str, downloads: Downloads, run: Run, bounds: Bounds, deeper: int
) -> dict[str, TreeFile]:
    pack = await fetch_pack(downloads, url, commit)
    result = await run(git_jobs.listing(pack, commit, bounds))
    del pack
    if not result.succeeded:
        raise WorkspaceError(f"commit {commit} of {url[:200]} can't be read: {_fault(result, bounds)}")
    if result.left_out:
        raise WorkspaceError(f"commit {commit} of {url[:200]} is too large: {_most(bounds)}")
    files, submodules = read_listing(result.files[git_jobs.NAMES], result.files[git_jobs.CONTENTS], bounds)
    if not deeper or not submodules:
        return files
    urls = await _urls(files, run, url)
    for path, at in submodules.items():
        if path not in urls:
            raise WorkspaceError(f"the submodule {printable(path)!r} has no URL in .gitmodules")
        used = sum(len(file.content) for file in files.values())
        left = replace(bounds, bytes=max(0, bounds.bytes - used), files=max(0, bounds.files - len(files)))
        below = await _files(urls[path], at, downloads, run, left, deeper - 1)
        files |= {f"{path}/{name}": file for name, file in below.items()}
        check_tree(files, bounds)
    return files


def read_listing(names: bytes, contents: bytes, bounds: Bounds) -> tuple[dict[str, TreeFile], dict[str, str]]:
    """Files by path, and commits of submodules by path. Raises WorkspaceError."""
    files, submodules, at = dict[str, TreeFile](), dict[str, str](), 0
    entries = names.split(b"\0")[:-1]
    if len(entries) > bounds.files:
        raise WorkspaceError(f"the commit has {len(entries):,} files, and may have {bounds.files:,}")
    for entry in entries:
        about, _, name = entry.partition(b"\t")
        mode, _, oid = about.split(b" ")
        path = check_path(name.decode("utf-8", "surrogateescape"))
        if mode == SUBMODULE:
            submodules[path] = oid.decode()
            continue
        end = contents.index(b"\n", at)
        size = int(contents[at:end].rpartition(b" ")[2])
        content = contents[end + 1 : end + 1 + size]
        at = end + size + 2
        files[path] = TreeFile(content, executable=mode == EXECUTABLE, is_link=mode == LINK)
    return files, submodules


async def _urls(files: Mapping[str, TreeFile], run: Run, url: str) -> dict[str, str]:
    """URLs of submodules, by their paths; relative ones below the repository's own."""
    file = files.get(".gitmodules")
    if file is None:
        return {}
    result = await run(git_jobs.modules(bytes(file.content)))
    if not result.succeeded:
        raise WorkspaceError(f".gitmodules can't be read: {result.stderr[:200].decode(errors='replace').strip()}")
    by_name: dict[str, dict[str, str]] = {}
    for key, value in _settings(result.stdout):
        section, _, rest = key.partition(".")
        name, _, field = rest.rpartition(".")
        if section == "submodule":
            by_name.setdefault(name, {})[field] = value
    return {one["path"]: _absolute(url, one["url"]) for one in by_name.values() if {"path", "url"} <= one.keys()}


def _settings(listed: bytes) -> Iterator[tuple[str, str]]:
    for one in listed.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = one.partition("\n")
        yield key, value


def _absolute(url: str, named: str) -> str:
    return urljoin(url.rstrip("/") + "/", named) if named.startswith(("./", "../")) else named


def _fault(result: Result, bounds: Bounds) -> str:
    if result.end is not End.EXITED or b"too large" in result.stderr or b"No space" in result.stderr:
        return f"{result.says}; {_most(bounds)}"
    return result.stderr[-300:].decode(errors="replace").strip() or result.says


def _most(bounds: Bounds) -> str:
    return f"a workspace may have {bounds.bytes:,} bytes in {bounds.files:,} files"
