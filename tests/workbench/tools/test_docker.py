"""The 6 operations on Docker, against an engine that is played: the API's paths and shapes, and what it was asked."""

from __future__ import annotations

import io
import json
import socket
import struct
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.serving import serving
from tests.workbench.tools.world import SECRET, Case, World, bad, good, hold, hostile
from workbench.tools.docker import dockerfile_faults

ID = "4f" * 32
PLAIN: dict[str, Any] = {"NetworkMode": "bridge", "IpcMode": "private", "CgroupnsMode": "private"}


def container(name: str, host: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """As GET /containers/{id}/json has it, as far as it is looked at."""
    return {
        "Id": ID,
        "Name": f"/{name}",
        "Created": "2026-01-01T00:00:00Z",
        "State": {
            "Status": "running",
            "Running": True,
            "ExitCode": 0,
            "OOMKilled": False,
            "StartedAt": "2026-01-01T00:00:00Z",
        },
        "RestartCount": 0,
        "Config": {
            "Image": "redis:7",
            "Cmd": ["redis-server"],
            "Env": [f"PASSWORD={SECRET}"],
            "Tty": False,
            "Labels": {"ratchet.tools": "yes"} if labels is None else labels,
        },
        "HostConfig": PLAIN | (host or {}),
        "Mounts": (host or {}).get("Mounted", []),
    }


CONTAINERS = {
    "redis": container("redis"),
    "foreign": container("foreign", labels={"com.example": "x"}),
    "privileged": container("privileged", {"Privileged": True}),
    "mounted": container("mounted", {"Binds": ["/:/host"]}),
    "mounts": container("mounts", {"Mounted": [{"Type": "bind", "Source": "/", "Destination": "/host"}]}),
    "network": container("network", {"NetworkMode": "host"}),
    "joined": container("joined", {"PidMode": "container:abc"}),
    "capable": container("capable", {"CapAdd": ["SYS_ADMIN"]}),
    "device": container("device", {"Devices": [{"PathOnHost": "/dev/sda"}]}),
    "unconfined": container("unconfined", {"SecurityOpt": ["seccomp=unconfined"]}),
    "volume": container("volume", {"Mounted": [{"Type": "volume", "Name": "data"}]}),
    "strange": container("strange") | {"Id": "../../images/json?x="},
}


def frame(stream: int, text: str) -> bytes:
    return struct.pack(">BxxxI", stream, len(text)) + text.encode()


class Engine:
    """Docker's API, version 1.41, of the few requests there are."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.lists: Any = None

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1.41/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE"])])

    async def _answer(self, request: Request) -> Response:
        path, raw = request.path_params["path"], await request.body()
        is_tar = request.headers.get("content-type") == "application/x-tar"
        self.asked.append(
            (request.method, path, dict(request.query_params), raw if is_tar else json.loads(raw or b"null"))
        )
        parts = path.split("/")
        match (request.method, parts):
            case ("GET", ["containers", "json"]):
                listed = [
                    {
                        "Id": ID,
                        "Names": ["/redis"],
                        "Image": "redis:7",
                        "State": "running",
                        "Status": "Up 2 hours",
                        "Labels": {"ratchet.tools": "yes"},
                    }
                ]
                foreign = {"Id": "00" * 32, "Names": ["/foreign"], "Labels": {}}
                return JSONResponse(self.lists or [*listed, foreign])
            case ("GET", ["images", "json"]):
                return JSONResponse(self.lists or [{"Id": "sha256:ab", "RepoTags": ["redis:7"], "Size": 117_000_000}])
            case ("GET", ["containers", name, "json"]):
                found = CONTAINERS.get(name)
                return JSONResponse(found) if found else JSONResponse({"message": f"No such container: {name}"}, 404)
            case ("GET", ["containers", _, "logs"]):
                return Response(
                    frame(1, "ready\n") + frame(2, "warning\n"), media_type="application/vnd.docker.multiplexed-stream"
                )
            case ("POST", ["containers", _, "start" | "stop" | "restart"]):
                return Response(status_code=204)
            case ("POST", ["containers", _, "exec"]):
                return JSONResponse({"Id": "e1"}, 201)
            case ("POST", ["exec", "e1", "start"]):
                return Response(frame(1, "PONG\n"), media_type="application/vnd.docker.raw-stream")
            case ("GET", ["exec", "e1", "json"]):
                return JSONResponse({"ExitCode": 0, "Running": False})
            case ("POST", ["build"]):
                if b"RUN false" in raw:
                    return Response(b'{"stream":"Step 2/2 : RUN false"}\r\n{"error":"returned a non-zero code: 1"}\r\n')
                return Response(
                    b'{"stream":"Step 1/1 : FROM scratch\\n"}\r\n{"stream":"Successfully built ab12\\n"}\r\n'
                )
        return JSONResponse({"message": "page not found"}, 404)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """On a Unix socket, as the real one."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "docker.sock"))
    listener.listen()
    one = Engine()
    async with serving(one.app(), listener):
        yield one


def dockerfile(text: str) -> Any:
    return lambda world: world.write("Dockerfile", text)


def control(action: str, name: str = "redis", **more: Any) -> dict[str, Any]:
    return {"container": name, "action": action, **more}


UNTOUCHED = ("foreign", "privileged", "mounted", "mounts", "network", "joined", "capable", "device", "unconfined")
CASES = [
    good("docker_ps", {}, lambda it: [one["name"] for one in it["containers"]] == ["redis"]),
    bad("docker_ps", {"all": True}, "arguments: all"),
    hostile("docker_ps", {}, "failed: the engine's list is none", name="no-list"),
    good("docker_logs", {"container": "redis"}, {"text": "ready\nwarning\n"}),
    bad("docker_logs", {"container": "nobody"}, "not_found: No such container"),
    hostile("docker_logs", {"container": "foreign"}, "policy: does not carry the label"),
    hostile("docker_logs", {"container": "../images"}, "arguments: container", name="path"),
    good("docker_inspect", {"container": "redis"}, lambda it: it["state"]["Status"] == "running" and not it["refused"]),
    bad("docker_inspect", {"container": "nobody"}, "not_found: "),
    hostile("docker_inspect", {"container": "foreign"}, "policy: does not carry"),
    hostile("docker_inspect", {"container": "strange"}, "failed: no id", name="id"),
    good("docker_images", {}, {"images": [{"tags": ["redis:7"], "bytes": 117_000_000}]}),
    bad("docker_images", {"filter": "x"}, "arguments: filter"),
    hostile("docker_images", {}, "failed: the engine's list is none", name="no-list"),
    good("docker_control", control("start"), {"done": "start"}),
    good("docker_control", control("restart", "volume"), {"done": "restart"}, name="volume"),
    good(
        "docker_control",
        control("exec", command=["redis-cli", "ping"]),
        {"exit_code": 0, "text": "PONG\n"},
        name="exec",
    ),
    bad("docker_control", control("exec"), "arguments: exec needs a command"),
    bad("docker_control", control("kill"), "arguments: action", name="verb"),
    *(hostile("docker_control", control("exec", name, command=["sh"]), "policy: ", name=name) for name in UNTOUCHED),
    good(
        "docker_build",
        {"tag": "mine:1"},
        {"image": "ratchet-tools/mine:1"},
        before=dockerfile("FROM scratch\nCOPY . /\n"),
    ),
    bad("docker_build", {"tag": "mine"}, "not_found: Dockerfile"),
    bad(
        "docker_build",
        {"tag": "mine"},
        "failed: the build failed",
        name="fails",
        before=dockerfile("FROM scratch\nRUN false\n"),
    ),
    hostile(
        "docker_build",
        {"tag": "mine"},
        "policy: ADD may fetch",
        before=dockerfile("FROM scratch\nADD http://10.0.0.1/ /\n"),
    ),
    hostile("docker_build", {"tag": "mine"}, "policy: FROM evil", name="from", before=dockerfile("FROM evil.test/x\n")),
    hostile("docker_build", {"tag": "mine", "path": "../outside"}, "arguments: leads up", name="path"),
    hostile("docker_build", {"tag": "evil.test/x"}, "arguments: tag", name="tag"),
    hostile(
        "docker_build",
        {"tag": "mine"},
        "policy: link",
        name="link",
        before=lambda world: (world.root / "Dockerfile").symlink_to(world.outside / "secret.txt"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, tmp_path: Path, engine: Engine) -> None:
    world = World(tmp_path, docker={"socket": str(tmp_path / "docker.sock")})
    if case.name == "no-list":
        engine.lists = {"message": "hello"}

    await hold(case, world)

    changes = [path for method, path, _, _ in engine.asked if method != "GET"]
    assert case.kind == "good" or case.name == "fails" or changes == []
    await world.toolbox.close()


async def test_what_a_build_and_an_exec_ask_of_the_engine(tmp_path: Path, engine: Engine) -> None:
    world = World(tmp_path, docker={"socket": str(tmp_path / "docker.sock")})
    world.write("Dockerfile", "FROM scratch\n")
    world.write(".git/config", "x")
    world.write("src/app.py", "x = 1\n")
    (world.root / "link").symlink_to(world.outside / "secret.txt")
    await world.call("docker_build", tag="mine")
    await world.call("docker_control", container="redis", action="exec", command=["id"])

    (_, path, query, context), *_ = engine.asked
    assert (path, query["networkmode"], query["pull"], query["t"]) == ("build", "none", "false", "ratchet-tools/mine")
    with tarfile.open(fileobj=io.BytesIO(context)) as packed:
        assert set(packed.getnames()) == {"Dockerfile", "src", "src/app.py"}
    made = next(body for _, path, _, body in engine.asked if path.endswith("/exec"))
    assert (made["Privileged"], made["Cmd"]) == (False, ["id"])
    await world.toolbox.close()


async def test_an_engine_that_is_not_there_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, docker={"socket": str(tmp_path / "none.sock")})
    result = await world.call("docker_ps")
    assert "no Docker engine answers" in result.text
    await world.toolbox.close()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("FROM base\nRUN make\nCOPY --from=0 /a /b\n", None),
        ("FROM base AS first\nFROM first\nCOPY --from=first /a /b\n", None),
        ("# syntax=evil.test/frontend\nFROM base\n", "builder of its own"),
        ("FROM $IMAGE\n", "FROM $IMAGE"),
        ("ARG IMAGE=evil\nFROM ${IMAGE}\n", "FROM ${IMAGE}"),
        ("FROM --platform=x evil\n", "FROM --platform=x evil"),
        ("from base\n  aDd https://evil.test/x /\n", "ADD"),
        ("FROM base\nONBUILD ADD x /\n", "ADD"),
        ("FROM base\nONBUILD COPY a /b\n", None),
        ("FROM base AS busybox\nFROM base\nONBUILD COPY --from=busybox /a /b\n", "no earlier stage"),
        ("FROM base\nA\\\nDD http://evil.test/ /\n", "ADD"),
        ("# escape=`\nFROM base\nAD`\nD http://evil.test/ /\n", "ADD"),
        ("FROM base\nCOPY --from=evil.test/x /a /b\n", "COPY --from=evil.test/x"),
        ("FROM base\nRUN --mount=type=bind,from=evil id\n", "RUN takes no options"),
        ("FROM base\nRUN --network=host id\n", "RUN takes no options"),
        ("FROM base\r\nRUN a \\\r\n\r\n  # why\r\n  b\r\nCOPY --chown=1:1 a /b\r\n", None),
        ("# escape=`\nFROM base\nRUN a `\n b\n", None),
        ("FROM base\nCOPY \\\n\n--from=evil/image /a /b\n", "COPY --from=evil/image"),
        ("FROM base\nRUN a \\\v\nCOPY --from=evil/image /a /b\n", "white space"),
        ("FROM base\nRUN a\vCOPY\v--from=evil/image /a /b\n", "white space"),
        ("FROM base\nCOPY\r--from=evil/image /a /b\n", "white space"),
        ("FROM base\n# escape=`\nCOPY \\\n--from=evil/image /a /b\n", "`# escape=`"),
        ("FROM base\nCOPY --fr\\om=evil/image /a /b\n", "without quotes"),
        ('FROM base\nCOPY --chown=1 --fr"om"=evil/image /a /b\n', "without quotes"),
        ("FROM base\nCOPY --link x --from=evil/image /a /b\n", "COPY --link"),
        ("FROM base AS busybox\nCOPY --from=busybox /a /b\n", "no earlier stage"),
        ("FROM base\nRUN a \\\\\nCOPY --from=evil/image /a /b\n", "two escape characters"),
        ("FROM base\nRUN <<E\nRUN \\\nE\n", "here-document"),
        ("FROM base\nFETCH evil.test/x\n", "no instruction"),
    ],
)
def test_a_dockerfile_that_would_leave_the_build_is_not_built(text: str, fault: str | None) -> None:
    faults = dockerfile_faults(text, ("base",))

    assert (faults == []) if fault is None else any(fault in one for one in faults), faults
