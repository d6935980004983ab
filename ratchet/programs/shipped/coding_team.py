"""The program `coding-team`: a generator writes, a reviewer reads, an executor runs, a supervisor decides what is next.

Run inside a sandbox, as a StateGraph of LangGraph. Each agent is a role, which its calls name as the model. Files are
read, written, checked and tested by the tools of Ratchet, so a run can wait for a person and go on. A node that fails
is tried once more, then gone round; no answer and no tool's error ends the program. After a round that made it worse
the workspace is put back to the best state so far.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict

ROUNDS = 3
EASY_CHARS, EASY_FILES = 400, 3
MOST_FILES = 50
HARD = re.compile(r"\b(?:refactor|concurren|parallel|thread|optimi[sz]|protocol|parser|database|secur)", re.IGNORECASE)
SHOWN = 6_000
"""Characters of the files, of a report or of a review that a role is shown."""
BLOCK = re.compile(r"^```[ \t]*(?:[\w+-]*[ \t]+)?(?:path=)?([\w./-]+\.\w+)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OWN_TESTS = "tests/test_team.py"

GENERATOR = (
    "You write code. Answer with each file that you write or change, whole, in a fenced block whose first line is "
    "```path=FILE. Nothing else is read."
)
REVIEWER = "You review code for a task. Say APPROVE if it is right; else say in at most five lines what is wrong."
EXECUTOR = (
    f"You write tests for code. Answer with one fenced block whose first line is ```path={OWN_TESTS}: functions of "
    "pytest that test what the task asks for, three at most."
)
SUPERVISOR = "You lead a team of coding agents. Say in one sentence what the generator is to mend first."


class Result(Protocol):
    """The answer of a tool."""

    @property
    def ok(self) -> bool: ...
    @property
    def content(self) -> dict[str, Any]: ...


class Tools(Protocol):
    """The tools of Ratchet, on the workspace."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Result: ...


Ask = Callable[[str, str, str], Awaitable[str]]
"""Asks a role, with instructions and a text, and returns what it says."""


class State(TypedDict, total=False):
    """`verdict` is the reviewer's, `next` the supervisor's; `troubles` are nodes that failed twice. `best` holds the
    files of the best state so far, and `score` what its tests said: failures and errors count against it."""

    task: str
    is_easy: bool
    wrote: dict[str, str]
    review: str
    verdict: str
    reviewed: int
    report: dict[str, Any]
    advice: str
    round: int
    rounds: int
    next: str
    best: dict[str, str]
    score: float
    troubles: list[str]


class NoUse(Exception):
    """An answer, or a tool's, with which a node can't go on."""


def looks_easy(task: str, files: int) -> bool:
    """Tell whether a task needs no reviewer, by its length, its words and the files of its workspace."""
    return len(task) <= EASY_CHARS and files <= EASY_FILES and HARD.search(task) is None


def blocks_in(answer: str) -> dict[str, str]:
    """Return the files of an answer, by their paths."""
    return {path: text for path, text in BLOCK.findall(answer) if not path.startswith("/") and ".." not in path}


class Team:
    """The nodes of the graph. Each takes the state and returns what of it has changed."""

    def __init__(self, ask: Ask, tools: Tools, rounds: int = ROUNDS, by_role: Mapping[str, Tools] = {}) -> None:
        """`by_role`: the tools of roles whose policy is another than that of `tools`."""
        self._ask = ask
        self._tools = tools
        self._by_role = by_role
        self._rounds = rounds

    async def plan(self, state: State) -> State:
        """Look at the workspace, and tell whether the task looks easy."""
        files = await self.files()
        easy = looks_easy(state["task"], len(files))
        return {"is_easy": easy, "round": 1, "rounds": self._rounds, "best": files, "score": float("-inf")}

    async def generator(self, state: State) -> State:
        shown = {"Files": await self.files(), "Review": state.get("review"), "Tests": state.get("report")}
        answer = await self._ask("generator", GENERATOR, _prompt_for(state["task"], shown, state.get("advice")))
        wrote = blocks_in(answer)
        if not wrote:
            raise NoUse("the generator wrote no file")
        for path, text in wrote.items():
            await self._use("generator", "file_write", {"path": path, "content": text})
        return {"wrote": {**state.get("wrote", {}), **wrote}, "review": "", "verdict": ""}

    async def reviewer(self, state: State) -> State:
        checked = await self._tools_of("reviewer").call("code_check", {"paths": sorted(state.get("wrote", {}))})
        shown = {"Files": state.get("wrote"), "Findings": checked.content.get("findings")}
        said = await self._ask("reviewer", REVIEWER, _prompt_for(state["task"], shown))
        verdict = "approve" if re.search(r"\bAPPROVE\b", said) else "revise"
        return {"review": said if verdict == "revise" else "", "verdict": verdict, "reviewed": state["round"]}

    async def executor(self, state: State) -> State:
        """Run the tests of the project and those that it writes itself, once."""
        if OWN_TESTS not in state.get("wrote", {}) and not await self._has_tests():
            said = await self._ask("executor", EXECUTOR, _prompt_for(state["task"], {"Files": state.get("wrote")}))
            if (tests := blocks_in(said).get(OWN_TESTS)) is not None:
                await self._use("executor", "file_write", {"path": OWN_TESTS, "content": tests})
        ran = await self._tools_of("executor").call("test_run", {})
        report = ran.content if ran.ok else await self._run_alone(state, str(ran.content.get("says")))
        score = float("-inf") if not report else report.get("passed", 0) - 1000.0 * len(report.get("failed", [""]))
        if score >= state["score"]:
            return {"report": report, "score": score, "best": await self.files()}
        await self._put_back(state["best"])
        return {"report": report}

    async def supervisor(self, state: State) -> State:
        """Say what is next: the end where the tests pass or the rounds are used up, else another round."""
        if state.get("report", {}).get("ok") or state["round"] >= state["rounds"]:
            return {"next": "end"}
        again: State = {"next": "generator", "round": state["round"] + 1, "troubles": []}
        shown = {"Tests": state.get("report"), "Review": state.get("review"), "Troubles": state.get("troubles")}
        return {**again, "advice": await self._ask("supervisor", SUPERVISOR, _prompt_for(state["task"], shown))}

    async def _run_alone(self, state: State, why: str) -> dict[str, Any]:
        """Run the newest file, where no test can be run."""
        path = next(reversed(state.get("wrote", {})), None)
        ran = await self._tools_of("executor").call("code_run", {"file": path}) if path else None
        if ran is None or not ran.ok:
            return {"ok": False, "passed": 0, "failed": [why], "output": why}
        code = ran.content["exit_code"]
        return {"ok": code == 0, "passed": 0, "failed": [] if code == 0 else [f"{path} exits with {code}"]} | {
            "output": str(ran.content.get("stderr") or ran.content.get("stdout"))
        }

    def _tools_of(self, role: str) -> Tools:
        return self._by_role.get(role, self._tools)

    async def _use(self, role: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool as a role. Raises NoUse where it fails."""
        result = await self._tools_of(role).call(name, arguments)
        if not result.ok:
            raise NoUse(f"{name}: {result.content.get('says')}")
        return result.content

    async def _has_tests(self) -> bool:
        return (await self._tools_of("executor").call("test_list", {})).ok

    async def files(self) -> dict[str, str]:
        """Read the small text files of the workspace."""
        found = await self._use("", "file_find", {"glob": "*"})
        texts = {}
        for path in found["paths"][:MOST_FILES]:
            read = await self._tools.call("file_read", {"path": path})
            if read.ok and read.content["whole"]:
                texts[path] = str(read.content["text"])
        return texts

    async def _put_back(self, best: Mapping[str, str]) -> None:
        for path in (await self.files()).keys() - best.keys():
            await self._tools.call("file_remove", {"path": path})
        for path, text in best.items():
            await self._tools.call("file_write", {"path": path, "content": text})


def _prompt_for(task: str, shown: Mapping[str, Any], advice: str | None = None) -> str:
    """Return the text that a role is asked with."""
    parts = [f"Task:\n{task}"]
    for name, value in shown.items():
        if value:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
            parts.append(f"{name}:\n{text[-SHOWN:]}")
    return "\n\n".join([*parts, *([f"Do this first: {advice}"] if advice else [])])


END = "end"


def after_generator(state: State) -> str:
    """An easy task, and a round that was reviewed already, need no reviewer."""
    if "generator" in state.get("troubles", []):
        return "supervisor"
    return "executor" if state["is_easy"] or state.get("reviewed") == state["round"] else "reviewer"


def after_reviewer(state: State) -> str:
    return (
        "generator" if state.get("verdict") == "revise" and "reviewer" not in state.get("troubles", []) else "executor"
    )


EDGES: Mapping[str, tuple[Callable[[State], str], tuple[str, ...]]] = {
    "plan": (lambda state: "generator", ("generator",)),
    "generator": (after_generator, ("reviewer", "executor", "supervisor")),
    "reviewer": (after_reviewer, ("generator", "executor")),
    "executor": (lambda state: "supervisor", ("supervisor",)),
    "supervisor": (lambda state: state.get("next", END), ("generator", END)),
}
"""The way from each node: what chooses the next one, and which there are."""


def nodes_of(team: Team) -> dict[str, Callable[[State], Awaitable[State]]]:
    """Return the nodes, each tried once more where it fails, and then gone round."""

    def guard(name: str) -> Callable[[State], Awaitable[State]]:
        node = getattr(team, name)

        async def run(state: State) -> State:
            for _ in range(2):
                try:
                    return await node(state)  # type: ignore[no-any-return]
                except Exception as error:
                    sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
            fallen: State = {"troubles": [*state.get("troubles", []), name]}
            if name == "plan":
                return {**fallen, "is_easy": True, "round": 1, "rounds": 1, "best": {}, "score": float("-inf")}
            if name == "supervisor":
                where = END if state["round"] >= state["rounds"] else "generator"
                return {**fallen, "next": where, "round": state["round"] + 1}
            return fallen

        return run

    return {name: guard(name) for name in EDGES}


def graph_of(team: Team) -> Any:
    """Return the compiled graph of LangGraph."""
    from langgraph.graph import END as LAST
    from langgraph.graph import START, StateGraph

    graph = StateGraph(State)
    for name, node in nodes_of(team).items():
        graph.add_node(name, node)
    graph.add_edge(START, "plan")
    for name, (choose, targets) in EDGES.items():
        graph.add_conditional_edges(name, choose, {one: LAST if one == END else one for one in targets})
    return graph.compile()


def answer_of(state: State, given: Mapping[str, str]) -> str:
    """Return the answer: the file that was written, or several as JSON; of a workspace that was there, a sentence."""
    best = {path: text for path, text in state.get("best", {}).items() if given.get(path) != text and path != OWN_TESTS}
    if given:
        report = state.get("report", {})
        return (
            f"{len(best)} files written; tests passed {report.get('passed', 0)}, failed {len(report.get('failed', []))}"
        )
    return next(iter(best.values())) if len(best) == 1 else json.dumps({"files": best}, ensure_ascii=False)


async def main() -> None:
    sys.path.insert(0, "/ratchet/packages")
    import httpx

    from ratchet.tools.recorded import RecordedToolbox, read_policy, recorder_client

    policy = read_policy(Path("/ratchet/policy.toml"))
    recorder = recorder_client(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    of_all, *of_roles = (
        RecordedToolbox(Path("/workspace"), policy.for_role(role), recorder=recorder) for role in ("", *policy.roles)
    )

    async def ask(role: str, instructions: str, text: str) -> str:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        try:
            reply = await recorder.post("chat/completions", json={"model": role, "messages": messages}, timeout=600)
            return str(reply.raise_for_status().json()["choices"][0]["message"]["content"] or "")
        except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
            raise NoUse(f"{role} can't be asked: {error}") from error

    rounds = int(os.environ.get("TEAM_ROUNDS", ROUNDS))
    team = Team(ask, of_all, rounds, dict(zip(policy.roles, of_roles, strict=True)))
    given = await team.files()
    state = await graph_of(team).ainvoke({"task": sys.stdin.read()}, {"recursion_limit": 100})
    sys.stdout.write(f"{answer_of(state, given)}\n")
    await of_all.close()


if __name__ == "__main__":
    asyncio.run(main())
