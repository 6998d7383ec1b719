/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialects: what pods written for HAMi, Volcano vGPU, gpushare and KubeShare say, read into one request.
 * One table of words; a new dialect is a few rows. Pure.
 */
#ifndef SLUICE_CONTROLLER_DIALECT_H
#define SLUICE_CONTROLLER_DIALECT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "controller/request.h"

enum sl_dialect { SL_DIALECT_HAMI, SL_DIALECT_VOLCANO, SL_DIALECT_GPUSHARE };

enum sl_dialect_answer {
    SL_DIALECT_NOTHING, /* asks for no GPU, or wants to be left alone */
    SL_DIALECT_PLAIN,   /* whole GPUs by nvidia.com/gpu and nothing else */
    SL_DIALECT_ASKS,
};

/* Negative: the pod is to be refused, err is the sentence that says what to write instead. ret has the
 * request unless nothing is asked for. */
int sl_dialect_read(const json_t *pod, struct sl_request *ret, struct sl_err *err) SL_MUST_CHECK;

/* On the device plugin's path: will its containers get what they ask for? slot: the resource each must have in its
 * limits; NULL: not looked at, they are about to get it. Negative: refuse, as above. */
int sl_dialect_check_slots(const json_t *pod, const struct sl_request *request, const char *slot,
                           struct sl_err *err) SL_MUST_CHECK;

/* The container of a part. */
const json_t *sl_dialect_container(const json_t *pod, const struct sl_request_part *part);

/* Is this one of the resources in the table? Those are taken out of a container when it is translated. */
bool sl_dialect_resource(const char *name);

/* Returns whether this is the scheduler of a dialect. Where Sluice runs, that scheduler does
 * not. */
bool sl_dialect_scheduler(const char *name);

#define SL_DIALECT_WHOLE_RESOURCE "nvidia.com/gpu"

#endif
