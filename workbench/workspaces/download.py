"""Bytes over HTTP: from URLs that are allowed, redirects included, and no more of them than there is room for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import httpx

from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.urls import check_url

REDIRECTS = 5
MOVED = (301, 302, 303, 307, 308)
LATER = (408, 425, 429)
IDENTITY = {"Accept-Encoding": "identity", "User-Agent": "git/2.0 (ratchet)"}
"""Servers of git look at the name."""


class Downloads:
    """`allowed` are beginnings of URLs, `most` the bytes of one answer."""

    def __init__(self, client: httpx.AsyncClient, allowed: Sequence[str], most: int) -> None:
        self._client = client
        self._allowed = tuple(allowed)
        self._most = most

    async def get(self, url: str) -> bytes:
        async with self.open("GET", url) as answer:
            return await self.whole(answer)

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Mapping[str, str] = {}, content: bytes | None = None
    ) -> AsyncIterator[httpx.Response]:
        """The answer of the last of at most five places. Raises WorkspaceError or WorkspaceUnavailable."""
        try:
            for _ in range(REDIRECTS + 1):
                check_url(url.partition("?")[0], self._allowed)
                asked = self._client.build_request(method, url, headers={**IDENTITY, **headers}, content=content)
                answer = await self._client.send(asked, stream=True, follow_redirects=False)
                try:
                    if answer.status_code in MOVED and method == "GET" and (place := answer.headers.get("location")):
                        url = urljoin(url, place)
                        continue
                    _check(answer, url)
                    yield answer
                    return
                finally:
                    await answer.aclose()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise WorkspaceUnavailable(f"{url[:200]} can't be read: {error!r}") from error
        except (httpx.InvalidURL, httpx.HTTPError) as error:
            raise WorkspaceError(f"{url[:200]} can't be read: {error!r}") from error
        raise WorkspaceError(f"{url[:200]} is moved on more than {REDIRECTS} times")

    async def whole(self, answer: httpx.Response) -> bytes:
        """Raises WorkspaceError for more bytes than there is room for."""
        content = bytearray()
        async for part in answer.aiter_raw():
            content += part
            if len(content) > self._most:
                raise WorkspaceError(f"{str(answer.url)[:200]} has more than the {self._most:,} bytes there may be")
        return bytes(content)


def _check(answer: httpx.Response, url: str) -> None:
    code = answer.status_code
    if code >= 500 or code in LATER:
        raise WorkspaceUnavailable(f"{url[:200]} answers {code}")
    if code != 200:
        raise WorkspaceError(f"{url[:200]} answers {code}: only what anybody may read can be a workspace")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise WorkspaceError(f"{url[:200]} answers compressed, unasked")
