# SPDX-License-Identifier: Apache-2.0
"""What the chart and deploy/ promise to be the same: values on one side, what kustomize puts together on the other."""

# name: (values, resources of deploy/, components of deploy/components)
COMBINATIONS = {
    "default": ({}, ["overlays/default"], []),
    "time-sliced-2": ({"strategy": "time-sliced", "replicas": 2}, ["overlays/time-sliced-2"], []),
    "time-sliced-4": ({"strategy": "time-sliced"}, ["overlays/time-sliced-4"], []),
    "mps-2": ({"strategy": "mps", "replicas": 2}, ["overlays/mps-2"], []),
    "mps-4": ({"strategy": "mps"}, ["overlays/mps-4"], []),
    "mig-single": ({"strategy": "mig-single"}, ["overlays/mig-single"], []),
    "mig-mixed": ({"strategy": "mig-mixed"}, ["overlays/mig-mixed"], []),
    "fractional": ({"strategy": "fractional"}, ["overlays/fractional", "controller/extender"], []),
    "vm": ({"strategy": "vm"}, ["overlays/vm"], []),
    "vm-dra": ({"strategy": "vm-dra"}, ["overlays/vm-dra", "controller/dra"], []),
    "dra": ({"strategy": "dra"}, ["overlays/dra", "controller/dra"], []),
    "dra without a controller": ({"strategy": "dra", "controller": {"mode": "none"}}, ["overlays/dra"], []),
    "nvidia-claims": ({"strategy": "dra", "agent": {"nvidiaClaims": True}}, ["overlays/dra", "controller/dra"],
                      ["nvidia-claims"]),
    "nvidia-claims with MPS": (
        {"strategy": "dra", "controller": {"mode": "none"}, "agent": {"nvidiaClaims": True, "components": {"mps": True}}},
        ["overlays/dra"], ["nvidia-claims", "mps"]),
    "a controller alone": ({"controller": {"mode": "extender"}}, ["overlays/default", "controller/extender"], []),
    "runtime-class": ({"agent": {"access": "runtime-class"}}, ["overlays/default"], ["runtime-class"]),
    "privileged": ({"agent": {"access": "privileged"}}, ["overlays/default"], ["privileged"]),
    "dra, privileged": ({"strategy": "dra", "agent": {"access": "privileged"}}, ["overlays/dra", "controller/dra"],
                        ["privileged"]),
    "gpu-nodes-only": ({"agent": {"gpuNodesOnly": True}}, ["overlays/default"], ["gpu-nodes-only"]),
    "gpu-operator": ({"agent": {"gpuOperator": True, "configByLabel": True}}, ["overlays/default"],
                     ["gpu-operator", "config-by-label"]),
    "own-node-only": ({"agent": {"ownNodeOnly": True}}, ["overlays/default"], ["own-node-only"]),
    "node-feature": ({"agent": {"nodeFeature": True}}, ["overlays/default"], ["node-feature"]),
    "config-by-label": ({"agent": {"configByLabel": True}}, ["overlays/default"], ["config-by-label"]),
    "mps and fractional by label": (
        {"agent": {"configByLabel": True, "components": {"mps": True, "fractional": True}}},
        ["overlays/default"], ["config-by-label", "mps", "fractional"]),
    "dra without MIG": ({"strategy": "dra", "controller": {"mode": "none"},
                         "agent": {"components": {"migManagement": False}}}, None, ["dra"]),
    "mig-management": ({"agent": {"components": {"migManagement": True}}}, ["overlays/default"], ["mig-management"]),
    "vm beside fractions, by label": (
        {"strategy": "fractional", "agent": {"configByLabel": True, "components": {"vm": True}}},
        ["overlays/fractional", "controller/extender"], ["config-by-label", "vm"]),
    "the page": ({"strategy": "fractional", "controller": {"page": {"tokenSecret": "sluice-page-token"}}},
                 ["overlays/fractional", "controller/extender"], ["page"]),
    "the page by both ways": (
        {"strategy": "dra", "controller": {"page": {"tokenSecret": "sluice-page-token", "portForward": True}}},
        ["overlays/dra", "controller/dra"], ["page", "page-port-forward"]),
    "simulated": ({"simulated": "h200x2"}, ["overlays/simulated"], []),
    "fractions of simulated cards": ({"strategy": "fractional", "simulated": "h200x2"},
                                     ["overlays/fractional", "controller/extender"], ["simulated"]),
    "a second scheduler": ({"strategy": "fractional", "secondScheduler": {"enabled": True}},
                           ["overlays/fractional", "controller/second-scheduler"], []),
    "openshift": ({"openshift": True}, ["overlays/default"], ["openshift"]),
    "everything": (
        {"strategy": "fractional", "secondScheduler": {"enabled": True},
         "agent": {"access": "runtime-class", "gpuNodesOnly": True, "ownNodeOnly": True, "nodeFeature": True,
                   "configByLabel": True}},
        ["overlays/fractional", "controller/extender"],
        ["runtime-class", "gpu-nodes-only", "own-node-only", "node-feature", "config-by-label", "second-scheduler"]),
}

# Differences by design: what, and why. Whatever is not here must be equal.
ALLOWED_OBJECTS = {
    ("Namespace", "sluice-system"): "Helm makes the namespace (--create-namespace) and leaves it at the end",
}
ALLOWED_LABELS = {
    "app.kubernetes.io/part-of": "the chart's, on every object: find all that is Sluice's",
    "app.kubernetes.io/instance": "Helm's custom: the release",
    "app.kubernetes.io/version": "Helm's custom: the chart's appVersion",
    "app.kubernetes.io/managed-by": "Helm's custom",
    "helm.sh/chart": "Helm's custom: the chart and its version",
}
# kubectl before 1.34 puts the namespace on kinds that its kustomize does not know to be the cluster's; the API server ignores it.
CLUSTER_KINDS = ("DeviceClass", "SecurityContextConstraints", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
