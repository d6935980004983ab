"""Every service's OpenAPI document against the service itself, by a machine that tries to break it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

import schemas
from ratchet.http.access.roles import Role
from ratchet.http.server.limits import LONGEST_S, TIMEOUT_HEADER
from services.orchestrator.api.tasks import LONGEST_WAIT_S
from tests.ratchet.http.access.tokens_for_tests import bearer
from tests.ratchet.http.served_fleet import ServedFleet, served_fleet

DOCUMENTS = Path(schemas.__file__).parent / "generated" / "openapi"
EVENTS = "/v1/events"
FITTING_OTHERS = {
    "select",
    "pass_score",
    "artifacts",
    "usages",
    "format",
    "response_format",
    "tool_choice",
    "registered_agent",
    "role_versions",
    "constraints",
}
"""Fields that are refused without others, in another number, or for what the JSON Schema in them says."""
EXAMPLES = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
    derandomize=True,
)


def document(service: str) -> schemathesis.BaseSchema:
    """The checked-in one, which another test holds to be current."""
    return schemathesis.openapi.from_path(DOCUMENTS / f"{service}.json")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, amqp_url: str) -> Iterator[ServedFleet]:
    with served_fleet(tmp_path_factory.mktemp("fleet"), amqp_url) as served:
        yield served


def made_sense_of(case: schemathesis.Case) -> None:
    """What is valid by the schema should be accepted, if it is about this fleet: a schema can't say that."""
    if isinstance(case.body, dict):
        if "agent_id" in case.body:
            case.body["agent_id"] = "small"
        if isinstance(task_id := case.body.get("task_id"), str) and not task_id.isprintable():
            case.body["task_id"] = "".join(filter(str.isprintable, task_id)) or "task"
        for name in (FITTING_OTHERS | {"deadline", "metadata", "adapter_version", "thumbs"}) & case.body.keys():
            del case.body[name]
        if case.path.endswith("/feedback"):
            case.body["score"] = 1.0
        if case.path.endswith("/requeue"):
            case.body = {"queue": "tasks"}
        if case.path.endswith("/dismiss"):
            case.body = {"queue": "tasks", "reason": "no use"}
        if case.path.endswith("/restore"):
            case.body = {"ids": ["000000000000"], "reason": "of use"}
    for name in ("cursor", "agent_id", "wait_s"):
        case.query.pop(name, None)
    case.headers.pop("idempotency-key", None)  # equal examples come with other content


def made_sense_of_jobs(case: schemathesis.Case) -> None:
    """As above, for the manager: what a budget, a program or a line of a job may be is said in sentences."""
    if isinstance(case.body, dict):
        hard = {"deadline", "budget", "adapter_version", "kind", "needs_approval", "tools", "tool_policy"}
        for name in hard & case.body.keys():
            del case.body[name]
        if "tasks" in case.body:
            case.body["tasks"] = ["x"]
        if "program" in case.body:
            case.body["program"] = {"command": ["true"]}
        if "model" in case.body:
            case.body["model"] = "small"
    for name in ("cursor", "budget"):
        case.query.pop(name, None)


def in_no_hurry(case: schemathesis.Case) -> None:
    """A deadline that passes is answered with 504, as documented: a 5xx, but no fault. Nobody answers tasks here."""
    if case.path.endswith("/deliberate"):
        case.query.setdefault("wait_s", 0)
    with suppress(ValueError, TypeError):
        if 0 < float(case.query.get("wait_s", "none")) <= LONGEST_WAIT_S:
            case.query["wait_s"] = 0
    with suppress(ValueError):
        if 0 < float(case.headers.get(TIMEOUT_HEADER, "none")) <= LONGEST_S:
            del case.headers[TIMEOUT_HEADER]


def holds(case: schemathesis.Case, fleet: ServedFleet, service: str) -> None:
    """All checks: no 5xx, nothing undocumented, every header and body as documented, and no way around the token."""
    if case.meta is not None and case.meta.generation.mode.is_positive:
        made_sense_of(case)
        if service == "manager":
            made_sense_of_jobs(case)
    in_no_hurry(case)
    token = bearer(fleet.token(Role.OPERATOR))
    case.call_and_validate(base_url=fleet.urls[service], headers=token, timeout=30)


def at(server: str) -> pytest.MarkDecorator:
    """With a parameter of pytest's own each operation is a test with a name of its own; without, all have the same."""
    return pytest.mark.parametrize("server", [server])


@pytest.mark.broker
@document("agent").parametrize()
@at("agent")
@EXAMPLES
def test_agent(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    holds(case, fleet, server)


@pytest.mark.broker
@document("scorer").parametrize()
@at("scorer")
@EXAMPLES
def test_scorer(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    holds(case, fleet, server)


@pytest.mark.broker
@document("trainer").parametrize()
@at("trainer")
@EXAMPLES
def test_trainer(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    holds(case, fleet, server)


@pytest.mark.broker
@document("manager").parametrize()
@at("manager")
@EXAMPLES
def test_manager(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    holds(case, fleet, server)


@pytest.mark.broker
@document("orchestrator").exclude(path=EVENTS).parametrize()
@at("orchestrator")
@EXAMPLES
def test_orchestrator(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    holds(case, fleet, server)


@pytest.mark.broker
@document("orchestrator").include(path=EVENTS).parametrize()
@at("events")
@EXAMPLES
def test_events(case: schemathesis.Case, fleet: ServedFleet, server: str) -> None:
    if case.meta is not None and case.meta.generation.mode.is_positive:
        case.query.pop("kinds", None)  # a schema can't say that they are among those there are
    holds(case, fleet, server)
