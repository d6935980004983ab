"""A sandbox, workspaces with a cache of their own, and a server of git repositories and archives on this machine."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from workbench.sandbox.job import Result, TreeFile
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.workspaces import Workspaces

Make = Callable[..., Workspaces]


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return Sandbox.open(SandboxSettings())


@pytest.fixture
async def make(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Make]:
    opened: list[Workspaces] = []

    def with_settings(**settings: Any) -> Workspaces:
        given = WorkspaceSettings(**{"workspace_cache": tmp_path / "cache", **settings})
        opened.append(Workspaces(given, sandbox))
        return opened[-1]

    yield with_settings
    for one in opened:
        await one.close()


@pytest.fixture
def workspaces(make: Make) -> Workspaces:
    return make()


def plain(files: dict[str, str | bytes | TreeFile]) -> dict[str, TreeFile]:
    """Make a tree of contents."""
    return {
        path: given if isinstance(given, TreeFile) else TreeFile(given.encode() if isinstance(given, str) else given)
        for path, given in files.items()
    }


def left(files: dict[str, Any], **left_out: str) -> Result:
    """Return the result of a run that nobody made, with these files left."""
    from workbench.sandbox.job import End

    return Result(End.EXITED, "it exited with 0", 0, tree=plain(files), left_out=left_out)


def git(folder: Path, *arguments: str) -> str:
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}
    people = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    ran = subprocess.run(
        ["git", *people, *arguments], cwd=folder, env={**os.environ, **quiet}, capture_output=True, check=True
    )
    return ran.stdout.decode(errors="replace").strip()


class Server:
    """Serves what lies in `folder`: repositories over git's own CGI program, and files. Counts what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.redirects: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if place := outer.redirects.get(self.path):
                    self.send_response(302)
                    self.send_header("Location", place)
                    self.end_headers()
                elif "service=git-upload-pack" in self.path or self.command == "POST":
                    self._git()
                elif (file := outer.folder / self.path.lstrip("/")).is_file():
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(file.read_bytes())
                else:
                    self.send_error(404)

            do_POST = do_GET  # noqa: N815

            def _git(self) -> None:
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                environment = {
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(outer.folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                    "REMOTE_ADDR": "127.0.0.1",
                }
                said = subprocess.run(
                    ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
                )
                head, _, content = said.stdout.partition(b"\r\n\r\n")
                fields = [line.decode().split(": ", 1) for line in head.split(b"\r\n")]
                code = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
                self.send_response(code)
                for name, value in fields:
                    if name != "Status":
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    one = Server(folder)
    yield one
    one.close()
