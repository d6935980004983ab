"""A trainer without a model, for `ratchet train`: it records a run and says what its script says, an event a word.

`python scripted_trainer.py ADAPTERS SCRIPT…`: `starting`, `training`, `wait` (until it is killed), `busy`, `die` (kill
-9 itself), `trained`. What else it is given it passes over.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ratchet.runs.store import RunStore
from schemas.messages.training import AdapterTrained, TrainRequest

TRAINED = AdapterTrained(
    request_id="run-1", agent_id="small", status="trained", adapter_version="v1.0.1", adapter_sha256="0" * 64
)


def main() -> None:
    folder = RunStore(Path(sys.argv[1])).record(TrainRequest(request_id="run-1", agent_id="small"))
    with folder.claim():
        for word in sys.argv[2].split():
            if word == "wait":
                signal.pause()
            if word == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            event: dict[str, Any] = {"stage": word}
            if word == "starting":
                event["folder"] = str(folder.path)
            if word == "trained":
                folder.outcome = TRAINED
                event = {"stage": "ended", "outcome": json.loads(TRAINED.encode())}
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
