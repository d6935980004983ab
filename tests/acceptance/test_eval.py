"""`ratchet eval` on a fleet of real processes: from a file to a table, a picture, and what a release shows of it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as Xml
from collections.abc import Callable

import pytest

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.service.settings import FleetSettings
from tests.acceptance.fleet import Fleet
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.acceptance.scoring import scored
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import decided
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet(environment=scored({"v1.0.0": 0.3, "v1.0.1": 0.6}) | {"RATCHET_GOLDEN_FROM_TRAFFIC": "false"})


def test_two_versions_are_held_against_each_other_and_the_release_has_it_beside_its_card(fleet: Fleet) -> None:
    # given a fleet with a primary that is worth 0.3 more than the base model, and a set with one task twice
    adapters = fleet.folder / "adapters"
    ratchet = ForkedRatchet(
        fleet.folder,
        {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
            "RATCHET_ADAPTERS_DIR": str(adapters),
            "RATCHET_AGENTS": ",".join(fleet.agents),
            "RATCHET_TRAINER_REPORT_TO": "tensorboard",
            "TENSORBOARD_LOGGING_DIR": str(fleet.folder / "boards"),
        },
    )
    store = RegistryStore.from_settings(FleetSettings(adapters_dir=adapters, logs_dir=fleet.logs))
    decided(store, registration(published(adapters), adapters))
    promote = ("adapters", "promote", "v1.0.1", "--reason", "to be evaluated")
    wait_until(lambda: ratchet(*promote).code == 0, "a promotion, once the gate has let it through")
    asked = [{"input": f"question {n}", "family": "odd" if n % 2 else "even"} for n in range(8)]
    lines = [json.dumps(one) for one in (*asked, asked[0])]
    (fleet.folder / "set.jsonl").write_text("\n".join(lines))
    versions = ("--version", "v1.0.0", "--version", "v1.0.1")

    # when they are evaluated at once
    ran = ratchet("eval", "--set", "set.jsonl", *versions, "-n", "2", "--json")
    assert ran.code == 0, ran.err

    # then every task counts once, by family and paired
    found = ran.json
    (result,) = found["results"]
    assert "1 lines of set.jsonl ask what another asks" in ran.err
    assert found["set"]["tasks"] == 8
    assert [(one["version"], one["leaked"], one["unanswered"]) for one in found["versions"]] == [
        ("v1.0.0", 0, 0),
        ("v1.0.1", 0, 0),
    ]
    assert [(one["family"], one["single"]["difference"]["tasks"]) for one in result["results"]] == [
        (None, 8),
        ("even", 4),
        ("odd", 4),
    ]
    whole = result["results"][0]
    assert whole["samples"] == 2
    assert whole["single"]["difference"]["mean"] == pytest.approx(0.3, abs=0.1)
    assert whole["single"]["difference"]["low"] > 0

    # and it lies beside the version, is shown with its card, and goes with it elsewhere
    (picture,) = (adapters / "small" / "evaluations").glob(f"{found['name']}.svg")
    assert Xml.parse(picture).getroot().tag.endswith("svg")
    assert "gain" in picture.read_text()
    assert found["name"] in [one["name"] for one in ratchet("adapters", "show", "v1.0.1", "--json").json["evaluations"]]
    assert "set.jsonl: 8 tasks" in ratchet("adapters", "show", "v1.0.1").out
    assert ratchet("adapters", "export", "v1.0.1", "out").code == 0
    assert "8 tasks that no training saw, against v1.0.0" in (fleet.folder / "out" / "README.md").read_text()

    # and the trackers have it
    assert "tensorboard" not in ran.err
    assert len(list((fleet.folder / "boards" / "small" / "v1.0.1").glob("events.*"))) == 1

    # and what was asked counts nowhere
    rows = [json.loads(line) for line in ratchet("log", "tail", "-n", "64", "--json").out.splitlines()]
    assert {row["arm"]["experiment_id"][:11] for row in rows} == {"validation:"}
