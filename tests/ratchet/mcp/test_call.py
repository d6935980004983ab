"""Routes and calls as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path

from ratchet.mcp.rest import Route

PROMOTE = Route("orchestrator", "POST", "/v1/adapters/{agent_id}/promote")


@pytest.mark.parametrize(
    ("agent_id", "path"),
    [
        ("small", "/v1/adapters/small/promote"),
        ("a/b?c#d", "/v1/adapters/a%2Fb%3Fc%23d/promote"),
        ("ü ", "/v1/adapters/%C3%BC%20/promote"),
    ],
)
def test_a_value_takes_its_place_in_the_path_encoded(agent_id: str, path: str) -> None:
    assert PROMOTE.path({"agent_id": agent_id}) == path


@given(st.text(min_size=1))
def test_no_value_leads_to_another_route(agent_id: str) -> None:
    pattern = compile_path(PROMOTE.template)[0]

    path = PROMOTE.path({"agent_id": agent_id})

    assert pattern.fullmatch(path)
    assert "?" not in path and "#" not in path
