"""Git in the workspace's own repository: 12 operations, none of which speaks to another machine.

Git runs in the sandbox on a copy. Of the repository's configuration it finds only what names no program, no file and no
address (driver.py); hooks, alternates and attributes of `.git/info` are not in the copy, submodules are not entered.
So what a hostile repository would have run is not there, and git itself finds nothing to do harm to.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from workbench.sandbox.limits import MIB
from workbench.tools.operation import Answer, Count, Effect, Subject, ToolError, WorkspacePath
from workbench.tools.sandboxed import Order, limits_for, run_in_copy
from workbench.tools.tree import is_git, require_not_git
from workbench.tools.workshop import Workshop

GIT = Subject("git")

Revision = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*$", max_length=200),
    Field(description="A branch, a tag, a commit, HEAD~1."),
]
Branch = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$", max_length=200)]
Paths = Annotated[tuple[WorkspacePath, ...], Field(max_length=1000)]

SECONDS = 60.0
MEMORY = 512 * MIB
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.pager": "cat",
    "core.editor": "false",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "all",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
ENVIRONMENT = {
    "GIT_DIR": ".git",
    "GIT_WORK_TREE": ".",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
QUIET_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")


@GIT.operation(Effect.READS)
async def git_status(at: Workshop) -> Answer:
    """Show the branch and what is staged, changed and untracked (as `git status --short --branch`)."""
    said = await _git(at, "status", "--short", "--branch", "--ignore-submodules=all", "--untracked-files=all")
    head, _, rest = said.partition("\n")
    return {"branch": head.removeprefix("## "), "clean": not rest.strip(), "text": rest}


@GIT.operation(Effect.READS)
async def git_diff(
    at: Workshop,
    staged: Annotated[bool, Field(description="What is staged against the last commit.")] = False,
    base: Annotated[Revision | None, Field(description="Compare with this; the index if not given.")] = None,
    target: Annotated[Revision | None, Field(description="Compare `base` with this, not with the files.")] = None,
    paths: Paths = (),
    summary: Annotated[bool, Field(description="Only files and numbers of lines.")] = False,
) -> Answer:
    """Show what has changed: in the files since they were staged, or with `base` between two revisions."""
    if target is not None and base is None:
        raise ToolError("arguments", "target needs a base to be compared with")
    options = [*(["--cached"] if staged else []), *(["--stat=120"] if summary else [])]
    revisions = [one for one in (base, target) if one is not None]
    return {"text": await _git(at, "diff", *QUIET_DIFF, *options, *revisions, "--", *_clean(at, paths))}


@GIT.operation(Effect.READS)
async def git_log(
    at: Workshop,
    revision: Revision = "HEAD",
    path: WorkspacePath | None = None,
    count: Annotated[int, Field(ge=1, le=500)] = 20,
) -> Answer:
    """List commits, the newest first: hash, date, author and first line of the message."""
    form = "--format=%H%x09%aI%x09%an%x09%s"
    said = await _git(at, "log", f"--max-count={count}", "--no-color", form, revision, "--", *_clean(at, path))
    rows = (line.split("\t", 3) for line in said.splitlines())
    return {"commits": [dict(zip(("commit", "date", "author", "subject"), row, strict=False)) for row in rows]}


@GIT.operation(Effect.READS)
async def git_show(
    at: Workshop,
    revision: Revision = "HEAD",
    path: Annotated[WorkspacePath | None, Field(description="The file as it was then, not the commit.")] = None,
) -> Answer:
    """Show a commit with its changes, or a file as it was at a revision."""
    if path is None:
        return {"text": await _git(at, "show", "--format=fuller", *QUIET_DIFF, revision, "--")}
    (clean,) = _clean(at, path)
    return {"path": clean, "text": await _git(at, "show", "--no-textconv", f"{revision}:{clean}")}


@GIT.operation(Effect.READS)
async def git_blame(at: Workshop, path: WorkspacePath, first: Count = 1, last: Count = 200) -> Answer:
    """Say of each line of a file which commit, author and date it is from."""
    lines = f"{first},{max(first, last)}"
    said = await _git(at, "blame", "--date=short", "-L", lines, "HEAD", "--", *_clean(at, path), may_fail=True)
    if not said:  # fewer lines than that
        said = await _git(at, "blame", "--date=short", "-L", f"{first},", "HEAD", "--", *_clean(at, path))
    return {"path": path, "text": said}


@GIT.operation(Effect.READS)
async def git_branches(at: Workshop) -> Answer:
    """List the branches, each with its last commit; `*` marks the one that is checked out."""
    form = "--format=%(HEAD) %(refname:short) %(objectname:short) %(contents:subject)"
    return {"text": await _git(at, "branch", "--list", "--no-color", form)}


@GIT.operation(Effect.WRITES)
async def git_create_branch(at: Workshop, name: Branch, start: Revision = "HEAD") -> Answer:
    """Make a branch, without checking it out."""
    await _git(at, "branch", "--no-track", name, start, changes=True)
    return {"branch": name, "start": start}


@GIT.operation(Effect.WRITES)
async def git_checkout(at: Workshop, revision: Revision) -> Answer:
    """Check a branch or a commit out. Refused by git where changes in the files would be lost."""
    said = await _git(at, "checkout", "--no-guess", "--no-recurse-submodules", "--quiet", revision, "--", changes=True)
    return {"revision": revision, "text": said}


@GIT.operation(Effect.WRITES)
async def git_add(
    at: Workshop, paths: Annotated[tuple[WorkspacePath, ...], Field(min_length=1, max_length=1000)]
) -> Answer:
    """Stage files (`.` for all) for the next commit, removed ones too."""
    await _git(at, "add", "--all", "--", *_clean(at, paths), changes=True)
    return {"text": await _git(at, "diff", "--cached", "--name-status", *QUIET_DIFF)}


@GIT.operation(Effect.WRITES)
async def git_commit(
    at: Workshop,
    message: Annotated[str, Field(min_length=1, max_length=20_000)],
    everything: Annotated[
        bool, Field(description="Stage changed and removed files first; not untracked ones.")
    ] = False,
) -> Answer:
    """Commit what is staged. No hooks are run and nothing is signed."""
    options = ["--all"] if everything else []
    if "\0" in message or not message.strip():
        raise ToolError("arguments", "a message has some text, and no NUL")
    text = f"--message={message}"
    await _git(
        at, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=whitespace", *options, text, changes=True
    )
    return {"commit": (await _git(at, "rev-parse", "HEAD")).strip()}


@GIT.operation(Effect.DESTROYS)
async def git_restore(
    at: Workshop,
    paths: Annotated[tuple[WorkspacePath, ...], Field(min_length=1, max_length=1000)],
    staged: Annotated[bool, Field(description="Take them out of the index; the files stay as they are.")] = False,
    source: Revision | None = None,
) -> Answer:
    """Set files back to what is staged, or to `source`: changes in them are lost."""
    options = [*(["--staged"] if staged else []), *([f"--source={source}"] if source else [])]
    await _git(at, "restore", "--no-recurse-submodules", *options, "--", *_clean(at, paths), changes=True)
    return {"restored": list(paths)}


@GIT.operation(Effect.WRITES)
async def git_stash(
    at: Workshop,
    action: Literal["push", "apply", "pop", "list"],
    message: Annotated[str, Field(min_length=1, max_length=1000)] = "by the tools",
) -> Answer:
    """Put changes aside (push), bring the last ones back (apply, or pop, which forgets them), or list what is aside."""
    match action:
        case "push":
            said = await _git(at, "stash", "push", "--include-untracked", f"--message={message}", changes=True)
        case "list":
            said = await _git(at, "stash", "list")
        case _:
            said = await _git(at, "stash", action, "--quiet", changes=True)
    return {"text": said}


async def _git(at: Workshop, *arguments: str, changes: bool = False, may_fail: bool = False) -> str:
    """Run git and return what it says. Raises ToolError with git's words; with `may_fail` the answer is empty then."""
    repository = await at.look(at.tree.find, ".git")
    if repository is None or repository.kind != "folder":
        why = "is not there" if repository is None else f"is a {repository.kind}, which leads elsewhere"
        raise ToolError("not_found", f"there is no git repository in the workspace: .git {why}")
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    limits = at.policy.limits
    order = Order(
        ["git", "--no-pager", *settings, *arguments],
        limits_for(limits.tree_bytes, SECONDS, MEMORY, 64, limits.entries),
        keep=_is_no_other_repository,
        environment={
            **ENVIRONMENT,
            "GIT_OPTIONAL_LOCKS": "1" if changes else "0",
            "GIT_LITERAL_PATHSPECS": "0" if arguments[0] == "stash" else "1",  # stash names `:/` to itself
        },
        git=True,
        changes=changes,
    )
    ran = await run_in_copy(at, order)
    if ran.left_out:
        paths = "; ".join(f"{path}: {why}" for path, why in list(ran.left_out.items())[:5])
        raise ToolError("conflict", f"git did it, but not all of it could be written to the workspace: {paths}")
    if ran.code != 0:
        if may_fail:
            return ""
        said = (ran.stderr or ran.stdout).strip()
        raise ToolError("failed", f"git {arguments[0]}: {said[:1500] or f'exit code {ran.code}'}")
    return ran.stdout


def _is_no_other_repository(path: str) -> bool:
    """A repository within the workspace's is left out: it is not part of it."""
    return path.startswith(".git") or not is_git(path)


def _clean(at: Workshop, paths: tuple[str, ...] | str | None) -> list[str]:
    """Return paths as git takes them. Raises ToolError for what lies in git's own folder or leads out."""
    given = (paths,) if isinstance(paths, str) else paths or ()
    require_not_git(*given)
    return [at.tree.clean(path) for path in given]
