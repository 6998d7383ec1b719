/* SPDX-License-Identifier: Apache-2.0 */
#include "share/lease.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "share/errors.h"

/* A long name is cut, so that the uid after it fits: the agent finds a tenant by its uid after a restart. */
#define CLAIM_MAX 150

void sl_owner_text(const struct sl_owner *o, char buf[SL_ABOUT_MAX])
{
    const struct {
        const char *key, *value;
    } rows[] = {{"namespace", o->name_space},
                {"pod", o->pod},
                {"claim", o->claim},
                {"uid", o->claim_uid},
                {"request", o->request},
                {"container", o->container},
                {"slot", o->slot},
                {"pod-uid", o->pod_uid}};
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        const char *value = rows[i].value;
        if (!value || !value[0])
            continue;
        size_t size = strnlen(value, rows[i].value == o->claim ? CLAIM_MAX : SL_ABOUT_MAX);
        if (n + 1 + strlen(rows[i].key) + 1 + size < SL_ABOUT_MAX)
            n += (size_t)snprintf(buf + n, SL_ABOUT_MAX - n, "%s%s=%.*s", n ? " " : "", rows[i].key,
                                  (int)size, value);
    }
}

static int add(struct sl_msg_lease *m, const struct sl_share *s, uint32_t cores[SL_MAX_GPUS],
               struct sl_err *err)
{
    uint32_t at = 0;
    while (at < m->gpu_count && strcmp(m->gpu[at], s->gpu) != 0)
        at++;
    if (at == SL_MAX_GPUS)
        return sl_err_set(err, -ENOSPC, SL_E_FRACTION_GPUS, SL_MAX_GPUS);
    if (at == m->gpu_count)
        memcpy(m->gpu[m->gpu_count++], s->gpu, sizeof(s->gpu));
    m->gpu_memory_bytes[at] += s->memory_bytes;
    cores[at] += s->cores_permille;
    if (s->limit_permille > m->cores_limit_permille)
        m->cores_limit_permille = s->limit_permille;
    if (s->priority > m->priority)
        m->priority = s->priority;
    sl_lease_compute(m, s->compute);
    return 0;
}

static void set_cores(struct sl_msg_lease *m, const uint32_t cores[SL_MAX_GPUS])
{
    uint32_t least = 1000;
    for (uint32_t i = 0; i < m->gpu_count; i++)
        if (cores[i] < least)
            least = cores[i];
    if (least == 0 && m->cores_limit_permille == 0)
        return; /* no cores of its own and no limit: only idle time */
    m->fields |= SL_FIELD_CORES;
    m->cores_request_permille = least ? least : 1;
    if (m->cores_limit_permille < m->cores_request_permille)
        m->cores_limit_permille = m->cores_request_permille;
}

int sl_lease_compose(const char *tenant, const struct sl_owner *owner, const struct sl_share *share,
                     size_t count, struct sl_msg_lease *ret, struct sl_err *err)
{
    uint32_t cores[SL_MAX_GPUS] = {0};
    struct sl_msg_lease m = {.fields = SL_FIELD_MEMORY | SL_FIELD_PRIORITY, .flags = SL_LEASE_KEEP};
    for (size_t i = 0; i < count; i++) {
        int rc = add(&m, &share[i], cores, err);
        if (rc < 0)
            return rc;
    }
    set_cores(&m, cores);
    (void)snprintf(m.name, sizeof(m.name), "%s", tenant);
    sl_owner_text(owner, m.about);
    *ret = m;
    return 0;
}

void sl_lease_compute(struct sl_msg_lease *m, enum sl_compute compute)
{
    if (m->flags & (SL_LEASE_SLICES | SL_LEASE_TURNS))
        return;
    if (compute == SL_COMPUTE_SLICES)
        m->flags |= SL_LEASE_SLICES;
    if (compute == SL_COMPUTE_TURNS)
        m->flags |= SL_LEASE_TURNS;
}
