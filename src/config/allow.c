/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.fractional.allow: who may ask for what. */
#include "config/config.h"

/* yaml.c tells entries apart by their size. */
_Static_assert(sizeof(struct sl_config_allow_space) != sizeof(struct sl_config_shared),
               "see walk_items");

#define MORE(field)                                                                                \
    do {                                                                                           \
        if (more->field > allow->field)                                                            \
            allow->field = more->field;                                                            \
    } while (0)

void sl_config_allow_add(struct sl_config_allow *allow, const struct sl_config_allow *more)
{
    /* How far is said of `free` only: an entry that does not allow it says nothing by its figure. */
    bool free_before = allow->resize == SL_ALLOW_FREE, free_now = more->resize == SL_ALLOW_FREE;
    unsigned to = more->resize_to ? more->resize_to : 100;
    if (free_now && (!free_before || to > allow->resize_to))
        allow->resize_to = to;
    allow->strategies |= more->strategies;
    MORE(priority);
    MORE(burst);
    MORE(resize);
}

struct sl_config_allow sl_config_allowed(const struct sl_config *config, const char *name_space)
{
    struct sl_config_allow allow = SL_CONFIG_ALLOW_DEFAULT;
    if (!config)
        return allow;
    const struct sl_config_fractional *f = &config->fractional;
    allow = f->allow;
    const struct sl_config_allow_space *space = f->allow_spaces.item;
    for (size_t i = 0; i < f->allow_spaces.count; i++)
        if (sl_config_match(space[i].name, name_space))
            sl_config_allow_add(&allow, &space[i].allow);
    return allow;
}
