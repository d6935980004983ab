"""A stack's configuration is refused as a whole, with the key at fault named, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from infra.render.recording import record, stack_configuration


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda fleet: fleet.update(autoscaler="keda"), "autoscaler: Extra inputs"),
        (lambda fleet: fleet.update(autoscaling="cron"), "autoscaling: Input should be 'keda' or 'hpa'"),
        (lambda fleet: fleet["images"].update(tag="latest"), "images.tag is `latest`"),
        (lambda fleet: fleet.pop("judge"), "no judge is configured"),
        (lambda fleet: fleet["agents"][0].update(minReplicas=0), "agents.0.minReplicas"),
        (lambda fleet: fleet["agents"][0].update(maxReplicas=0), "agents.0.maxReplicas"),
        (lambda fleet: fleet["agents"].append(dict(fleet["agents"][0])), "two agents have one id"),
        (lambda fleet: fleet["broker"].update(nodes=2), "broker.nodes"),
        (lambda fleet: fleet["api"]["ingress"].pop("tlsSecret"), "api.ingress.tlsSecret"),
        (lambda fleet: fleet["api"].update(trustedKeys=[{"x": "?", "kid": "a"}]), "api.trustedKeys.0.x"),
        (lambda fleet: fleet["api"].update(trustedKeys=[{"x": "A" * 43, "kid": "a", "d": "x"}]), "trustedKeys.0.d"),
        (lambda fleet: fleet["agents"][0].update(id="Small Agent"), "agents.0.id"),
        (lambda fleet: fleet.update(runner={"programs": "[programs.a]"}), "runner.programs: Value error, it names no"),
        (lambda fleet: fleet.update(runner={"programs": "[agents"}), "runner.programs: Value error"),
        (lambda fleet: fleet.update(runner={"programs": '[agents.x]\nprograms = ["shell"]'}), "'x' is no agent"),
        (lambda fleet: fleet.update(externalScorer=True, clientNamespaces=[]), "externalScorer is set"),
        (lambda fleet: fleet.update(sandbox={"isolation": "bwrap"}), "sandbox.isolation"),
    ],
)
def test_a_bad_configuration_is_refused_with_its_key(change: Callable[[dict[str, Any]], None], said: str) -> None:
    configuration = stack_configuration("prod")
    change(configuration["ratchet:fleet"])

    with pytest.raises(pulumi.RunError, match=r"Pulumi\.prod\.yaml") as refused:
        record("prod", configuration)

    assert said in str(refused.value)
