"""`ratchet restore`: puts what `ratchet backup` wrote into the folders of a fleet that is empty and down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from services.cli.backup.archive import restore_backup
from services.cli.backup.command import KeyFile, folders
from services.cli.backup.encryption import read_key
from services.cli.terminal import out


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `ratchet backup` wrote.", exists=True)],
    key_file: KeyFile = None,
) -> None:
    """Restore a backup into empty folders. All of it is checked first; a file that is not whole changes nothing."""
    manifest = restore_backup(source, folders(), read_key(key_file) if key_file else None)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest["made_at"]))
    out.print(f"restored {len(manifest['files'])} files of {made}", markup=False)
    out.print("Next:  ratchet adapters verify    ratchet up", markup=False)
