"""The web page: its files, held in memory, at `/` and under `/page/<digest of all of them>/`.

The digest makes an address that always holds the same bytes: browsers keep the files for good, and a page never mixes
the modules of two versions. The page itself is open to anyone; all it shows it reads from the API, with the reader's
token. Nothing here is a template: the only thing put into a file is the digest, into `index.html`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Self

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ratchet.http.operation import ANYONE, operation
from ratchet.http.problem import Problem
from ratchet.page import STATIC

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
INDEX = "index.html"
MARK = b"DIGEST"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Scripts and styles from files of ours only, none in the markup; data from this origin only; no page may frame it."""
SECURITY = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class PageFile:
    """One file as it is sent: plain, or compressed to whoever takes that."""

    media_type: str
    plain: bytes

    @cached_property
    def gzip_bytes(self) -> bytes:
        return gzip.compress(self.plain, 9, mtime=0)

    def response(self, request: Request, cache_control: str) -> Response:
        headers = {**SECURITY, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.plain, headers=headers, media_type=self.media_type)
        return Response(self.gzip_bytes, headers={**headers, "Content-Encoding": "gzip"}, media_type=self.media_type)


@dataclass(frozen=True, slots=True)
class Page:
    """All files of the page by their path in its folder, and the digest they are served under."""

    digest: str
    files: dict[str, PageFile]

    @classmethod
    def read(cls, folder: Path = STATIC) -> Self:
        contents = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*"))}
        whole = sha256()
        for name, content in contents.items():
            whole.update(f"{name}\0{len(content)}\0".encode() + content)
        digest = whole.hexdigest()[:16]
        contents[INDEX] = contents[INDEX].replace(MARK, digest.encode())
        return cls(digest, {name: PageFile(TYPES[Path(name).suffix], content) for name, content in contents.items()})


def page_router() -> APIRouter:
    """Reads the files once. They are no part of the API's document."""
    page = Page.read()
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    @operation(ANYONE)
    async def index(request: Request) -> Response:
        return page.files[INDEX].response(request, "no-cache")

    @router.get("/page/{path:path}")
    @operation(ANYONE)
    async def file(request: Request, path: str) -> Response:
        digest, _, name = path.partition("/")
        if digest != page.digest or name not in page.files:
            raise Problem(404, "No such file", "the page was updated, or never had it: load / again", "unknown-file")
        return page.files[name].response(request, FOR_GOOD)

    return router
