"""The recipes of deploy/ and docker/: the program accepts the commands that they start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_fields import mistakes
from mudd_core.cli.argv import parse
from mudd_core.cli.job import requested_job
from mudd_core.cli.requested import config_of
from tiny_run import ROOT

BASE = ROOT / "deploy" / "kubernetes" / "base"
OVERLAY = ROOT / "deploy" / "kubernetes" / "overlays" / "example"


def base_job() -> Any:
    return yaml.safe_load((BASE / "mpijob.yaml").read_text())


def patched_job() -> Any:
    """Return the job after the overlay's patch, which replaces some values."""
    job = base_job()
    for change in yaml.safe_load((OVERLAY / "select-configuration.yaml").read_text()):
        assert change["op"] == "replace"
        *places, last = change["path"].strip("/").split("/")
        at = job
        for place in places:
            at = at[int(place) if isinstance(at, list) else place]
        assert last in at, change["path"]
        at[last] = change["value"]
    return job


def pods(job: Any) -> dict[str, Any]:
    return {kind: replica["template"]["spec"] for kind, replica in job["spec"]["mpiReplicaSpecs"].items()}


def test_the_arguments_are_those_of_the_program() -> None:
    (launcher,) = pods(patched_job())["Launcher"]["containers"]
    words = requested_job(parse(launcher["args"]))
    config = config_of(
        "small.py", [word for word in words.words if not word.startswith(("--config", "--workdir"))]
    )
    job = patched_job()["spec"]
    workers, slots = job["mpiReplicaSpecs"]["Worker"]["replicas"], job["slotsPerWorker"]
    assert words.job.ranks == workers * slots and words.max_restarts > 0
    worker = pods(patched_job())["Worker"]["containers"][0]
    assert str(config.train.threads * slots) == worker["resources"]["limits"]["cpu"]


def test_the_operator_knows_every_field_of_the_job() -> None:
    for job in (base_job(), patched_job()):
        assert mistakes(job) == []
        assert job["spec"]["mpiReplicaSpecs"]["Launcher"]["replicas"] == 1, "the operator refuses more"
    wrong = base_job()
    del wrong["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
    wrong["spec"]["cleanPodPolicy"] = "Running"  # the place of this field in v1
    wrong["spec"]["slotsPerWorker"] = "1"
    wrong["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Always"
    wrong["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] = (
        "16 GB"
    )
    assert sorted(one.split(":")[0].rsplit("/", 1)[1] for one in mistakes(wrong)) == [
        "cleanPodPolicy",
        "image",
        "restartPolicy",
        "sizeLimit",
        "slotsPerWorker",
    ]


def test_pods_are_not_root_share_memory_and_have_time_to_save() -> None:
    job = base_job()
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    for pod in pods(job).values():
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["terminationGracePeriodSeconds"] >= 120 and len(pod["containers"]) == 1, "no sidecar"
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    worker = pods(job)["Worker"]
    memory = {volume["name"]: volume for volume in worker["volumes"]}["shared-memory"]["emptyDir"]
    assert memory["medium"] == "Memory"
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["containers"][0]["volumeMounts"]}
    assert mounts["shared-memory"] == "/dev/shm"
    replicas = job["spec"]["mpiReplicaSpecs"]
    assert (
        replicas["Launcher"]["restartPolicy"] == "OnFailure" and job["spec"]["runPolicy"]["backoffLimit"] > 0
    )


def test_the_claim_that_pods_mount_is_made() -> None:
    claim = yaml.safe_load((BASE / "runs.yaml").read_text())
    for pod in pods(base_job()).values():
        names = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        ]
        assert names == [claim["metadata"]["name"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_renders_what_the_patch_says() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(OVERLAY)], capture_output=True, text=True, timeout=60, check=True
    )
    claim, job = sorted(yaml.safe_load_all(done.stdout), key=lambda one: str(one["kind"]), reverse=True)
    assert claim == yaml.safe_load((BASE / "runs.yaml").read_text())
    want = patched_job()
    for pod in pods(want).values():
        pod["containers"][0]["image"] = "mudd:latest"
    assert job == want


def test_the_image_has_what_setup_installs() -> None:
    wanted = set(
        re.findall(r'packages="\$packages ([a-z0-9+ -]+)"', (ROOT / "scripts" / "system.sh").read_text())
    )
    text = (ROOT / "docker" / "Dockerfile").read_text()
    installed = set(text.split())
    for packages in wanted:
        assert set(packages.split()) <= installed, packages
    assert "USER mudd" in text and "./run setup" in text
    assert not re.search(r"^FROM \S+/\S+/", text, re.MULTILINE), "no registry"


def test_the_image_gets_the_name_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    script = str(ROOT / "docker" / "build_image.sh")

    def said(**more: str) -> str:
        return subprocess.run(
            [script], env={**environment, **more}, capture_output=True, text=True, check=True
        ).stdout

    assert said().split() == ["build", "--file", "docker/Dockerfile", "--tag", "mudd:latest", "."]
    assert "--tag mine:7 " in said(IMAGE="mine:7")
