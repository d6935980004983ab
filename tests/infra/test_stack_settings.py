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
        (lambda fleet: fleet.update(queueNamespace="Blue fleet"), "queueNamespace"),
        (lambda fleet: fleet.update(shards=2, backups={"claim": "backups"}), "can't have backups yet"),
        (lambda fleet: fleet.update(shards=2, agents=[fleet["agents"][0] | {"id": "small-1"}]), "ends with a number"),
        (lambda fleet: fleet["monitoring"].pop("runbooks"), "monitoring.runbooks"),
        (lambda fleet: fleet.update(autoscaling="hpa", scheduling={"queue": "gpus"}), "no training is a job"),
        (lambda fleet: fleet.update(backups={"claim": "backups", "schedule": "daily"}), "backups.schedule"),
        (lambda fleet: fleet["orchestrator"].update(objectives={"latency": 0.5}), "orchestrator.objectives.latency"),
        (lambda fleet: fleet["api"]["ingress"].pop("tlsSecret"), "api.ingress.tlsSecret"),
        (lambda fleet: fleet["api"].update(trustedKeys=[{"x": "?", "kid": "a"}]), "api.trustedKeys.0.x"),
        (lambda fleet: fleet["api"].update(trustedKeys=[{"x": "A" * 43, "kid": "a", "d": "x"}]), "trustedKeys.0.d"),
        (lambda fleet: fleet["agents"][0].update(id="Small Agent"), "agents.0.id"),
        (lambda fleet: fleet.update(runner={"programs": "[programs.a]"}), "runner.programs: Value error, it names no"),
        (lambda fleet: fleet.update(runner={"programs": "[agents"}), "runner.programs: Value error"),
        (lambda fleet: fleet.update(runner={"programs": '[agents.x]\nprograms = ["shell"]'}), "'x' is no agent"),
        (lambda fleet: fleet.update(externalScorer=True, clientNamespaces=[]), "externalScorer is set"),
        (lambda fleet: fleet.update(sandbox={"isolation": "bwrap"}), "sandbox.isolation"),
        (lambda fleet: fleet.update(runner={}), "a runner has a file of programs, or a manager"),
        (lambda fleet: fleet.update(manager={}), "manager.database: Field required"),
        (lambda fleet: fleet.update(manager={"database": {"urlSecret": "db"}}), "in a namespace of the cluster, or at"),
        (
            lambda fleet: fleet["trainer"]["resources"].update(gpus=0),
            "trainer.device is cuda, but trainer.resources.gpus",
        ),
        (lambda fleet: fleet["trainer"].update(device="cpu"), "the GPUs would be held for nothing"),
        (lambda fleet: fleet["agents"][0]["server"].update(gpus=0), "agent small's server has no GPU"),
        (lambda fleet: fleet["judge"].update(serverArgs=["--tensor-parallel-size", "4"]), "over 4 GPUs (serverArgs)"),
        (lambda fleet: fleet.update(hubAccess=False), "has a model of a hub, but hubAccess is false"),
        (lambda fleet: fleet["trainer"].update(model="/models/other"), "no adapter would fit"),
        (lambda fleet: fleet["orchestrator"].update(logKeepGb=900), "orchestrator.logKeepGb is 900"),
        (lambda fleet: fleet["storage"].update(accessMode="ReadWriteOnce"), "storage.accessMode is ReadWriteOnce"),
        (lambda fleet: fleet.update(auditor={"strategy": "judge:absolute", "judgeUrl": "http://judge/v1"}), "judgeUrl"),
        (lambda fleet: fleet["scorer"].update(judgeUrl="https://judge.example.com/v1"), "without scorer.judgeModel"),
        (lambda fleet: fleet["scorer"].update(judgeKeySecret="key"), "without scorer.judgeUrl"),
        (
            lambda fleet: fleet["judge"].update(machines=2, serverArgs=["--tensor-parallel-size", "4"]),
            "over 8 GPUs (serverArgs), but has 4",
        ),
        (
            lambda fleet: fleet["judge"].update(machines=2, serverArgs=["--pipeline-parallel-size=1"]),
            "over 2 GPUs (serverArgs) and holds 4",
        ),
        (lambda fleet: fleet.update(autoscaling="hpa", trainer=fleet["trainer"] | {"machines": 2}), "is hpa"),
        (
            lambda fleet: fleet.update(
                trainer=fleet["trainer"] | {"machines": 2}, storage={"accessMode": "ReadWriteOnce"}, broker={"nodes": 1}
            ),
            "trainer.machines is 2, but storage.accessMode is ReadWriteOnce",
        ),
        (lambda fleet: fleet["scorer"].update(strategy="verifier:exact"), "nobody asks the judge of this stack"),
    ],
)
def test_a_bad_configuration_is_refused_with_its_key(change: Callable[[dict[str, Any]], None], said: str) -> None:
    configuration = stack_configuration("prod")
    change(configuration["ratchet:fleet"])

    with pytest.raises(pulumi.RunError, match=r"Pulumi\.prod\.yaml") as refused:
        record("prod", configuration)

    assert said in str(refused.value)
