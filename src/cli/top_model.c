/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"

void sl_top_free(struct sl_top *t)
{
    free(t->gpus);
    free(t->tenants);
    free(t->waiters);
    free(t->processes);
    *t = (struct sl_top){0};
}

/* --- samples ------------------------------------------------------------------------------------- */

static uint64_t used_bytes(const struct sl_msg_tenant *m)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->gpu_count; i++)
        sum += m->gpu[i].used_bytes + m->gpu[i].overhead_bytes;
    return sum;
}

/* As strcmp: the larger figure comes first, equal figures by name. */
static int compare(enum sl_top_sort sort, const struct sl_top_tenant *a,
                   const struct sl_top_tenant *b)
{
    uint64_t x = 0, y = 0;
    switch (sort) {
    case SL_TOP_BY_GOT:
        x = a->m.share_1s_permille;
        y = b->m.share_1s_permille;
        break;
    case SL_TOP_BY_MEMORY:
        x = used_bytes(&a->m);
        y = used_bytes(&b->m);
        break;
    case SL_TOP_BY_WAIT:
        x = a->waited_permille;
        y = b->waited_permille;
        break;
    default:
        break;
    }
    if (x != y)
        return x > y ? -1 : 1;
    return strcmp(a->m.name, b->m.name);
}

/* Few rows, most of them in order already. */
static void sort_tenants(struct sl_top *t)
{
    for (size_t i = 1; i < t->tenant_count; i++) {
        struct sl_top_tenant moved = t->tenants[i];
        size_t at = i;
        for (; at > 0 && compare(t->sort, &t->tenants[at - 1], &moved) > 0; at--)
            t->tenants[at] = t->tenants[at - 1];
        t->tenants[at] = moved;
    }
}

static bool matches(const struct sl_top *t, const struct sl_top_tenant *one)
{
    return strstr(one->m.name, t->filter) || strstr(one->user, t->filter) ||
           strstr(one->m.about, t->filter);
}

static uint32_t waited_permille(const struct sl_top *t, const struct sl_msg_tenant *now,
                                uint64_t span_ns)
{
    for (size_t i = 0; i < t->tenant_count; i++) {
        const struct sl_msg_tenant *old = &t->tenants[i].m;
        if (strcmp(old->name, now->name) != 0)
            continue;
        uint64_t waited = now->waited_ns > old->waited_ns ? now->waited_ns - old->waited_ns : 0;
        return span_ns && waited < span_ns ? (uint32_t)(waited * 1000 / span_ns)
                                           : (waited ? 1000 : 0);
    }
    return 0;
}

static void take_tenants(struct sl_top *t, const struct sl_client_status *status,
                         const char (*users)[SL_TOP_USER], uint64_t span_ns)
{
    struct sl_top_tenant *list = sl_xcalloc(status->tenant_count + 1, sizeof(*list));
    size_t n = 0;
    for (size_t i = 0; i < status->tenant_count; i++) {
        struct sl_top_tenant *one = &list[n];
        one->m = status->tenant[i];
        if (users)
            memcpy(one->user, users[i], sizeof(one->user));
        one->waited_permille = waited_permille(t, &one->m, span_ns);
        n += matches(t, one);
    }
    free(t->tenants);
    t->tenants = list;
    t->tenant_count = n;
    t->tenants_in_all = status->tenant_count;
    sort_tenants(t);
}

static void take_waiters(struct sl_top *t, const struct sl_client_status *status,
                         const char (*users)[SL_TOP_USER])
{
    free(t->waiters);
    t->waiter_count = status->waiter_count;
    t->waiters = sl_xcalloc(t->waiter_count + 1, sizeof(*t->waiters));
    for (size_t i = 0; i < t->waiter_count; i++) {
        t->waiters[i].m = status->waiter[i];
        if (users)
            memcpy(t->waiters[i].user, users[status->tenant_count + i], sizeof(t->waiters[i].user));
    }
}

static uint32_t time_on(const struct sl_client_status *status, const char *uuid)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < status->tenant_count; i++)
        for (uint32_t g = 0; g < status->tenant[i].gpu_count; g++)
            if (strcmp(status->tenant[i].gpu[g].uuid, uuid) == 0)
                sum += status->tenant[i].share_1s_permille;
    return sum < 1000 ? sum : 1000;
}

static void take_gpus(struct sl_top *t, const struct sl_client_status *status)
{
    struct sl_top_gpu *list = sl_xcalloc(status->gpu_count + 1, sizeof(*list));
    for (size_t i = 0; i < status->gpu_count; i++) {
        struct sl_top_gpu *g = &list[i];
        for (size_t k = 0; k < t->gpu_count; k++)
            if (strcmp(t->gpus[k].m.uuid, status->gpu[i].uuid) == 0)
                *g = t->gpus[k];
        g->m = status->gpu[i];
        g->time_permille = time_on(status, g->m.uuid);
        uint32_t at = g->samples++ % SL_TOP_HISTORY;
        g->time[at] = (uint16_t)g->time_permille;
        g->memory[at] =
            (uint16_t)(g->m.total_bytes ? g->m.used_bytes / (g->m.total_bytes / 1000 + 1) : 0);
    }
    free(t->gpus);
    t->gpus = list;
    t->gpu_count = status->gpu_count;
}

const struct sl_top_tenant *sl_top_selected(const struct sl_top *t)
{
    for (size_t i = 0; i < t->tenant_count; i++)
        if (strcmp(t->tenants[i].m.name, t->selected) == 0)
            return &t->tenants[i];
    return NULL;
}

static void select_at(struct sl_top *t, size_t at)
{
    (void)snprintf(t->selected, sizeof(t->selected), "%s",
                   t->tenant_count ? t->tenants[at].m.name : "");
}

void sl_top_take(struct sl_top *t, const struct sl_client_status *status,
                 const char (*users)[SL_TOP_USER], uint64_t now_ns)
{
    const struct sl_top_tenant *before = sl_top_selected(t);
    size_t at = before ? (size_t)(before - t->tenants) : 0;
    take_tenants(t, status, users, t->sampled_ns ? now_ns - t->sampled_ns : 0);
    take_waiters(t, status, users);
    take_gpus(t, status);
    t->sampled_ns = now_ns;
    t->trouble[0] = '\0';
    if (!sl_top_selected(t)) /* it is gone: select its successor in the list */
        select_at(t, at < t->tenant_count ? at : t->tenant_count ? t->tenant_count - 1 : 0);
}

void sl_top_take_processes(struct sl_top *t, struct sl_msg_process *list, size_t count,
                           const char *untold)
{
    free(t->processes);
    t->processes = list;
    t->process_count = count;
    (void)snprintf(t->untold, sizeof(t->untold), "%s", untold);
}

/* --- keys ---------------------------------------------------------------------------------------- */

static struct sl_top_wish wish(const struct sl_top *t, enum sl_top_action action)
{
    struct sl_top_wish w = {.action = action, .option = t->option};
    memcpy(w.name, t->selected, sizeof(w.name));
    (void)snprintf(w.text, sizeof(w.text), "%s", t->typed);
    return w;
}

static void move(struct sl_top *t, long step)
{
    const struct sl_top_tenant *now = sl_top_selected(t);
    long at = now ? (long)(now - t->tenants) + step : 0, last = (long)t->tenant_count - 1;
    if (last >= 0)
        select_at(t, (size_t)(at < 0 ? 0 : at > last ? last : at));
}

static void begin_typing(struct sl_top *t, enum sl_top_mode mode, const char *option)
{
    t->mode = mode;
    t->option = option;
    t->typed[0] = t->message[0] = '\0';
    if (mode == SL_TOP_FILTER)
        (void)snprintf(t->typed, sizeof(t->typed), "%s", t->filter);
}

static struct sl_top_wish typed_key(struct sl_top *t, int key)
{
    size_t n = strlen(t->typed);
    size_t most = t->mode == SL_TOP_FILTER ? sizeof(t->filter) - 1 : sizeof(t->typed) - 1;
    enum sl_top_mode mode = t->mode;
    if (key == SL_KEY_ESCAPE) {
        t->mode = SL_TOP_LIST;
    } else if (key == SL_KEY_ENTER) {
        t->mode = SL_TOP_LIST;
        if (mode == SL_TOP_VALUE && n)
            return wish(t, SL_TOP_SET);
        if (mode == SL_TOP_FILTER)
            (void)snprintf(t->filter, sizeof(t->filter), "%.31s", t->typed);
        return wish(t, SL_TOP_REFRESH);
    } else if (key == SL_KEY_BACKSPACE && n) {
        t->typed[n - 1] = '\0';
    } else if (key > ' ' && key < 0x7f && n < most) {
        t->typed[n] = (char)key;
        t->typed[n + 1] = '\0';
    }
    return wish(t, SL_TOP_NOTHING);
}

static struct sl_top_wish sure_key(struct sl_top *t, int key)
{
    t->mode = SL_TOP_LIST;
    if (key == 'y' || key == 'Y')
        return wish(t, SL_TOP_END);
    (void)snprintf(t->message, sizeof(t->message), "nothing was ended");
    return wish(t, SL_TOP_NOTHING);
}

static struct sl_top_wish fold(struct sl_top *t)
{
    bool open = strcmp(t->unfolded, t->selected) == 0;
    (void)snprintf(t->unfolded, sizeof(t->unfolded), "%s", open ? "" : t->selected);
    sl_top_take_processes(t, NULL, 0, "");
    return wish(t, SL_TOP_REFRESH);
}

static struct sl_top_wish list_key(struct sl_top *t, int key)
{
    static const struct {
        char key;
        const char *option;
    } values[] = {{'c', "cores"}, {'m', "memory"}, {'p', "priority"}};
    bool any = sl_top_selected(t);
    t->message[0] = '\0';
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (key == values[i].key && any)
            begin_typing(t, SL_TOP_VALUE, values[i].option);
    switch (key) {
    case 'q':
        return wish(t, SL_TOP_QUIT);
    case SL_KEY_UP:
    case 'k':
        move(t, -1);
        break;
    case SL_KEY_DOWN:
    case 'j':
        move(t, 1);
        break;
    case SL_KEY_PAGE_UP:
        move(t, -10);
        break;
    case SL_KEY_PAGE_DOWN:
        move(t, 10);
        break;
    case SL_KEY_HOME:
        move(t, -(long)t->tenant_count);
        break;
    case SL_KEY_END:
        move(t, (long)t->tenant_count);
        break;
    case SL_KEY_ENTER:
    case ' ':
        return any ? fold(t) : wish(t, SL_TOP_NOTHING);
    case 's':
        t->sort = (t->sort + 1) % SL_TOP_SORTS;
        sort_tenants(t);
        break;
    case '/':
        begin_typing(t, SL_TOP_FILTER, NULL);
        break;
    case 'z':
        return wish(t, any ? SL_TOP_PAUSE : SL_TOP_NOTHING);
    case 'x':
        if (any)
            t->mode = SL_TOP_SURE;
        break;
    case '?':
    case 'h':
        t->mode = SL_TOP_HELP;
        break;
    case SL_KEY_ESCAPE:
        t->filter[0] = '\0';
        return wish(t, SL_TOP_REFRESH);
    default:
        break;
    }
    return wish(t, SL_TOP_NOTHING);
}

struct sl_top_wish sl_top_press(struct sl_top *t, int key)
{
    if (key == SL_KEY_INTERRUPT)
        return wish(t, SL_TOP_QUIT);
    switch (t->mode) {
    case SL_TOP_HELP:
        t->mode = SL_TOP_LIST;
        return wish(t, key == 'q' ? SL_TOP_QUIT : SL_TOP_NOTHING);
    case SL_TOP_FILTER:
    case SL_TOP_VALUE:
        return typed_key(t, key);
    case SL_TOP_SURE:
        return sure_key(t, key);
    default:
        return list_key(t, key);
    }
}
