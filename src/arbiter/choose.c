/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs a tenant gets: those it names, or the first on which what it asks for can be had. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter/errors.h"
#include "base/units.h"
#include "policy/turns.h"

/* The GPUs that a request may mean. */
struct candidates {
    uint32_t gpu[SL_ARB_MAX_GPUS];
    uint32_t count;
};

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

/* One of them is meant: of those named, or of all. */
static int list_any(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                    struct sl_err *err)
{
    uint32_t named = ask->gpu_count < SL_MAX_GPUS ? ask->gpu_count : SL_MAX_GPUS;
    char name[SL_UUID_MAX] = "";
    ret->count = 0;
    for (; named && ret->count < named; ret->count++) {
        (void)snprintf(name, sizeof(name), "%.63s", ask->gpu[ret->count]);
        if (!find_visible(a, name, &ret->gpu[ret->count]))
            break;
    }
    if (named && ret->count == 0)
        return find_gpu(a, name, &ret->gpu[0], err);
    for (; !named && ret->count < a->gpu_count; ret->count++)
        ret->gpu[ret->count] = ret->count;
    return 0;
}

static int list(struct arbiter *a, const struct sl_msg_lease *ask, struct candidates *ret,
                struct sl_err *err)
{
    return ask->flags & SL_LEASE_ANY ? list_any(a, ask, ret, err) : list_named(a, ask, ret, err);
}

static uint32_t promised_permille(struct arbiter *a, uint32_t gpu, const struct tenant *except)
{
    uint32_t sum = 0;
    for (struct tenant *t = a->tenants; t; t = t->next)
        for (uint32_t i = 0; i < t->gpu_count && t != except; i++)
            if (t->gpu[i] == gpu)
                sum += atomic_load(&t->lease.page->cores_request_permille);
    return sum;
}

static uint32_t permille_left(struct arbiter *a, uint32_t gpu, const struct tenant *except)
{
    uint32_t others = promised_permille(a, gpu, except);
    return others < 1000 ? 1000 - others : 0;
}

int sl_arb_check_cores(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                       struct sl_err *err)
{
    bool divided = ask->fields & SL_FIELD_CORES;
    int rc = sl_arb_reach_check(a, t, divided, err);
    if (rc < 0 || !divided)
        return rc;
    if (ask->cores_request_permille == 0 || ask->cores_limit_permille > 1000 ||
        ask->cores_request_permille > ask->cores_limit_permille)
        return sl_err_set(err, -EINVAL, SL_E_CORES_RANGE);
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        uint32_t others = promised_permille(a, t->gpu[i], t);
        char left[16], want[16];
        if (others + ask->cores_request_permille > 1000)
            return sl_err_set(err, -ENOSPC, SL_E_GPU_TIME_LEFT, a->gpu[t->gpu[i]].index,
                              sl_format_cores(others < 1000 ? 1000 - others : 0,
                                              others < 1000 ? 1000 - others : 0, left,
                                              sizeof(left)),
                              sl_format_cores(ask->cores_request_permille,
                                              ask->cores_request_permille, want, sizeof(want)));
    }
    return 0;
}

static int none_fits(struct arbiter *a, const struct tenant *t, const uint32_t *gpu, uint32_t count,
                     struct sl_err *err)
{
    char text[240] = "";
    for (uint32_t i = 0; i < count && strlen(text) < 180; i++) {
        const struct gpu *g = &a->gpu[gpu[i]];
        uint32_t left = permille_left(a, gpu[i], t);
        char memory[32], cores[16];
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "%sGPU %u has %s and %s %%", i ? ", " : "", g->index,
                       sl_format_bytes(sl_arb_grant_left(a, gpu[i], t), memory, sizeof(memory)),
                       sl_format_cores(left, left, cores, sizeof(cores)));
    }
    return sl_err_set(err, -ENOSPC, SL_E_NO_GPU_HAS_ROOM, count, text);
}

/* Can the rest of what is asked for be had on the tenant's GPUs? */
static int check_room(struct arbiter *a, const struct sl_msg_lease *ask, const struct tenant *t,
                      struct sl_err *err)
{
    uint64_t limit[SL_MAX_GPUS];
    int rc = sl_arb_grant_memory(a, ask, t, limit, err);
    return rc < 0 ? rc : sl_arb_check_cores(a, ask, t, err);
}

static int choose_fitting(struct arbiter *a, const struct sl_msg_lease *ask,
                          const struct candidates *from, const struct sl_line_gpus *barred,
                          struct tenant *t, struct sl_err *err)
{
    struct sl_err early = SL_ERR_INIT, unwanted = SL_ERR_INIT;
    if (!err)
        err = &unwanted; /* a look at the line asks for no reason */
    int rc = sl_err_set(err, -ENOSPC, SL_E_LINE_BEFORE_ALL);
    uint32_t tried = 0;
    t->gpu_count = 1;
    for (uint32_t i = 0; i < from->count && rc < 0; i++) {
        if (sl_line_gpus_has(barred, from->gpu[i]))
            continue;
        tried++;
        t->gpu[0] = from->gpu[i];
        rc = check_room(a, ask, t, err);
        if (rc == -EAGAIN)
            early = *err; /* after a restart: in a second it may fit there */
        else if (rc < 0 && rc != -ENOSPC)
            return rc; /* the request is wrong for every GPU */
    }
    if (rc < 0 && early.code) {
        *err = early;
        return -EAGAIN;
    }
    return rc < 0 && tried > 1 ? none_fits(a, t, from->gpu, from->count, err) : rc;
}

int sl_arb_choose(struct arbiter *a, const struct sl_msg_lease *ask,
                  const struct sl_line_gpus *barred, struct tenant *t, struct sl_err *err)
{
    struct candidates from;
    int rc = list(a, ask, &from, err);
    if (rc < 0)
        return rc;
    if (ask->flags & SL_LEASE_ANY)
        return choose_fitting(a, ask, &from, barred, t, err);
    t->gpu_count = from.count;
    memcpy(t->gpu, from.gpu, sizeof(t->gpu));
    for (uint32_t i = 0; i < from.count; i++)
        if (sl_line_gpus_has(barred, from.gpu[i]))
            return sl_err_set(err, -ENOSPC, SL_E_LINE_BEFORE, a->gpu[from.gpu[i]].index);
    return check_room(a, ask, t, err);
}

int sl_arb_wants(struct arbiter *a, const struct sl_msg_lease *ask, struct sl_line_gpus *ret,
                 struct sl_err *err)
{
    struct candidates from;
    int rc = list(a, ask, &from, err);
    if (rc < 0)
        return rc;
    *ret = (struct sl_line_gpus){{0}};
    for (uint32_t i = 0; i < from.count; i++)
        sl_line_gpus_add(ret, from.gpu[i]);
    return 0;
}

uint32_t sl_arb_meant(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu[SL_MAX_GPUS])
{
    struct candidates from;
    if (list(a, ask, &from, NULL) < 0 || from.count == 0)
        return 0;
    if (!(ask->flags & SL_LEASE_ANY)) {
        memcpy(gpu, from.gpu, from.count * sizeof(*gpu));
        return from.count;
    }
    gpu[0] = from.gpu[0];
    for (uint32_t i = 1; i < from.count; i++)
        if (a->gpu[from.gpu[i]].total_bytes > a->gpu[gpu[0]].total_bytes)
            gpu[0] = from.gpu[i];
    return 1;
}

/* On an empty card. */
static bool ever_fits(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu, uint32_t i)
{
    uint64_t bytes = 0;
    if ((ask->fields & SL_FIELD_CORES) && gpu >= SL_TURNS_MAX_GPUS)
        return false;
    return sl_arb_grant_asked(a, gpu, ask, i, &bytes) && bytes <= a->gpu[gpu].total_bytes;
}

bool sl_arb_ever_fits(struct arbiter *a, const struct sl_msg_lease *ask)
{
    struct candidates from;
    bool any = ask->flags & SL_LEASE_ANY, some = false, all = true;
    if (list(a, ask, &from, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < from.count; i++) {
        bool fits = ever_fits(a, ask, from.gpu[i], any ? 0 : i);
        some |= fits;
        all &= fits;
    }
    return any ? some : all;
}

/* What one GPU lacks. False: nothing. */
static bool lacks(struct arbiter *a, const struct sl_msg_lease *ask, uint32_t gpu, uint32_t i,
                  char *buf, size_t size)
{
    char want[32], left[32];
    uint64_t bytes = 0, left_bytes = sl_arb_grant_left(a, gpu, NULL);
    uint32_t cores = ask->fields & SL_FIELD_CORES ? ask->cores_request_permille : 0;
    uint32_t left_cores = permille_left(a, gpu, NULL);
    bool memory = ask->fields & SL_FIELD_MEMORY;
    (void)sl_arb_grant_asked(a, gpu, ask, i, &bytes);
    if (memory ? bytes > left_bytes : left_bytes == 0)
        (void)snprintf(buf, size, "%s asked, %s of GPU %u are left",
                       memory ? sl_format_bytes(bytes, want, sizeof(want)) : "some memory",
                       sl_format_bytes(left_bytes, left, sizeof(left)), a->gpu[gpu].index);
    else if (cores > left_cores)
        (void)snprintf(buf, size, "%s %% of the time asked, %s %% of GPU %u are left",
                       sl_format_cores(cores, cores, want, sizeof(want)),
                       sl_format_cores(left_cores, left_cores, left, sizeof(left)),
                       a->gpu[gpu].index);
    else
        return false;
    return true;
}

bool sl_arb_lacks(struct arbiter *a, const struct sl_msg_lease *ask, char *buf, size_t size)
{
    struct candidates from = {.count = 0};
    uint64_t most = 0;
    uint32_t best = 0;
    bool any = ask->flags & SL_LEASE_ANY;
    if (list(a, ask, &from, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < from.count; i++) {
        uint64_t left = sl_arb_grant_left(a, from.gpu[i], NULL);
        if (!any && lacks(a, ask, from.gpu[i], i, buf, size))
            return true;
        if (left > most) {
            most = left;
            best = i;
        }
    }
    return any && from.count && lacks(a, ask, from.gpu[best], 0, buf, size);
}
