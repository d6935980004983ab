"""`Workspaces`: what a service reads tasks' files with, and what says what became of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Self
from weakref import WeakValueDictionary

import httpx

from schemas.messages.workspace import Artifact, Workspace
from workbench.sandbox.job import End, Job, Result, SandboxError, TreeFile
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Bounds, Tree, check_tree, read_folder
from workbench.workspaces import git_jobs, patching
from workbench.workspaces.archive import unpack_archive
from workbench.workspaces.cache import TreeCache
from workbench.workspaces.download import Downloads
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.git_source import tree_of_commit
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.urls import check_url

MIB, KIB = 1024 * 1024, 1024
NO_SUCH_PROGRAM = 127


class Workspaces:
    """Trees of workspaces, patches of what was left of them, and trees with patches."""

    def __init__(
        self, settings: WorkspaceSettings, sandbox: Sandbox, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """`transport`: another network than the machine's."""
        self._settings = settings
        self._sandbox = sandbox
        self._bounds = Bounds(settings.workspace_mb * MIB, settings.workspace_files)
        self._most_patch = settings.workspace_patch_kb * KIB
        self._cache = TreeCache(settings.workspace_cache, int(settings.workspace_cache_gb * 1e9))
        self._client = httpx.AsyncClient(timeout=settings.workspace_fetch_s, transport=transport)
        self._downloads = Downloads(self._client, settings.workspace_urls, self._bounds.bytes + 16 * MIB)
        self._reading = WeakValueDictionary[str, asyncio.Lock]()
        """Locks by source: held while it is read, and gone when nobody waits for it any more."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def tree(self, workspace: Workspace) -> Tree:
        """Return the tree as it is, before anybody worked on it; what is fetched is fetched once.

        Raises WorkspaceError for a fault of the task, WorkspaceUnavailable or SandboxError for one of ours.
        """
        if workspace.files is not None:
            files = {path: TreeFile(text.encode("utf-8", "replace")) for path, text in workspace.files.items()}
            return check_tree(files, self._bounds)
        if workspace.folder is not None:
            folders = self._settings.workspace_folders
            return await asyncio.to_thread(read_folder, workspace.folder, folders, self._bounds)
        fetched = workspace.git or workspace.archive
        assert fetched is not None
        check_url(fetched.url, self._settings.workspace_urls)
        source = fetched.model_dump_json()
        async with self._reading.setdefault(source, asyncio.Lock()):
            found = await asyncio.to_thread(self._cache.get, source)
            if found is not None:
                return check_tree(found.files, self._bounds)
            try:
                async with asyncio.timeout(self._settings.workspace_fetch_s) as limit:
                    tree = await self._fetch(workspace, limit)
            except TimeoutError:
                raise WorkspaceUnavailable(
                    f"{fetched.url[:200]} was not read within {self._settings.workspace_fetch_s:g} s"
                ) from None
            return await asyncio.to_thread(self._cache.put, source, tree)

    async def _fetch(self, workspace: Workspace, limit: asyncio.Timeout) -> Tree:
        if workspace.git is not None:
            run = partial(self._git_untimed, limit)
            return await tree_of_commit(workspace.git, self._downloads, run, self._bounds)
        assert workspace.archive is not None
        content = await self._downloads.get(workspace.archive.url)
        if (found := hashlib.sha256(content).hexdigest()) != workspace.archive.sha256:
            raise WorkspaceError(f"{workspace.archive.url[:200]} has the sum {found}, not {workspace.archive.sha256}")
        return await asyncio.to_thread(unpack_archive, content, self._bounds)

    async def _git_untimed(self, limit: asyncio.Timeout, job: Job) -> Result:
        """Hold the time meanwhile: others may have all places of the sandbox, and the job has limits of its own."""
        loop = asyncio.get_running_loop()
        left_s = (limit.when() or 0.0) - loop.time()
        limit.reschedule(None)
        try:
            return await self._git(job)
        finally:
            limit.reschedule(loop.time() + left_s)

    async def _git(self, job: Job) -> Result:
        result = await self._sandbox.run(job)
        if result.exit_code == NO_SUCH_PROGRAM:
            raise SandboxError("this machine has no git below /usr: apt-get install git")
        return result

    async def artifact(self, before: Tree, after: Result, wanted: Sequence[str] = ()) -> Artifact:
        """Return what the run of a job with `collect_tree` changed, as a patch, with the files that are wanted whole.

        Raises SandboxError.
        """
        found = patching.changes(before, after.tree, after.left_out)
        left_out = dict(found.left_out)
        patch = await self._patch(found.changed)
        if patch is None:
            fitting = patching.that_fit(found.changed, self._most_patch)
            left_out |= fitting.left_out
            patch = await self._patch(fitting.changed)
        files, reasons = patching.collect_files(wanted, after.tree, after.left_out, self._most_patch)
        told = patching.shorten_reasons(left_out) | reasons
        return Artifact(patch=patch or "", files=files, left_out=told, tree_sha256=before.sha256)

    async def _patch(self, changed: Sequence[git_jobs.Change]) -> str | None:
        """None where it would be too large."""
        if not changed:
            return ""
        result = await self._git(git_jobs.diffing(changed, self._most_patch))
        if result.succeeded:
            return result.stdout.decode("utf-8", "replace")  # git may cut the context of a hunk within a letter
        if result.end is End.OUTPUT:
            return None
        raise SandboxError(f"no patch can be made: {result.says}: {result.stderr[:300].decode(errors='replace')}")

    async def apply_patch(self, before: Tree, patch: str) -> Tree:
        """The tree with a patch. Raises PatchRefused, or SandboxError for a failure of ours."""
        if not patch.strip():
            return before
        text = patch if patch.endswith("\n") else f"{patch}\n"
        job = git_jobs.applying(before.files, text.encode("utf-8", "replace"), self._bounds)
        return patching.tree_after(before, await self._git(job))
