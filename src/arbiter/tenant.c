/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: the grants, checked against the room on the card. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "arbiter/lane.h"
#include "base/container.h"
#include "base/log.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "shm/account.h"

void sl_arb_attach_path(const struct arbiter *a, const struct tenant *t, char *buf, size_t size)
{
    if (t->kept)
        (void)snprintf(buf, size, "%s/%s/%s/" SL_ATTACH_FILE, a->opt.dir,
                       sl_arb_is_foreign(t) ? "u" : "k", t->name);
    else
        (void)snprintf(buf, size, "%s/t/%s.sock", a->opt.dir, t->name);
}

struct tenant *sl_arb_tenant_of(struct arbiter *a, pid_t pid, uint64_t start)
{
    for (struct tenant *t = a->tenants; t; t = t->next)
        if (t->creator_pid == pid && t->creator_start == start && !t->kept)
            return t;
    return NULL;
}

struct tenant *sl_arb_tenant_find(struct arbiter *a, const char *name)
{
    for (struct tenant *t = a->tenants; t; t = t->next)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

/* Names become file names and are typed by people. */
static int check_name(const char *name, struct sl_err *err)
{
    size_t n = strnlen(name, SL_NAME_MAX);
    bool good = n > 0 && n <= 40 && name[0] != '.' && name[0] != '-';
    for (size_t i = 0; good && i < n; i++)
        good = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", name[i]);
    if (!good)
        return sl_err_set(err, -EINVAL, SL_E_TENANT_NAME_BAD, name);
    return 0;
}

static int choose_name(struct arbiter *a, const char *asked, char ret[SL_NAME_MAX],
                       struct sl_err *err)
{
    if (asked[0]) {
        int rc = check_name(asked, err);
        if (rc == 0 && sl_arb_tenant_find(a, asked))
            rc = sl_err_set(err, -EEXIST, SL_E_TENANT_NAME_TAKEN, asked);
        if (rc == 0)
            (void)snprintf(ret, SL_NAME_MAX, "%s", asked);
        return rc;
    }
    do
        (void)snprintf(ret, SL_NAME_MAX, "t%u", ++a->next_tenant_id);
    while (sl_arb_tenant_find(a, ret));
    return 0;
}

static int check_priority(const struct sl_msg_lease *ask, struct sl_err *err)
{
    if ((ask->fields & SL_FIELD_PRIORITY) && ask->priority > SL_PRIORITY_HIGH)
        return sl_err_set(err, -EINVAL, SL_E_PRIORITY_RANGE);
    return 0;
}

static void creator_gone(struct arbiter *a, struct source *s)
{
    struct tenant *t = sl_container_of(s, struct tenant, creator);
    sl_arb_client_last_words(a, t->creator_pid);
    sl_arb_unwatch(a, s);
    t->left = true;
}

static int open_listener(struct arbiter *a, struct tenant *t, struct sl_err *err)
{
    char path[4096];
    sl_arb_attach_path(a, t, path, sizeof(path));
    int rc = t->kept ? sl_arb_kept_mkdir(a, t, err) : 0;
    if (rc < 0)
        return rc;
    t->listener =
        (struct source){.fd = sl_packet_listen(path, 4096, err), .ready = sl_arb_attach_ready};
    if (t->listener.fd < 0)
        return t->listener.fd;
    if (t->kept && chmod(path, 0666) != 0)
        return sl_err_errno(err, errno, "cannot open %s to its container", path);
    /* The directory is ours: nobody can have put a link there. */
    if (!t->kept && sl_arb_is_foreign(t) && lchown(path, t->owner, (gid_t)-1) != 0)
        return sl_err_errno(err, errno, "cannot give %s to its user", path);
    return 0;
}

/* Sockets and watches of a tenant whose lease exists. Shared by creation and recovery. */
int sl_arb_tenant_open(struct arbiter *a, struct tenant *t, struct sl_err *err)
{
    int rc = open_listener(a, t, err);
    if (rc < 0)
        return rc;
    t->doorbell = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                  .ready = sl_arb_doorbell_ready};
    if (t->doorbell.fd < 0)
        return sl_err_errno(err, errno, "cannot create a doorbell for %s", t->name);
    rc = sl_arb_watch(a, &t->listener, err);
    if (rc == 0)
        rc = sl_arb_watch(a, &t->doorbell, err);
    if (rc < 0)
        return rc;
    /* A living creator keeps an empty tenant: its command may not have touched the GPU yet. */
    t->creator =
        (struct source){.fd = t->kept ? -1 : (int)syscall(SYS_pidfd_open, t->creator_pid, 0),
                        .ready = creator_gone};
    if (t->creator.fd >= 0) {
        rc = sl_arb_watch(a, &t->creator, err);
        if (rc < 0)
            return rc;
    }
    t->alone.there = t->kept; /* an earlier arbiter may have left the file */
    t->next = a->tenants;
    a->tenants = t;
    a->tenant_count++;
    t->id = ++a->tenants_ever;
    a->changes++;
    sl_arb_compute_add(a, t);
    sl_arb_reach_warn(a, t);
    return 0;
}

static void tenant_free(struct arbiter *a, struct tenant *t)
{
    sl_arb_hang_up_listener(a, t);
    sl_arb_unwatch(a, &t->doorbell);
    sl_arb_unwatch(a, &t->creator);
    sl_lease_close(&t->lease);
    sl_ledger_close(&t->ledger);
    sl_arb_overheads_forget(t);
    sl_lane_close(t->lane);
    free(t);
}

struct tenant *sl_arb_tenant_alloc(void)
{
    struct tenant *t = sl_xcalloc(1, sizeof(*t));
    t->listener.fd = t->doorbell.fd = t->creator.fd = -1;
    t->lease = (struct sl_lease_map)SL_LEASE_MAP_INIT;
    t->ledger = (struct sl_ledger_map)SL_LEDGER_MAP_INIT;
    return t;
}

/* A value that is not in the request stays as it is. */
static void apply_ask(const struct sl_msg_lease *ask, const uint64_t limit[SL_MAX_GPUS],
                      struct terms *terms)
{
    if (ask->fields & SL_FIELD_MEMORY)
        memcpy(terms->memory_bytes, limit, sizeof(terms->memory_bytes));
    if (ask->fields & SL_FIELD_CORES) {
        terms->cores_request_permille = ask->cores_request_permille;
        terms->cores_limit_permille = ask->cores_limit_permille;
    }
    if (ask->fields & SL_FIELD_PRIORITY)
        terms->priority = ask->priority;
    if (ask->fields & SL_FIELD_PAUSE)
        terms->paused = ask->flags & SL_LEASE_PAUSED;
}

void sl_arb_tenant_terms(struct tenant *t)
{
    struct sl_lease_page *p = t->lease.page;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        atomic_store(&p->gpu[i].memory_limit_bytes, t->terms.memory_bytes[i] != SL_NO_LIMIT
                                                        ? t->terms.memory_bytes[i]
                                                        : t->share_bytes[i]);
    atomic_store(&p->cores_request_permille, t->terms.cores_request_permille);
    atomic_store(&p->cores_limit_permille, t->terms.cores_limit_permille);
    atomic_store(&p->priority, t->terms.priority);
}

/* A full disk is no full GPU: nobody shall wait in line for it. */
static int made(int rc)
{
    return rc == -ENOSPC ? -EIO : rc;
}

static int fill_lease(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant *t,
                      struct sl_err *err)
{
    uint64_t limit[SL_MAX_GPUS] = {0};
    int rc = sl_arb_grant_memory(a, ask, t, limit, err);
    if (rc == 0)
        rc = check_priority(ask, err);
    if (rc == 0)
        rc = made(sl_lease_create(t->cookie, &t->lease, err));
    if (rc < 0)
        return rc;
    struct sl_lease_page *p = t->lease.page;
    (void)snprintf(p->name, sizeof(p->name), "%s", t->name);
    p->gpu_count = t->gpu_count;
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        const struct gpu *g = &a->gpu[t->gpu[i]];
        memcpy(p->gpu[i].uuid, g->uuid, sizeof(p->gpu[i].uuid));
        p->gpu[i].card_bytes = g->total_bytes;
        t->terms.memory_bytes[i] = t->share_bytes[i] = SL_NO_LIMIT;
    }
    t->terms.cores_limit_permille = 1000;
    t->terms.priority = SL_PRIORITY_NORMAL;
    apply_ask(ask, limit, &t->terms);
    sl_arb_tenant_terms(t);
    return 0;
}

static void take_about(struct tenant *t, const struct sl_msg_lease *ask)
{
    memcpy(t->about, ask->about, sizeof(t->about) - 1);
    t->about[strcspn(t->about, "\n")] = '\0'; /* a line of the state file */
}

static uint32_t compute_asked(const struct sl_msg_lease *ask)
{
    if (ask->flags & SL_LEASE_TURNS)
        return SL_COMPUTE_TURNS;
    return ask->flags & SL_LEASE_SLICES ? SL_COMPUTE_SLICES : SL_COMPUTE_AUTO;
}

/* A repeated request may have a better description, or another way to share GPU time. */
static int describe_again(struct arbiter *a, const struct sl_msg_lease *ask, struct tenant *t,
                          struct sl_err *err)
{
    char before[sizeof(t->about)];
    uint32_t compute = t->compute;
    bool told = ask->about[0] && strncmp(t->about, ask->about, sizeof(t->about) - 1) != 0;
    if (!told && compute == compute_asked(ask))
        return 0;
    memcpy(before, t->about, sizeof(before));
    if (told)
        take_about(t, ask);
    t->compute = compute_asked(ask);
    int rc = sl_arb_state_save(a, t, &t->terms, err);
    if (rc < 0) {
        memcpy(t->about, before, sizeof(before));
        t->compute = compute;
    }
    return rc;
}

bool sl_arb_tenant_fits(struct arbiter *a, const struct sl_msg_lease *ask,
                        const struct sl_line_gpus *barred)
{
    struct tenant *t = sl_arb_tenant_alloc();
    int rc = sl_arb_reach_room(a, NULL);
    if (rc == 0)
        rc = sl_arb_choose(a, ask, barred, t, NULL);
    tenant_free(a, t);
    return !sl_arb_is_for_now(rc);
}

bool sl_arb_is_for_now(int rc)
{
    return rc == -ENOSPC || rc == -EAGAIN || rc == -EUSERS || rc == -EDQUOT;
}

/* The tenant of before that the request means; NULL and 0: there is none. */
static int find_kept(struct arbiter *a, const struct sl_msg_lease *ask, const struct client *by,
                     struct tenant **ret, struct sl_err *err)
{
    int rc = sl_arb_kept_find(a, ask, ret, err);
    if (rc == 0 && *ret)
        rc = sl_arb_may_change(by, *ret, err);
    return rc == 0 && *ret ? describe_again(a, ask, *ret, err) : rc;
}

int sl_arb_tenant_create(struct arbiter *a, const struct sl_msg_lease *ask, const struct client *by,
                         const struct sl_line_gpus *barred, struct tenant **ret, struct sl_err *err)
{
    pid_t creator = by->pid;
    if ((ask->flags & SL_LEASE_SLICES) && (ask->flags & SL_LEASE_TURNS))
        return sl_err_set(err, -EINVAL, SL_E_COMPUTE_RANGE);
    if ((ask->flags & SL_LEASE_KEEP) && !(ask->flags & SL_LEASE_NEW)) {
        struct tenant *old = NULL;
        int found = find_kept(a, ask, by, &old, err);
        *ret = old;
        if (found < 0 || old)
            return found;
    }
    struct tenant *t = sl_arb_tenant_alloc();
    t->kept = ask->flags & SL_LEASE_KEEP;
    t->asked = sl_arb_asked(ask);
    t->compute = compute_asked(ask);
    take_about(t, ask);
    t->owner = by->uid;
    t->creator_pid = creator;
    t->creator_start = sl_arb_process_start(creator);
    t->created_ns = a->now_ns;
    int rc = sl_arb_limits_new(a, by, ask, err);
    if (rc == 0)
        rc = sl_arb_reach_room(a, err);
    if (rc == 0)
        rc = sl_arb_person_room(a, by->uid, err);
    if (rc == 0)
        rc = choose_name(a, ask->name, t->name, err);
    if (rc == 0)
        rc = sl_arb_choose(a, ask, barred, t, err);
    if (rc == 0 && getrandom(t->cookie, sizeof(t->cookie), 0) != (ssize_t)sizeof(t->cookie))
        rc = sl_err_errno(err, errno, "cannot get random bytes");
    if (rc == 0)
        rc = fill_lease(a, ask, t, err);
    if (rc == 0)
        rc = made(sl_ledger_create(t->cookie, t->gpu_count, &t->ledger, err));
    /* First the state file: a restart must find every tenant that exists. */
    if (rc == 0)
        rc = made(sl_arb_state_save(a, t, &t->terms, err));
    if (rc == 0)
        rc = made(sl_arb_tenant_open(a, t, err));
    if (rc == 0 && !t->kept && t->creator.fd < 0 && sl_arb_process_start(creator) == 0)
        rc = sl_err_set(err, -ESRCH, SL_E_TENANT_ASKER_GONE, t->name);
    if (rc == 0) {
        sl_arb_grant_share(a, t->gpu, t->gpu_count);
        rc = sl_arb_grant_holds(a, t, err);
    }
    if (rc < 0) {
        if (t->lease.page)
            sl_arb_tenant_destroy(a, t);
        else
            tenant_free(a, t);
        return rc;
    }
    sl_info("tenant %s created by pid %d", t->name, creator);
    *ret = t;
    return 0;
}

/* A remark for a user who sets a limit below the present usage. */
static void remark_on(const struct tenant *t, char *remark, size_t remark_size)
{
    const struct sl_lease_page *p = t->lease.page;
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        /* In the first moments after a restart no process has brought the ledger back yet. */
        uint64_t used = atomic_load(&p->gpu[i].overhead_bytes);
        if (t->ledger.page)
            used += sl_account_total(t->ledger.page, i) * SL_UNIT_BYTES;
        char u[32], l[32];
        if (used > t->terms.memory_bytes[i])
            (void)snprintf(remark, remark_size,
                           "%s uses %s, more than its new limit of %s: nothing is taken away, but "
                           "every further allocation is refused until the tenant frees enough",
                           t->name, sl_format_bytes(used, u, sizeof(u)),
                           sl_format_bytes(t->terms.memory_bytes[i], l, sizeof(l)));
    }
}

static void put_in_force(struct arbiter *a, struct tenant *t, const struct terms *terms)
{
    t->terms = *terms;
    sl_arb_tenant_terms(t);
    sl_arb_grant_share(a, t->gpu, t->gpu_count);
    sl_arb_line_look(a);
}

/* Has a tenant without a limit meanwhile taken the memory that this tenant was to get? */
static int took_hold(struct arbiter *a, struct tenant *t, const struct terms *before,
                     struct sl_err *err)
{
    bool more = false;
    for (uint32_t i = 0; i < t->gpu_count; i++)
        more |= t->terms.memory_bytes[i] != SL_NO_LIMIT &&
                (before->memory_bytes[i] == SL_NO_LIMIT ||
                 t->terms.memory_bytes[i] > before->memory_bytes[i]);
    return more ? sl_arb_grant_holds(a, t, err) : 0;
}

/* The tenant that the request names; NULL with *err: there is none. */
static struct tenant *named(struct arbiter *a, const struct sl_msg_lease *ask, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%.63s", ask->name);
    struct tenant *t = sl_arb_tenant_find(a, name);
    if (!t)
        (void)sl_err_set(err, -ENOENT, SL_E_TENANT_UNKNOWN, name);
    return t;
}

int sl_arb_tenant_set(struct arbiter *a, const struct client *by, const struct sl_msg_lease *ask,
                      char *remark, size_t remark_size, struct sl_err *err)
{
    struct tenant *t = named(a, ask, err);
    if (!t)
        return -ENOENT;
    uint64_t limit[SL_MAX_GPUS] = {0};
    int rc = sl_arb_may_change(by, t, err);
    if (rc == 0)
        rc = sl_arb_limits_set(a, by, ask, t, err);
    if (rc == 0 && (ask->fields & SL_FIELD_MEMORY))
        rc = sl_arb_grant_memory(a, ask, t, limit, err);
    if (rc == 0 && (ask->fields & SL_FIELD_CORES))
        rc = sl_arb_check_cores(a, ask, t, err);
    if (rc == 0)
        rc = check_priority(ask, err);
    if (rc == 0 && (ask->fields & SL_FIELD_PAUSE) && t->steer_id == UINT32_MAX)
        rc = sl_err_set(err, -ENOTSUP, SL_E_PAUSE_REACH, t->name);
    if (rc < 0)
        return rc;
    /* Save first: terms that could not be saved are not in force either, now or after a restart. */
    struct terms next = t->terms, before = t->terms;
    apply_ask(ask, limit, &next);
    sl_arb_alone_close(a, t);
    if (sl_arb_state_save(a, t, &next, err) < 0)
        return sl_err_wrap(err, "tenant %s keeps its old limits", t->name);
    put_in_force(a, t, &next);
    rc = took_hold(a, t, &before, err);
    if (rc < 0) {
        struct sl_err again = SL_ERR_INIT;
        put_in_force(a, t, &before);
        if (sl_arb_state_save(a, t, &before, &again) < 0)
            sl_warn("tenant %s: %s", t->name, again.msg);
        return rc;
    }
    remark[0] = '\0';
    if (ask->fields & SL_FIELD_MEMORY)
        remark_on(t, remark, remark_size);
    atomic_fetch_add(&t->lease.page->revision, 1);
    sl_arb_compute_set(a, t);
    return 0;
}

void sl_arb_tenant_overhead(struct tenant *t)
{
    for (uint32_t i = 0; i < t->gpu_count; i++) {
        uint64_t sum = t->unattached_bytes[i] + t->unexplained_bytes[i];
        for (const struct member *m = t->members; m; m = m->next)
            sum += m->overhead_bytes[i];
        if (atomic_exchange(&t->lease.page->gpu[i].overhead_bytes, sum) != sum)
            t->overheads_new = true;
    }
}

void sl_arb_tenant_drop(struct arbiter *a, struct tenant *t)
{
    for (struct tenant **p = &a->tenants; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            a->tenant_count--;
            sl_arb_compute_remove(a, t);
            sl_arb_line_look(a);
            break;
        }
    while (t->visitors)
        sl_arb_visitor_remove(a, t->visitors);
    while (t->members)
        sl_arb_member_remove(a, t->members);
    tenant_free(a, t);
}

void sl_arb_tenant_destroy(struct arbiter *a, struct tenant *t)
{
    char file[SL_NAME_MAX + 16];
    /* First: while its lease exists, the next arbiter would enter it, and knows by its id that it is there. */
    sl_arb_history_enter(a, t);
    sl_arb_use_remove(a, t);
    (void)snprintf(file, sizeof(file), "%s.sock", t->name);
    if (t->kept)
        sl_arb_kept_rmdir(sl_arb_kept_dir(a, t), t->name);
    else
        (void)unlinkat(a->tenants_fd, file, 0);
    (void)snprintf(file, sizeof(file), "%s.lease", t->name);
    (void)unlinkat(a->tenants_fd, file, 0);
    sl_arb_overheads_remove(a, t);
    sl_info("tenant %s ended", t->name);
    uint32_t gpu[SL_MAX_GPUS], count = t->gpu_count;
    memcpy(gpu, t->gpu, sizeof(gpu));
    sl_arb_tenant_drop(a, t);
    if (!a->stopping)
        sl_arb_grant_share(a, gpu, count);
}

bool sl_arb_tenant_maybe_end(struct arbiter *a, struct tenant *t)
{
    t->left = false;
    if (t->kept || t->members || t->creator.fd >= 0 || t->recover_until_ns)
        return false;
    sl_arb_tenant_destroy(a, t);
    return true;
}

int sl_arb_tenant_remove(struct arbiter *a, const struct client *by, const struct sl_msg_lease *ask,
                         struct sl_err *err)
{
    struct tenant *t = named(a, ask, err);
    if (!t)
        return -ENOENT;
    int rc = sl_arb_may_change(by, t, err);
    if (rc < 0)
        return rc;
    if (!t->kept)
        return sl_err_set(err, -EBUSY, SL_E_TENANT_OF_COMMAND, t->name);
    sl_arb_tenant_destroy(a, t);
    return 0;
}
