/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of JSON from outside. For rooms that use jansson; base itself does not. */
#ifndef SLUICE_BASE_JSON_READ_H
#define SLUICE_BASE_JSON_READ_H

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/errors.h"
#include "base/quantity.h"

/* Never NULL: "" where there is no such text. */
static inline const char *sl_jget_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A whole number from 0 to max, at most UINT32_MAX; `missing` where the key is absent. */
static inline int sl_jget_number(const json_t *object, const char *key, json_int_t missing,
                                 json_int_t max, uint32_t *ret, struct sl_err *err)
{
    const json_t *value = json_object_get(object, key);
    json_int_t n = value ? json_integer_value(value) : missing;
    if ((value && !json_is_integer(value)) || n < 0 || n > max)
        return sl_err_set(err, -EINVAL, SL_E_JSON_NUMBER, key, (long long)max);
    *ret = (uint32_t)n;
    return 0;
}

/* A quantity of the API server (or a JSON number), times 10^decimals. -EINVAL: no quantity, or beyond INT64_MAX. */
static inline int sl_jget_quantity(const json_t *value, int decimals, uint64_t *ret)
{
    const char *text = json_string_value(value);
    char number[24];
    if (json_is_integer(value)) {
        (void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        text = number;
    }
    return text && sl_quantity_parse(text, decimals, ret) == 0 ? 0 : -EINVAL;
}

/* metadata.annotations[key] of an object of the API server; NULL: absent. */
static inline const char *sl_jget_note(const json_t *object, const char *key)
{
    const json_t *notes = json_object_get(json_object_get(object, "metadata"), "annotations");
    return json_string_value(json_object_get(notes, key));
}

#endif
