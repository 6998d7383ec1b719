/* SPDX-License-Identifier: Apache-2.0 */
/* Reads JSON of strangers with a limit on memory: a body of 8 MiB that is all brackets becomes a tree of 700 MiB. */
#ifndef SLUICE_CONTROLLER_LOAD_H
#define SLUICE_CONTROLLER_LOAD_H

#include <jansson.h>

#include "base/err.h"

#define SL_LOAD_TREE_MAX (96ull << 20) /* an honest text of 8 MiB needs about half of it */

/* NULL with err set: the text is no JSON, or its tree would be too large. flags are jansson's. */
json_t *sl_load_json(const char *text, size_t size, size_t flags, struct sl_err *err);

#endif
