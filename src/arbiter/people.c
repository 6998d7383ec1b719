/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several users, one arbiter: who a client is, what it may change, and what each user may have. Who a client is, the
 * kernel says (credentials and groups of the process that connected), never a message. The system's users and groups are
 * looked up when the rules are read, never here: a lookup may wait for a server.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/rules.h"
#include "arbiter/subuid.h"
#include "base/list.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "policy/turns.h"
#include "share/share.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

/* --- who it is --- */

/* Its groups: the one of its process first, then the others. Before Linux 4.13 only the first is known. */
static void read_groups(struct client *c, int fd, gid_t first)
{
    socklen_t size = 64 * sizeof(gid_t);
    gid_t *list = sl_xmalloc(sizeof(gid_t) + size);
    int rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list + 1, &size);
    if (rc != 0 && errno == ERANGE) { /* `size` says how much it takes */
        list = sl_xrealloc(list, sizeof(gid_t) + size);
        rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list + 1, &size);
    }
    list[0] = first;
    c->gids = list;
    c->gid_count = 1 + (rc == 0 ? size / sizeof(gid_t) : 0);
}

static bool in_group(const struct client *c, gid_t gid)
{
    for (size_t i = 0; i < c->gid_count; i++)
        if (c->gids[i] == gid)
            return true;
    return false;
}

int sl_arb_identify(struct arbiter *a, struct client *c, int fd, struct sl_err *err)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return sl_err_errno(err, errno, "cannot tell who is connected");
    c->pid = peer.pid;
    c->uid = peer.uid;
    read_groups(c, fd, peer.gid);
    if (c->uid == 0 || c->uid == geteuid())
        return 0;
    if (!a->rules) /* the directory's mode keeps strangers out, but a descriptor may be passed on */
        return sl_err_set(err, -EPERM, SL_E_ARBITER_PRIVATE);
    /* As the socket's mode, which an administrator may have changed. */
    if (!in_group(c, a->rules->gid))
        return sl_err_set(err, -EPERM, SL_E_PERSON_GROUP, a->rules->group, a->rules->group,
                          (unsigned)c->uid);
    return 0;
}

int sl_arb_may_change(const struct client *c, const struct tenant *t, struct sl_err *err)
{
    if (c->uid == 0 || c->uid == geteuid() || c->uid == t->owner)
        return 0;
    return sl_err_set(err, -EPERM, SL_E_TENANT_FOREIGN, t->name, (unsigned)t->owner);
}

bool sl_arb_is_foreign(const struct tenant *t)
{
    return geteuid() == 0 && t->owner != 0;
}

bool sl_arb_may_attach(const struct tenant *t, uid_t uid)
{
    if (!sl_arb_is_foreign(t) || uid == t->owner || uid == 0)
        return true;
    return t->kept && sl_subuid_of(t->owner, uid);
}

/* --- nobody takes all --- */

struct person *sl_arb_person(struct arbiter *a, uid_t uid)
{
    for (struct person *p = a->people; p; p = p->next)
        if (p->uid == uid)
            return p;
    struct person *p = sl_xcalloc(1, sizeof(*p));
    *p = (struct person){.next = a->people, .uid = uid};
    a->people = p;
    return p;
}

void sl_arb_people_forget(struct arbiter *a, bool all)
{
    for (struct person *p = a->people, *after; p; p = after) {
        after = p->next;
        if (!all && (p->asked_ns > a->now_ns || p->connected_ns > a->now_ns))
            continue;
        sl_list_drop(&a->people, p);
        free(p);
    }
}

bool sl_arb_is_shared(const struct arbiter *a, uid_t uid)
{
    return a->rules && uid != 0;
}

static uint32_t tenants_of(const struct arbiter *a, uid_t uid)
{
    uint32_t n = 0;
    for (const struct tenant *t = a->tenants; t; t = t->next)
        n += t->owner == uid;
    return n;
}

int sl_arb_person_room(const struct arbiter *a, uid_t uid, struct sl_err *err)
{
    uint32_t all = a->tenant_count, has = tenants_of(a, uid);
    uint32_t left = all < SL_TURNS_MAX_TENANTS ? SL_TURNS_MAX_TENANTS - all : 0;
    if (!sl_arb_is_shared(a, uid) || has < left)
        return 0;
    return sl_err_set(err, -EBUSY, SL_E_PERSON_TENANTS, has, left);
}

/* --- what each may have --- */

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Without a limit of its own it may take the whole card. */
static struct sl_limits_use use_of(const struct arbiter *a, const struct tenant *t)
{
    struct sl_limits_use u = {.of = {[SL_LIMIT_TENANTS] = 1}};
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        uint64_t bytes = t->terms.memory_bytes[i];
        u.of[SL_LIMIT_MEMORY] = plus(u.of[SL_LIMIT_MEMORY],
                                     bytes == SL_NO_LIMIT ? a->gpu[t->gpu[i]].total_bytes : bytes);
    }
    u.of[SL_LIMIT_CORES] = (uint64_t)t->terms.cores_request_permille * t->gpu_count;
    u.of[SL_LIMIT_PRIORITY] = t->terms.priority;
    return u;
}

static struct sl_limits_use others_use(const struct arbiter *a, uid_t uid,
                                       const struct tenant *except)
{
    struct sl_limits_use sum = {.of = {0}};
    for (const struct tenant *t = a->tenants; t; t = t->next) {
        if (t->owner != uid || t == except)
            continue;
        struct sl_limits_use u = use_of(a, t);
        for (int k = 0; k < SL_LIMITS; k++)
            sum.of[k] = plus(sum.of[k], u.of[k]);
    }
    return sum;
}

/* What it would have: `has`, and what the request changes. */
static struct sl_limits_use asked_use(const struct arbiter *a, const struct sl_msg_lease *ask,
                                      const uint32_t *gpu, uint32_t count, bool new,
                                      const struct sl_limits_use *has)
{
    struct sl_limits_use u = *has;
    u.of[SL_LIMIT_TENANTS] = 1;
    if (ask->fields & SL_FIELD_MEMORY) {
        u.of[SL_LIMIT_MEMORY] = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bytes = 0;
            (void)sl_arb_grant_asked(a, gpu[i], ask, i, &bytes);
            u.of[SL_LIMIT_MEMORY] = plus(u.of[SL_LIMIT_MEMORY], bytes);
        }
    } else if (new) {
        u.of[SL_LIMIT_MEMORY] = SL_LIMIT_NONE;
    }
    if (ask->fields & SL_FIELD_CORES)
        u.of[SL_LIMIT_CORES] = (uint64_t)ask->cores_request_permille * count;
    if (ask->fields & SL_FIELD_PRIORITY)
        u.of[SL_LIMIT_PRIORITY] = ask->priority;
    return u;
}

/* "40.0 GiB", "50", "4", "normal" */
static const char *amount(enum sl_limit_kind kind, uint64_t n, char buf[32])
{
    if (kind == SL_LIMIT_MEMORY)
        return sl_format_bytes(n, buf, 32);
    if (kind == SL_LIMIT_PRIORITY)
        return sl_priority_name((unsigned)n);
    if (kind == SL_LIMIT_CORES)
        (void)sl_format_cores((uint32_t)n, (uint32_t)n, buf, 32);
    else
        (void)snprintf(buf, 32, "%llu", (unsigned long long)n);
    return buf;
}

static const char *name_of(const struct arbiter *a, uid_t uid, char buf[64])
{
    const char *name = sl_rules_user(a->rules, uid);
    if (name && strspn(name, "0123456789") != strlen(name))
        (void)snprintf(buf, 64, "%s", name);
    else
        (void)snprintf(buf, 64, "the user with uid %u", (unsigned)uid);
    return buf;
}

static int refuse(const struct arbiter *a, uid_t uid, const struct sl_limits_verdict *v,
                  struct sl_err *err)
{
    char who[64], most[32], used[32], asked[32];
    const char *file = a->rules->file;
    (void)name_of(a, uid, who);
    const char *m = amount(v->kind, v->limit.most, most), *u = amount(v->kind, v->used, used);
    const char *w = amount(v->kind, v->asked, asked);
    int code = v->answer == SL_LIMITS_NEVER ? -EFBIG : -EDQUOT;
    switch (v->kind) {
    case SL_LIMIT_MEMORY:
        if (v->asked == SL_LIMIT_NONE)
            return sl_err_set(err, code, SL_E_LIMIT_MEMORY_UNSAID, who, m, file, v->limit.line);
        if (code == -EFBIG)
            return sl_err_set(err, code, SL_E_LIMIT_MEMORY_NEVER, who, m, file, v->limit.line, w);
        return sl_err_set(err, code, SL_E_LIMIT_MEMORY, who, m, file, v->limit.line, u, w);
    case SL_LIMIT_CORES:
        if (code == -EFBIG)
            return sl_err_set(err, code, SL_E_LIMIT_CORES_NEVER, who, m, file, v->limit.line, w);
        return sl_err_set(err, code, SL_E_LIMIT_CORES, who, m, file, v->limit.line, u, w);
    case SL_LIMIT_TENANTS:
        return sl_err_set(err, code, SL_E_LIMIT_TENANTS, who, m, file, v->limit.line, u);
    default:
        return sl_err_set(err, code, SL_E_LIMIT_PRIORITY, who, m, file, v->limit.line, w);
    }
}

static struct sl_limits_verdict judge(const struct arbiter *a, const struct client *c,
                                      const struct sl_msg_lease *ask, const uint32_t *gpu,
                                      uint32_t count, const struct tenant *t)
{
    if (!sl_arb_is_shared(a, c->uid))
        return (struct sl_limits_verdict){.answer = SL_LIMITS_FINE};
    struct sl_limits limits = sl_rules_limits(a->rules, c->uid, c->gids, c->gid_count);
    struct sl_limits_use none = {.of = {0}}, has = t ? use_of(a, t) : none;
    struct sl_limits_use others = others_use(a, c->uid, t);
    struct sl_limits_use wants = asked_use(a, ask, gpu, count, !t, &has);
    return sl_limits_check(&limits, &others, &has, &wants);
}

int sl_arb_limits_set(const struct arbiter *a, const struct client *c,
                      const struct sl_msg_lease *ask, const struct tenant *t, struct sl_err *err)
{
    struct sl_limits_verdict v = judge(a, c, ask, t->gpu, t->gpu_count, t);
    return v.answer == SL_LIMITS_FINE ? 0 : refuse(a, c->uid, &v, err);
}

static struct sl_limits_verdict judge_new(struct arbiter *a, const struct client *c,
                                          const struct sl_msg_lease *ask)
{
    uint32_t gpu[SL_MAX_GPUS], count = sl_arb_meant(a, ask, gpu);
    return judge(a, c, ask, gpu, count, NULL);
}

int sl_arb_limits_new(struct arbiter *a, const struct client *c, const struct sl_msg_lease *ask,
                      struct sl_err *err)
{
    struct sl_limits_verdict v = judge_new(a, c, ask);
    return v.answer == SL_LIMITS_FINE ? 0 : refuse(a, c->uid, &v, err);
}

bool sl_arb_limits_hold(struct arbiter *a, const struct client *c, const struct sl_msg_lease *ask,
                        char *why, size_t size)
{
    struct sl_limits_verdict v = judge_new(a, c, ask);
    char most[32], used[32], asked[32];
    if (v.answer == SL_LIMITS_FINE)
        return false;
    const char *slash = strrchr(a->rules->file, '/');
    static const char *const what[] = {" of memory", " % of GPU time", " tenants", ""};
    if (why)
        (void)snprintf(why, size, "you may have %s%s (%s line %u), have %s, and asked for %s",
                       amount(v.kind, v.limit.most, most), what[v.kind],
                       slash ? slash + 1 : a->rules->file, v.limit.line,
                       amount(v.kind, v.used, used), amount(v.kind, v.asked, asked));
    return true;
}

void sl_arb_limits_priority(const struct arbiter *a, const struct client *c,
                            struct sl_msg_lease *ask)
{
    if (!sl_arb_is_shared(a, c->uid) || (ask->fields & SL_FIELD_PRIORITY))
        return;
    struct sl_limits limits = sl_rules_limits(a->rules, c->uid, c->gids, c->gid_count);
    if (limits.of[SL_LIMIT_PRIORITY].most >= SL_PRIORITY_NORMAL)
        return;
    ask->fields |= SL_FIELD_PRIORITY;
    ask->priority = (uint32_t)limits.of[SL_LIMIT_PRIORITY].most;
}
