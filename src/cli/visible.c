/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES: the GPUs among which the arbiter may choose. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/errors.h"
#include "cli/world.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES"

/* The names in the variable, as CUDA reads them, up to the first that is none. */
static uint32_t read_names(const char *text, char names[SL_MAX_GPUS][SL_UUID_MAX])
{
    uint32_t count = 0;
    for (const char *p = text; p && count < SL_MAX_GPUS;) {
        p += strspn(p, " ");
        size_t n = strcspn(p, ", ");
        if (n == 0 || n >= SL_UUID_MAX || *p == '-')
            break; /* CUDA sees nothing from here on */
        char *name = names[count++];
        memcpy(name, p, n);
        name[n] = '\0';
        p = strchr(p, ',');
        p += p ? 1 : 0;
    }
    return count;
}

int sl_world_visible(struct sl_msg_lease *lease, struct sl_err *err)
{
    const char *text = getenv(VARIABLE);
    if (lease->gpu_count > 0)
        return 0;
    lease->flags |= SL_LEASE_ANY;
    lease->gpu_count = read_names(text, lease->gpu);
    if (text && lease->gpu_count == 0)
        return sl_err_set(err, -ENODEV, SL_E_VISIBLE_DEVICES_EMPTY, text);
    return 0;
}

/* By its index, which a MIG instance does not have, or by its UUID or the beginning of that. */
static bool means(const char *name, const struct sl_msg_gpu *g)
{
    char index[16];
    (void)snprintf(index, sizeof(index), "%u", g->index);
    if (strcmp(name, index) == 0)
        return strncmp(g->uuid, "MIG-", 4) != 0;
    return strlen(name) > 4 && strncmp(g->uuid, name, strlen(name)) == 0;
}

void sl_world_remark_hidden(const struct sl_msg_lease *lease, const struct sl_msg_created *tenant,
                            const struct sl_client_status *status, const char *verb)
{
    char names[SL_MAX_GPUS][SL_UUID_MAX];
    const char *text = getenv(VARIABLE);
    uint32_t count = read_names(text, names);
    if (!text || (lease->flags & SL_LEASE_ANY))
        return;
    for (uint32_t i = 0; i < tenant->gpu_count; i++)
        for (size_t g = 0; g < status->gpu_count; g++) {
            bool allowed = strcmp(status->gpu[g].uuid, tenant->gpu[i]) != 0;
            for (uint32_t k = 0; k < count; k++)
                allowed = allowed || means(names[k], &status->gpu[g]);
            if (allowed)
                continue;
            sl_cli_complain(SL_E_GPU_HIDDEN, verb, status->gpu[g].index, text);
            return;
        }
}
