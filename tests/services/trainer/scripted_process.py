"""A training process without a model: speaks the protocol of `services.trainer.train --serve`, by a script.

`python scripted_process.py SCRIPT LEDGER`: each run it is given takes the next word of the script (the last one again
and again): `train` (succeed), `die` (kill -9 itself), `further` (leave a checkpoint, then die), `hang`, `busy`. What it
does goes to the ledger, a line each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from ratchet.runs.store import RunFolder
from schemas.messages.training import AdapterTrained


def main() -> None:
    script, ledger = Path(sys.argv[1]).read_text().split(), Path(sys.argv[2])
    for line in sys.stdin:
        folder = RunFolder(Path(line.strip()))
        done = ledger.read_text().splitlines() if ledger.exists() else []
        word = script[min(len(done), len(script) - 1)]
        with ledger.open("a") as file:
            file.write(f"{word} {folder.request.request_id}\n")
        play(word, folder)
        stage = "busy" if word == "busy" else "done"
        sys.stdout.write(json.dumps({"stage": stage, "run": line.strip()}) + "\n")
        sys.stdout.flush()


def play(word: str, folder: RunFolder) -> None:
    if word == "busy":
        return
    found = sorted(path.name for path in folder.checkpoints.glob("checkpoint-*"))
    folder.begin(found[-1] if found else "")
    if word == "further":
        (folder.checkpoints / f"checkpoint-{len(found) + 1}").mkdir(parents=True)
    if word in ("die", "further"):
        sys.stderr.write("it is going dark\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hang":
        signal.pause()
    sys.stdout.write(
        json.dumps({"stage": "training", "step": 1, "steps": 2, "loss": 0.5, "counts": {"groups": 3}}) + "\n"
    )
    request = folder.request
    folder.outcome = AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained",
        adapter_version="v1.0.1",
        adapter_sha256="0" * 64,
    )


if __name__ == "__main__":
    main()
