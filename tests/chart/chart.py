#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chart deploy/chart.

usage: chart.py Tree       what needs no program: schema, values, templates and documents say the same
       chart.py Rendered   with helm and kubectl: the chart makes what the kustomize overlays make

Exit status 77: helm or kubectl is missing, nothing was tested.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

sys.dont_write_bytecode = True
from combinations import ALLOWED_LABELS, ALLOWED_OBJECTS, CLUSTER_KINDS, COMBINATIONS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
SKIPPED = 77
# The oldest Helm built without a version of Kubernetes says 1.20; what is rendered depends on none.
HELM_ARGS = ["--kube-version", "1.36.4"]
TYPES = {"string": str, "boolean": bool, "integer": int, "object": dict, "array": list}


def program(name):
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sluice", "k8s")
    return shutil.which(name, path=os.pathsep.join([os.environ.get("SLUICE_K8S_BIN", cache), os.environ["PATH"]]))


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def leaves(schema, path=()):
    """(path, schema) of every value that is not a group of others."""
    for name, sub in schema["properties"].items():
        yield from leaves(sub, (*path, name)) if "properties" in sub else [((*path, name), sub)]


def lookup(values, path):
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return KeyError
        values = values[name]
    return values


def fits(value, schema):
    """Whether a default is one that the schema takes, by the words that ours uses."""
    if "enum" in schema:
        return any(value == v and isinstance(value, type(v)) for v in schema["enum"])
    if not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        return False
    return (schema.get("minimum", value) <= value <= schema.get("maximum", value) if schema["type"] == "integer"
            else len(value) >= schema.get("minLength", 0) if schema["type"] == "string" else True)


class Tree(unittest.TestCase):
    def setUp(self):
        self.schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
        self.values = load(CHART / "values.yaml")
        self.templates = {p.name: p.read_text(encoding="utf-8") for p in (CHART / "templates").iterdir()}
        self.leaves = {path: sub for path, sub in leaves(self.schema) if path != ("global",)}

    def test_every_value_is_in_the_schema_and_the_other_way_round(self):
        def paths(values, schema, path=()):
            for name, value in values.items():
                sub = schema.get("properties", {}).get(name)
                self.assertIsNotNone(sub, f"values.yaml has {'.'.join((*path, name))}, values.schema.json does not")
                yield from paths(value, sub, (*path, name)) if "properties" in sub else [(*path, name)]
        self.assertEqual(sorted(paths(self.values, self.schema)), sorted(self.leaves))

    def test_every_value_is_described_and_its_default_is_one_that_the_schema_takes(self):
        def walk(schema, path):
            self.assertRegex(schema.get("description", ""), r"\w.*\.$", f"{'.'.join(path) or 'the schema'} has no description")
            if "properties" in schema:
                self.assertIs(schema["additionalProperties"], False, f"{'.'.join(path)} takes unknown keys")
            for name, sub in schema.get("properties", {}).items():
                walk(sub, (*path, name))
        walk(self.schema, ())
        for path, sub in self.leaves.items():
            value = lookup(self.values, path)
            self.assertTrue(fits(value, sub), f"{'.'.join(path)}: its default {value!r} is none for the schema")

    def test_templates_use_the_values_that_there_are_and_all_of_them(self):
        used = set()
        for name, text in self.templates.items():
            for match in re.finditer(r"\.Values((?:\.\w+)+)", text):
                path = tuple(match[1].strip(".").split("."))
                self.assertIsNot(lookup(self.values, path), KeyError, f"{name} uses {'.'.join(path)}, which is no value")
                used.add(path)
        for path in self.leaves:
            self.assertTrue(any(path[:len(u)] == u for u in used), f"no template uses {'.'.join(path)}")

    def test_templates_include_what_is_defined_and_all_of_it(self):
        text = "\n".join(self.templates.values())
        included = set(re.findall(r'include "([^"]+)"', text))
        self.assertEqual(included, set(re.findall(r'define "([^"]+)"', text)))

    def test_every_value_is_documented_with_its_default(self):
        page = (ROOT / "docs" / "chart.md").read_text(encoding="utf-8")
        rows = dict(re.findall(r"^\* `([\w.]+)`(?: = `([^`]*)`)?", page, re.M))
        self.assertEqual(sorted(rows), sorted(".".join(p) for p in self.leaves))
        for path in self.leaves:
            value = lookup(self.values, path)
            if not isinstance(value, (dict, list)) or not value:
                self.assertEqual(yaml.safe_load(rows[".".join(path)] or "null"), value, ".".join(path))

    def test_versions_are_one(self):
        version = re.search(r"project\(sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        chart = load(CHART / "Chart.yaml")
        tags = [load(DEPLOY / p / "kustomization.yaml")["images"][0]["newTag"] for p in ("base", "controller/base", "cleanup", "components/simulated")]
        self.assertEqual([chart["version"], chart["appVersion"], *tags], [version] * 6)

    def test_every_overlay_and_component_has_its_combination(self):
        resources = {r for _, rs, _ in COMBINATIONS.values() for r in rs or []}
        components = {c for _, _, cs in COMBINATIONS.values() for c in cs}
        self.assertEqual({r for r in resources if r.startswith("overlays/")},
                         {f"overlays/{p.name}" for p in (DEPLOY / "overlays").iterdir()})
        self.assertEqual(components, {p.name for p in (DEPLOY / "components").iterdir()})


class Rendered(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        # Below the tree's parent: kustomize wants relative paths.
        folder = tempfile.TemporaryDirectory(prefix="sluice-chart-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def helm(self, *argv, values=None, ok=True):
        path = self.folder / "values.json"
        path.write_text(json.dumps(values or {}), encoding="utf-8")
        # Nothing of the user's Helm is read or written, and no cluster is asked.
        env = {**os.environ, "HOME": str(self.folder), "KUBECONFIG": "/nonexistent"}
        done = subprocess.run([program("helm"), *argv, "-f", str(path)], env=env, capture_output=True, text=True, check=False)
        if ok:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def template(self, values, namespace="sluice-system"):
        return self.helm("template", "sluice", str(CHART), "-n", namespace, *HELM_ARGS, values=values).stdout

    def notes(self, values):
        """NOTES.txt as `helm install` prints it. Helm shows it to nobody who has no cluster, so a template of a copy does."""
        chart = self.folder / "chart"
        shutil.copytree(CHART, chart, dirs_exist_ok=True)
        shutil.copy(CHART / "templates/NOTES.txt", chart)
        (chart / "templates/shown.yaml").write_text('text: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}', encoding="utf-8")
        return yaml.safe_load(self.helm("template", "sluice", str(chart), "-n", "gpus", *HELM_ARGS, "--show-only",
                                        "templates/shown.yaml", values=values).stdout)["text"]

    def kustomize(self, resources, components):
        overlay = self.folder / "overlay"
        overlay.mkdir(exist_ok=True)

        def relative(*names):
            return os.path.relpath(DEPLOY.joinpath(*names), overlay.resolve())
        kustomization = {"namespace": "sluice-system", "resources": [relative(r) for r in resources or ["base"]],
                         "components": [relative("components", c) for c in components]}
        if resources is None:  # The overlay dra without its component mig-management.
            shutil.copy(DEPLOY / "overlays/dra/config.yaml", overlay)
            kustomization["configMapGenerator"] = [{"name": "sluice-config", "files": ["config.yaml"]}]
            kustomization["generatorOptions"] = {"disableNameSuffixHash": True}
        (overlay / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
        done = subprocess.run([program("kubectl"), "kustomize", str(overlay)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def objects(self, text):
        """{(kind, name): object}, with lists whose order means nothing in one order."""
        found = {}
        for thing in filter(None, yaml.safe_load_all(text)):
            key = (thing["kind"], thing["metadata"]["name"])
            self.assertNotIn(key, found, "twice")
            if thing["kind"] == "ConfigMap":
                thing["data"] = {n: yaml.safe_load(t) for n, t in thing["data"].items()}
            if thing["kind"] in CLUSTER_KINDS:
                thing["metadata"].pop("namespace", None)
            found[key] = ordered(thing)
        return found

    def test_each_combination_is_what_kustomize_makes(self):
        for name, (values, resources, components) in COMBINATIONS.items():
            with self.subTest(name):
                wanted = self.objects(self.kustomize(resources, components))
                for key in ALLOWED_OBJECTS:
                    wanted.pop(key)
                got = self.objects(self.template(values))
                for thing in got.values():
                    labels = thing["metadata"]["labels"]
                    for label in ALLOWED_LABELS:
                        labels.pop(label)
                    if not labels:
                        del thing["metadata"]["labels"]
                self.assertEqual(sorted(got), sorted(wanted))
                for key, thing in wanted.items():
                    self.assertEqual(got[key], thing, key)

    def test_another_namespace_is_named_everywhere(self):
        values = COMBINATIONS["everything"][0]
        text = self.template(values, "gpus")
        self.assertNotIn("sluice-system", text)
        self.assertEqual(self.objects(text), self.objects(self.template(values).replace("sluice-system", "gpus")))

    def test_consumable_shares_and_the_operators_label_reach_the_agent(self):
        thing = self.objects(self.template({"strategy": "dra", "agent": {
            "nvidiaClaims": True, "consumableShares": "4", "gpuOperator": True, "nodeSelector": {"a": "b"}}}))
        pod = thing["DaemonSet", "sluiced"]["spec"]["template"]["spec"]
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        self.assertEqual((env["SLUICE_DRA_DRIVER"], env["CONSUMABLE_SHARES"]), ("gpu.nvidia.com", "4"))
        self.assertEqual(pod["nodeSelector"], {"a": "b", "nvidia.com/gpu.deploy.device-plugin": "true"})

    def test_values_without_an_effect_are_refused(self):
        for values, words in (({"agent": {"nvidiaClaims": True}}, "set strategy=dra"),
                              ({"strategy": "dra", "agent": {"consumableShares": "memory"}}, "agent.nvidiaClaims=true"),
                              ({"strategy": "dra", "agent": {"nvidiaClaims": True, "consumableShares": "0"}}, "consumableShares")):
            done = self.helm("template", "sluice", str(CHART), *HELM_ARGS, values=values, ok=False)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(words, done.stderr)

    def test_values_reach_the_objects(self):
        thing = self.objects(self.template({
            "config": {"version": "v1", "flags": {"migStrategy": "none"}}, "configs": {"a.yaml": "version: v1\n", "b": {"version": "v1"}},
            "image": {"repository": "registry.example.com/sluice", "tag": "t"}, "imagePullSecrets": [{"name": "s"}],
            "agent": {"driverRoot": "/run/nvidia/driver", "env": [{"name": "SLUICE_LABELS", "value": "false"}],
                      "nodeSelector": {"a": "b"}, "resources": {"limits": {"memory": "1Gi"}}},
            "controller": {"mode": "dra", "replicas": 3, "failurePolicy": "Fail", "args": ["--x"]}}))
        self.assertEqual(thing["ConfigMap", "sluice-config"]["data"],
                         {"config.yaml": {"version": "v1", "flags": {"migStrategy": "none"}}, "a.yaml": {"version": "v1"},
                          "b": {"version": "v1"}})
        pod = thing["DaemonSet", "sluiced"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        env = {e["name"]: e.get("value") for e in container["env"]}
        self.assertEqual((container["image"], pod["imagePullSecrets"], pod["nodeSelector"], container["resources"]["limits"],
                          env["NVIDIA_DRIVER_ROOT"], env["SLUICE_LABELS"]),
                         ("registry.example.com/sluice:t", [{"name": "s"}], {"a": "b"}, {"memory": "1Gi"},
                          "/run/nvidia/driver", "false"))
        self.assertIn({"name": "driver-root", "hostPath": {"path": "/run/nvidia/driver"}}, pod["volumes"])
        spec = thing["Deployment", "sluice-controller"]["spec"]
        self.assertEqual((spec["replicas"], spec["template"]["spec"]["containers"][0]["args"]),
                         (3, ["--admission=dra", "--extender=prioritize", "--x"]))
        self.assertEqual(thing["MutatingWebhookConfiguration", "sluice-controller"]["webhooks"][0]["failurePolicy"], "Fail")
        for version, tag in (("v1.33.5-eks-113cf36", "v1.33.5"), ("v1.34.1-gke.2541000", "v1.34.1")):
            text = self.helm("template", "sluice", str(CHART), "--kube-version", version, values={
                "strategy": "fractional", "secondScheduler": {"enabled": True}}).stdout
            self.assertIn(f"image: registry.k8s.io/kube-scheduler:{tag}\n", text)
        mine = self.objects(self.template({"configMap": "mine"}))
        self.assertNotIn(("ConfigMap", "sluice-config"), mine)
        self.assertIn({"name": "config", "configMap": {"name": "mine"}},
                      mine["DaemonSet", "sluiced"]["spec"]["template"]["spec"]["volumes"])

    def test_wrong_values_are_refused_by_name(self):
        for values, word in (({"strategy": "mpss"}, "strategy"), ({"replicas": 1}, "replicas"), ({"slots": "10"}, "slots"),
                             ({"agent": {"privileged": True}}, "privileged"), ({"colour": 1}, "colour"),
                             ({"configs": {"config.yaml": {}}}, "config.yaml"),
                             ({"agent": {"components": {"dra": "yes"}}}, "dra"), ({"simulated": "two cards"}, "simulated"),
                             ({"secondScheduler": {"enabled": True}}, "strategy: fractional")):
            done = self.helm("template", "sluice", str(CHART), *HELM_ARGS, values=values, ok=False)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(word, done.stderr)

    def test_notes_say_what_to_look_at_next(self):
        for strategy, words in (("default", ["rollout status daemonset/sluiced", "allocatable", "nvidia-smi"]),
                                ("dra", ["resourceslices", "rollout status deployment/sluice-controller"]),
                                ("fractional", ["kube-scheduler", "sluice-controller-tls"]), ("vm", ["permittedHostDevices"]),
                                ("vm-dra", ["resourceslices", "vm.gpu.sluice.io"])):
            notes = self.notes({"strategy": strategy})
            for word in [*words, "kubectl -n gpus", "docs/chart.md"]:
                self.assertIn(word, notes, strategy)

    def test_notes_of_a_second_scheduler_and_of_simulated_cards(self):
        notes = self.notes({"strategy": "fractional", "secondScheduler": {"enabled": True}, "simulated": "l4"})
        self.assertIn("rollout status deployment/sluice-scheduler", notes)
        self.assertNotIn("caData", notes)
        self.assertIn("SIMULATED GPUs (l4 on every node)", notes)
        self.assertNotIn("SIMULATED", self.notes({}))

    def test_lint(self):
        self.helm("lint", "--strict", str(CHART), *HELM_ARGS)


def ordered(thing):
    """Lists of named things by name, in the whole of an object: their order is not read by Kubernetes."""
    if isinstance(thing, dict):
        return {k: ordered(v) for k, v in thing.items()}
    if isinstance(thing, list):
        things = [ordered(v) for v in thing]
        return sorted(things, key=lambda v: v["name"]) if all(isinstance(v, dict) and "name" in v for v in things) else things
    return thing


if __name__ == "__main__":
    missing = [p for p in ("helm", "kubectl") if not program(p)] if "Rendered" in sys.argv else []
    if missing:
        print(f"skipped: no {' and no '.join(missing)} in SLUICE_K8S_BIN or the PATH")
        sys.exit(SKIPPED)
    unittest.main()
