"""docs/training.md: the example's settings are settings, and its table is what `ratchet train --plan` computes."""

from __future__ import annotations

import json
import re

from ratchet.models.shape import known_shape
from services.cli.train.estimate import GB, Setup, Workload, hours, memory
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, KtoHyperparameters
from services.trainer.settings import TrainerSettings
from tests.docs.reading import ROOT
from tests.docs.settings_page import SECTIONS

TEXT = (ROOT / "docs" / "training.md").read_text()


def test_settings_and_hyperparameters_that_are_named_are_some() -> None:
    settings = {f"RATCHET_{name.upper()}" for _, settings in SECTIONS for name in settings.model_fields}
    knobs = {*GrpoHyperparameters.model_fields, *KtoHyperparameters.model_fields}

    assert set(re.findall(r"RATCHET_[A-Z_]+[A-Z]", TEXT)) <= settings
    assert set(re.findall(r"--set '?([a-z_]+)=", TEXT)) <= knobs


def test_the_example_fits_and_can_be_read() -> None:
    (given,) = re.findall(r"RATCHET_TRAINER_HYPERPARAMETERS='(.+?)'", TEXT)
    (model,) = re.findall(r"RATCHET_TRAINER_MODEL=(\S+)", TEXT)
    settings = TrainerSettings.read(trainer_model=model, trainer_hyperparameters=json.loads(given))
    knobs = GrpoHyperparameters.read(settings.trainer_hyperparameters, {})

    setup = Setup(rank=knobs.lora_rank, tokens=knobs.tokens_at_once(on_gpu=True))

    assert memory(known_shape(settings.trainer_model), setup).fits(24)


def test_the_table_is_computed() -> None:
    rows = re.findall(r"^\| (Qwen2\.5-\S+) \| (\S+) · (\S+) \| (\S+) · (\S+) \| [^|]+ \| (\S+) \|", TEXT, re.MULTILINE)
    assert len(rows) == 4

    for name, *cells in rows:
        model = known_shape(name)
        setups = [Setup(four_bits=four, tokens=tokens) for four in (False, True) for tokens in (16_384, 8_192)]
        computed = [f"{memory(model, setup).peak / GB:.1f}" for setup in setups]
        assert cells == [*computed, f"{hours(model, Setup(), Workload()):.2f}"], name
