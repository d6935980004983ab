"""Tells whether a folder can be used at all, and whether its file system is known to be wrong for what is kept there.

A folder that is not there yet must be possible to make. Of the file system there are two questions. SQLite's
write-ahead log is shared memory: an index must lie on a disk of this machine. The logs and the adapters need `flock`,
`rename` and `fsync` that hold between all who use the folder: NFS 4, CephFS, Lustre and the like keep that promise
where they are mounted so; others never do. What is not known to be wrong is taken.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ratchet.service.errors import SettingsError

MOUNTS = Path("/proc/self/mountinfo")
WITHOUT_PROMISES = frozenset(
    {
        *("9p", "drvfs", "wslfs", "vboxsf", "prl_fs", "fuse.grpcfuse", "fuse.osxfs", "fakeowner"),
        *("cifs", "smb3", "smbfs", "ncpfs", "davfs", "fuse.davfs2", "fuse.sshfs", "fuse.rclone", "fuse.curlftpfs"),
        *("fuse.s3fs", "fuse.s3fs-fuse", "fuse.mountpoint-s3", "fuse.goofys", "fuse.gcsfuse", "fuse.blobfuse2"),
        *("fuse.blobfuse", "fuse.geesefs", "afs", "fuse.afs"),
    }
)
"""Here `flock` holds within one machine at best, or a file that is renamed while it is open is lost to its writer."""
NETWORK = WITHOUT_PROMISES | {
    *("nfs", "nfs4", "ceph", "fuse.ceph", "fuse.ceph-fuse", "glusterfs", "fuse.glusterfs", "lustre", "gpfs", "beegfs"),
    *("ocfs2", "gfs2", "fuse.juicefs", "fuse.moosefs", "fuse.mfs", "orangefs", "pvfs2", "weka", "wekafs"),
}
LOCAL_LOCKS = re.compile(r"(^|,)(nolock|local_lock=(all|flock)|localflock|noflock)(,|$)")
ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """`options`: of the mount and of the file system below it."""

    point: Path
    type: str
    source: str = ""
    options: str = ""


def mounts(lines: Iterable[str]) -> Iterator[Mount]:
    """Return the mounts that /proc/self/mountinfo tells, in the order in which they were mounted."""
    for line in lines:
        place, _, system = line.partition(" - ")
        fields, kind = place.split(), system.split()
        if len(fields) > 5 and len(kind) > 2:
            yield Mount(Path(_unescape(fields[4])), kind[0], _unescape(kind[1]), f"{fields[5]},{kind[2]}")


def mount_of(folder: Path, found: Iterable[Mount]) -> Mount | None:
    """The last one that covers the folder, which need not exist yet."""
    whole = folder.resolve()
    covering = [mount for mount in found if whole.is_relative_to(mount.point)]
    return max(reversed(covering), key=lambda mount: len(mount.point.parts), default=None)


def wrong_for_index(mount: Mount) -> str | None:
    """Return why SQLite can't be relied on there."""
    if mount.type in NETWORK and not _is_sandbox(mount):
        return f"{_describe_mount(mount)} is not a disk of this machine, and SQLite's write-ahead log works on no other"
    return None


def wrong_for_logs(mount: Mount) -> str | None:
    """Return why locks and renames can't be relied on there."""
    if mount.type in WITHOUT_PROMISES and not _is_sandbox(mount):
        return f"{_describe_mount(mount)} keeps no promise of flock and rename between those who use it"
    if mount.type in NETWORK and (option := LOCAL_LOCKS.search(mount.options)):
        return f"{_describe_mount(mount)} is mounted with {option[2]}: a lock taken here is not seen by another machine"
    return None


def refuse_wrong_storage(logs_dir: Path, index_dir: Path, adapters_dir: Path) -> None:
    """Raises SettingsError with what to do. Where mounts can't be told (not on Linux), no file system is refused."""
    folders = {"RATCHET_LOGS_DIR": logs_dir, "RATCHET_INDEX_DIR": index_dir, "RATCHET_ADAPTERS_DIR": adapters_dir}
    unusable = (why for setting, folder in folders.items() if (why := unusable_folder(setting, folder)))
    for sentence in (*unusable, *wrong_storage(logs_dir, index_dir, adapters_dir)):
        raise SettingsError(sentence)


def unusable_folder(setting: str, folder: Path) -> str | None:
    """Return why no file can be made in this folder, or None; it need not be there yet, and nothing is left in it.

    A full disk is no reason: it may be freed while the fleet runs.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except (FileNotFoundError, NotADirectoryError):
        why = f"{there} is no folder"
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            return None
        why = f"{there} can't be written: {os.strerror(error.errno)}"
    return f"{setting}={folder} can't be used: {why}. Name a folder that this user can write, or mend that one"


def wrong_storage(logs_dir: Path, index_dir: Path, adapters_dir: Path) -> Iterator[str]:
    try:
        found = list(mounts(MOUNTS.read_text("utf-8", "replace").splitlines()))
    except OSError:
        return
    for what, folder in (("RATCHET_LOGS_DIR", logs_dir), ("RATCHET_ADAPTERS_DIR", adapters_dir)):
        if (mount := mount_of(folder, found)) and (why := wrong_for_logs(mount)):
            yield (
                f"{folder} can't be {what}: {why}. Use a folder on a disk of this machine (under WSL: below your "
                f"home in Linux, not /mnt/c) or, for several machines, NFS 4.1, CephFS or the like "
                f"(docs/operations.md#storage)"
            )
    if (mount := mount_of(index_dir, found)) and (why := wrong_for_index(mount)):
        yield (
            f"the index can't lie in {index_dir}: {why}. Set RATCHET_INDEX_DIR to a folder on a disk of this machine; "
            f"the logs may stay where they are (docs/operations.md#storage)"
        )


def _is_sandbox(mount: Mount) -> bool:
    """The root of gVisor is called 9p, as a Windows drive is, but is neither that nor on a network."""
    return mount.type == "9p" and "trans=fd" in mount.options and "drvfs" not in f"{mount.source},{mount.options}"


def _describe_mount(mount: Mount) -> str:
    return f"{mount.point} ({mount.type}{f', {mount.source}' if mount.source not in ('', 'none', mount.type) else ''})"


def _unescape(text: str) -> str:
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
