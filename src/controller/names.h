/* SPDX-License-Identifier: Apache-2.0 */
/* The thousands of node names in an extender's request, read without making an object of each. */
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

/* False: there is no such list, or it is not plain (escapes, other than strings in it): then the ordinary parser
 * has to read it all, and to say what is wrong. */
bool sl_names_scan(const char *body, size_t size, struct sl_names *ret);
void sl_names_free(struct sl_names *names);

#endif
