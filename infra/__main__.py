"""The inventory: what a cluster runs for one fleet.

`pulumi up` in this folder; without a cluster, `python -m infra.render`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi

from infra import broker, fleet, network, vllm
from infra.api_keys import ApiKeys
from infra.backups import backups
from infra.foundation import Foundation
from infra.ingress import ingress
from infra.monitoring import monitoring
from infra.runner import installer, runner, runner_token
from infra.scaler_access import scaler_access
from infra.scheduling import scheduling
from infra.settings import StackSettings
from infra.shards import as_shard, shard
from infra.toolbox import toolbox
from infra.workload import Workload

settings = StackSettings.read()
foundation = Foundation(settings)
scheduling(foundation)
accounts = broker.Accounts(settings, foundation.namespace)
keys = ApiKeys(settings.api)

rabbitmq = Workload(broker.rabbitmq(settings, accounts), foundation)
queues = Workload(fleet.queues(settings, accounts), foundation, after=[rabbitmq])
models = [Workload(fleet.small_models(settings), foundation)] if settings.make_small_models else []
judge = [Workload(vllm.judge(settings.judge, settings), foundation)] if settings.judge else []
leader = as_shard(fleet.orchestrator(settings, accounts, keys), 0, settings)
orchestrator = Workload(leader, foundation, after=[queues])
gateway = Workload(fleet.gateway(settings), foundation, after=[orchestrator])
scorer = (
    [] if settings.external_scorer else [Workload(fleet.scorer(settings, accounts, keys), foundation, after=[queues])]
)
auditor = (
    [Workload(fleet.auditor(settings.auditor, settings, accounts, keys), foundation, after=[queues])]
    if settings.auditor
    else []
)
agents = [
    Workload(fleet.agent(agent, settings, accounts, keys), foundation, after=[queues, *models])
    for agent in settings.agents
]
if settings.runner:
    tokens = Workload(runner_token(settings, keys), foundation)
    programs = [Workload(installer(settings.runner, settings), foundation)] if settings.runner.programs else []
    Workload(runner(settings.runner, settings, accounts, keys), foundation, after=[queues, tokens, *programs, *agents])
manager = (
    [Workload(fleet.manager(settings.manager, settings, accounts, keys), foundation, after=[queues])]
    if settings.manager
    else []
)
trainer = Workload(fleet.trainer(settings, accounts, keys), foundation, after=[queues, *models])
operator = Workload(toolbox(settings, accounts), foundation, after=[queues])

for number in range(1, settings.shards):
    shard(number, settings, foundation, accounts, keys, broker=rabbitmq, models=models)
    pulumi.export(f"client_amqp_url_{number}", accounts.of_shard(number).amqp_url(broker.CLIENT))

if settings.backups:
    Workload(backups(settings.backups, settings), foundation)

scaler_access(foundation, accounts)
monitoring(foundation)

pulumi.export("namespace", foundation.namespace)
pulumi.export("amqp", pulumi.Output.concat("amqp://", rabbitmq.address, ":5672/"))
pulumi.export("queue_namespace", settings.queue_namespace)
pulumi.export("client_amqp_url", accounts.amqp_url(broker.CLIENT))
if settings.external_scorer:
    pulumi.export("scorer_amqp_url", accounts.amqp_url(broker.SCORER))
pulumi.export("operator_password", accounts.password(broker.OPERATOR))
pulumi.export(
    "management",
    pulumi.Output.concat(
        "kubectl -n ", foundation.namespace, " port-forward service/rabbitmq 15672 (http://localhost:15672)"
    ),
)
pulumi.export("api", pulumi.Output.concat("http://", gateway.address, f":{network.API}"))
pulumi.export("api_signing_key", keys.signing_key)
if settings.api.ingress:
    ingress(settings.api.ingress, "gateway", foundation, after=[gateway, *manager])
    pulumi.export("page", f"https://{settings.api.ingress.host}/")
if manager:
    pulumi.export("manager", pulumi.Output.concat("http://", manager[0].address, f":{network.MANAGER_API}"))
if judge:
    pulumi.export("judge", pulumi.Output.concat("http://", judge[0].address, f":{network.VLLM}/v1"))
