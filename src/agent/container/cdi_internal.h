/* SPDX-License-Identifier: Apache-2.0 */
/* A CDI spec in the making; shared by the files of the CDI part. */
#ifndef SLUICE_AGENT_CONTAINER_CDI_INTERNAL_H
#define SLUICE_AGENT_CONTAINER_CDI_INTERNAL_H

#include <jansson.h>

#include "agent/container/cdi.h"

/* A spec of that kind without devices. */
json_t *sl_cdi_spec_new(const char *kind);
/* Devices are unique by name, and have at least one edit: runtimes refuse the whole file otherwise. */
int sl_cdi_spec_device(json_t *spec, const char *name, const struct sl_edits *edits,
                       struct sl_err *err) SL_MUST_CHECK;
int sl_cdi_spec_common(json_t *spec, const struct sl_edits *edits,
                       struct sl_err *err) SL_MUST_CHECK;
/* Replaces dir/file with the spec unless it says so already. */
int sl_cdi_spec_write(const char *dir, const char *file, const json_t *spec,
                      struct sl_err *err) SL_MUST_CHECK;
/* May a device be called this? */
bool sl_cdi_name_valid(const char *name);

static inline void sl_cleanup_json(json_t **j)
{
    json_decref(*j);
}

#endif
