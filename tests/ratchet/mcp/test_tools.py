"""The tools that are made from the documents of the real services, and the calls that their arguments become."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ratchet.http.access.roles import Role
from ratchet.http.operation import Effect
from ratchet.mcp.rest import Call, CallFailed, Route, Services
from ratchet.mcp.server import PROMPTS, build_server, resources_of
from ratchet.mcp.tool_runner import hints_of
from ratchet.mcp.tools import ToolSpec, tools_of
from schemas.messages.response import Usage
from tests.ratchet.http.real_services import NAMES

DOCUMENTS = {name: json.loads(Path(f"schemas/generated/openapi/{name}.json").read_text()) for name in NAMES}
SPECS = [spec for name, document in DOCUMENTS.items() for spec in tools_of(name, document)]
BY_NAME = {spec.name: spec for spec in SPECS}
EVERY_TOOL = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
WHY = "it is worse"
MEASURED = json.loads(Usage(calls=2, seconds=1.5).model_dump_json())
VIEWER, SUBMITTER, OPERATOR, *_ = Role
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
    "freeze_cascade": {OPERATOR},
    "unfreeze_cascade": {OPERATOR},
    "set_cascade": {OPERATOR},
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
    "cancel_task": {SUBMITTER, OPERATOR},
    "submit_job": {SUBMITTER, OPERATOR},
    "list_jobs": {*ALL, Role.ADMIN},
    "get_job": ALL,
    "get_job_results": ALL,
    "pause_job": {SUBMITTER, OPERATOR},
    "resume_job": {SUBMITTER, OPERATOR},
    "cancel_job": {SUBMITTER, OPERATOR},
    "rerun_job": {SUBMITTER, OPERATOR},
    "get_quota": {VIEWER, OPERATOR, Role.ADMIN},
    "get_usage": {*ALL, Role.ADMIN},
    "register_agent": {SUBMITTER, OPERATOR},
    "list_approvals": ALL,
    "answer_approval": {SUBMITTER, OPERATOR},
    "list_registered_agents": {*ALL, Role.ADMIN},
    "get_registered_agent": ALL,
    "get_agent_metrics": ALL,
    "fleet_status": {VIEWER, OPERATOR},
    "give_feedback": {SUBMITTER, OPERATOR},
    "generate": {SUBMITTER, OPERATOR},
    "loaded_adapters": ALL,
    "score": {SUBMITTER, OPERATOR, Role.RUNNER},
    "start_training": {OPERATOR},
    "get_run": {VIEWER, OPERATOR},
    "list_runs": {VIEWER, OPERATOR},
}


@EVERY_TOOL
def test_each_teaches_what_it_is_for_and_what_it_takes(spec: ToolSpec) -> None:
    assert len(spec.description) > 60
    assert spec.input_schema["additionalProperties"] is False
    untold = [name for name, schema in spec.input_schema["properties"].items() if not schema.get("description")]
    assert not untold


@EVERY_TOOL
def test_schemas_are_valid_and_have_an_object_as_their_root(spec: ToolSpec) -> None:
    for schema in (spec.input_schema, spec.output_schema):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert set(re.findall(r"#/\$defs/([\w.-]+)", json.dumps(schema))) == schema["$defs"].keys()


@EVERY_TOOL
def test_each_is_for_the_roles_of_its_route(spec: ToolSpec) -> None:
    assert spec.roles == ROLES[spec.name]


def test_the_orchestrators_tools_are_told_in_128_kb() -> None:
    told = [spec for spec in SPECS if spec.route.service == "orchestrator"]

    size = sum(len(json.dumps([one.input_schema, one.output_schema, one.description])) for one in told)

    assert size <= 128_000


def test_names_are_unique_over_all_services() -> None:
    assert len(BY_NAME) == len(SPECS) == len(ROLES)


def test_each_is_marked_by_what_it_does() -> None:
    marked = {effect: {spec.name for spec in SPECS if spec.effect is effect} for effect in Effect}

    assert marked[Effect.REPLACES] == {
        "promote",
        "rollback",
        "promote_program",
        "rollback_program",
        "set_cascade",
        "dismiss_dead_letters",
        "cancel_task",
        "cancel_job",
    }
    of_jobs, of_agents = {"pause_job", "resume_job"}, {"register_agent", "freeze", "unfreeze", "reanchor"}
    assert marked[Effect.SETS] == {*of_jobs, *of_agents, "freeze_cascade", "unfreeze_cascade"}
    assert marked[Effect.ADDS] == {"requeue_dead_letters", "restore_dead_letters", "start_training", "try_program"}
    assert marked[Effect.WORKS] == {
        "submit_task",
        "deliberate",
        "give_feedback",
        "submit_job",
        "rerun_job",
        "answer_approval",
    }
    hints = {name: hints_of(spec) for name, spec in BY_NAME.items()}
    assert hints["promote"].destructive_hint and BY_NAME["promote"].description.endswith("Ask your user first.")
    assert not hints["freeze"].destructive_hint and hints["freeze"].idempotent_hint
    assert not hints["submit_task"].idempotent_hint
    assert {name for name, hint in hints.items() if hint.read_only_hint} == marked[Effect.READS]


@pytest.mark.parametrize(
    ("name", "arguments", "request_line", "body"),
    [
        (
            "submit_task",
            {"input": [{"role": "user", "content": "x"}], "task_id": None},
            "POST /v1/tasks?wait_s=30.0",
            {"input": [{"role": "user", "content": "x"}], "metadata": {"source": "mcp"}},
        ),
        (
            "deliberate",
            {"input": "x", "select": "majority", "wait_s": 5},
            "POST /v1/deliberate?wait_s=5",
            {"input": "x", "select": "majority", "metadata": {"source": "mcp"}},
        ),
        ("get_task", {"task_id": "a/b"}, "GET /v1/tasks/a%2Fb", None),
        ("list_tasks", {"state": "open", "limit": 5}, "GET /v1/tasks?limit=5&state=open", None),
        ("list_adapters", {}, "GET /v1/adapters", None),
        ("show_adapter", {"agent_id": "small", "version": "v1.0.1"}, "GET /v1/adapters/small/v1.0.1", None),
        (
            "rollback",
            {"agent_id": "small", "reason": WHY, "to": "v1.0.0"},
            "POST /v1/adapters/small/rollback",
            {"to": "v1.0.0", "reason": WHY},
        ),
        ("list_experiments", {}, "GET /v1/experiments?limit=20", None),
        ("queues", {}, "GET /v1/queues", None),
        ("requeue_dead_letters", {"ids": ["a"]}, "POST /v1/dead-letters/requeue", {"ids": ["a"]}),
        ("requeue_dead_letters", {"ids": '["a"]'}, "POST /v1/dead-letters/requeue", {"ids": ["a"]}),
        (
            "give_feedback",
            {"task_id": "t-1", "score": 0.5, "reason": "[1]"},
            "POST /v1/feedback",
            {"task_id": "t-1", "score": 0.5, "reason": "[1]", "metadata": {"source": "mcp"}},
        ),
        (
            "generate",
            {"input": "[1]", "sampling": {"n": 2, "temperature": 0}},
            "POST /v1/generate",
            {"input": "[1]", "sampling": {"n": 2, "temperature": 0}},
        ),
        (
            "score",
            {"input": "x", "responses": ["y", "z"], "usages": [MEASURED, None]},
            "POST /v1/score",
            {"input": "x", "responses": ["y", "z"], "usages": [MEASURED, None]},
        ),
        ("start_training", {"agent_id": "small", "seed": 0}, "POST /v1/train", {"agent_id": "small", "seed": 0}),
        ("list_runs", {"cursor": "abc"}, "GET /v1/trainings?cursor=abc&limit=20", None),
    ],
)
def test_arguments_become_one_call(
    name: str, arguments: dict[str, Any], request_line: str, body: dict[str, Any] | None
) -> None:
    spec = BY_NAME[name]

    call = spec.call(arguments)

    assert _request_line(spec.route, call) == request_line
    assert call.body == body


def test_a_call_says_how_long_it_is_waited_for() -> None:
    task, run = {"input": "x"}, {"agent_id": "small"}

    assert BY_NAME["submit_task"].call(task).wait_s == 30
    assert BY_NAME["submit_task"].call(task | {"wait_s": 7}).wait_s == 7
    assert BY_NAME["generate"].call(task).wait_s == 120
    assert BY_NAME["start_training"].call(run | {"wait_s": 9}).body == run
    assert BY_NAME["start_training"].call(run | {"wait_s": 9}).wait_s == 9


def test_a_tool_that_speaks_for_several_agents_takes_one_of_them() -> None:
    (generate, _) = tools_of("agent", DOCUMENTS["agent"], chooses_agent=True)

    assert generate.call({"input": "x", "agent_id": "code"}).agent_id == "code"
    with pytest.raises(CallFailed, match="agent_id is not known here"):
        BY_NAME["generate"].call({"input": "x", "agent_id": "code"})


def test_prompts_name_tools_that_exist() -> None:
    told = " ".join(prompt(*("x" for _ in prompt.__annotations__ if _ != "return")) for prompt in PROMPTS)
    named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", told)) - {"roll_back_at", "promote_at"}

    assert named and named <= BY_NAME.keys()


async def test_a_server_of_one_service_has_its_tools_only() -> None:
    server = build_server("x", {"scorer": DOCUMENTS["scorer"]}, Services({}, {}), lambda _: None)

    assert [tool.name for tool in await server.list_tools()] == ["score"]


def test_resources_have_the_addresses_that_the_documentation_tells() -> None:
    found = {one.uri for name, document in DOCUMENTS.items() for one in resources_of(name, document)}

    fixed = ("decisions", "loaded-adapters", "log/tail", "registry", "status")
    either = ("dead-letters", "runs", "trainings")
    by_id = ("experiments", "jobs", "tasks", *either)
    assert found == {f"ratchet://{one}" for one in (*fixed, *either)} | {f"ratchet://{one}/{{+value}}" for one in by_id}


def _request_line(route: Route, call: Call) -> str:
    query = "&".join(f"{name}={value}" for name, value in sorted(call.query.items()))
    return f"{route.method} {route.path(call.path)}" + (f"?{query}" if query else "")
