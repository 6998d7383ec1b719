/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status_words.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "base/words.h"
#include "base/xalloc.h"
#include "cli/table.h"

const struct sl_msg_tenant *sl_status_tenant(const struct sl_client_status *s, const char *name)
{
    for (size_t i = 0; i < s->tenant_count; i++)
        if (strcmp(s->tenant[i].name, name) == 0)
            return &s->tenant[i];
    return NULL;
}

const struct sl_msg_gpu *sl_status_gpu(const struct sl_client_status *s, const char *uuid)
{
    for (size_t i = 0; i < s->gpu_count; i++)
        if (strcmp(s->gpu[i].uuid, uuid) == 0)
            return &s->gpu[i];
    return NULL;
}

const char *sl_status_closest(const struct sl_client_status *s, const char *written)
{
    const char **names = sl_xcalloc(s->tenant_count + 1, sizeof(*names));
    for (size_t i = 0; i < s->tenant_count; i++)
        names[i] = s->tenant[i].name;
    const char *found = sl_word_closest(written, names);
    free(names);
    return found;
}

const char *sl_status_gpu_label(const struct sl_client_status *s, const char *uuid, char *buf,
                                size_t size)
{
    const struct sl_msg_gpu *g = sl_status_gpu(s, uuid);
    if (g)
        (void)snprintf(buf, size, "%u", g->index);
    else
        (void)snprintf(buf, size, "%s", uuid);
    return buf;
}

const char *sl_status_percent(uint32_t permille, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%u.%u%%", permille / 10, permille % 10);
    return buf;
}

const char *sl_status_got(const struct sl_msg_tenant *m, char *buf, size_t size)
{
    if (!(m->flags & SL_LEASE_PAUSED))
        return sl_status_percent(m->share_1s_permille, buf, size);
    (void)snprintf(buf, size, "paused");
    return buf;
}

const char *sl_status_cores(const struct sl_msg_tenant *m, char *buf, size_t size)
{
    if (m->cores_request_permille)
        (void)sl_format_cores(m->cores_request_permille, m->cores_limit_permille, buf, size);
    else
        (void)snprintf(buf, size, "-");
    return buf;
}

const char *sl_status_limit(uint64_t bytes, char *buf, size_t size)
{
    if (bytes == SL_NO_LIMIT)
        (void)snprintf(buf, size, "-");
    else
        (void)sl_format_bytes(bytes, buf, size);
    return buf;
}

const char *sl_status_slice(const struct sl_msg_tenant *m, char *buf, size_t size)
{
    if (m->compute == SL_COMPUTE_TURNS)
        (void)snprintf(buf, size, "turns");
    else
        (void)sl_format_duration(m->slice_us * 1000ULL, buf, size);
    return buf;
}

const char *sl_status_asked_memory(const struct sl_msg_waiter *w, char *buf, size_t size)
{
    if (w->state == SL_WAITER_ABSENT)
        (void)snprintf(buf, size, "?");
    else if (!(w->fields & SL_FIELD_MEMORY))
        (void)snprintf(buf, size, "-");
    else if (w->memory_percent)
        (void)snprintf(buf, size, "%u%%", w->memory_percent);
    else
        (void)sl_format_bytes(w->memory_bytes, buf, size);
    return buf;
}

const char *sl_status_asked_cores(const struct sl_msg_waiter *w, char *buf, size_t size)
{
    if (w->state == SL_WAITER_ABSENT)
        (void)snprintf(buf, size, "?");
    else if (!(w->fields & SL_FIELD_CORES))
        (void)snprintf(buf, size, "-");
    else
        (void)sl_format_cores(w->cores_request_permille, w->cores_limit_permille, buf, size);
    return buf;
}

const char *sl_status_pod(const char *about, char *buf, size_t size)
{
    char space[64], pod[256], part[64];
    buf[0] = '\0';
    if (!sl_client_about(about, "pod", pod, sizeof(pod)) &&
        !sl_client_about(about, "claim", pod, sizeof(pod)))
        return buf;
    (void)sl_client_about(about, "namespace", space, sizeof(space));
    if (!sl_client_about(about, "container", part, sizeof(part)))
        (void)sl_client_about(about, "request", part, sizeof(part));
    (void)snprintf(buf, size, "%s/%s%s%s", space, pod, part[0] ? "/" : "", part);
    return sl_table_printable(buf);
}

const char *sl_status_compute(uint32_t compute)
{
    return compute == SL_COMPUTE_TURNS ? "turns" : "slices";
}

char *sl_status_user(const struct sl_msg_tenant *m, char *buf, size_t size)
{
    struct passwd entry, *found = NULL;
    char space[4096];
    uid_t uid = (uid_t)(m->h.option - 1U);
    buf[0] = '\0';
    if (m->h.option == 0)
        return buf;
    if (getpwuid_r(uid, &entry, space, sizeof(space), &found) == 0 && found)
        (void)snprintf(buf, size, "%s", entry.pw_name);
    else
        (void)snprintf(buf, size, "%u", (unsigned)uid);
    return buf;
}
