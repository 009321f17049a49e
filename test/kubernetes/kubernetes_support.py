"""deploy/kubernetes as the cluster gets it: rendered by kustomize, as Python objects."""
import copy
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
sys.path[:0] = [str(ROOT / "test" / name) for name in ("cli", "support", "dynamodb")]

WHOLE = ["base", "overlays/postgresql", "overlays/dynamodb", "cronjob"]
COMPONENTS = ["components/monitoring", "components/tls"]


@functools.cache
def kustomize():
    return subprocess.check_output([str(ROOT / "tools/kustomize")], text=True).strip()


def build(folder):
    return list(yaml.safe_load_all(subprocess.check_output([kustomize(), "build", str(folder)], text=True)))


@functools.cache
def _render(folder, components):
    if not components:
        objects = build(MANIFESTS / folder)
    else:
        with tempfile.TemporaryDirectory() as directory:
            # As a user's own kustomization would name them; kustomize wants relative paths.
            relative = functools.partial(os.path.relpath, start=os.path.realpath(directory))
            Path(directory, "kustomization.yaml").write_text(json.dumps({
                "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [relative(MANIFESTS / folder)],
                "components": [relative(MANIFESTS / one) for one in components]}), encoding="utf-8")
            objects = build(directory)
    return objects


def render(folder, *components):
    return copy.deepcopy(_render(folder, components))


def every_rendering():
    """(name, objects) of everything that docs/kubernetes.md offers."""
    for folder in WHOLE:
        yield folder, render(folder)
    for folder in WHOLE[:3]:
        yield f"{folder} with components", render(folder, *COMPONENTS)


def one(objects, *kinds):
    (found,) = [thing for thing in objects if thing["kind"] in kinds]
    return found


def pod_of(thing):
    """The template of a workload; None for other kinds."""
    if thing["kind"] in ("StatefulSet", "Deployment"):
        return thing["spec"]["template"]
    return thing["spec"]["jobTemplate"]["spec"]["template"] if thing["kind"] == "CronJob" else None


def faults(objects):
    """What the API's types and schemas refuse, one line each."""
    tools = subprocess.check_output([str(ROOT / "tools/npm-tools"), "kubernetes"], text=True).strip()
    done = subprocess.run(["node", str(ROOT / "test/kubernetes/validate.mjs"), tools], input=json.dumps(objects), text=True,
                          capture_output=True, check=False)
    if done.returncode not in (0, 1) or done.stderr:
        raise AssertionError(done.stderr)
    return done.stdout.splitlines()
