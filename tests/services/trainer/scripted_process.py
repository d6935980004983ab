"""A training process without a model: speaks the protocol of `services.trainer.train --serve`, by a script.

`python scripted_process.py SCRIPT LEDGER`: each run it is given takes the next word of the script (the last one again
and again): `train` (succeed), `publish` (wait for the file `go` beside the script, then publish an adapter), `die`
(kill -9 itself), `further` (leave a checkpoint, then die), `hang`, `busy`. What it does goes to the ledger.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.publish import publish_adapter
from ratchet.runs.store import RunFolder
from schemas.messages.base import BaseModelIdentity
from schemas.messages.training import AdapterTrained
from schemas.records.adapter_card import AdapterCard


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
    version, sha256 = publish(folder) if word == "publish" else ("v1.0.1", "0" * 64)
    folder.outcome = AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained",
        adapter_version=version,
        adapter_sha256=sha256,
    )


def publish(folder: RunFolder) -> tuple[str, str]:
    while not Path(sys.argv[1]).with_name("go").exists():
        time.sleep(0.05)  # real time: another process says so
    request = folder.request
    base = BaseModelIdentity(name="small", revision="5" * 64)
    card = AdapterCard(run_id=request.request_id, base=base, algorithm="grpo", created=datetime.now(UTC))
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
    found = publish_adapter(files, card, folder.path.parents[2], request.agent_id)
    return found.name, adapter_sha256(found)


if __name__ == "__main__":
    main()
