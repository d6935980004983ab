"""Run the Pulumi program under mocks and keeps what it registers: properties, and which resource waits for which.

Random passwords get values that can be told from real ones. Nothing is created anywhere.
"""

from __future__ import annotations

import base64
import json
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi.runtime import mocks, set_all_config
from pulumi.runtime import settings as runtime
from pulumi.runtime.rpc import is_rpc_secret, unwrap_rpc_secret
from pulumi.runtime.stack import Stack, run_pulumi_func
from pulumi.runtime.sync_await import _ensure_event_loop, _sync_await

INFRA = Path(__file__).parent.parent
RENDERED = "rendered-"
"""The prefix of placeholders of passwords, which tells them from real ones."""


@dataclass(frozen=True, slots=True)
class Resource:
    """`waits_for` are URNs, `secret` tells which top-level properties are encrypted in the stack's state, `protected`
    whether `pulumi destroy` leaves it."""

    urn: str
    type: str
    name: str
    properties: Mapping[str, Any]
    secret: frozenset[str]
    waits_for: frozenset[str]
    protected: bool = False


@dataclass(slots=True)
class Recording:
    configuration: Mapping[str, Any]
    resources: list[Resource] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)


class _Answers(mocks.Mocks):
    """`passwords` is what each random password begins with."""

    def __init__(self, passwords: str) -> None:
        self._passwords = passwords

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        state = dict(args.inputs)
        if args.typ == "random:index/randomPassword:RandomPassword":
            state["result"] = f"{self._passwords}{args.name}"
        if args.typ == "random:index/randomBytes:RandomBytes":
            length = int(args.inputs["length"])
            state["base64"] = base64.b64encode(
                f"{self._passwords}{args.name}".encode().ljust(length, b".")[:length]
            ).decode()
        return f"{args.name}-id", state

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        return {}, None


class _Monitor(mocks.MockMonitor):
    """Keeps the dependencies, which mocks are not told."""

    def __init__(self, recording: Recording, answers: _Answers) -> None:
        super().__init__(answers)
        self._recording = recording

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        answer = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.custom:
            given = self.resources[answer.urn].state
            self._recording.resources.append(
                Resource(
                    answer.urn,
                    request.type,
                    request.name,
                    plain(given),
                    frozenset(key for key, value in given.items() if is_rpc_secret(value)),
                    frozenset(request.dependencies),
                    bool(request.protect),
                )
            )
        return answer


def plain(value: Any) -> Any:
    """Return the value without the wrapping of secrets, and with whole floats as integers."""
    if is_rpc_secret(value):
        return plain(unwrap_rpc_secret(value))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if key != "__provider"}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def stack_configuration(stack: str) -> dict[str, Any]:
    """Return the `config` of `Pulumi.<stack>.yaml`. Raises FileNotFoundError."""
    document = yaml.safe_load((INFRA / f"Pulumi.{stack}.yaml").read_text("utf-8"))
    return dict(document["config"])


def _program() -> None:
    """Run the folder, as Pulumi does it."""
    runpy.run_path(str(INFRA), run_name="__main__")


def record(
    stack: str,
    configuration: Mapping[str, Any],
    passwords: str = RENDERED,
    program: Callable[[], None] = _program,
) -> Recording:
    """Record the program, and raise what it raises. Resources are sorted by URN: their order of registration varies."""
    recording, answers = Recording(configuration), _Answers(passwords)
    _ensure_event_loop()  # type: ignore[no-untyped-call]
    runtime.set_root_resource(None)  # type: ignore[arg-type]
    mocks.set_mocks(answers, project="ratchet", stack=stack, preview=False, monitor=_Monitor(recording, answers))
    set_all_config(
        {key: value if isinstance(value, str) else json.dumps(value) for key, value in configuration.items()}
    )
    _sync_await(_run(recording, program))
    recording.resources.sort(key=lambda resource: resource.urn)
    return recording


async def _run(recording: Recording, program: Callable[[], None]) -> None:
    await run_pulumi_func(program)
    root = runtime.get_root_resource()
    assert isinstance(root, Stack)
    for name, output in root.outputs.items():
        secret = await pulumi.Output.from_input(output).is_secret()
        recording.outputs[name] = "[secret]" if secret else await pulumi.Output.from_input(output).future()
