"""Tells a cancellation that was asked for from one that only looks so."""

from __future__ import annotations

import asyncio


def cancelled_by_us() -> bool:
    """In an `except CancelledError`: was this task cancelled, or what it awaited? Only the first is to be obeyed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
