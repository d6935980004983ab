"""The tool tables: each tool is a pure function from its arguments to one call, marked by what it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ratchet.http.access.matrix import matrix_of
from ratchet.http.access.roles import Role
from ratchet.mcp.call import Call, Route
from ratchet.mcp.rest import Services
from ratchet.mcp.server import TABLES, may_call, tools_of
from ratchet.mcp.tool_runner import tool_of
from ratchet.mcp.tool_table import Effect, ToolSpec
from schemas.messages.response import Usage
from schemas.messages.task import ChatMessage

SPECS = [spec for table in TABLES for spec in table]
BY_NAME = {spec.name: spec for spec in SPECS}
EVERY_TOOL = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
WHY = "it is worse"
MEASURED = Usage(calls=2, seconds=1.5)
VIEWER, SUBMITTER, OPERATOR, _ = Role
ALL = {VIEWER, SUBMITTER, OPERATOR}
ROLES = {
    "submit_task": {SUBMITTER, OPERATOR},
    "deliberate": {SUBMITTER, OPERATOR},
    "get_task": ALL,
    "list_tasks": ALL,
    "list_adapters": ALL,
    "show_adapter": ALL,
    "promote": {OPERATOR},
    "rollback": {OPERATOR},
    "freeze": {OPERATOR},
    "unfreeze": {OPERATOR},
    "reanchor": {OPERATOR},
    "list_experiments": {VIEWER, OPERATOR},
    "experiment_status": {VIEWER, OPERATOR},
    "compare_programs": {VIEWER, OPERATOR},
    "programs_standing": {VIEWER, OPERATOR},
    "try_program": {OPERATOR},
    "promote_program": {OPERATOR},
    "rollback_program": {OPERATOR},
    "list_rollouts": {VIEWER, OPERATOR},
    "running_rollouts": {VIEWER, OPERATOR},
    "list_trainings": {VIEWER, OPERATOR},
    "training_status": {VIEWER, OPERATOR},
    "queues": {VIEWER, OPERATOR},
    "list_dead_letters": {VIEWER, OPERATOR},
    "requeue_dead_letters": {OPERATOR},
    "dismiss_dead_letters": {OPERATOR},
    "restore_dead_letters": {OPERATOR},
    "fleet_status": {VIEWER, OPERATOR},
    "give_feedback": {SUBMITTER, OPERATOR},
    "generate": {SUBMITTER, OPERATOR},
    "loaded_adapters": ALL,
    "score": {SUBMITTER, OPERATOR, Role.RUNNER},
    "start_training": {OPERATOR},
    "get_run": {VIEWER, OPERATOR},
    "list_runs": {VIEWER, OPERATOR},
}


def parameters_of(spec: ToolSpec) -> dict[str, Any]:
    return tool_of(spec, Services({}, {})).parameters


@EVERY_TOOL
def test_each_calls_a_route_that_the_matrix_of_access_knows(spec: ToolSpec) -> None:
    row = matrix_of(spec.route.service).find(spec.route.method, spec.route.example)

    assert row is not None
    assert row.roles, "a tool's route is for somebody"


@EVERY_TOOL
def test_each_teaches_what_it_is_for_and_what_it_takes(spec: ToolSpec) -> None:
    parameters = parameters_of(spec)

    assert len(spec.description) > 60
    assert parameters["additionalProperties"] is False
    untold = [name for name, schema in parameters.get("properties", {}).items() if not schema.get("description")]
    assert not untold


@EVERY_TOOL
def test_schemas_are_valid_and_have_an_object_as_their_root(spec: ToolSpec) -> None:
    for schema in (parameters_of(spec), spec.output_schema):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"


@EVERY_TOOL
def test_each_is_for_the_roles_of_its_route(spec: ToolSpec) -> None:
    assert {role for role in Role if may_call(role, spec)} == ROLES[spec.name]


@EVERY_TOOL
def test_each_gives_its_route_what_the_openapi_document_says_that_it_takes(spec: ToolSpec) -> None:
    document = json.loads(Path("schemas", "generated", "openapi", f"{spec.route.service}.json").read_text())
    operation = document["paths"][spec.route.template][spec.route.method.lower()]
    call = spec.function(**dict.fromkeys(parameters_of(spec)["properties"], "x"))

    assert set(call.path) == _parameters(operation, "path")
    assert set(call.query) <= _parameters(operation, "query")
    if call.body is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        component = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert set(call.body) <= set(component["properties"])


def test_the_orchestrators_tools_are_told_in_half_of_213_kb() -> None:
    told = [spec for spec in SPECS if spec.route.service == "orchestrator"]

    size = sum(len(json.dumps([parameters_of(one), one.output_schema, one.description])) for one in told)

    assert size <= 106_500


def test_names_are_unique_over_all_services() -> None:
    assert len(BY_NAME) == len(SPECS) == len(ROLES)


def test_each_is_marked_by_what_it_does() -> None:
    marked = {effect: {spec.name for spec in SPECS if spec.effect is effect} for effect in Effect}

    assert marked[Effect.REPLACES] == {"promote", "rollback", "promote_program", "rollback_program"}
    assert marked[Effect.REMOVES] == {"dismiss_dead_letters"}
    assert marked[Effect.SETS] == {"freeze", "unfreeze", "reanchor"}
    letters = {"requeue_dead_letters", "restore_dead_letters"}
    assert marked[Effect.ADDS] == letters | {
        "submit_task",
        "deliberate",
        "give_feedback",
        "start_training",
        "try_program",
    }
    assert BY_NAME["promote"].annotations.destructive_hint is True
    assert BY_NAME["freeze"].annotations.destructive_hint is False
    assert BY_NAME["submit_task"].annotations.idempotent_hint is False
    assert all(BY_NAME[name].annotations.read_only_hint for name in marked[Effect.READS])
    assert not any(spec.annotations.read_only_hint for spec in SPECS if spec.effect is not Effect.READS)


def test_what_changes_the_fleet_in_the_matrix_is_marked_as_changing() -> None:
    for spec in SPECS:
        row = matrix_of(spec.route.service).find(spec.route.method, spec.route.example)
        assert row is not None
        if row.effect != "none":
            assert spec.effect is not Effect.READS, spec.name


@pytest.mark.parametrize(
    ("name", "arguments", "request_line", "body"),
    [
        (
            "deliberate",
            {"input": "x", "select": "majority", "wait_s": 5},
            "POST /v1/deliberate?wait_s=5",
            {"input": "x", "samples": 8, "select": "majority", "metadata": {"source": "mcp"}},
        ),
        ("get_task", {"task_id": "a/b"}, "GET /v1/tasks/a%2Fb", None),
        ("list_tasks", {"state": "open", "limit": 5}, "GET /v1/tasks?state=open&limit=5", None),
        ("list_adapters", {}, "GET /v1/adapters", None),
        ("show_adapter", {"agent_id": "small", "version": "v1.0.1"}, "GET /v1/adapters/small/v1.0.1", None),
        (
            "promote",
            {"agent_id": "small", "version": "v1.0.1", "reason": WHY},
            "POST /v1/adapters/small/promote",
            {"version": "v1.0.1", "reason": WHY},
        ),
        (
            "rollback",
            {"agent_id": "small", "reason": WHY, "to": "v1.0.0"},
            "POST /v1/adapters/small/rollback",
            {"to": "v1.0.0", "reason": WHY},
        ),
        ("freeze", {"agent_id": "small", "reason": WHY}, "POST /v1/adapters/small/freeze", {"reason": WHY}),
        ("unfreeze", {"agent_id": "small", "reason": WHY}, "POST /v1/adapters/small/unfreeze", {"reason": WHY}),
        ("reanchor", {"agent_id": "small", "reason": WHY}, "POST /v1/adapters/small/reanchor", {"reason": WHY}),
        ("experiment_status", {"experiment_id": "small-v1.0.1-9"}, "GET /v1/experiments/small-v1.0.1-9", None),
        ("list_experiments", {}, "GET /v1/experiments?limit=20", None),
        ("list_trainings", {"state": "refused"}, "GET /v1/trainings?state=refused&limit=20", None),
        ("training_status", {"run_id": "night/1"}, "GET /v1/trainings/night%2F1", None),
        ("queues", {}, "GET /v1/queues", None),
        ("list_dead_letters", {"limit": 1}, "GET /v1/dead-letters?limit=1", None),
        ("requeue_dead_letters", {"ids": ["a"]}, "POST /v1/dead-letters/requeue", {"ids": ["a"]}),
        ("fleet_status", {}, "GET /v1/status", None),
        (
            "give_feedback",
            {"task_id": "t-1", "score": 0.5},
            "POST /v1/feedback",
            {"task_id": "t-1", "score": 0.5},
        ),
        (
            "generate",
            {"input": "x", "n": 2, "temperature": 0},
            "POST /v1/generate",
            {"input": "x", "sampling": {"n": 2, "temperature": 0}},
        ),
        ("loaded_adapters", {}, "GET /v1/adapters", None),
        (
            "score",
            {"input": "x", "responses": ["y"], "reference": "y"},
            "POST /v1/score",
            {"input": "x", "responses": ["y"], "reference": "y"},
        ),
        (
            "score",
            {"input": "x", "responses": ["y", "z"], "usages": [MEASURED, None]},
            "POST /v1/score",
            {"input": "x", "responses": ["y", "z"], "usages": [json.loads(MEASURED.model_dump_json()), None]},
        ),
        ("start_training", {"agent_id": "small", "seed": 0}, "POST /v1/train", {"agent_id": "small", "seed": 0}),
        ("get_run", {"run_id": "r-1"}, "GET /v1/runs/r-1", None),
        ("list_runs", {"cursor": "abc"}, "GET /v1/runs?cursor=abc&limit=20", None),
    ],
)
def test_arguments_become_one_call(
    name: str, arguments: dict[str, Any], request_line: str, body: dict[str, Any] | None
) -> None:
    spec = BY_NAME[name]

    call = spec.function(**arguments)

    assert _request_line(spec.route, call) == request_line
    assert call.given_body == body


def test_a_task_says_how_long_it_is_waited_for_and_where_it_came_from() -> None:
    messages = (ChatMessage(role="user", content="x"),)

    call = BY_NAME["submit_task"].function(input=messages, wait_s=7)

    assert (call.query, call.wait_s) == ({"wait_s": 7}, 7)
    assert call.given_body == {
        "input": [{"role": "user", "content": "x"}],
        "priority": 0,
        "metadata": {"source": "mcp"},
    }


def test_a_server_of_one_service_has_its_tools_only() -> None:
    assert [spec.name for spec in tools_of(frozenset({"scorer"}))] == ["score"]


def _parameters(operation: dict[str, Any], place: str) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == place}


def _request_line(route: Route, call: Call) -> str:
    query = "&".join(f"{name}={value}" for name, value in call.given_query.items())
    return f"{route.method} {route.path(call.path)}" + (f"?{query}" if query else "")
