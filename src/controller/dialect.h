/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialects: reads the requests of pods written for HAMi, Volcano vGPU, gpushare and KubeShare into one form. One table
 * of words; a new dialect is a few rows. Pure.
 */
#ifndef SLUICE_CONTROLLER_DIALECT_H
#define SLUICE_CONTROLLER_DIALECT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "controller/request.h"

enum sl_dialect { SL_DIALECT_HAMI, SL_DIALECT_VOLCANO, SL_DIALECT_GPUSHARE };

enum sl_dialect_answer {
    SL_DIALECT_NOTHING, /* asks for no GPU, or says that Sluice must not touch it */
    SL_DIALECT_PLAIN,   /* whole GPUs by nvidia.com/gpu and nothing else */
    SL_DIALECT_ASKS,
};

/* Negative: refuse the pod; err says what to write instead. ret has the request, unless the pod asks for nothing. */
int sl_dialect_read(const json_t *pod, struct sl_request *ret, struct sl_err *err) SL_MUST_CHECK;

/* For the device plugin's path: will the containers get the GPUs they ask for? slot: the resource that each must have
 * in its limits; NULL: do not check, the webhook is about to add it. Negative: refuse, as above. */
int sl_dialect_check_slots(const json_t *pod, const struct sl_request *request, const char *slot,
                           struct sl_err *err) SL_MUST_CHECK;

/* The container of a part. */
const json_t *sl_dialect_container(const json_t *pod, const struct sl_request_part *part);

/* Is this a resource of the table? A translated container loses these resources. */
bool sl_dialect_resource(const char *name);

/* Is this the scheduler of a dialect? Where Sluice runs, that scheduler does not. */
bool sl_dialect_scheduler(const char *name);

/* Calls warn with a sentence for each word of the pod that has no effect here. For pods that ask for a GPU. */
void sl_dialect_warn(const json_t *pod, void (*warn)(void *data, const char *text), void *data);

#define SL_DIALECT_WHOLE_RESOURCE "nvidia.com/gpu"
#define SL_DIALECT_MODE           "nvidia.com/vgpu-mode"

#endif
