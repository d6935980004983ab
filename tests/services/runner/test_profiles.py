"""A role that another provider's model plays in a sandboxed program: its key is nowhere but with the provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.messages.response import Response
from schemas.messages.work import Work
from tests.ratchet.rollouts.test_foreign import KEY, FakeProvider
from tests.services.runner.conftest import MakeHouse, python
from tests.serving import serving

MakeWork = Callable[..., Work]

LOOKS = """
import glob
def texts_here():
    for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
        try:
            yield open(path, "rb").read().decode(errors="replace")
        except OSError:
            pass
print(ask("mine"), ask("theirs", model="reviewer"))
print(*texts_here(), *os.environ.items())
"""
PRICES = """
currency = "EUR"
[agents.big]
prompt = 1
sampled = 2
samples = 1
max_tokens = 10
"""


async def test_a_role_of_another_provider_in_a_sandbox_sees_no_key(
    make_house: MakeHouse, make_work: MakeWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_THE_PROVIDER", KEY)
    profiles, prices, fake = tmp_path / "profiles.toml", tmp_path / "prices.toml", FakeProvider()
    prices.write_text(PRICES)
    async with serving(fake.application()) as url:
        profiles.write_text(
            f'[profiles.mixed.roles.reviewer]\nprovider = "anthropic"\nmodel = "big-1"\nurl = "{url}/v1"\n'
            'key = "KEY_OF_THE_PROVIDER"\nprices = "big"\n[profiles.mixed.limits]\ncalls = 2\n'
        )
        async with make_house({"it": python(LOOKS)}, profiles=profiles, prices=prices) as house:
            response = await house.answered(make_work(profile="mixed"))
            unknown = await house.answered(make_work("t-2", profile="other"))
            kept = b"".join(one.read_bytes() for one in house.worker._settings.runner_dir.rglob("*") if one.is_file())

    (sample,) = response.samples
    assert (sample.status, sample.text.splitlines()[0]) == ("finished", "mine Fine.")
    assert sample.usage is not None and sample.usage.calls == 1, "the other call is not the adapter's"
    (part,) = sample.foreign or ()
    assert (part.model, part.calls, part.cost_micros) == ("anthropic:big-1", 1, 7 + 3 * 2)
    assert sample.segments is not None and all("theirs" not in str(one.turns) for one in sample.segments)
    assert KEY not in Response.encode(response).decode() and KEY.encode() not in kept
    assert KEY in str(fake.headers)
    assert unknown.samples == () and "no profile 'other': it has mixed" in str(unknown.error)
