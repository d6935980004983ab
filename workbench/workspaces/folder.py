"""A workspace that is a folder of this machine, below one that a setting allows. Blocking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from workbench.sandbox.tree import take
from workbench.sandbox.workspace import open_beneath
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.tree import Bounds, Tree, checked, shown


def read_folder(asked: str, allowed: Sequence[Path], bounds: Bounds) -> Tree:
    """Read through descriptors, without following a link below what is allowed. Raises WorkspaceError."""
    path = Path(asked)
    root = next((root for root in allowed if path.is_relative_to(root) and ".." not in path.parts), None)
    if root is None:
        raise WorkspaceError(
            f"the folder {asked!r} is below none that this service may read: name one above it in "
            f"RATCHET_WORKSPACE_FOLDERS"
        )
    try:
        above = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceUnavailable(f"{root}: {error.strerror}") from error
    try:
        folder = open_beneath(above, str(path.relative_to(root)))
    except OSError as error:
        raise WorkspaceError(f"the folder {asked!r} can't be opened without following a link: {error}") from error
    finally:
        os.close(above)
    try:
        left = take(folder, bounds.bytes, bounds.files)
    finally:
        os.close(folder)
    if left.left_out:
        name, why = next(iter(left.left_out.items()))
        raise WorkspaceError(f"the folder {asked!r} is no workspace: {shown(name)}: {why}")
    return checked(left.files, bounds)
