/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from outside the file: the defaults below the file, the environment and the command line above. */
#include <string.h>

#include "base/words.h"
#include "config/schema.h"

static struct sl_scalar outside(const char *text, const char *dashes, const char *from)
{
    struct sl_scalar s = {.text = text, .len = strlen(text), .outside = true};
    (void)snprintf(s.at.from, sizeof(s.at.from), "%s%s", dashes, from);
    return s;
}

int sl_layer_defaults(struct sl_draft *d, struct sl_err *err)
{
    for (size_t i = 0; i < sl_schema_count; i++) {
        if (!sl_schema[i].initial)
            continue;
        struct sl_scalar s = outside(sl_schema[i].initial, "", "");
        int rc = sl_value_set(d, &sl_schema[i], d, &s, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

const char *sl_config_variable(char *const *environ_list, const char *name)
{
    size_t n = strlen(name);
    for (; environ_list && *environ_list; environ_list++)
        if (strncmp(*environ_list, name, n) == 0 && (*environ_list)[n] == '=')
            return *environ_list + n + 1;
    return NULL;
}

/* An empty variable counts as not set: charts write empty variables for "not set". */
int sl_layer_environment(struct sl_draft *d, char *const *environ_list, struct sl_err *err)
{
    char name[64];
    for (size_t i = 0; i < sl_schema_count; i++) {
        const char *value = NULL;
        for (size_t n = 0;
             !(value && value[0]) && sl_schema_env(&sl_schema[i], n, name, sizeof(name)); n++)
            value = sl_config_variable(environ_list, name);
        if (!value || !value[0])
            continue;
        struct sl_scalar s = outside(value, "", name);
        int rc = sl_value_set(d, &sl_schema[i], d, &s, err);
        if (rc < 0)
            return rc;
        d->origin[i] = s.at;
    }
    return 0;
}

bool sl_config_closest_flag(const char *name, const char *const *more, char *buf, size_t size)
{
    enum { MOST = 160 };
    char flag[MOST][48];
    const char *words[MOST + 1] = {NULL};
    size_t count = 0;
    for (; *more && count < MOST; more++)
        words[count++] = *more;
    for (size_t i = 0; i < sl_schema_count; i++)
        for (size_t n = 0;
             count < MOST && sl_schema_name(sl_schema[i].flag, n, flag[count], sizeof(flag[0]));
             n++, count++)
            words[count] = flag[count];
    const char *best = sl_word_closest(name, words);
    if (best)
        (void)snprintf(buf, size, "%s", best);
    return best != NULL;
}

int sl_layer_flags(struct sl_draft *d, const struct sl_config_override *flags, size_t count,
                   struct sl_err *err)
{
    bool given[SL_SCHEMA_MAX] = {false};
    for (size_t f = 0; f < count; f++) {
        const struct sl_schema_row *row = sl_schema_flag(flags[f].flag);
        size_t i = sl_schema_index(row);
        struct sl_scalar s = outside(flags[f].value, "--", flags[f].flag);
        /* A list may come in several flags; of any other setting the last flag counts. */
        int rc = given[i] && sl_value_is_list(row->type) ? sl_value_add(d, row, d, &s, err)
                                                         : sl_value_set(d, row, d, &s, err);
        if (rc < 0)
            return rc;
        d->origin[i] = s.at;
        given[i] = true;
    }
    return 0;
}

bool sl_config_is_flag(const char *name, bool *ret_takes_value)
{
    const struct sl_schema_row *row = sl_schema_flag(name);
    if (row && ret_takes_value)
        *ret_takes_value = row->type != SL_TYPE_BOOL;
    return row != NULL;
}
