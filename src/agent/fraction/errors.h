/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_AGENT_FRACTION_ERRORS_H
#define SLUICE_AGENT_FRACTION_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("fraction");

SL_ERROR(FRACTION_NO_PROMISE,
    "pod %s/%s has no annotation %s: this node shares GPUs by fractions, and sluice-controller, which gives fractions "
    "to pods, did not place this pod. Install its webhook and its scheduler extender, or check that they are reached "
    "for this pod; then delete the pod",
    "sluice-controller did not place the pod", "install webhook and extender; delete the pod");
SL_ERROR_ALSO(FRACTION_NO_CONTAINER,
    "pod %s/%s: its annotation %s promises nothing to container %s, which has a GPU in its limits: delete the pod, and "
    "sluice-controller places its successor");
SL_ERROR(FRACTION_OTHER_NODE, "pod %s/%s was promised GPUs of node %s and runs on %s: delete the pod",
    "another scheduler bound the pod", "delete the pod");
SL_ERROR(FRACTION_GPU_GONE,
    "GPU %s, which the pod was promised, is no longer in this machine: delete the pod, and its successor gets another "
    "GPU",
    "a card was removed", "delete the pod");
SL_ERROR(FRACTION_INIT_UNKNOWN, "pod %s/%s: it is not known yet whether init container %s has ended",
    "the API server is behind kubelet", "nothing: kubelet tries again");
SL_ERROR(FRACTION_TWO_PODS, "kubelet lists device %s for two pods, %s/%s and %s/%s, and neither has ended yet",
    "a pod has ended, and kubelet does not know it yet", "nothing: kubelet tries again");
SL_ERROR(FRACTION_POD_UNKNOWN, "the pod that has device %s is not known to the API server, or has ended",
    "the API server does not answer, or the right to read pods is missing",
    "`deploy/components/fractional/rbac.yaml`; kubelet tries again");
SL_ERROR_ALSO(FRACTION_POD_UNREAD, "cannot read pod %s/%s: %.300s");
SL_ERROR_ALSO(FRACTION_POD_GONE, "pod %s/%s is gone");
SL_ERROR(FRACTION_OWNER_UNKNOWN, "cannot find the pod that has device %s: %.300s",
    "the PodResources API of kubelet does not answer", "`--pod-resources-socket`; kubelet tries again");
SL_ERROR(FRACTION_INIT_ALONE,
    "kubelet lists no container with device %s: an init container can have a fraction only if a container of the same "
    "pod has a fraction",
    "only an init container asks for a GPU", "ask for it in a container of the pod, too");
SL_ERROR(FRACTION_SLOT_HELD,
    "slot %s is still held by its earlier pod %s/%s: the arbiter does not answer, see the log of the agent",
    "the arbiter does not answer", "the log of the agent; kubelet tries again");
SL_ERROR(FRACTION_STARTING, "an earlier start of the same container is still in progress",
    "the agent starts or ends", "nothing: kubelet tries again");
SL_ERROR_ALSO(FRACTION_NO_ARBITER, "the arbiter does not answer yet: see the log of the agent");
SL_ERROR_ALSO(FRACTION_STOPPING, "the agent is stopping");
SL_ERROR(FRACTION_NO_FILES, "the files of the driver are not found yet: see the log of the agent",
    "the driver root has no libraries yet", "install the driver; `--driver-root`");
SL_ERROR(FRACTION_NO_DEVICE, "\"%.80s\" is not the id of a device",
    "an id that kubelet should not have", "delete the pod");
SL_ERROR(FRACTION_NEEDS_API,
    "fractions need the API server, which stores the promise of a pod: run sluiced without --no-api",
    "`--no-api`", "omit `--no-api`");
SL_ERROR(FRACTION_DIR_LONG, "the name of the arbiter's directory, %s, is too long",
    "unix sockets allow 107 bytes", "a shorter `--arbiter-dir`");

#endif
