"""/v1/manager: the manager's routes at the orchestrator's address, for the page, which may call no other one.

A call goes on as it is, with its token: the manager decides who may. No part of the API's document: programs call the
manager itself.
"""

from __future__ import annotations

import re
from typing import Annotated

import httpx
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ratchet.http.operation import ADMIN, OPERATOR, OWN_TASKS, VIEWER, Effect, operation
from ratchet.http.problem import Problem

PATH = re.compile(r"(jobs|agents|usage|tenants)(/[A-Za-z0-9_-][A-Za-z0-9._:-]*)*")
LONGEST_S = 25.0
Given = Annotated[str | None, Query(max_length=1000)]


def manager_router(url: str | None) -> APIRouter:
    """`url`: where the manager is; None: there is none."""
    router = APIRouter(include_in_schema=False)

    @router.get("/v1/manager/{path:path}")
    @operation(VIEWER, OWN_TASKS, OPERATOR, ADMIN)
    async def read(
        request: Request, path: str, limit: Given = None, cursor: Given = None, state: Given = None, by: Given = None
    ) -> Response:
        return await pass_on(request, path)

    @router.post("/v1/manager/{path:path}")
    @operation(OWN_TASKS, OPERATOR, ADMIN, effect=Effect.WORKS)
    async def act(request: Request, path: str, budget: Given = None) -> Response:
        return await pass_on(request, path)

    @router.delete("/v1/manager/{path:path}")
    @operation(OWN_TASKS, OPERATOR, ADMIN, effect=Effect.WORKS)
    async def remove(request: Request, path: str) -> Response:
        return await pass_on(request, path)

    async def pass_on(request: Request, path: str) -> Response:
        if url is None:
            raise Problem(404, "No manager", "this fleet has no manager (RATCHET_MANAGER_URL)", "no-manager")
        if not PATH.fullmatch(path):
            raise Problem(404, "Not found", "the manager has no such path for the page", "unknown-path")
        token = request.headers.get("authorization")
        headers = {"Authorization": token} if token else {}
        if kind := request.headers.get("content-type"):
            headers["Content-Type"] = kind
        body = await request.body()
        try:
            async with httpx.AsyncClient(base_url=url, timeout=LONGEST_S, trust_env=False) as client:
                said = await client.request(
                    request.method, f"/v1/{path}", params=request.url.query, content=body, headers=headers
                )
        except httpx.HTTPError as error:
            why = f"the manager does not answer ({type(error).__name__}): it is stopped, or the network between is"
            raise Problem(503, "No manager", why, "no-manager") from None
        return Response(said.content, said.status_code, media_type=said.headers.get("content-type"))

    return router
