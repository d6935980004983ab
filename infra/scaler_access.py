"""KEDA's access to the depths of the queues: a TriggerAuthentication with a user that can do nothing else."""

from __future__ import annotations

from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret

from infra.autoscaling import BROKER_ACCESS, KEDA
from infra.broker import SCALER, Accounts
from infra.foundation import Foundation
from infra.settings import Autoscaling


def scaler_access(foundation: Foundation, accounts: Accounts) -> None:
    if foundation.settings.autoscaling is not Autoscaling.KEDA:
        return
    Secret(
        BROKER_ACCESS,
        metadata=foundation.metadata(BROKER_ACCESS),
        string_data={"host": accounts.management_url(SCALER)},
    )
    CustomResource(
        f"{BROKER_ACCESS}-authentication",
        api_version=KEDA,
        kind="TriggerAuthentication",
        metadata=foundation.metadata(BROKER_ACCESS),
        spec={"secretTargetRef": [{"parameter": "host", "name": BROKER_ACCESS, "key": "host"}]},
    )
