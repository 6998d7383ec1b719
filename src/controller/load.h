/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of strangers, read with a bound on memory: a body of 8 MiB that is all brackets becomes a tree of 700 MiB. */
#ifndef SLUICE_CONTROLLER_LOAD_H
#define SLUICE_CONTROLLER_LOAD_H

#include <jansson.h>

#include "base/err.h"

#define SL_LOAD_TREE_MAX (96ull << 20) /* a well-meant text of 8 MiB needs about half of it */

/* NULL with err set: it is no JSON, or too much of it. flags are jansson's. */
json_t *sl_load_json(const char *text, size_t size, size_t flags, struct sl_err *err);

#endif
