"""Docker: 6 operations on containers that carry our label, and builds, as a few requests to the engine's API.

Nobody gets the socket. What is asked of the engine is put together here, from values that were checked; a container
that is privileged, sees folders or namespaces of the host, or has more rights than usual is not touched, whatever its
label. A build has no network, begins with images that the policy names, and sees the workspace without .git.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx
import re2
from pydantic import Field, StringConstraints

from workbench.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath, object_of
from workbench.tools.policy import Policy
from workbench.tools.sandboxed import in_project
from workbench.tools.tree import Tree
from workbench.tools.workshop import Workshop

DOCKER = Subject("docker")

API = "/v1.41"
Container = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=128), Field(description="Name or id.")
]
Tag = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$", max_length=128)
]

CAPABILITIES = ("CapAdd", "Devices", "DeviceRequests", "Binds", "VolumesFrom")
OF_THE_HOST = ("NetworkMode", "PidMode", "IpcMode", "UTSMode", "UsernsMode", "CgroupnsMode")
MOST_REPLY = 8 * 1024 * 1024


@DOCKER.operation(Effect.REACHES)
async def docker_ps(
    at: Workshop, stopped: Annotated[bool, Field(description="Those too that have ended.")] = False
) -> Answer:
    """List the containers that carry the tools' label."""
    filters = json.dumps({"label": [at.policy.docker.label]})
    found = await _json(at, "GET", "/containers/json", {"all": str(stopped).lower(), "filters": filters})
    return {
        "containers": [
            {
                "id": _text(one, "Id")[:12],
                "name": _text({"n": (one.get("Names") or [""])[0]}, "n").lstrip("/"),
                "image": _text(one, "Image"),
                "state": _text(one, "State"),
                "status": _text(one, "Status"),
            }
            for one in _objects(found)
            if at.policy.docker.label in (one.get("Labels") or {})
        ]
    }


@DOCKER.operation(Effect.REACHES)
async def docker_logs(at: Workshop, container: Container, lines: Annotated[int, Field(ge=1, le=5000)] = 200) -> Answer:
    """Show the last lines that a container has written."""
    seen = await _ours(at, container)
    query = {"stdout": "true", "stderr": "true", "tail": str(lines), "follow": "false"}
    raw = await _raw(at, "GET", f"/containers/{seen['Id']}/logs", query, most=at.policy.docker.log_bytes)
    return {"container": container, "text": _decode_output(raw, tty=bool((seen.get("Config") or {}).get("Tty")))}


@DOCKER.operation(Effect.REACHES)
async def docker_inspect(at: Workshop, container: Container) -> Answer:
    """Say what a container is and how it is. Its environment is left out: there may be secrets in it."""
    seen = await _ours(at, container)
    state, config, host = (seen.get(name) or {} for name in ("State", "Config", "HostConfig"))
    return {
        "id": _text(seen, "Id")[:12],
        "name": _text(seen, "Name").lstrip("/"),
        "image": _text(config, "Image"),
        "command": [str(one)[:500] for one in config.get("Cmd") or []][:50],
        "state": {name: state.get(name) for name in ("Status", "ExitCode", "OOMKilled", "StartedAt", "FinishedAt")},
        "restarts": seen.get("RestartCount"),
        "memory_bytes": host.get("Memory"),
        "refused": _rights(seen),
    }


@DOCKER.operation(Effect.REACHES)
async def docker_images(at: Workshop) -> Answer:
    """List the engine's images: names and sizes (bytes)."""
    found = await _json(at, "GET", "/images/json", {"all": "false"})
    images = [
        {"tags": [str(tag)[:200] for tag in one.get("RepoTags") or []], "bytes": one.get("Size")}
        for one in _objects(found)
    ]
    return {"images": images}


@DOCKER.operation(Effect.CHANGES)
async def docker_control(
    at: Workshop,
    container: Container,
    action: Literal["start", "stop", "restart", "exec"],
    command: Annotated[
        tuple[str, ...], Field(max_length=100, description="With exec: a program and its arguments, no shell.")
    ] = (),
) -> Answer:
    """Start, stop or restart a container that carries the tools' label, or run a command in it (exec)."""
    if (action == "exec") != bool(command):
        raise ToolError("arguments", "exec needs a command, and nothing else has one")
    seen = await _ours(at, container)
    if rights := _rights(seen):
        raise ToolError("policy", f"{container} is not touched: it has {', '.join(rights)}")
    if action != "exec":
        await _raw(at, "POST", f"/containers/{seen['Id']}/{action}", {} if action == "start" else {"t": "10"})
        return {"container": container, "done": action}
    order = {
        "Cmd": list(command), "AttachStdout": True, "AttachStderr": True, "AttachStdin": False, "Tty": False,
        "Privileged": False,
    }  # fmt: skip
    made = await _json(at, "POST", f"/containers/{seen['Id']}/exec", body=order)
    run = _id(made)
    raw = await _raw(
        at, "POST", f"/exec/{run}/start", body={"Detach": False, "Tty": False}, most=at.policy.docker.log_bytes
    )
    ended = await _json(at, "GET", f"/exec/{run}/json")
    return {"container": container, "exit_code": ended.get("ExitCode"), "text": _decode_output(raw, tty=False)}


@DOCKER.operation(Effect.CHANGES)
async def docker_build(
    at: Workshop,
    tag: Tag,
    path: Annotated[WorkspacePath, Field(description="Folder that the build sees.")] = ".",
    dockerfile: Annotated[WorkspacePath, Field(description="In that folder.")] = "Dockerfile",
) -> Answer:
    """Build an image from a Dockerfile of the workspace, without a network. FROM may name what the policy allows."""
    name = at.tree.clean(dockerfile)
    context = await at.look(_context, at.tree, at.policy, at.tree.clean(path), name)
    query = {
        "t": f"ratchet-tools/{tag}", "dockerfile": name, "networkmode": "none", "rm": "true", "forcerm": "true",
        "pull": "false", "version": "1", "memory": str(at.policy.docker.memory_bytes),
        "memswap": str(at.policy.docker.memory_bytes), "labels": json.dumps({at.policy.docker.label: "built"}),
    }  # fmt: skip
    raw = await _raw(at, "POST", "/build", query, body=context)
    text, error = list[str](), ""
    for line in raw.splitlines():
        event = object_of(line)
        text.append(str(event.get("stream") or event.get("status") or ""))
        error = error or str(event.get("error") or "")
    if error:
        raise ToolError("failed", f"the build failed: {error[:500]}; {''.join(text)[-1500:]}")
    return {"image": f"ratchet-tools/{tag}", "text": "".join(text)[-4000:]}


INSTRUCTION = re2.compile(r"(?i)^[ \t]*((?:ONBUILD[ \t]+)*)([A-Z]+)(?:[ \t]+(.*))?$")
KNOWN = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK",
    "LABEL", "MAINTAINER", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
STAGE = re2.compile(r"(?i)^(\S+)(?:\s+AS\s+(\S+))?\s*$")
COPY_OPTION = re2.compile(r"^--(?:from=([A-Za-z0-9._/:@-]+)|(?:chown|chmod)=[A-Za-z0-9_:.,=+-]+)$")
ESCAPE = re2.compile(r"(?i)^#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*$")
HEREDOC = re2.compile(r"(?:^|[ \t])[0-9]*<<")


def dockerfile_faults(text: str, base_images: tuple[str, ...]) -> list[str]:
    """List why a Dockerfile is not built: what would have the engine ask other machines, or leave the build. Pure."""
    instructions, faults = _instructions(text)
    stages = list[str]()
    for line in instructions:
        found = INSTRUCTION.match(line)
        if found is None or found[2].upper() not in KNOWN:
            faults.append(f"{line.strip()[:80]!r} is no instruction that is known here")
            continue
        word, rest = found[2].upper(), (found[3] or "").strip()
        if word == "ADD":
            faults.append("ADD may fetch from other machines: use COPY")
        elif word == "RUN" and rest.startswith("--"):
            faults.append("RUN takes no options here")
        elif word in ("RUN", "COPY") and HEREDOC.search(rest):
            faults.append(f"{word} takes no here-document: use a file")
        elif word == "COPY":  # one for a later build finds none of these stages
            faults += _copy_faults(rest, [] if found[1] else stages)
        elif word == "FROM":
            stage = STAGE.match(rest)
            image = stage[1] if stage else rest
            if image.lower() not in stages and image not in (*base_images, "scratch"):
                allowed = ", ".join(base_images) or "none"
                faults.append(
                    f"FROM {image[:200]}: a build may begin with {allowed} (docker.base_images of the policy)"
                )
            stages.append((stage[2] if stage and stage[2] else "").lower())
    return faults


def _instructions(text: str) -> tuple[list[str], list[str]]:
    """Join continued lines as the engine does. Return the instructions, and faults where engines read differently."""
    lines = text.replace("\r\n", "\n").split("\n")
    directive = ESCAPE.match(lines[0])
    escape = directive[1] if directive else "\\"
    instructions, faults, pending = list[str](), list[str](), ""
    for number, line in enumerate(lines):
        bare = line.strip(" \t")
        if bare.startswith("#"):
            squeezed = "".join(line.split()).lower()
            if "syntax=" in squeezed:
                faults.append("`# syntax=` brings a builder of its own")
            if "escape=" in squeezed and not (directive and number == 0):
                faults.append("`# escape=` must be the first line, with a backslash or a backtick")
            continue
        if any(char.isspace() and char not in " \t" for char in line):
            faults.append(f"line {number + 1} has white space that is no blank and no tab")
        if bare.endswith(2 * escape):
            faults.append(f"line {number + 1} ends in two escape characters")
        if not bare:  # an empty line does not end a continued one
            continue
        pending += line.rstrip(" \t").removesuffix(escape)
        if not bare.endswith(escape):
            instructions.append(pending)
            pending = ""
    return [*instructions, *([pending] if pending.strip() else [])], faults


def _copy_faults(rest: str, stages: list[str]) -> list[str]:
    """Check the options of a COPY. The engine drops quotes and backslashes in them, so only plain ones pass."""
    faults = list[str]()
    for word in rest.split():
        if not word.startswith("--"):
            break
        if (option := COPY_OPTION.match(word)) is None:
            faults.append(f"COPY {word[:200]}: only --from=, --chown= and --chmod= are taken, without quotes")
        elif (source := option[1]) and source.lower() not in (*stages[:-1], *map(str, range(len(stages)))):
            faults.append(f"COPY --from={source} names no earlier stage of this file")
    return faults


def _context(tree: Tree, policy: Policy, folder: str, dockerfile: str) -> bytes:
    """A tar of the folder. Raises ToolError where the Dockerfile asks for more than it may."""
    inside = "" if folder == "." else f"{folder}/"
    text = tree.read(inside + dockerfile, 1_000_000).decode("utf-8", "replace")
    if faults := dockerfile_faults(text, policy.docker.base_images):
        raise ToolError("policy", f"{dockerfile} is not built: {'; '.join(faults[:5])}")
    packed, room = io.BytesIO(), policy.limits.tree_bytes
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for entry in tree.walk(folder, policy.limits.entries):
            if not in_project(entry.path) or entry.kind not in ("file", "folder"):
                continue
            member = tarfile.TarInfo(entry.path.removeprefix(inside))
            member.mode = entry.mode & 0o777
            if entry.kind == "folder":
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
                continue
            content = text.encode() if entry.path == inside + dockerfile else tree.read(entry.path, max(0, room))
            room -= len(content)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


async def _ours(at: Workshop, container: str) -> dict[str, Any]:
    """Return what the engine says of a container. Raises ToolError where it does not carry the label."""
    seen: dict[str, Any] = await _json(at, "GET", f"/containers/{container}/json")
    _id(seen)
    if at.policy.docker.label not in ((seen.get("Config") or {}).get("Labels") or {}):
        raise ToolError(
            "policy", f"{container} does not carry the label {at.policy.docker.label}: docker_ps has those that do"
        )
    return seen


def _rights(seen: Mapping[str, Any]) -> list[str]:
    """List what a container has of the host, by name. Pure."""
    host = seen.get("HostConfig") or {}
    found = ["Privileged"] if host.get("Privileged") else []
    found += [name for name in CAPABILITIES if host.get(name)]
    found += [name for name in OF_THE_HOST if str(host.get(name) or "").startswith(("host", "container:"))]
    mounts = [*(seen.get("Mounts") or []), *(host.get("Mounts") or [])]
    found += ["Mounts"] if any(str(one.get("Type", "bind")) not in ("volume", "tmpfs") for one in mounts) else []
    found += (
        ["SecurityOpt"]
        if any("unconfined" in str(one) or "disable" in str(one) for one in host.get("SecurityOpt") or [])
        else []
    )
    return found


async def _json(
    at: Workshop,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    body: Mapping[str, Any] | None = None,
) -> Any:
    raw = await _raw(at, method, path, query, body=body)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ToolError("failed", f"the engine answered {path} with what is no JSON") from None


async def _raw(
    at: Workshop,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    body: Mapping[str, Any] | bytes | None = None,
    most: int = MOST_REPLY,
) -> bytes:
    """Raises ToolError where the engine is not there, refuses, or says more than is read and is to be whole."""
    async with _client(at.policy) as client:
        content, kind = (
            (body, "application/x-tar") if isinstance(body, bytes) else (json.dumps(body or {}), "application/json")
        )
        sent = {"content": content, "headers": {"Content-Type": kind}} if body is not None else {}
        async with client.stream(method, API + path, params=query, **sent) as reply:  # type: ignore[arg-type]
            raw = bytearray()
            async for chunk in reply.aiter_bytes():
                raw += chunk
                if len(raw) > most:
                    break
            if len(raw) > most and most == MOST_REPLY:
                raise ToolError("limit", f"the engine answered {path} with more than {most:,} bytes")
            if reply.status_code == 404:
                raise ToolError("not_found", f"the engine knows no such thing: {_message(raw)}")
            if reply.status_code >= 400:
                raise ToolError("failed", f"the engine answers {reply.status_code}: {_message(raw)}")
            return bytes(raw[:most])


@asynccontextmanager
async def _client(policy: Policy) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(policy.docker.socket))
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://docker", timeout=policy.docker.seconds, trust_env=False
        ) as client:
            yield client
    except httpx.ConnectError:
        raise ToolError(
            "ours", f"no Docker engine answers at {policy.docker.socket}: docker.socket of the policy"
        ) from None
    except httpx.TimeoutException:
        raise ToolError("limit", f"the engine did not answer within {policy.docker.seconds:g} s") from None
    except httpx.HTTPError as error:
        raise ToolError("failed", f"the engine's answer broke off: {error}") from None


def _message(raw: bytes | bytearray) -> str:
    event = object_of(bytes(raw))
    return str(event.get("message") or raw[:300].decode(errors="replace"))[:500]


def _objects(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ToolError("failed", "the engine's list is none")
    return found[:500]


def _id(seen: Any) -> str:
    """An id that can stand in a path. Raises ToolError."""
    found = seen.get("Id") if isinstance(seen, dict) else None
    if not isinstance(found, str) or not found.isalnum():
        raise ToolError("failed", "the engine's answer has no id")
    return found


def _text(seen: Mapping[str, Any], name: str) -> str:
    return str(seen.get(name) or "")[:300]


def _decode_output(raw: bytes, *, tty: bool) -> str:
    """Return what a container wrote. Without a terminal the engine sends frames: stream, length (4 bytes), content."""
    if tty:
        return raw.decode(errors="replace")
    said, at = bytearray(), 0
    while at + 8 <= len(raw):
        stream, length = struct.unpack_from(">B3xI", raw, at)
        if stream > 2:
            return raw.decode(errors="replace")
        said += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return said.decode(errors="replace")
