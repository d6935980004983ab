"""What a figure was measured on, in a line: figures without it mean nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Processor, cores this process may use, Python, and how busy the machine is (load of the last minute)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{processor()}, {cores} cores, {platform.system()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def processor() -> str:
    """As the kernel names it, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((text.partition(":")[2].strip() for text in lines if text.startswith("model name")), platform.machine())
