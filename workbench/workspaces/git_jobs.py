"""The work of git for workspaces, as jobs for a sandbox, since it reads what strangers wrote. Pure.

Each has a repository of its own in /tmp that is gone with it: without hooks, templates, configuration of the machine or
of the workspace, attributes, filters, or a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from workbench.sandbox.job import Job, TreeFile
from workbench.sandbox.limits import MIB, Limits
from workbench.trees import Bounds

NAMES, CONTENTS = "names", "contents"
ENVIRONMENT = {
    "GIT_DIR": "/tmp/r",
    "HOME": "/tmp",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "/dev/null",
    "GIT_CONFIG_KEY_1": "protocol.allow",
    "GIT_CONFIG_VALUE_1": "never",
    "GIT_CONFIG_KEY_2": "core.quotePath",
    "GIT_CONFIG_VALUE_2": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
BEGIN = "set -e; git init -q --bare --template= /tmp/r; mkdir -p /tmp/r/info; "
LIST = (
    BEGIN
    + "git index-pack --stdin >/dev/null; "
    + f'git ls-tree -rz --full-tree "$1" > {NAMES}; '
    + 'git ls-tree -r --full-tree "$1" | sed -n "s/^[0-7]* blob \\([0-9a-f]*\\)\\t.*/\\1/p" | '
    + f"git cat-file --batch --buffer > {CONTENTS}"
)
AS_IT_IS = "echo '* -text -eol -ident -filter -working-tree-encoding -whitespace' > /tmp/r/info/attributes; "
"""Attributes that come before all those that a workspace brings."""
APPLY = BEGIN + AS_IT_IS + "exec git --work-tree=/workspace apply --whitespace=nowarn --unidiff-zero -"
DIFF_TREE = "git diff-tree -r --binary --full-index --no-renames --no-color --no-ext-diff --no-textconv "
DIFF = BEGIN + (
    "git fast-import --quiet; "
    f"{DIFF_TREE} refs/heads/text0 refs/heads/text1; "
    "echo '* -diff' > /tmp/r/info/attributes; "
    f"{DIFF_TREE} refs/heads/bytes0 refs/heads/bytes1"
)
SUBMODULES = "exec git config --file modules --list -z"
LIMITS = Limits(wall_s=120.0, cpu_s=60.0, memory_bytes=1024 * MIB, processes=64)


def listing(pack: bytes, commit: str, bounds: Bounds) -> Job:
    """NAMES has the commit's files as `git ls-tree -z` names them, CONTENTS what is in them, in that order."""
    room = bounds.bytes + 256 * bounds.files
    limits = replace(
        LIMITS, file_bytes=room, workspace_bytes=2 * room + 64 * MIB, collected_bytes=2 * room, output_bytes=MIB
    )
    return _job(LIST, commit, stdin=pack, collect=[NAMES, CONTENTS], limits=limits)


def modules(content: bytes) -> Job:
    return _job(SUBMODULES, files={"modules": content[:MIB]}, limits=LIMITS)


def applying(tree: Mapping[str, TreeFile], patch: bytes, bounds: Bounds) -> Job:
    """The workspace is left with the patch, or as it was."""
    limits = replace(
        LIMITS,
        file_bytes=bounds.bytes,
        workspace_bytes=2 * bounds.bytes + 16 * MIB,
        collected_bytes=bounds.bytes,
        files=2 * bounds.files,
    )
    return _job(APPLY, tree=tree, stdin=patch, collect_tree=True, limits=limits)


Change = tuple[str, TreeFile | None, TreeFile | None]
"""A path, what was there, and what is."""


def diffing(changes: Iterable[Change], most: int) -> Job:
    """Its output is the patch, of at most so many bytes. What is no text that JSON can hold is told as bytes."""
    stream, size = _import_stream(changes)
    limits = replace(
        LIMITS,
        output_bytes=most,
        file_bytes=2 * size + 16 * MIB,
        workspace_bytes=4 * size + 64 * MIB,
    )
    return _job(DIFF, stdin=stream, limits=limits)


def _job(script: str, *arguments: str, **of_job: object) -> Job:
    return Job(["/bin/sh", "-c", script, "sh", *arguments], environment=ENVIRONMENT, **of_job)  # type: ignore[arg-type]


def _import_stream(changes: Iterable[Change]) -> tuple[bytes, int]:
    """Input of `git fast-import`: four commits, before and after, of texts and of bytes."""
    parts: dict[str, list[bytes]] = {name: [] for name in ("text0", "text1", "bytes0", "bytes1")}
    for path, before, after in changes:
        kind = "text" if all(_is_text(file) for file in (before, after) if file is not None) else "bytes"
        for when, file in enumerate((before, after)):
            if file is not None:
                mode = b"120000" if file.is_link else b"100755" if file.executable else b"100644"
                parts[f"{kind}{when}"] += (b"M %b inline %b\n" % (mode, quote_path(path)), _data(bytes(file.content)))
    stream = b"".join(
        b"commit refs/heads/%b\ncommitter r <r> 0 +0000\ndata 0\n%b\n" % (name.encode(), b"".join(files))
        for name, files in parts.items()
    )
    return stream, len(stream)


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _is_text(file: TreeFile) -> bool:
    content = bytes(file.content)
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def quote_path(path: str) -> bytes:
    """Quote a path as git does, in C's way."""
    raw = path.encode("utf-8", "surrogateescape")
    plain = (b"\\%c" % one if one in b'"\\' else b"%c" % one if 32 <= one < 127 else b"\\%03o" % one for one in raw)
    return b'"%b"' % b"".join(plain)
