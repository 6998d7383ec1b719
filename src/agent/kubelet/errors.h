/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_KUBELET_ERRORS_H
#define SLUICE_AGENT_KUBELET_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("kubelet");

SL_ERROR(DEVICE_GONE,
    "there is no device \"%.80s\", or no longer: the configuration of the node or its GPUs have changed; delete the "
    "pod, and a new pod gets one of the present devices",
    "the device that kubelet chose is gone or failed meanwhile (Allocate)",
    "delete the pod; its successor gets another device");
SL_ERROR_ALSO(DEVICE_UNHEALTHY,
    "device \"%s\" is unhealthy: the events of the node say why; delete the pod, and a new pod gets another device");
SL_ERROR_ALSO(DEVICE_NOT_OFFERED,
    "%s no longer has device \"%.80s\": delete the pod that has it, so that a new pod gets one of the present devices");
SL_ERROR(ALLOCATE_NO_DEVICE, "%s has no device \"%.80s\"",
    "kubelet remembers a device that the agent no longer advertises",
    "nothing: the pod is tried again; `kubectl describe node`");
SL_ERROR_ALSO(ALLOCATE_EMPTY, "an allocation of %s names no device");
SL_ERROR(ALLOCATE_SHARES,
    "invalid allocation request for \"%s\": invalid request: maximum request size for shared resources is 1; found %zu",
    "`failRequestsGreaterThanOne`: two shares of a GPU are not a larger share", "ask for 1, or switch it off");
SL_ERROR_ALSO(ALLOCATE_SHARES_HINT,
    "invalid request: maximum request size for shared resources is 1; found %zu: ask for 1, or set "
    "failRequestsGreaterThanOne: false (several shares are not a larger share)");
SL_ERROR(ALLOCATE_IMEX, "the IMEX channel that the configuration requires: %s",
    "`imex.required` on a machine without the channel", "load the channel, or `required: false`");
SL_ERROR(ALLOCATE_TWICE, "device \"%s\" is asked for twice in one container",
    "kubelet does not send such requests", "please report it");
SL_ERROR_ALSO(ALLOCATE_NOTHING, "kubelet asks for no device");
SL_ERROR_ALSO(DEVICE_ID, "\"%.40s…\" is not the id of a device");
SL_ERROR_ALSO(PREFER_MANY, "kubelet asks for %d devices, but there are %zu");
SL_ERROR_ALSO(PREFER_IMPOSSIBLE, "%zu GPUs are asked for, but %zu must be taken and %zu can be taken");
SL_ERROR(ANSWER_UTF8, "%s for the container is not valid UTF-8: give it another name",
    "kubelet would refuse the whole answer", "change the name on the node");
SL_ERROR_ALSO(RESOURCE_UTF8, "the name of a resource is not valid UTF-8");
SL_ERROR_ALSO(DEVICE_UTF8, "%s: the id of device %zu is empty or not valid UTF-8");
SL_ERROR(PLAN_TWICE, "the plan contains %s twice",
    "a mistake in Sluice itself", "please report it");
SL_ERROR_ALSO(PLAN_GPU, "%s: device %s belongs to GPU %zu, but there are %zu GPUs");
SL_ERROR_ALSO(PLAN_IDS, "%s: two devices have the id %s");
SL_ERROR(PLAN_LARGE, "%s has %zu devices, more than kubelet accepts in one message: use fewer replicas",
    "too many replicas", "fewer replicas");
SL_ERROR(KUBELET_SOCKET,
    "the socket of kubelet, \"%s\", is not an absolute path: write for example "
    "/var/lib/kubelet/device-plugins/kubelet.sock",
    "`--kubelet-socket`", "an absolute path");
SL_ERROR(SOCKET_DIR_LONG, "directory %s is too long for sockets: at most %zu bytes",
    "unix sockets allow 107 bytes", "a shorter directory");
SL_ERROR(PODRES_STATUS, "the pod resources of kubelet: %s (%d)",
    "the PodResources socket of kubelet is missing or does not answer: metrics lack `sluice_shares_in_use`",
    "mount the folder `pod-resources` of kubelet");
SL_ERROR(TAKEN_OVER_LOG,
    "%s: %s has taken over %s: two device plugins run on this node for one resource. Remove one of them; sluiced waits "
    "until the other is gone",
    "NVIDIA's plugin, or a second agent (log)", "remove one of them");
SL_ERROR_ALSO(TAKING_OVER_LOG,
    "%s: %s already serves this resource on %s; sluiced takes it over. If this repeats, two device plugins run on this "
    "node: remove one of them");
SL_ERROR_ALSO(BESIDE_CLAIMS_LOG,
    "%s: %s serves this resource on %s, and claims serve the same GPUs: neither knows what the other gives to pods. "
    "Remove that device plugin from this node");

#endif
