"""Jobs are the tenant `default`'s so far: other tenants have none, and see none."""

from __future__ import annotations

from pathlib import Path

from ratchet.http.access.roles import Role
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.manager.managed import managed


async def test_a_job_is_as_if_it_were_not_there_to_another_tenant(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    async with managed(tmp_path, api_public_keys=mint.keys.jwks, api_hosts=("127.0.0.1",)) as house:
        house.api.headers.update(bearer(mint.good(Role.SUBMITTER, "ann")))
        job = await house.submit()

        for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR):
            house.api.headers.update(bearer(mint.good(role, "ann", "acme")))
            await house.get(f"/v1/jobs/{job['job_id']}", 404)
            await house.get(f"/v1/jobs/{job['job_id']}/results", 404)
            assert (await house.get("/v1/jobs"))["items"] == []
        for act in ("pause", "resume", "cancel", "rerun"):
            await house.post(f"/v1/jobs/{job['job_id']}/{act}", 404)
        refused = await house.post("/v1/jobs", 403, json={"tasks": [{"input": "x"}]})

    assert "tenant `default`" in refused["detail"]
