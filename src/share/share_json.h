/* SPDX-License-Identifier: Apache-2.0 */
/* A share in JSON. One table has each field's name and unit in each form. Texts are UTF-8, and in daemons jansson
 * aborts when there is no memory: writing does not fail. */
#ifndef SLUICE_SHARE_SHARE_JSON_H
#define SLUICE_SHARE_SHARE_JSON_H

#include <jansson.h>

#include "share/share.h"

#define SL_SHARE_API_VERSION "gpu.sluice.io/v1alpha1"
#define SL_SHARE_KIND        "ShareConfig"
#define SL_SHARE_MIB_MAX     (64u << 20)

enum sl_share_form {
    SL_SHARE_REQUEST =
        1,            /* a part of the annotation sluice.io/request: what a container asks for */
    SL_SHARE_GPU = 2, /* a GPU of a container in the annotation sluice.io/lease */
    SL_SHARE_CONTAINER = 4, /* … and the values for all GPUs of the container */
    SL_SHARE_CONFIG = 8,    /* a ShareConfig, see below; cores.limit apart */
    SL_SHARE_KEPT = 16,     /* a device in the agent's checkpoint */
};

/* Writes the fields of this form into the object, and returns it. */
json_t *sl_share_write(const struct sl_share *share, enum sl_share_form form, json_t *object);
/* The reverse: a field that the object does not have stays as it is in *share. */
int sl_share_read(const json_t *object, enum sl_share_form form, struct sl_share *share,
                  struct sl_err *err) SL_MUST_CHECK;

/* A claim has the memory and the cores of a share as capacity, and the rest in a ShareConfig. Reads one key of it over
 * *share. */
int sl_share_config_key(const char *key, const json_t *value, struct sl_share *share,
                        struct sl_err *err) SL_MUST_CHECK;
/* NULL: the share needs no ShareConfig. */
json_t *sl_share_config_write(const struct sl_share *share);
/* The index of the value among the words. */
int sl_share_config_word(const json_t *value, const char *key, const char *const *words,
                         unsigned *ret, struct sl_err *err) SL_MUST_CHECK;

#endif
