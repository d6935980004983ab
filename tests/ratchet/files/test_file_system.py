"""Which file systems are refused for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.files.file_system import Mount, mount_of, mounts, refuse_wrong_storage, wrong_for_index, wrong_for_logs

LINES = r"""
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
30 22 0:40 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync,aname=drvfs;path=C:\;uid=1000,trans=fd,rfd=8,wfd=8
31 22 0:41 / /data\040of/logs rw,relatime - nfs4 files:/export/logs rw,vers=4.1,hard,local_lock=none
32 31 0:42 / /data\040of/logs/index rw - tmpfs tmpfs rw,size=65536k
""".strip().splitlines()
FOUND = list(mounts(LINES))


@pytest.mark.parametrize(
    ("folder", "type_"),
    [
        ("/home/me/logs", "ext4"),
        ("/mnt/c/Users/me/logs", "9p"),
        ("/mnt/cd", "ext4"),
        ("/data of/logs/not/there/yet", "nfs4"),
        ("/data of/logs/index", "tmpfs"),
    ],
)
def test_a_folder_lies_on_the_nearest_mount_above_it(folder: str, type_: str) -> None:
    mount = mount_of(Path(folder), FOUND)

    assert mount is not None
    assert mount.type == type_


@pytest.mark.parametrize(
    ("mount", "for_logs", "for_index"),
    [
        (Mount(Path("/"), "ext4"), True, True),
        (Mount(Path("/"), "overlay"), True, True),
        (Mount(Path("/"), "btrfs"), True, True),
        (Mount(Path("/"), "fuse.something-new"), True, True),
        (Mount(Path("/"), "9p", "none", "rw,trans=fd,rfdno=4,wfdno=4,aname=/"), True, True),
        (Mount(Path("/logs"), "nfs4", "files:/x", "rw,vers=4.1,local_lock=none"), True, False),
        (Mount(Path("/logs"), "nfs", "files:/x", "rw,vers=3,local_lock=none"), True, False),
        (Mount(Path("/logs"), "nfs", "files:/x", "rw,vers=3,nolock,local_lock=all"), False, False),
        (Mount(Path("/logs"), "nfs4", "files:/x", "rw,vers=4.2,local_lock=flock"), False, False),
        (Mount(Path("/logs"), "ceph"), True, False),
        (Mount(Path("/logs"), "lustre", "", "rw,flock"), True, False),
        (Mount(Path("/logs"), "lustre", "", "rw,localflock"), False, False),
        (Mount(Path("/logs"), "cifs", "//server/share"), False, False),
        (Mount(Path("/logs"), "fuse.sshfs", "me@there:"), False, False),
        (Mount(Path("/logs"), "fuse.gcsfuse", "bucket"), False, False),
        (FOUND[1], False, False),
    ],
    ids=lambda value: f"{value.type} {value.options}" if isinstance(value, Mount) else None,
)
def test_what_is_known_to_be_wrong_is_refused(mount: Mount, for_logs: bool, for_index: bool) -> None:
    assert (wrong_for_logs(mount) is None) is for_logs
    assert (wrong_for_index(mount) is None) is for_index


def test_here_tests_may_run(tmp_path: Path) -> None:
    refuse_wrong_storage(tmp_path, tmp_path, tmp_path / "not" / "there")
