"""Images of containers made in tests, good and hostile: tars of layers, as `docker save` and OCI layouts hold them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

ANSWERING = r"""
IFS= read -r task
place=${OPENAI_BASE_URL#http://}
place=${place%%/*}
body="{\"model\": \"any\", \"messages\": [{\"role\": \"user\", \"content\": \"$task\"}]}"
exec 3<>"/dev/tcp/${place%:*}/${place#*:}"
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nConnection: close\r\nAuthorization: Bearer %s\r\n' \
    "$OPENAI_API_KEY" >&3
printf 'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "${#body}" "$body" >&3
while IFS= read -r line <&3 || [ -n "$line" ]; do last=$line; done
answer=${last#*\"content\":\"}
"""
"""Bash that needs no other program: it sends its input to the model; `answer` begins with the reply."""


def file(name: str, content: bytes | str = b"", mode: int = 0o644, **given: Any) -> tuple[tarfile.TarInfo, bytes]:
    data = content.encode() if isinstance(content, str) else content
    return entry(name, mode=mode, **{"size": len(data)} | given), data


def entry(name: str, kind: bytes = tarfile.REGTYPE, **given: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in given.items():
        setattr(made, field, value)
    return made


def folder(name: str) -> tarfile.TarInfo:
    return entry(name, tarfile.DIRTYPE, mode=0o700)


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.LNKTYPE, linkname=target)


Entry = tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]


def layer(*entries: Entry) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for one in entries:
            head, data = one if isinstance(one, tuple) else (one, b"")
            tar.addfile(head, io.BytesIO(data))
    return written.getvalue()


def docker_save(path: Path, layers: Sequence[bytes], config: Mapping[str, Any] = {}, images: int = 1) -> str:
    """Write an image as an older Docker does. Return the SHA-256 of the file."""
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["mine:latest"], "Layers": names}] * images
    contents: dict[str, bytes] = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps({"config": config}).encode(),
        **dict(zip(names, layers, strict=True)),
    }
    return _written(path, contents)


def oci(path: Path, layers: Sequence[bytes], config: Mapping[str, Any] = {}) -> str:
    """Write an image as skopeo does, for three machines, with layers packed by gzip and zstandard in turn."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return f"sha256:{digest}"

    packers = (gzip.compress, zstandard.compress)
    described = [{"digest": blob(packers[number % 2](one))} for number, one in enumerate(layers)]
    manifest = {"config": {"digest": blob(json.dumps({"config": config}).encode())}, "layers": described}
    found = blob(json.dumps(manifest).encode())
    listed = [
        {"digest": found, "platform": {"os": "linux", "architecture": one}} for one in ("amd64", "arm64", "s390x")
    ]
    index = {"manifests": [{"digest": blob(json.dumps({"manifests": listed}).encode())}]}
    return _written(path, {"oci-layout": b"{}", "index.json": json.dumps(index).encode(), **blobs})


def _written(path: Path, contents: Mapping[str, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, content in contents.items():
            head = tarfile.TarInfo(name)
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def with_bash(*entries: Entry) -> bytes:
    """Return a layer whose only program is bash of this machine, with its libraries."""
    needs = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(?:=> )?(/\S+) \(0x", needs)
    programs = [file(place.lstrip("/"), Path(place).read_bytes(), 0o755) for place in ("/bin/bash", *libraries)]
    return layer(*programs, link("bin/sh", "bash"), folder("etc"), *entries)


def listed(root: Path) -> set[str]:
    """List every file and link by its path."""
    return {str(one.relative_to(root)) for one in root.rglob("*") if not one.is_dir() or one.is_symlink()}
