"""`ratchet backup`: logs, adapters and registry of a running fleet as one file. `ratchet restore`: puts them back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ratchet.service.settings import FleetSettings
from services.cli.backup.archive import ADAPTERS, KEYS, LOGS, restore_backup, write_backup
from services.cli.backup.encryption import read_key
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import AsJson, out, print_json, say

KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", envvar="RATCHET_BACKUP_KEY_FILE", help="File with 32 bytes in base64: the key."),
]


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; one that is there is replaced.")],
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """With --key-file the file is encrypted, and holds the key that decisions are signed with, too."""
    key = read_key(key_file) if key_file else None
    manifest = write_backup(target, folders(), key)
    size, count = target.stat().st_size, len(manifest["files"])
    if json:
        print_json({"file": str(target), "bytes": size, "files": count, "encrypted": key is not None})
        return
    out.print(f"{target} holds {count} files, {size / 1e6:.1f} MB", markup=False)
    if key is None:
        say("not encrypted, so decision-keys/ is not in it: copy that folder once, to another place")


def folders() -> Mapping[str, Path]:
    """Return the folders that a backup is made of, by their names in it."""
    settings = FleetSettings.read()
    return {KEYS: settings.decision_keys_dir, ADAPTERS: settings.adapters_dir, LOGS: FleetAccess.here().logs_dir}


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `ratchet backup` wrote.", exists=True)],
    key_file: KeyFile = None,
) -> None:
    manifest = restore_backup(source, folders(), read_key(key_file) if key_file else None)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest["made_at"]))
    out.print(f"restored {len(manifest['files'])} files of {made}", markup=False)
    out.print("Next:  ratchet adapters verify    ratchet up", markup=False)
