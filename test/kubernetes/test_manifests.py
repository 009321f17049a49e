"""deploy/kubernetes is what the API accepts, and its parts refer to each other."""

import copy
import pathlib
import re
import shutil
import tempfile
import textwrap
import unittest

from kubernetes_support import COMPONENTS, MANIFESTS, ROOT, build, every_rendering, faults, one, pod_of, render


class Schemas(unittest.TestCase):
    def test_the_api_accepts_every_object(self):
        self.assertEqual(faults([thing for _, objects in every_rendering() for thing in objects]), [])

    def test_a_misspelt_field_is_found(self):
        """At any depth, in every kind, and a value of the wrong type, too: the check above can fail."""
        objects = render("base", *COMPONENTS) + render("cronjob")

        def rename(thing, old, new):
            thing[new] = thing.pop(old)

        def container(thing):
            return pod_of(thing)["spec"]["containers"][0]

        planted = (
            (lambda thing: rename(container(thing), "readinessProbe", "readinesProbe"), "StatefulSet", "readinesProbe"),
            (lambda thing: rename(container(thing)["securityContext"], "readOnlyRootFilesystem", "readOnlyRootFileSystem"), "CronJob",
             "readOnlyRootFileSystem"),
            (lambda thing: rename(thing["spec"], "maxUnavailable", "maxUnavailible"), "PodDisruptionBudget", "maxUnavailible"),
            (lambda thing: rename(thing["spec"]["ingress"][0], "from", "form"), "NetworkPolicy", "form"),
            (lambda thing: rename(thing["spec"]["endpoints"][0], "authorization", "authorisation"), "ServiceMonitor", "authorisation"),
            (lambda thing: container(thing).update(args="serve"), "StatefulSet", "'string' is not assignable to type 'string[]'"),
            (lambda thing: thing["spec"].pop("schedule"), "CronJob", "must have required property schedule"),
            (lambda thing: container(thing)["resources"]["limits"].update(memory="much"), "StatefulSet", "/memory"))
        wrong = []
        for change, kind, _ in planted:
            wrong.append(copy.deepcopy(one(objects, kind)))
            change(wrong[-1])
        found = faults(wrong)
        for _, kind, text in planted:
            self.assertTrue([line for line in found if line.startswith(f"{kind} ") and text in line], (kind, text, found))


class References(unittest.TestCase):
    def check(self, objects):
        workload = one(objects, "StatefulSet", "Deployment")
        labels = pod_of(workload)["metadata"]["labels"]
        (container,) = pod_of(workload)["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        service = one(objects, "Service")
        self.assertEqual(workload["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
        policy = one(objects, "NetworkPolicy")["spec"]
        self.assertEqual(policy["podSelector"]["matchLabels"], labels)
        self.assertEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)
        self.assertEqual({port["port"] for port in policy["ingress"][0]["ports"]}, ports)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertIn(container[probe]["httpGet"]["port"], ports)
        self.assertEqual(pod_of(workload)["spec"]["serviceAccountName"], one(objects, "ServiceAccount")["metadata"]["name"])
        volumes = {volume["name"] for volume in pod_of(workload)["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
        return workload

    def test_labels_ports_and_volumes_agree(self):
        seen = [self.check(objects)["kind"] for name, objects in every_rendering() if name != "cronjob"]
        self.assertEqual(seen, ["StatefulSet", "Deployment", "Deployment"] * 2)

    def test_one_server_on_a_volume_and_several_without(self):
        single = one(render("base"), "StatefulSet")["spec"]
        self.assertEqual(single["replicas"], 1)
        self.assertEqual(single["volumeClaimTemplates"][0]["spec"]["accessModes"], ["ReadWriteOncePod"])
        for overlay in ("overlays/postgresql", "overlays/dynamodb"):
            several = one(render(overlay), "Deployment")["spec"]
            self.assertGreater(several["replicas"], 1)
            self.assertNotIn("sqlite", str(several))

    def test_prometheus_finds_the_service_and_may_reach_it(self):
        objects = render("base", *COMPONENTS)
        service, monitor = one(objects, "Service"), one(objects, "ServiceMonitor")["spec"]
        self.assertLessEqual(monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items())
        self.assertEqual([endpoint["port"] for endpoint in monitor["endpoints"]], [port["name"] for port in service["spec"]["ports"]])
        self.assertEqual(len(one(objects, "NetworkPolicy")["spec"]["ingress"][0]["from"]), 3)
        schemes = [one(render("base", *components), "ServiceMonitor")["spec"]["endpoints"][0].get("scheme") for components in (COMPONENTS[:1], COMPONENTS)]
        self.assertEqual(schemes, [None, "https"])

    def test_the_guide_creates_every_secret_that_is_referenced_and_the_manifests_contain_none(self):
        text = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        created = set(re.findall(r"kubectl create secret \w+ (\S+)", text))
        used = set()
        for _, objects in every_rendering():
            self.assertNotIn("Secret", [thing["kind"] for thing in objects])
            for path in (r"'secretName': '([^']+)'", r"'secretKeyRef': \{[^}]*'name': '([^']+)'", r"'credentials': \{[^}]*'name': '([^']+)'"):
                used |= set(re.findall(path, str(objects)))
        self.assertEqual(used, {"belay-config", "belay-tls", "belay-postgresql", "belay-metrics", "belay-token"})
        self.assertEqual(created, used)

    def test_the_kustomization_of_the_guide_is_valid(self):
        text = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        (example,) = re.findall(r"^    apiVersion: kustomize.*(?:\n    .+)+", text, re.M)
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(MANIFESTS, f"{directory}/belay")
            pathlib.Path(directory, "kustomization.yaml").write_text(textwrap.dedent(example), encoding="utf-8")
            objects = build(directory)
        self.assertEqual(faults(objects), [])
        self.assertEqual({thing["metadata"]["namespace"] for thing in objects}, {"locks"})
        self.assertIn("ServiceMonitor", [thing["kind"] for thing in objects])
        (container,) = pod_of(one(objects, "Deployment"))["spec"]["containers"]
        self.assertRegex(container["image"], r"^registry\.example\.com/belay:\d")

    def test_the_image_has_the_version_that_is_built(self):
        (version,) = re.findall(r"^project\(belay VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)
        images = {container["image"] for _, objects in every_rendering() for thing in objects if pod_of(thing)
                  for container in pod_of(thing)["spec"]["containers"]}
        self.assertEqual(images, {f"belay:{version}"})


class Restrictions(unittest.TestCase):
    def test_every_pod_meets_the_restricted_pod_security_standard(self):
        pods = [pod_of(thing)["spec"] for _, objects in every_rendering() for thing in objects if pod_of(thing)]
        self.assertEqual(len(pods), 7)
        for pod in pods:
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertGreater(pod["securityContext"]["runAsUser"], 0)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in pod["containers"]:
                self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                                "capabilities": {"drop": ["ALL"]}})
                self.assertIn("memory", container["resources"]["limits"])


if __name__ == "__main__":
    unittest.main()
