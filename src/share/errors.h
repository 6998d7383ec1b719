/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_SHARE_ERRORS_H
#define SLUICE_SHARE_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("amounts");

SL_ERROR(PRIORITY_UNKNOWN, "priority \"%.40s\" is not known: write high, normal or low",
    "not one of the three words", "`high`, `normal` or `low`");

SL_ERROR_PART("dra");

SL_ERROR(SHARE_WORD, "ShareConfig: %s \"%.40s\" is not known: write %s, %s or %s",
    "the configuration in the claim or the class has a mistake",
    "write what the message says; a claim cannot be changed: delete the pod and its claim");
SL_ERROR_ALSO(SHARE_CORES,
    "ShareConfig: cores must be a mapping: write `cores: {limit: 100}`; the share itself is the capacity of the "
    "request");
SL_ERROR_ALSO(SHARE_CORES_KEY, "ShareConfig: cores.%.40s is not known: cores has the key limit only");
SL_ERROR_ALSO(SHARE_CORES_LIMIT,
    "ShareConfig: cores.limit must be a whole percentage of one GPU from 1 to 100: write for example `limit: 100`");
SL_ERROR_ALSO(SHARE_KEY,
    "ShareConfig: %.40s is not known: the keys are %sand cores.limit; memory and cores of the share are the capacity "
    "of the request");
SL_ERROR(RESIZE_BAD, "%s: \"%.60s\" is not valid: write for example memory=12Gi,cores=40 or cores=30:100",
    "the annotation has a mistake", "`memory=12Gi,cores=40`");
SL_ERROR(FRACTION_GPUS, "a container cannot have more than %d GPUs",
    "a promise of more GPUs than a tenant can have", "fewer GPUs");

SL_ERROR_PART("annotations");

SL_ERROR(PROMISE_WORD, "%s \"%.40s\" is not known: write %s, %s or %s",
    "another program wrote the annotation, or an agent of another version",
    "the node takes no new pods until the annotation can be read: remove it");
SL_ERROR_ALSO(PROMISE_LARGE, "the annotation is longer than Kubernetes allows");
SL_ERROR_ALSO(PROMISE_JSON, "the annotation is not JSON: %.100s");
SL_ERROR_ALSO(PROMISE_FIELD, "%s is missing, empty or too long");
SL_ERROR_ALSO(PROMISE_GPU_TWICE, "GPU %s is listed twice");
SL_ERROR_ALSO(PROMISE_NODE_GPUS, "the node has more than %d GPUs");
SL_ERROR_ALSO(PROMISE_GPU_MEMORY, "GPU %s has no memory");
SL_ERROR_ALSO(PROMISE_LIST, "the annotation is not a list of GPUs");
SL_ERROR_ALSO(PROMISE_HAMI_DEVICE, "device %zu is not in the format of HAMi");
SL_ERROR_ALSO(PROMISE_TEXT_LONG, "the annotation would be too long");
SL_ERROR_ALSO(PROMISE_POD_GPUS, "the pod has more than %d GPUs");
SL_ERROR_ALSO(PROMISE_CONTAINERS, "the pod has more than %d containers");
SL_ERROR_ALSO(PROMISE_CONTAINER_LIST, "container %s has no list of GPUs");
SL_ERROR_ALSO(PROMISE_VERSION, "version %u of the annotation is not known here");
SL_ERROR_ALSO(PROMISE_CONTAINERS_LIST, "\"containers\" is not a list");
SL_ERROR_ALSO(PROMISE_HAMI_POD, "%s is not in the format of HAMi, UUID,NVIDIA,MiB,cores:;");

#endif
