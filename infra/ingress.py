"""The way in from outside the cluster, where the site has an ingress controller: to the gateway, with TLS."""

from __future__ import annotations

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


def ingress(wanted: Ingress, service: str, foundation: Foundation, after: pulumi.Resource) -> IngressResource:
    """Everything of the host goes to the Service's port `http`."""
    to_gateway = HTTPIngressPathArgs(
        path="/",
        path_type="Prefix",
        backend=IngressBackendArgs(
            service=IngressServiceBackendArgs(name=service, port=ServiceBackendPortArgs(name="http"))
        ),
    )
    return IngressResource(
        "ingress",
        metadata=foundation.metadata(service, annotations=NO_WAIT | wanted.annotations),
        spec=IngressSpecArgs(
            ingress_class_name=wanted.class_name,
            tls=[IngressTLSArgs(hosts=[wanted.host], secret_name=wanted.tls_secret)],
            rules=[IngressRuleArgs(host=wanted.host, http=HTTPIngressRuleValueArgs(paths=[to_gateway]))],
        ),
        opts=pulumi.ResourceOptions(depends_on=[after]),
    )
