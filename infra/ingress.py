"""The way in from outside the cluster, where the site has an ingress controller, with TLS: to the gateway, and to the
manager what is its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes.networking.v1 import (
    HTTPIngressPathArgs,
    HTTPIngressRuleValueArgs,
    IngressBackendArgs,
    IngressRuleArgs,
    IngressServiceBackendArgs,
    IngressSpecArgs,
    IngressTLSArgs,
    ServiceBackendPortArgs,
)
from pulumi_kubernetes.networking.v1 import Ingress as IngressResource

from infra.foundation import NO_WAIT, Foundation
from infra.settings import Ingress

MANAGERS = ("/v1/jobs", "/v1/agents", "/v1/usage", "/v1/tenants")


def ingress(wanted: Ingress, service: str, foundation: Foundation, after: Sequence[pulumi.Resource]) -> IngressResource:
    """The manager's routes go to the manager, where there is one, and all others to the Service's port `http`."""
    managers = [_path(path, "manager") for path in MANAGERS] if foundation.settings.manager else []
    return IngressResource(
        "ingress",
        metadata=foundation.metadata(service, annotations=NO_WAIT | wanted.annotations),
        spec=IngressSpecArgs(
            ingress_class_name=wanted.class_name,
            tls=[IngressTLSArgs(hosts=[wanted.host], secret_name=wanted.tls_secret)],
            rules=[
                IngressRuleArgs(host=wanted.host, http=HTTPIngressRuleValueArgs(paths=[*managers, _path("/", service)]))
            ],
        ),
        opts=pulumi.ResourceOptions(depends_on=list(after)),
    )


def _path(path: str, service: str) -> HTTPIngressPathArgs:
    port = ServiceBackendPortArgs(name="http")
    backend = IngressBackendArgs(service=IngressServiceBackendArgs(name=service, port=port))
    return HTTPIngressPathArgs(path=path, path_type="Prefix", backend=backend)
