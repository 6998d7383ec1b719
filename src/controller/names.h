/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the thousands of node names in an extender's request, without a JSON object for each. */
#ifndef SLUICE_CONTROLLER_NAMES_H
#define SLUICE_CONTROLLER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct sl_names {
    const char **name; /* into text */
    size_t count;
    char *text; /* a copy of the request */
    char *rest; /* the request with null instead of the names, for an ordinary parser */
};

/* False: there is no such list, or it is not plain (escapes, elements that are no strings). Then the ordinary parser
 * must read the whole request, and report errors. */
bool sl_names_scan(const char *body, size_t size, struct sl_names *ret);
void sl_names_free(struct sl_names *names);

#endif
