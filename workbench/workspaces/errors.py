"""The faults of a workspace: the task, this machine or the network, or a patch."""

from __future__ import annotations

from workbench.errors import WorkbenchError


class WorkspaceError(WorkbenchError):
    """The task's own fault: a source that is refused, is not what it is said to be, or is too large."""


class WorkspaceUnavailable(WorkbenchError):
    """The network, the server or the disk: later may be better."""


class PatchRefused(WorkbenchError):
    """A patch that does not apply to its workspace, or would leave it."""
