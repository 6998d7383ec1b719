/* SPDX-License-Identifier: Apache-2.0 */
/* A share in JSON. One table says what each form calls a field and in which unit it is written. Texts are UTF-8, and
 * daemons have jansson abort when there is no memory: writing does not fail. */
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
    SL_SHARE_CONTAINER = 4, /* … and what is said once for all GPUs of the container */
    SL_SHARE_CONFIG = 8,    /* a ShareConfig, see below; cores.limit apart */
    SL_SHARE_KEPT = 16,     /* a device in the agent's checkpoint */
};

/* The fields of this form into the object, which it returns. */
json_t *sl_share_write(const struct sl_share *share, enum sl_share_form form, json_t *object);
/* The other way round: what the object does not say stays as it is in *share. */
int sl_share_read(const json_t *object, enum sl_share_form form, struct sl_share *share,
                  struct sl_err *err) SL_MUST_CHECK;

/* A claim says the memory and the cores of a share as capacity, and the rest in a ShareConfig.
 * One key of it, laid over *share. */
int sl_share_config_key(const char *key, const json_t *value, struct sl_share *share,
                        struct sl_err *err) SL_MUST_CHECK;
/* NULL: a share has nothing to say in one. */
json_t *sl_share_config_write(const struct sl_share *share);
/* One of the words, by its place among them. */
int sl_share_config_word(const json_t *value, const char *key, const char *const *words,
                         unsigned *ret, struct sl_err *err) SL_MUST_CHECK;

#endif
