"""A role that another provider's model plays in a sandboxed program: its key is nowhere but with the provider."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from ratchet.rollouts.profiles import Daily
from schemas.messages.response import Response
from schemas.messages.work import Work
from services.runner.profiles import Day, ProfileSpending
from tests.ratchet.rollouts.test_foreign import KEY, FakeProvider
from tests.services.runner.conftest import MakeHouse, delivery, python
from tests.services.runner.test_questions import answer_to, questions_on, with_answers
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


def test_a_day_is_shared_by_runners_and_ends(tmp_path: Path) -> None:
    now = ["2026-11-28"]
    one, other = (Day(tmp_path, lambda: now[0]) for _ in range(2))
    bounded = [ProfileSpending("mixed", Daily(cost=Decimal("0.00001")), day, "EUR") for day in (one, other)]
    counted = ProfileSpending("counted", Daily(calls=3, tokens=100), one, "EUR")

    bounded[0].add(5, 4)
    bounded[1].add(5, 5)
    assert [each.refusal() for each in bounded] == [None, None]
    bounded[1].add(5, 1)
    said = "profile mixed has used up its 0.00001 EUR of today (UTC): ask again tomorrow"
    assert [each.refusal() for each in bounded] == [said, said]
    counted.add(100, 0)
    assert "used up its 100 tokens" in str(counted.refusal())
    assert dict(one.of("mixed")) == {"calls": 3, "tokens": 15, "cost": 10}

    now[0] = "2026-11-29"
    assert [each.refusal() for each in (*bounded, counted)] == [None, None, None]


def test_nothing_is_spent_that_can_not_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("a file where the folder should be")
    spending = ProfileSpending("mixed", Daily(), Day(tmp_path / "profiles"), "")

    spending.add(1, 1)

    assert "can't be written" in str(spending.refusal())


BOUNDED = """
[profiles.mixed]
tenants = ["acme"]
[profiles.mixed.roles.reviewer]
provider = "openai"
model = "big"
url = "{url}/v1"
[profiles.mixed.daily]
cost = 0.00002
"""


async def test_a_profile_is_for_its_tenants_and_for_as_much_as_a_day_may_cost(
    make_house: MakeHouse, make_work: MakeWork, tmp_path: Path
) -> None:
    profiles, prices, fake = tmp_path / "profiles.toml", tmp_path / "prices.toml", FakeProvider()
    prices.write_text(PRICES)
    async with serving(fake.application()) as url:
        profiles.write_text(BOUNDED.format(url=url))
        code = "print(ask('theirs', model='reviewer')); print(ask('again', model='reviewer'))"
        async with make_house({"it": python(code)}, profiles=profiles, prices=prices) as house:
            others = await house.answered(make_work("t-1", profile="mixed"))
            first = await house.answered(make_work("tenant:acme/t-2", profile="mixed"))
            spent = await house.answered(make_work("tenant:acme/t-3", profile="mixed"))

    assert "not for tasks of the tenant default" in str(others.error)
    (sample,) = first.samples
    assert (sample.status, len(fake.bodies)) == ("finished", 2)
    assert [part.cost_micros for part in sample.foreign or ()] == [26]
    assert "used up its 0.00002 EUR of today" in str(spent.error)


async def test_a_rollout_that_meets_the_days_end_is_lost_and_says_why(
    make_house: MakeHouse, make_work: MakeWork, tmp_path: Path
) -> None:
    profiles, fake = tmp_path / "profiles.toml", FakeProvider()
    async with serving(fake.application()) as url:
        profiles.write_text(BOUNDED.format(url=url).replace("cost = 0.00002", "calls = 1").replace("acme", "default"))
        code = "ask('theirs', model='reviewer'); ask('again', model='reviewer')"
        async with make_house({"it": python(code)}, profiles=profiles) as house:
            (sample,) = (await house.answered(make_work("t-1", profile="mixed"))).samples

    assert (sample.status, len(fake.bodies)) == ("lost", 1)
    assert "profile mixed has used up its 1 calls of today" in str(sample.says)


async def test_a_task_that_was_begun_goes_on_though_it_has_used_up_the_day(
    make_house: MakeHouse, make_work: MakeWork, tmp_path: Path
) -> None:
    profiles, fake, work = tmp_path / "profiles.toml", FakeProvider(), make_work(profile="mixed")
    async with serving(fake.application()) as url:
        profiles.write_text(BOUNDED.format(url=url).replace("cost = 0.00002", "calls = 1").replace("acme", "default"))
        program = {"it": python("print(ask('theirs', model='reviewer'))", approval="before-finish")}
        async with make_house(program, profiles=profiles) as house:
            await house.worker.handle(delivery(work))
            (request,) = questions_on(house.bus)
            response = await house.answered(with_answers(work, answer_to(request)))

    assert response.error is None
    assert [(one.status, one.text) for one in response.samples] == [("finished", request.answer)]


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
