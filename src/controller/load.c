/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/load.h"

#include "controller/errors.h"

#include <errno.h>

/* An upper limit for the bytes that the parsed tree of this text takes. */
static unsigned long long cost_of(const char *text, size_t size)
{
    /* The bytes that jansson 2.14 allocates for each of these characters on 64 bits, with malloc's overhead. Characters
     * inside strings count too: then the figure is too high, but honest texts stay below the limit. */
    static const unsigned short each[256] = {
        ['{'] = 240, ['['] = 144, [':'] = 112, [','] = 64, ['"'] = 48};
    unsigned long long cost = size;
    for (size_t i = 0; i < size; i++)
        cost += each[(unsigned char)text[i]];
    return cost;
}

json_t *sl_load_json(const char *text, size_t size, size_t flags, struct sl_err *err)
{
    json_error_t bad;
    if (cost_of(text, size) > SL_LOAD_TREE_MAX) {
        (void)sl_err_set(err, -EMSGSIZE, SL_E_JSON_LARGE, SL_LOAD_TREE_MAX >> 20);
        return NULL;
    }
    json_t *json = json_loadb(text, size, flags, &bad);
    if (!json)
        (void)sl_err_set(err, -EINVAL, SL_E_JSON_BAD, bad.text);
    return json;
}
