"""Changes of a folder between two looks: each path that changed, as it is now; and the same put into another folder.

For the record of a call of a tool: whoever replays it puts the files there that the call left. Blocks; give it a
thread. Times and owners are no part of it.
"""

from __future__ import annotations

import base64
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Look = dict[str, tuple[int, ...]]
"""The state of each path: what tells it from another one."""
Changes = dict[str, dict[str, Any] | None]
"""The new state of each path: `{"content": base64, "mode": …}`, `{"link": target}` or `{"folder": true}`; None where it
is gone."""


def look_at(root: Path) -> Look:
    """Look at everything below a folder; no link is followed."""
    found: Look = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            state = path.lstat()
            is_folder = stat.S_ISDIR(state.st_mode)
            kind = (state.st_mode,) if is_folder else (state.st_mode, state.st_size, state.st_mtime_ns, state.st_ino)
            found[str(path.relative_to(root))] = kind
    return found


def changes_between(root: Path, before: Look, after: Look) -> Changes:
    """Read what changed. Folders stand before what is in them."""
    gone: Changes = {path: None for path in sorted(before) if path not in after}
    new = (path for path in sorted(after) if before.get(path) != after[path])
    return gone | {path: found for path in new if (found := _read(root / path)) is not None}


def put(root: Path, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Put the changes of another folder into this one."""
    for path, state in changes.items():
        place = root / path
        if state is None or not ("folder" in state and place.is_dir() and not place.is_symlink()):
            _clear(place)
        if state is None:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if "link" in state:
            place.symlink_to(state["link"])
        elif "folder" in state:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(base64.b64decode(state["content"]))
            place.chmod(state["mode"])


def _read(path: Path) -> dict[str, Any] | None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return {"link": str(path.readlink())}
    if stat.S_ISDIR(mode):
        return {"folder": True}
    if not stat.S_ISREG(mode):
        return None
    return {"content": base64.b64encode(path.read_bytes()).decode(), "mode": stat.S_IMODE(mode)}


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
