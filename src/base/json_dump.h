/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson's json_dumps() silently leaves characters out when memory runs short (2.14). This function returns the whole
 * text or none. For rooms that use jansson; base itself does not.
 */
#ifndef SLUICE_BASE_JSON_DUMP_H
#define SLUICE_BASE_JSON_DUMP_H

#include <jansson.h>
#include <stdlib.h>

/* To be freed; NULL: out of memory, or not representable in JSON. */
static inline char *sl_json_dump(const json_t *json, size_t flags)
{
    size_t size = json_dumpb(json, NULL, 0, flags);
    char *text = size ? malloc(size + 1) : NULL;
    if (text && json_dumpb(json, text, size, flags) != size) {
        free(text);
        return NULL;
    }
    if (text)
        text[size] = '\0';
    return text;
}

#endif
