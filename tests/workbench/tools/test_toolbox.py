"""What every call goes through: arguments, policy, consent, limits, errors, the audit."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ratchet.files.hash_chain import Link, chain_line
from ratchet.service.errors import JournalError
from ratchet.tools.audit import ToolAudit, verify
from ratchet.tools.recorded import ASK_PERSON
from tests.workbench.tools.world import World, lines_of
from workbench.errors import PolicyError
from workbench.tools.names import TOOL_NAMES
from workbench.tools.operation import Decision, Effect, Operation
from workbench.tools.policy import Policy
from workbench.tools.toolbox import OPERATIONS, Toolbox


def plain(world: World, **more: Any) -> Toolbox:
    """With the policy there is where nobody wrote one."""
    return Toolbox(world.root, Policy(), ToolAudit(world.audit.parent / "other"), **more)


def test_what_is_allowed_where_nobody_said_anything() -> None:
    decided = {name: Policy().decides(one) for name, one in OPERATIONS.items()}

    assert [name for name, decision in decided.items() if decision is Decision.ASK] == [
        "file_remove", "git_restore", "http_get", "http_head", "http_download", "db_delete",
        "docker_ps", "docker_logs", "docker_inspect", "docker_images",
    ]  # fmt: skip
    assert [name for name, decision in decided.items() if decision is Decision.DENY] == [
        "http_post", "http_put", "http_delete", "docker_control", "docker_build",
    ]  # fmt: skip


def test_the_names_that_declarations_may_use_are_those_of_all_tools() -> None:
    assert {*OPERATIONS, ASK_PERSON.name} == TOOL_NAMES


def test_the_policy_of_a_role_goes_before_that_of_all_and_what_a_task_leaves_out_is_denied() -> None:
    deny, allow = Decision.DENY, Decision.ALLOW
    of_all = {"file_write": deny, "file_remove": allow}
    policy = Policy(operations=of_all, roles={"writer": {"file_write": allow}}, task_tools=("file_write", "file_read"))

    def decided(role: str) -> list[Decision]:
        names = ("file_write", "file_remove", "file_read")
        return [policy.for_role(role).decides(OPERATIONS[name]) for name in names]

    assert decided("") == decided("reader") == [deny, deny, allow]
    assert decided("writer") == [allow, deny, allow]


def test_what_reads_is_listed_as_that() -> None:
    writers = ("write", "append", "replace", "patch", "move", "make", "create", "add", "commit", "insert", "update")
    assert [
        one.name
        for one in OPERATIONS.values()
        if one.effect is Effect.READS and any(part in one.name.split("_") for part in writers)
    ] == []


async def test_what_needs_consent_is_done_with_it_and_not_without(world: World) -> None:
    world.write("a.txt", "x")
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def consents(operation: Operation, arguments: Mapping[str, Any]) -> bool:
        asked.append((operation.name, arguments))
        return len(asked) > 1

    nobody, somebody = plain(world), plain(world, ask=consents)
    for toolbox in (nobody, somebody):
        refused = await toolbox.call("file_remove", {"path": "a.txt"})
        assert (refused.ok, refused.content["error"]) == (False, "policy")
        assert "consent" in refused.content["says"] and "file_remove" in refused.content["says"]
    assert (await somebody.call("file_remove", {"path": "a.txt"})).ok
    assert asked == [("file_remove", {"path": "a.txt", "recursive": False})] * 2

    denied = await somebody.call("http_delete", {"url": "http://example.com/"})
    assert "denied by the policy" in denied.text
    for toolbox in (nobody, somebody):
        await toolbox.close()


async def test_what_is_denied_is_not_offered(world: World) -> None:
    toolbox = plain(world)
    offered = {tool["function"]["name"] for tool in toolbox.openai_tools()}

    assert "http_get" in offered and "http_post" not in offered
    await toolbox.close()


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("file_reed", {}, "did you mean file_"),
        ("nothing like it", {}, "there is no tool"),
        ("file_read", "{", "no JSON"),
        ("file_read", "[1]", "must be an object"),
        ("file_read", '{"path": 1}', "path: "),
        ("file_read", {}, "path: Field required"),
        ("file_read", ["path"], "must be an object"),
        ("file_read", {("a", 1): 2}, "call of file_read"),
        ("file_read", "[" * 100_000, "no JSON"),
        ("file_read\ud800", {"path": "\ud800"}, "there is no tool"),
    ],
)
async def test_a_call_that_makes_no_sense_says_what_would(name: str, arguments: Any, says: str, world: World) -> None:
    result = await world.toolbox.call(name, arguments)

    assert (result.ok, result.content["error"]) == (False, "arguments")
    assert says in result.content["says"]
    (line,) = lines_of(world.audit)
    assert (line["event"], line["kind"]) == ("refused", "arguments")


async def test_arguments_may_be_json_as_a_model_wrote_it(world: World) -> None:
    world.write("a.txt", "x")

    assert (await world.toolbox.call("file_read", '{"path": "a.txt"}')).content["text"] == "x"


async def test_a_fault_of_ours_is_a_sentence_and_no_traceback(world: World) -> None:
    world.write("a.txt", "x")
    world.toolbox.workshop.tree = None  # type: ignore[assignment]
    result = await world.call("file_read", path="a.txt")

    assert (result.ok, result.content["error"]) == (False, "ours")
    assert "NoneType" not in result.text
    world.toolbox.workshop.tree = type("", (), {"close": lambda self: None})()


async def test_an_answer_that_is_long_is_shortened(tmp_path: Path) -> None:
    world = World(tmp_path, limits={"answer_characters": 1000})
    world.write("a.txt", "x" * 50_000)
    result = await world.call("file_read", path="a.txt")

    assert result.ok and len(result.text) <= 1000
    assert result.content["shortened"] == ["text"]
    await world.toolbox.close()


async def test_a_call_that_takes_too_long_ends(tmp_path: Path) -> None:
    async def never(host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().create_future()

    world = World(tmp_path, resolve=never, limits={"seconds": 0.05})
    result = await world.call("http_get", url="http://a.test/")

    assert (result.ok, result.content["error"]) == (False, "limit")
    await world.toolbox.close()


async def test_a_call_that_is_cancelled_is_in_the_audit(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def never(host: str, port: int) -> list[str]:
        reached.set()
        return await asyncio.get_running_loop().create_future()

    world = World(tmp_path, resolve=never)
    calling = asyncio.create_task(world.call("http_get", url="http://a.test/"))
    await reached.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await world.toolbox.close()

    assert [(line["event"], line.get("how")) for line in lines_of(world.audit)] == [
        ("called", None),
        ("ended", "cancelled"),
    ]


@pytest.mark.parametrize(("has_begun", "expected"), [(False, b"of the second"), (True, b"of both")])
async def test_a_change_that_is_given_up_is_not_made_later(has_begun: bool, expected: bytes, world: World) -> None:
    """Given a call beyond its time whose thread goes on: the next one waits for it, and finds nothing half-done."""
    workshop, reached, may_go_on = world.toolbox.workshop, threading.Event(), threading.Event()

    def slow() -> None:
        if has_begun:
            workshop.tree.write("a.txt", b"of the first")
        reached.set()
        may_go_on.wait()
        workshop.tree.write("a.txt", b"of both" if has_begun else b"of the first, too late")

    def second() -> None:
        if not has_begun:
            workshop.tree.write("a.txt", b"of the second")

    first = asyncio.create_task(workshop.change(slow))
    await asyncio.to_thread(reached.wait)
    first.cancel()
    next_one = asyncio.create_task(workshop.change(second))
    await asyncio.sleep(0)
    may_go_on.set()
    await next_one

    assert (world.root / "a.txt").read_bytes() == expected
    assert (await asyncio.gather(first, return_exceptions=True) == [None]) is has_begun


def test_an_audit_in_the_workspace_is_refused(tmp_path: Path) -> None:
    for audit in (ToolAudit(tmp_path / "a"), ToolAudit(tmp_path.parent / "b", tmp_path / "anchor")):
        with pytest.raises(PolicyError, match="would lie in the workspace"):
            Toolbox(tmp_path, Policy(), audit)


async def test_a_policy_is_read_and_one_that_is_wrong_says_where(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    known = frozenset(OPERATIONS)
    file.write_text('[operations]\nhttp_get = "allow"\n[http]\nhosts = ["a.test"]\n[limits]\nseconds = 5\n')
    read = Policy.read(file, known)
    assert (read.decides(OPERATIONS["http_get"]), read.http.hosts, read.limits.seconds) == (
        Decision.ALLOW,
        ("a.test",),
        5,
    )

    for text, says in (
        ('[operations]\nhttp_gett = "allow"', "http_gett"),
        ('[roles.writer]\nhttp_gett = "allow"', "http_gett"),
        ('[operations]\nhttp_get = "yes"', "operations.http_get"),
        ("[http]\nhostz = []", "hostz"),
        ("[http]\nnetworks = ['x']", "http.networks"),
        ("[limits]\nseconds = -1", "limits.seconds"),
        ("nonsense", "can't be read"),
    ):
        file.write_text(text)
        with pytest.raises(PolicyError, match=says):
            Policy.read(file, known)


async def audited(folder: Path) -> World:
    """Eight lines of an audit."""
    world = World(folder)
    await world.call("file_write", path="a.txt", content="something private, and nobody's business")
    await world.call("file_read", path="a.txt")
    await world.call("file_read", path="none")
    await world.call("file_read", path="../x")
    await world.toolbox.close()
    return world


async def test_the_audit_has_every_call_and_refusal_and_no_content(tmp_path: Path) -> None:
    world = await audited(tmp_path)
    lines = lines_of(world.audit)

    assert [line["event"] for line in lines] == ["called", "ended"] * 4
    assert lines[0]["arguments"]["path"] == "a.txt"
    assert lines[0]["arguments"]["content"].keys() == {"sha256", "bytes"}
    assert [line.get("how") for line in lines[1::2]] == ["answered", "answered", "failed", "failed"]
    assert "private" not in (world.audit / "tools" / "audit.jsonl").read_text()
    assert verify(world.audit / "tools", world.anchor)["lines"] == 8


def edited(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b"a.txt", b"b.txt"), *lines[1:]]


def rechained(lines: list[bytes]) -> list[bytes]:
    """Written anew by somebody who knows how: found by the anchor alone."""
    link, made = Link(), []
    for line in lines:
        fields = json.loads(line.replace(b"a.txt", b"b.txt"))
        link, new = chain_line(link, {name: value for name, value in fields.items() if name not in ("sha256",)})
        made.append(new)
    return made


@pytest.mark.parametrize(
    ("touch", "says"),
    [
        (edited, "changed"),
        (lambda lines: [*lines[:3], *lines[4:]], "changed"),
        (lambda lines: lines[1:], "removed from the beginning"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "changed"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "changed"),
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: [], "cut off"),
        (rechained, "is another than"),
    ],
    ids=["edited", "removed", "first-removed", "inserted", "swapped", "truncated", "emptied", "rechained"],
)
async def test_whatever_is_done_to_the_audit_is_found(touch: Any, says: str, tmp_path: Path) -> None:
    world = await audited(tmp_path)
    file = world.audit / "tools" / "audit.jsonl"
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"".join(line + b"\n" for line in touch(lines)))

    with pytest.raises(JournalError, match=says):
        verify(file.parent, world.anchor)


async def test_an_audit_goes_on_where_it_ended(tmp_path: Path) -> None:
    world = await audited(tmp_path)
    again = Toolbox(world.root, world.policy, ToolAudit(world.audit, world.anchor))
    await again.call("file_list", {})
    await again.close()

    assert verify(world.audit / "tools", world.anchor)["lines"] == 10


async def test_nothing_is_done_that_can_t_be_audited(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.audit.write_text("a file in the way")

    with pytest.raises(JournalError):
        await world.call("file_write", path="a.txt", content="x")
    assert list(world.root.iterdir()) == []
    await world.toolbox.close()
