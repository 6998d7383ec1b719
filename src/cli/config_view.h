/* SPDX-License-Identifier: Apache-2.0 */
/* How `sluice config check` shows a configuration and what a node makes of it. */
#ifndef SLUICE_CLI_CONFIG_VIEW_H
#define SLUICE_CLI_CONFIG_VIEW_H

#include "config/plan.h"

struct sl_config_view {
    const char *file; /* for messages */
    const struct sl_config *config;
    const struct sl_inventory *inv; /* NULL: no GPUs can be read here */
    const struct sl_plan *plan;     /* NULL likewise */
    const char *no_gpus;            /* why not */
};

/* YAML; what is not configuration is a comment, so that the whole can be saved as a file. */
void sl_config_view_text(const struct sl_config_view *v, FILE *out);
void sl_config_view_json(const struct sl_config_view *v, FILE *out);

#endif
