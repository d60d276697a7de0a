"""The fields of the operator's MPIJob (v2beta1) and its pods that the recipe may use, with our own descriptions.

A description is a type, a tuple of allowed strings, a dictionary of fields, or a list with the description of its
elements. A field whose name ends in "!" is required. `None` accepts anything.
"""

from __future__ import annotations

import re
from typing import Any

QUANTITY = re.compile(r"\d+(\.\d+)?(m|[KMGTPE]i?|k)?")  # of a resource: "1", "500m", "16Gi"
_RESOURCES = {
    "requests": {"cpu": QUANTITY, "memory": QUANTITY},
    "limits": {"cpu": QUANTITY, "memory": QUANTITY},
}
_CONTAINER = {
    "name!": str,
    "image!": str,
    "workingDir": str,
    "command": [str],
    "args": [str],
    "resources": _RESOURCES,
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}
_VOLUME = {
    "name!": str,
    "persistentVolumeClaim": {"claimName!": str},
    "emptyDir": {"medium": ("", "Memory"), "sizeLimit": QUANTITY},
}
_POD = {
    "terminationGracePeriodSeconds": int,
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int},
    "containers!": [_CONTAINER],
    "volumes": [_VOLUME],
}
_REPLICAS = {
    "replicas": int,
    "restartPolicy": ("Never", "OnFailure"),  # the operator accepts no other value
    "template!": {"metadata": None, "spec!": _POD},
}
JOB = {
    "apiVersion!": ("kubeflow.org/v2beta1",),
    "kind!": ("MPIJob",),
    "metadata!": {"name!": str, "namespace": str, "labels": None, "annotations": None},
    "spec!": {
        "slotsPerWorker": int,
        "runLauncherAsWorker": bool,
        "sshAuthMountPath": str,
        "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
        "mpiImplementation": ("OpenMPI", "Intel", "MPICH"),
        "runPolicy": {
            "cleanPodPolicy": ("None", "Running", "All"),
            "ttlSecondsAfterFinished": int,
            "activeDeadlineSeconds": int,
            "backoffLimit": int,
            "suspend": bool,
            "managedBy": str,
            "schedulingPolicy": None,
        },
        "mpiReplicaSpecs!": {"Launcher!": _REPLICAS, "Worker": _REPLICAS},
    },
}


def mistakes(found: Any, wanted: Any = JOB, place: str = "") -> list[str]:
    """Return the fields of a manifest that the operator or the cluster would refuse, or ignore as unknown."""
    if wanted is None:
        return []
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [f"{place}: expected fields, got {found!r}"]
        kinds = {name.rstrip("!"): kind for name, kind in wanted.items()}
        missing = [name[:-1] for name in wanted if name.endswith("!") and name[:-1] not in found]
        return [
            *(f"{place}/{name}: it is required" for name in missing),
            *(f"{place}/{name}: there is no such field" for name in found if name not in kinds),
            *(
                one
                for name in found
                if name in kinds
                for one in mistakes(found[name], kinds[name], f"{place}/{name}")
            ),
        ]
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return [f"{place}: expected a list, got {found!r}"]
        return [one for i, value in enumerate(found) for one in mistakes(value, wanted[0], f"{place}/{i}")]
    if isinstance(wanted, re.Pattern):
        good = isinstance(found, str) and wanted.fullmatch(found) is not None
    elif isinstance(wanted, tuple):
        good = found in wanted
    else:
        good = type(found) is wanted and (wanted is not int or found >= 0)  # a bool is not an int here
    return [] if good else [f"{place}: {found!r} is not allowed"]
