"""Trees from files, folders, repositories and archives: as they are, once, within bounds, and only what is allowed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.messages.workspace import ArchiveSource, GitSource, Workspace
from tests.workbench.workspaces.conftest import Make, Server, git, plain
from workbench.sandbox.job import Job, Result, TreeFile
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Bounds, Tree
from workbench.workspaces.archive import unpack_archive
from workbench.workspaces.cache import TreeCache
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.urls import check_url
from workbench.workspaces.workspaces import Workspaces

BOUNDS = Bounds(1 << 20, 100)


async def test_files_given_inline_are_a_tree(make: Make) -> None:
    tree = await make().tree(Workspace(files={"a/b.py": "é\n", "c": ""}))

    assert dict(tree.files) == plain({"a/b.py": "é\n", "c": ""})
    with pytest.raises(WorkspaceError, match="a file, or a link, and a folder"):
        await make().tree(Workspace(files={"a": "", "a/b": ""}))
    with pytest.raises(WorkspaceError, match="has 2 files, and may have 1"):
        await make(workspace_files=1).tree(Workspace(files={"a": "", "b": ""}))


async def test_a_folder_is_read_where_a_setting_allows_it_and_no_link_leads_out(make: Make, tmp_path: Path) -> None:
    (tmp_path / "open" / "project" / ".git").mkdir(parents=True)
    (tmp_path / "open" / "project" / ".git" / "config").write_text("secret")
    (tmp_path / "open" / "project" / "run").write_text("x")
    (tmp_path / "open" / "project" / "run").chmod(0o755)
    (tmp_path / "open" / "project" / "out").symlink_to("/etc/passwd")
    (tmp_path / "secret").mkdir()
    (tmp_path / "open" / "way").symlink_to(tmp_path / "secret")
    workspaces = make(workspace_folders=f"{tmp_path}/open")

    tree = await workspaces.tree(Workspace(folder=f"{tmp_path}/open/project"))

    assert dict(tree.files) == {"out": TreeFile(b"/etc/passwd", is_link=True), "run": TreeFile(b"x", executable=True)}
    for refused in (f"{tmp_path}/secret", f"{tmp_path}/open/../secret", f"{tmp_path}/openly", "/etc", "open/project"):
        with pytest.raises(WorkspaceError, match="RATCHET_WORKSPACE_FOLDERS"):
            await workspaces.tree(Workspace(folder=refused))
    with pytest.raises(WorkspaceError, match="without following a link"):
        await workspaces.tree(Workspace(folder=f"{tmp_path}/open/way"))
    with pytest.raises(WorkspaceError, match="RATCHET_WORKSPACE_FOLDERS"):
        await make().tree(Workspace(folder=f"{tmp_path}/open/project"))


async def test_a_folder_with_a_hole_of_a_terabyte_or_a_pipe_is_refused_at_once(make: Make, tmp_path: Path) -> None:
    for name, spoil in (("hole", lambda path: os.truncate(path, 1 << 40)), ("pipe", _pipe)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"")
        spoil(tmp_path / name / "file")

        with pytest.raises(WorkspaceError, match=r"file: (with it there would be more|no plain file)"):
            await make(workspace_folders=str(tmp_path)).tree(Workspace(folder=str(tmp_path / name)))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.fixture
def repository(server: Server) -> tuple[str, str]:
    """URL and commit."""
    below = server.folder / "below"
    below.mkdir()
    git(below, "init", "-q")
    (below / "lib.py").write_text("lib\n")
    git(below, "add", "-A")
    git(below, "commit", "-qm", "x")
    folder = server.folder / "shop"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.py").write_bytes(b"one\r\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "out").symlink_to("/etc/passwd")
    (folder / os.fsdecode(b"odd\n\xff")).write_text("odd\n")
    (folder / "hidden").write_text("exported all the same\n")
    (folder / ".gitattributes").write_text("hidden export-ignore\n* text eol=lf filter=lfs\n")
    git(folder, "submodule", "--quiet", "add", "../below", "lib")
    git(folder, "-c", "core.autocrlf=false", "add", "-A")
    _raw(folder, "a.py", b"one\r\n")
    git(folder, "commit", "-qm", "first")
    first = git(folder, "rev-parse", "HEAD")
    (folder / "a.py").write_text("two\n")
    git(folder, "commit", "-qam", "second")
    return f"{server.url}/shop", first


def _raw(folder: Path, path: str, content: bytes) -> None:
    """Into the index, past attributes."""
    (folder / "raw").write_bytes(content)
    oid = git(folder, "hash-object", "-w", "--no-filters", "raw")
    (folder / "raw").unlink()
    git(folder, "rm", "-q", "--cached", "--ignore-unmatch", "raw")
    git(folder, "update-index", "--cacheinfo", f"100644,{oid},{path}")


async def test_a_commit_is_read_byte_by_byte_and_fetched_once(
    make: Make, server: Server, repository: tuple[str, str]
) -> None:
    url, commit = repository
    workspaces = make(workspace_urls=f"{server.url}/")

    tree = await workspaces.tree(Workspace(git=GitSource(url=url, commit=commit)))
    asked = len(server.asked)
    again = await make(workspace_urls=f"{server.url}/").tree(Workspace(git=GitSource(url=url, commit=commit)))

    assert tree.files["a.py"] == TreeFile(b"one\r\n")
    assert tree.files["run.sh"].executable
    assert tree.files["out"] == TreeFile(b"/etc/passwd", is_link=True)
    assert {"odd\n\udcff", "hidden", ".gitattributes", ".gitmodules"} <= tree.files.keys()
    assert not any(path.startswith("lib") for path in tree.files)
    assert (again.sha256, len(server.asked), asked) == (tree.sha256, asked, 2)


async def test_submodules_come_where_they_are_asked_for(
    make: Make, server: Server, repository: tuple[str, str], tmp_path: Path
) -> None:
    url, commit = repository
    asked = Workspace(git=GitSource(url=url, commit=commit, submodules=True))

    tree = await make(workspace_urls=f"{server.url}/").tree(asked)

    assert tree.files["lib/lib.py"] == TreeFile(b"lib\n")
    with pytest.raises(WorkspaceError, match="not among the URLs"):
        await make(workspace_urls=f"{server.url}/shop", workspace_cache=tmp_path / "other").tree(asked)


async def test_what_is_no_commit_no_repository_or_not_allowed_is_refused(
    make: Make, server: Server, repository: tuple[str, str]
) -> None:
    url, commit = repository
    workspaces = make(workspace_urls=f"{server.url}/")
    server.redirects["/moved/info/refs?service=git-upload-pack"] = "http://169.254.169.254/latest"

    for asked, said in {
        GitSource(url=url, commit="0" * 40): "does not give commit",
        GitSource(url=f"{server.url}/none", commit=commit): "answers 404",
        GitSource(url="https://example.org/shop", commit=commit): "RATCHET_WORKSPACE_URLS",
        GitSource(url=f"{server.url}/moved", commit=commit): "RATCHET_WORKSPACE_URLS",
    }.items():
        with pytest.raises(WorkspaceError, match=said):
            await workspaces.tree(Workspace(git=asked))
    with pytest.raises(WorkspaceUnavailable):
        await make(workspace_urls="http://127.0.0.1:9/").tree(
            Workspace(git=GitSource(url="http://127.0.0.1:9/x", commit=commit))
        )


class Busy(Sandbox):
    """One whose places others hold, longer than a repository may take."""

    async def run(self, job: Job, called_off: asyncio.Event | None = None) -> Result:
        await asyncio.sleep(3.2)  # real time: longer than a repository may take
        return await super().run(job, called_off)


async def test_a_repository_is_read_however_long_a_place_in_the_sandbox_is_waited_for(
    server: Server, repository: tuple[str, str], tmp_path: Path
) -> None:
    url, commit = repository
    settings = WorkspaceSettings(
        workspace_cache=tmp_path / "cache", workspace_urls=(f"{server.url}/",), workspace_fetch_s=3.0
    )
    async with Workspaces(settings, Busy(None, runs_at_once=1)) as workspaces:
        assert (await workspaces.tree(Workspace(git=GitSource(url=url, commit=commit)))).files


async def test_a_commit_that_is_too_large_or_has_too_many_files_is_refused(
    make: Make, server: Server, repository: tuple[str, str]
) -> None:
    url, commit = repository
    with pytest.raises(WorkspaceError, match="may have 3"):
        await make(workspace_urls=server.url, workspace_files=3).tree(Workspace(git=GitSource(url=url, commit=commit)))

    folder = server.folder / "large"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "zeros").write_bytes(bytes(8 << 20))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "bomb")
    large = GitSource(url=f"{server.url}/large", commit=git(folder, "rev-parse", "HEAD"))
    with pytest.raises(WorkspaceError, match="1,048,576 bytes"):
        await make(workspace_urls=server.url, workspace_mb=1, workspace_files=10).tree(Workspace(git=large))


def tar(*members: tuple[str, bytes | None, dict[str, object]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name, content, more in members:
            member = tarfile.TarInfo(name)
            for key, value in more.items():
                setattr(member, key, value)
            member.size = len(content or b"")
            file.addfile(member, io.BytesIO(content or b""))
    return out.getvalue()


def zipped(*members: tuple[str, bytes, int]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content, mode in members:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = mode << 16
            file.writestr(entry, content)
    return out.getvalue()


def test_archives_are_unpacked_with_their_links_inside() -> None:
    wanted = {
        "a/run": TreeFile(b"x", executable=True),
        "a/link": TreeFile(b"run", is_link=True),
        "\udcff\n": TreeFile(b"y"),
    }
    of_tar = tar(
        ("./a", None, {"type": tarfile.DIRTYPE}),
        ("./a/run", b"x", {"mode": 0o755}),
        ("a/link", None, {"type": tarfile.SYMTYPE, "linkname": "run"}),
        ("\udcff\n", b"y", {}),
    )
    of_zip = zipped(("a/", b"", 0), ("a/run", b"x", 0o100755), ("a/link", b"run", stat.S_IFLNK | 0o777))

    assert dict(unpack_archive(of_tar, BOUNDS).files) == wanted
    assert dict(unpack_archive(of_zip, BOUNDS).files) == {path: wanted[path] for path in ("a/run", "a/link")}
    hard = tar(("a", b"x", {}), ("b", None, {"type": tarfile.LNKTYPE, "linkname": "a"}))
    assert unpack_archive(hard, BOUNDS).files["b"] == TreeFile(b"x")


def _sparse() -> bytes:
    """A GNU tar whose one file is a hole of a terabyte."""
    head = bytearray(tarfile.TarInfo("hole").tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    head[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    import gzip

    return gzip.compress(bytes(head) + bytes(1024))


BOMB = tar(("zeros", bytes(8 << 20), {}))
HOSTILE: dict[str, Callable[[], bytes]] = {
    "..": lambda: tar(("../out", b"x", {})),
    "deep ..": lambda: tar(("a/../../out", b"x", {})),
    "absolute": lambda: tar(("/etc/cron.d/x", b"x", {})),
    "git": lambda: tar((".git/hooks/pre-commit", b"x", {})),
    "link out": lambda: tar(("a", None, {"type": tarfile.SYMTYPE, "linkname": "/etc"})),
    "link up": lambda: tar(("a/b", None, {"type": tarfile.SYMTYPE, "linkname": "../../x"})),
    "behind a link": lambda: tar(("a", None, {"type": tarfile.SYMTYPE, "linkname": "b"}), ("a/x", b"x", {})),
    "hard link out": lambda: tar(("a", None, {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"})),
    "device": lambda: tar(("a", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5})),
    "pipe": lambda: tar(("a", None, {"type": tarfile.FIFOTYPE})),
    "bomb": lambda: BOMB,
    "hole": _sparse,
    "many": lambda: tar(*((f"f{number}", b"", {}) for number in range(101))),
    "many folders": lambda: tar(*((f"f{number}", None, {"type": tarfile.DIRTYPE}) for number in range(300))),
    "cut off": lambda: tar(("a", os.urandom(9000), {}))[:5000],
    "zip ..": lambda: zipped(("../out", b"x", 0)),
    "zip absolute": lambda: zipped(("/out", b"x", 0)),
    "zip link out": lambda: zipped(("a", b"/etc", stat.S_IFLNK)),
    "zip device": lambda: zipped(("a", b"", stat.S_IFCHR)),
    "zip bomb": lambda: zipped(("zeros", bytes(8 << 20), 0)),
    "zip many": lambda: zipped(*((f"f{number}", b"", 0) for number in range(300))),
    "zip cut off": lambda: zipped(("a", os.urandom(9000), 0))[:5000],
    "neither": lambda: b"hello",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_whole(name: str) -> None:
    with pytest.raises(WorkspaceError):
        unpack_archive(HOSTILE[name](), BOUNDS)


async def test_an_archive_is_what_its_sum_says(make: Make, server: Server) -> None:
    content = tar(("a", b"x", {}))
    (server.folder / "a.tar.gz").write_bytes(content)
    workspaces = make(workspace_urls=server.url)
    url, wanted = f"{server.url}/a.tar.gz", hashlib.sha256(content).hexdigest()

    assert dict((await workspaces.tree(Workspace(archive=ArchiveSource(url=url, sha256=wanted)))).files) == plain(
        {"a": "x"}
    )
    with pytest.raises(WorkspaceError, match=f"has the sum {wanted}"):
        await workspaces.tree(Workspace(archive=ArchiveSource(url=url, sha256="0" * 64)))


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://github.com/our/shop", True),
        ("https://github.com/our/shop.git", True),
        ("https://GITHUB.com:443/our", True),
        ("https://github.com/ours/shop", False),
        ("https://github.com/our/../other/shop", False),
        ("https://github.com/our/%2e%2e/other/shop", False),
        ("https://github.com.evil.org/our/shop", False),
        ("https://github.com@evil.org/our/shop", False),
        ("https://user:word@github.com/our/shop", False),
        ("http://github.com/our/shop", False),
        ("https://github.com:8443/our/shop", False),
        ("ssh://git@github.com/our/shop", False),
        ("ext::sh -c evil", False),
        ("file:///etc", False),
        ("https://github.com\\@evil.org/our/", False),
        ("--upload-pack=evil", False),
    ],
)
def test_a_url_is_below_one_that_is_allowed_or_refused(url: str, allowed: bool) -> None:
    if allowed:
        assert check_url(url, ["https://github.com/our/"]) == url
        return
    with pytest.raises(WorkspaceError):
        check_url(url, ["https://github.com/our/"])


def test_the_cache_keeps_what_was_used_last_and_what_is_in_use_stays_readable(tmp_path: Path) -> None:
    cache = TreeCache(tmp_path, 5000)
    first = cache.put("first", Tree(plain({"a\udcff": "x" * 2000})))
    os.utime(next(tmp_path.iterdir()), (1, 1))
    cache.put("second", Tree(plain({"a": "y" * 2000})))
    cache.put("third", Tree(plain({"a": "z" * 2000})))

    assert (cache.get("first"), cache.get("fourth")) == (None, None)
    third = cache.get("third")
    assert third is not None
    assert bytes(third.files["a"].content) == b"z" * 2000
    assert bytes(first.files["a\udcff"].content) == b"x" * 2000


def test_a_file_of_the_cache_that_is_not_whole_is_none(tmp_path: Path) -> None:
    cache = TreeCache(tmp_path, 5000)
    cache.put("one", Tree(plain({"a": "x" * 100})))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    for broken in (b"", whole[:10], whole[:-1], b"x" + whole[1:], whole.replace(b"[", b"{")):
        path.write_bytes(broken)
        assert cache.get("one") is None, broken[:20]
