"""The machine that a figure was measured on, in a line, and the folder in which figures are kept."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"
CLIENTS = ("aiormq", "aio_pika", "pika", "asyncio", "ratchet", "httpx")


def machine() -> str:
    """Processor, cores this process may use, Python, and how busy the machine is (load of the last minute)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{processor()}, {cores} cores, {platform.system()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def processor() -> str:
    """Return the processor as the kernel names it, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((text.partition(":")[2].strip() for text in lines if text.startswith("model name")), platform.machine())


def write_figures(name: str, found: Mapping[str, Any]) -> str:
    """Keep figures in bench/out, and return them as text. Dataclasses become objects."""
    OUT.mkdir(exist_ok=True)
    text = json.dumps(found, indent=2, default=asdict)
    (OUT / f"{name}.json").write_text(text + "\n")
    return text


def log_the_bench_alone() -> None:
    """Show what a bench says, and nothing of the clients whose connections it cuts."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%T")
    for client in CLIENTS:
        logging.getLogger(client).setLevel(logging.CRITICAL)
