"""A commit of a repository as git's pack of it, over git's own protocol on HTTP, version 2.

Spoken here rather than by `git fetch`: there is no configuration to be read, no hook, helper or other protocol to be
started, and what comes is bytes until a sandbox has looked at them. One commit without its history; nothing that needs
a password.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.workspaces.download import Downloads
from workbench.workspaces.errors import WorkspaceError

INFO = "/info/refs?service=git-upload-pack"
VERSION = {"Git-Protocol": "version=2"}
FLUSH, DELIMITER = b"0000", b"0001"
DATA, FAULT = 1, 3
PACK = b"PACK"


async def fetch_pack(downloads: Downloads, url: str, commit: str) -> bytes:
    """All objects of one commit. Raises WorkspaceError, as for a commit that is not there, or WorkspaceUnavailable."""
    base = url.rstrip("/")
    async with downloads.open("GET", base + INFO, headers=VERSION) as answer:
        told = await downloads.whole(answer)
        base = str(answer.url).removesuffix(INFO)
    if b"version 2" not in told:
        raise WorkspaceError(f"{url[:200]} is no git repository that speaks version 2 of git's protocol over HTTP")
    headers = {
        **VERSION,
        "Content-Type": "application/x-git-upload-pack-request",
        "Accept": "application/x-git-upload-pack-result",
    }
    asked = request(commit)
    async with downloads.open("POST", f"{base}/git-upload-pack", headers=headers, content=asked) as answer:
        return pack_of(await downloads.whole(answer), commit)


def request(commit: str) -> bytes:
    wanted = ("no-progress\n", "ofs-delta\n", "deepen 1\n", f"want {commit}\n", "done\n")
    return _line("command=fetch\n") + DELIMITER + b"".join(map(_line, wanted)) + FLUSH


def _line(text: str) -> bytes:
    return b"%04x%b" % (len(text) + 4, text.encode())


def pack_of(answer: bytes, commit: str) -> bytes:
    """Raises WorkspaceError, with the server's words."""
    pack, in_pack = bytearray(), False
    for line in _lines(answer):
        if line.startswith(b"ERR "):
            said = line[4:200].decode(errors="replace").strip()
            raise WorkspaceError(f"the repository does not give commit {commit}: {said}")
        if not in_pack:
            in_pack = line.strip() == b"packfile"
        elif line[0] == DATA:
            pack += line[1:]
        elif line[0] == FAULT:
            raise WorkspaceError(f"the repository fails: {line[1:200].decode(errors='replace').strip()}")
    if not pack.startswith(PACK):
        raise WorkspaceError(f"the repository gives nothing of commit {commit}")
    return bytes(pack)


def _lines(answer: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(answer):
        try:
            size = int(answer[at : at + 4], 16)
        except ValueError:
            raise WorkspaceError("the repository's answer is none of git's") from None
        if size < 4:
            at += 4
        elif size == 4 or at + size > len(answer):
            raise WorkspaceError("the repository's answer is cut off")
        else:
            yield answer[at + 4 : at + size]
            at += size
