"""When a run that brings nothing ends, by what it looks at between its steps."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

from services.trainer.run.stops import LOOKS, PATIENCE, HeldOutLooks

STEPS = 64


@pytest.mark.parametrize(
    ("never_before", "ends"),
    [(0, PATIENCE * STEPS // LOOKS), (40, 40 + PATIENCE * STEPS // LOOKS)],
    ids=["demonstrations alone", "demonstrations for 40 steps, then samples"],
)
def test_looks_in_vain_end_a_run_but_no_mixture_before_its_second_part(
    tmp_path: Path, never_before: int, ends: int
) -> None:
    looks = HeldOutLooks(lambda: 1.0, 3, STEPS, defaultdict(list), lambda event: None, never_before=never_before)
    arguments, state, control = SimpleNamespace(output_dir=tmp_path), TrainerState(max_steps=STEPS), TrainerControl()

    looks.on_train_begin(arguments, state, control)
    while not control.should_training_stop:
        state.global_step += 1
        looks.on_step_end(arguments, state, control)

    assert state.global_step == looks.result.ended == ends
    assert not looks.result.is_better
