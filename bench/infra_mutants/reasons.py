"""The reasons why a mistake that nothing finds is harmless, by the place in the manifests that it changes."""

from __future__ import annotations

import re

from bench.infra_mutants.trying import RENAMED, Tried

REASONS: tuple[tuple[str, str], ...] = (
    (r"annotations\.ratchet/configuration$", "the hash follows what it is made of"),
    (
        r"data\.(HF_HOME|HF_TOKEN_PATH|programs\.toml?)$|mountPath$|Probe\.exec\.command\.2$",
        "a path that its users have alike, which is checked",
    ),
    (r"^(Deployment/runner|Job/programs) \S*volumeMounts\S*readOnly$", "its volume is read-only, too"),
    (r"^StatefulSet/rabbitmq \S*readOnly$", "Kubernetes mounts ConfigMaps and Secrets read-only anyway"),
    (r"^Job/queues\S* \S*args\.3$", "a patience: the job is tried again until its deadline"),
    (r"^ConfigMap/rabbitmq-files data\.", "a space between name and value; both are checked"),
    (r"spec\.(s|updateS)trategy(\.type)?$", "left out, and Kubernetes' own default is the same"),
    (r"(metadata\.labels|app\.kubernetes\.io/part-of?)(\.|$)", "a label that no selector, monitor or check asks for"),
    (
        r"data\.RATCHET_\w*(_DIR|_LOGS|_KEYS|_PROGRAMS|_CACHE|_ENVIRONMENTS|_TOKEN_FILE)$",
        "a path that its users have alike, which is checked, or left out for the same default",
    ),
    (r"data\.RATCHET_DRAIN_GRACE_S$", "the time that the pod is given follows it, which is checked"),
    (r"data\.RATCHET_SANDBOX_RUNS_AT_ONCE$", "how much is enough is measured, and not checked"),
    (r"data\.RATCHET_SCORER_LIKELIHOOD_MODEL$", "a default that a stack may change"),
    (r"(^ScaledJob/trainer spec\.maxReplicaCount|_TRAINER_RUNS_AT_ONCE)$", "a default that a stack may change"),
    (r"\.(nodeSelector\.\S+|tolerations\.\d+\.key)$", "a label or taint of the site's nodes, which a stack names"),
    (r"\.(runtimeClassName|localhostProfile)$", "a name on the site's nodes; no pod starts that names another"),
    (r"^ConfigMap/\S+ data\.RATCHET_", "left out, and the service's own default is the value that the stack asks for"),
    (r"resources\.(requests|limits)\.(cpu|memory)$", "how much is enough is measured, and not checked"),
    (r"(sizeLimit|requests\.storage)$", "how much is enough is measured, and not checked"),
    (r"Probe\.(periodSeconds|failureThreshold|timeoutSeconds)$", "a pace within the bounds that are checked"),
    (r"(Interval|Period|Seconds|HistoryLimit|failureThreshold)$", "a pace within the bounds that are checked"),
    (r"^CronJob/backup \S*command\.2$", "a path that the command and its mount have alike, which is checked"),
    (r"^Service/\S+-nodes ", "one more headless Service; those that are asked for are checked"),
    (r"^Deployment/runner-token \S*command\.2$", "a path, or a space: what is renewed, where and when is checked"),
    (r"persistentVolumeClaim\.readOnly$", "each mount says itself that it is read-only, which is checked"),
    (r"^ServiceAccount/\S+ automount", "each pod says itself whether it has a token, which is checked"),
    (r"ontainers\.0\.env\.\d+\.value$", "a folder of its own, or a user's name: where and whether is checked"),
    (r"backoffLimit$", "Kubernetes' own default, within the bounds that are checked"),
    (r"^ScaledJob/\S+ \S*readinessProbe\.", "no Service asks whether a job is ready"),
    (
        r"^ScaledObject/\S+ spec\.triggers\.\d+\.metadata\.value$",
        "how much a replica can take is measured, and not checked",
    ),
    (
        r"\.(volumes|volumeMounts|volumeClaimTemplates)\.\d+\.(metadata\.)?name$",
        "a name, by which all who use it know it",
    ),
    (r"^(Deployment/(auditor|judge) spec\.replicas|ScaledObject/auditor )", "a default that a stack may change"),
    (r"^PriorityClass/\S+ value$", "the order of the classes counts alone, and is checked"),
    (r"^ResourceQuota/", "a name that nothing refers to; what it limits is checked"),
    (r"\.ports\.\d+\.protocol$", "TCP, which is Kubernetes' own default"),
    (r"^PersistentVolumeClaim/", "a name, by which all who use it know it"),
    (r"(containers|initContainers)\.\d+\.name$", "a name that nothing refers to"),
    (r"ratchet/leader?$", "a label and its selector alike, which is checked"),
    (rf"^{RENAMED}$", "the name of an object, by which all who use it know it"),
    (r"^urn:\S+\$random:", "a name, or longer than it has to be: the rest is checked"),
    (r"scaleTargetRef\.(apiVersion|kind)$", "KEDA's own default, and what an HPA names is checked"),
    (
        r"^Secret/\S+ stringData\.((jwks|signing-key|definitions)\.json|revoked\.txt)$",
        "laid out otherwise, or with another random value: what it must hold is checked",
    ),
    (r"^output ", "a text that a person reads"),
    (r"after(\.\d+)?$", "an order of creation only: Kubernetes tries again until the other is there"),
)


def reason_for(tried: Tried) -> str:
    """The reasons for all places that a survivor changes; empty where one of them has none."""
    found = {next((why for place, why in REASONS if re.search(place, path)), "") for path in tried.changed}
    return "" if "" in found else "; ".join(sorted(found))
