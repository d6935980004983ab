"""Where `ratchet mcp` looks for the services."""

from __future__ import annotations

import pytest

from services.cli.fleet.api_client import addresses_of
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import UsageError
from tests.services.cli.started import started


def test_what_was_started_here_is_found_with_one_replica_of_each_agent() -> None:
    options = FleetOptions(agents=("small", "code-2"), replicas=2)
    agents = {"agent-small-1": 2, "agent-small-2": 3, "agent-code-2-1": 4}
    record = started(options, {"broker": None, "orchestrator": 1, **agents, "scorer": 5})

    found = addresses_of((), record)

    assert found.by_name == {"orchestrator": "http://127.0.0.1:1", "scorer": "http://127.0.0.1:5"}
    assert found.agents == {"small": "http://127.0.0.1:2", "code-2": "http://127.0.0.1:4"}


def test_an_agent_whose_name_ends_in_a_number_is_no_replica() -> None:
    found = addresses_of((), started(FleetOptions(agents=("code", "code-2")), {"agent-code": 1, "agent-code-2": 2}))

    assert found.agents == {"code": "http://127.0.0.1:1", "code-2": "http://127.0.0.1:2"}


def test_before_a_fleet_was_started_it_is_where_it_will_be() -> None:
    found = addresses_of((), None)

    assert set(found.by_name) == {"orchestrator", "scorer", "trainer"}
    assert found.by_name["orchestrator"] == f"http://127.0.0.1:{FleetOptions().port_base}"
    assert list(found.agents) == ["small"]


def test_what_is_typed_goes_before_what_was_started() -> None:
    urls = ("https://fleet.example/", "agent-small=http://10.0.0.2:80", "scorer=http://10.0.0.3")

    found = addresses_of(urls, started(FleetOptions(), {"orchestrator": 1, "trainer": 2}))

    assert found.by_name == {"orchestrator": "https://fleet.example", "scorer": "http://10.0.0.3"}
    assert found.agents == {"small": "http://10.0.0.2:80"}


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("judge=http://x", "there is no service 'judge'"),
        ("orchestrator=fleet.example", "'fleet.example' is no address"),
        ("ftp://fleet.example", "'ftp://fleet.example' is no address"),
        ("scorer=", "'' is no address"),
    ],
)
def test_what_is_no_address_is_said(url: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        addresses_of((url,), None)
