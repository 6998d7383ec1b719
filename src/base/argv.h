/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command line as people write them: --name, --name=value, or --name value in two words. */
#ifndef SLUICE_BASE_ARGV_H
#define SLUICE_BASE_ARGV_H

#include <stdbool.h>
#include <stddef.h>

struct sl_option {
    char name[64];     /* without the dashes */
    const char *value; /* what follows '=' in the same word; NULL: there is no '=' */
};

/* False: the word is no option, or its name is longer than any name is. */
bool sl_option_split(const char *word, struct sl_option *ret);

/* The value of the option at argv[*at], which needs one: in its own word, or the next word, which *at moves to. A next
 * word that is an option itself is no value. NULL: there is none. */
const char *sl_option_value(const struct sl_option *o, int argc, char **argv, int *at);

#endif
