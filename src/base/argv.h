/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of a command line: --name, --name=value, or --name value in two words. */
#ifndef SLUICE_BASE_ARGV_H
#define SLUICE_BASE_ARGV_H

#include <stdbool.h>
#include <stddef.h>

struct sl_option {
    char name[64];     /* without the dashes */
    const char *value; /* the text after '=' in the same word; NULL: there is no '=' */
};

/* False: the word is no option, or its name is too long for any option. */
bool sl_option_split(const char *word, struct sl_option *ret);

/* The value of the option at argv[*at]: in the same word, or the next word (*at moves there). A next word that is an
 * option itself is no value. NULL: there is no value. */
const char *sl_option_value(const struct sl_option *o, int argc, char **argv, int *at);

#endif
