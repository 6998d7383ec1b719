/* SPDX-License-Identifier: Apache-2.0 */
#include "base/argv.h"

#include <stdio.h>
#include <string.h>

bool sl_option_split(const char *word, struct sl_option *ret)
{
    size_t n = strncmp(word, "--", 2) == 0 ? strcspn(word + 2, "=") : 0;
    if (n == 0 || n >= sizeof(ret->name))
        return false;
    (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, word + 2);
    ret->value = word[2 + n] ? word + 2 + n + 1 : NULL;
    return true;
}

const char *sl_option_value(const struct sl_option *o, int argc, char **argv, int *at)
{
    if (o->value)
        return o->value;
    if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
        return NULL;
    return argv[++*at];
}
