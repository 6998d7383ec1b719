/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a request may mean: those that it names, or those among which the arbiter may choose. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter/errors.h"

static int find_gpu(struct arbiter *a, const char *asked, uint32_t *ret, struct sl_err *err)
{
    char *end;
    unsigned long index = strtoul(asked, &end, 10);
    bool number = *asked && *end == '\0' && asked[0] != '-' && asked[0] != '+';
    for (uint32_t i = 0; i < a->gpu_count; i++) {
        if (number ? a->gpu[i].index == index && a->gpu[i].instance == UINT32_MAX
                   : strcmp(a->gpu[i].uuid, asked) == 0) {
            *ret = i;
            return 0;
        }
    }
    char have[200] = "";
    for (uint32_t i = 0; i < a->gpu_count && strlen(have) < 150; i++)
        (void)snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s%u (%s)", i ? ", " : "",
                       a->gpu[i].index, a->gpu[i].uuid);
    return sl_err_set(err, -ENODEV, SL_E_GPU_UNKNOWN, asked, have);
}

/* All of them are meant. */
static int list_named(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                      struct sl_err *err)
{
    if (ask->gpu_count > SL_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_TENANT_GPUS, SL_MAX_GPUS);
    *ret = (struct candidates){.count = ask->gpu_count ? ask->gpu_count : 1};
    ret->wanted = ret->count;
    for (uint32_t i = 0; i < ask->gpu_count; i++) {
        char name[SL_UUID_MAX];
        (void)snprintf(name, sizeof(name), "%.63s", ask->gpu[i]);
        int rc = find_gpu(a, name, &ret->gpu[i], err);
        if (rc < 0)
            return rc;
        for (uint32_t j = 0; j < i; j++)
            if (ret->gpu[j] == ret->gpu[i])
                return sl_err_set(err, -EINVAL, SL_E_GPU_TWICE, a->gpu[ret->gpu[i]].index);
    }
    return 0;
}

/* As CUDA reads CUDA_VISIBLE_DEVICES: a UUID may be cut short. */
static bool find_visible(struct arbiter *a, const char *asked, uint32_t *ret)
{
    size_t n = strlen(asked);
    if (find_gpu(a, asked, ret, NULL) == 0)
        return true;
    for (uint32_t i = 0; n > 4 && i < a->gpu_count; i++)
        if (strncmp(a->gpu[i].uuid, asked, n) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

/* A process can use one MIG instance and nothing beside it: several GPUs are several cards. Returns whether that leaves
 * the GPU out. */
static bool add(const struct arbiter *a, struct candidates *c, uint32_t gpu)
{
    if (c->wanted > 1 && a->gpu[gpu].instance != UINT32_MAX)
        return true;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->gpu[i] == gpu)
            return false; /* named before */
    c->gpu[c->count++] = gpu;
    return false;
}

/* Some of them are meant: of those named, or of all. */
static int list_any(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                    struct sl_err *err)
{
    uint32_t named = ask->gpu_count < SL_MAX_GPUS ? ask->gpu_count : SL_MAX_GPUS, known = 0,
             gpu = 0;
    char name[SL_UUID_MAX] = "";
    bool instances = false;
    *ret = (struct candidates){.any = true, .wanted = sl_lease_wanted(ask->flags)};
    if (ret->wanted > SL_MAX_GPUS)
        return sl_err_set(err, -EINVAL, SL_E_TENANT_GPUS, SL_MAX_GPUS);
    for (; known < named; known++) {
        (void)snprintf(name, sizeof(name), "%.63s", ask->gpu[known]);
        if (!find_visible(a, name, &gpu))
            break;
        instances |= add(a, ret, gpu);
    }
    if (named && known == 0)
        return find_gpu(a, name, &gpu, err);
    for (gpu = 0; !named && gpu < a->gpu_count; gpu++)
        instances |= add(a, ret, gpu);
    if (ret->wanted <= ret->count)
        return 0;
    if (instances)
        return sl_err_set(err, -EINVAL, SL_E_GPUS_MIG, ret->wanted, ret->count);
    if (named)
        return sl_err_set(err, -EINVAL, SL_E_GPUS_VISIBLE, ret->wanted, ret->count);
    return sl_err_set(err, -EINVAL, SL_E_GPUS_FEW, ret->wanted, ret->count);
}

int sl_arb_candidates(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                      struct sl_err *err)
{
    return ask->flags & SL_LEASE_ANY ? list_any(a, ask, ret, err) : list_named(a, ask, ret, err);
}

int sl_arb_wants(struct arbiter *a, const struct sl_msg_lease *ask, struct sl_line_gpus *ret,
                 uint32_t *ret_need, struct sl_err *err)
{
    struct candidates from;
    int rc = sl_arb_candidates(a, ask, &from, err);
    if (rc < 0)
        return rc;
    *ret = (struct sl_line_gpus){{0}};
    *ret_need = from.wanted;
    for (uint32_t i = 0; i < from.count; i++)
        sl_line_gpus_add(ret, from.gpu[i]);
    return 0;
}
