/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line's connections and its file (policy/line.h decides). A client that waits keeps its connection open; the
 * arbiter tells it its place whenever that changes, and calls it when there is room. The client then asks again, and
 * gets its tenant: one that is stopped does not ask, and is passed over.
 *
 * The file has the place of each waiting process, by PID and start time. After a restart the kernel says which process
 * is at the other end of a connection, so no client gets a better place by lying.
 */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

#define LINE_FILE "line"
#define FILE_MAX  (128UL * SL_LINE_MAX)
/* No event says that a tenant without a limit freed memory: the line is looked at this often. */
#define LOOK_NS   (250 * SL_NS_PER_MS)
/* Clients further behind are told the reason when their place changes, not whenever a figure does. */
#define NEAR      16

struct waiter {
    struct sl_line_place place;
    struct client *client; /* NULL: absent */
    struct source gone;    /* of an absent one: its process */
    pid_t pid;
    uint64_t start;
    uint64_t since_ns;       /* it waits; also over a restart: the clock goes on */
    struct sl_msg_lease ask; /* not known of an absent one */
    struct sl_msg_waiting told;
};

static struct waiter *waiter_of(struct sl_line_place *place)
{
    return sl_container_of(place, struct waiter, place);
}

static uint32_t priority_of(const struct sl_msg_lease *ask)
{
    return ask->fields & SL_FIELD_PRIORITY ? ask->priority : SL_PRIORITY_NORMAL;
}

/* --- the file --- */

static void save(struct arbiter *a)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    struct sl_err err = SL_ERR_INIT;
    if (!a->line.first) {
        (void)unlinkat(a->dir_fd, LINE_FILE, 0);
        return;
    }
    FILE *f = sl_xmemstream(&text, &size);
    (void)fprintf(f, "sluice-line 1\n");
    for (struct sl_line_place *p = a->line.first; p; p = p->next)
        (void)fprintf(f, "waits %" PRIu64 " %u %d %" PRIu64 " %" PRIu64 "\n", p->number,
                      p->priority, waiter_of(p)->pid, waiter_of(p)->start, waiter_of(p)->since_ns);
    sl_xmemstream_close(f);
    if (sl_fs_replace(a->dir_fd, LINE_FILE, text, size, 0600, &err) < 0)
        sl_warn("the line of waiting commands would not survive a restart: %s", err.msg);
}

static void take_out(struct arbiter *a, struct waiter *w)
{
    sl_line_leave(&a->line, &w->place);
    sl_arb_unwatch(a, &w->gone);
    if (w->client)
        w->client->waiter = NULL;
    free(w);
}

static void drop(struct arbiter *a, struct waiter *w)
{
    take_out(a, w);
    if (!a->stopping) /* the next arbiter finds the line as it is now */
        save(a);
    sl_arb_line_look(a);
}

static void process_gone(struct arbiter *a, struct source *s)
{
    drop(a, sl_container_of(s, struct waiter, gone));
}

/* A place of before, if its process still lives and waits. */
static void keep(struct arbiter *a, const struct waiter *saved)
{
    int fd = sl_peer_watch_by_start(saved->pid, saved->start);
    bool room = fd >= 0 && !sl_arb_tenant_of(a, saved->pid, saved->start);
    struct waiter *w = sl_xcalloc(1, sizeof(*w));
    *w = *saved;
    w->gone = (struct source){.fd = fd, .ready = process_gone};
    if (room && sl_arb_watch(a, &w->gone, NULL) == 0 &&
        sl_line_keep(&a->line, &w->place, a->now_ns))
        return;
    sl_arb_unwatch(a, &w->gone);
    free(w);
}

void sl_arb_line_load(struct arbiter *a)
{
    SL_CLEANUP(free) char *text = NULL;
    char *rest = NULL;
    if (sl_fs_read(a->dir_fd, LINE_FILE, FILE_MAX, &text, NULL, NULL) < 0)
        return;
    for (char *s = strtok_r(text, "\n", &rest); s; s = strtok_r(NULL, "\n", &rest)) {
        struct waiter w = {.client = NULL, .since_ns = a->now_ns};
        /* Earlier builds wrote four numbers, and read four of five. */
        if (sscanf(s, "waits %" SCNu64 " %u %d %" SCNu64 " %" SCNu64, &w.place.number,
                   &w.place.priority, &w.pid, &w.start, &w.since_ns) >= 4 &&
            w.pid > 0 && w.place.priority <= SL_PRIORITY_HIGH)
            keep(a, &w);
    }
    save(a);
}

void sl_arb_line_close(struct arbiter *a)
{
    while (a->line.first)
        take_out(a, waiter_of(a->line.first));
}

/* --- who comes and goes --- */

/* Before a restart the process stood in line, with this priority: there it stands again. */
static void come_back(struct arbiter *a, struct client *c, uint64_t start, uint32_t priority)
{
    for (struct sl_line_place *p = a->line.first; p; p = p->next) {
        struct waiter *w = waiter_of(p);
        if (p->state != SL_LINE_ABSENT || p->priority != priority || w->pid != c->pid ||
            w->start != start)
            continue;
        sl_arb_unwatch(a, &w->gone);
        w->client = c;
        c->waiter = w;
        return;
    }
}

/* Of several users none takes all places: one more only while it has fewer than are left. */
static int check_places(const struct arbiter *a, uid_t uid, struct sl_err *err)
{
    uint32_t has = 0, left = SL_LINE_MAX - a->line.count;
    for (struct sl_line_place *p = a->line.first; p; p = p->next)
        has += waiter_of(p)->client && waiter_of(p)->client->uid == uid;
    if (!sl_arb_is_shared(a, uid) || has < left)
        return 0;
    return sl_err_set(err, -EBUSY, SL_E_PERSON_LINE, has, left);
}

static int join(struct arbiter *a, struct client *c, uint64_t start, uint32_t priority,
                struct sl_err *err)
{
    int rc = check_places(a, c->uid, err);
    if (rc < 0)
        return rc;
    struct waiter *w = sl_xcalloc(1, sizeof(*w));
    w->place.priority = priority;
    if (!sl_line_join(&a->line, &w->place)) {
        free(w);
        return sl_err_set(err, -EUSERS, SL_E_LINE_FULL, SL_LINE_MAX);
    }
    w->gone.fd = -1;
    w->pid = c->pid;
    w->start = start;
    w->since_ns = a->now_ns;
    w->client = c;
    c->waiter = w;
    save(a); /* before it is told: a place that it knows of is one that a restart keeps */
    return 0;
}

/* It waits for this now. */
static int stand(struct arbiter *a, struct waiter *w, const struct sl_msg_lease *ask,
                 struct sl_err *err)
{
    w->ask = *ask;
    w->place.state = SL_LINE_WAITING;
    w->place.held = sl_arb_limits_hold(a, w->client, ask, NULL, 0);
    sl_arb_line_look(a);
    int rc = sl_arb_wants(a, ask, &w->place.wants, &w->place.need, err);
    return rc < 0 ? rc : 1;
}

/* The arbiter of before made the tenant, and ended before it could say so. */
static struct tenant *made_before(struct arbiter *a, const struct client *c, uint64_t start)
{
    struct tenant *t = start ? sl_arb_tenant_of(a, c->pid, start) : NULL;
    if (!t || !t->untold || t->members || t->owner != c->uid)
        return NULL;
    t->untold = false;
    return t;
}

int sl_arb_line_ask(struct arbiter *a, struct client *c, const struct sl_msg_lease *ask,
                    struct tenant **ret, struct sl_err *err)
{
    uint64_t start = sl_arb_process_start(c->pid);
    uint32_t priority = priority_of(ask);
    *ret = c->waiter ? NULL : made_before(a, c, start);
    if (*ret)
        return 0;
    if (!c->waiter)
        come_back(a, c, start, priority);
    struct sl_line_gpus barred =
        sl_line_before(&a->line, c->waiter ? &c->waiter->place : NULL, priority);
    int rc = sl_arb_tenant_create(a, ask, c, &barred, ret, err);
    if (rc == 0 && c->waiter && a->now_ns > c->waiter->since_ns)
        (*ret)->use.waited_ns = a->now_ns - c->waiter->since_ns;
    if (sl_arb_is_for_now(rc)) {
        if (!sl_arb_ever_fits(a, ask))
            rc = -EFBIG;
        else if (!c->waiter)
            rc = join(a, c, start, priority, err);
        else
            rc = 0;
        if (rc == 0)
            rc = stand(a, c->waiter, ask, err);
    }
    if (rc <= 0)
        sl_arb_line_left(a, c);
    return rc;
}

struct sl_line_gpus sl_arb_line_barred(const struct arbiter *a, const struct sl_msg_lease *ask)
{
    /* The cluster placed a container's tenant, and has promised the room already. */
    if (ask->flags & SL_LEASE_KEEP)
        return (struct sl_line_gpus){{0}};
    return sl_line_before(&a->line, NULL, priority_of(ask));
}

void sl_arb_line_left(struct arbiter *a, struct client *c)
{
    if (c->waiter)
        drop(a, c->waiter);
}

/* --- whose turn it is --- */

static bool fits(void *arg, struct sl_line_place *place, const struct sl_line_gpus *barred)
{
    return sl_arb_tenant_fits(arg, &waiter_of(place)->ask, barred);
}

static void why_waits(struct arbiter *a, const struct waiter *w, uint32_t place, char *buf,
                      size_t size)
{
    bool held = w->place.held && w->client && sl_arb_limits_hold(a, w->client, &w->ask, buf, size);
    if (!held && !sl_arb_lacks(a, &w->ask, buf, size))
        (void)snprintf(buf, size, "%s",
                       place > 1 ? "the commands before it go first"
                                 : "the arbiter checks which memory is in use");
}

static void tell(struct arbiter *a, struct waiter *w)
{
    struct sl_msg_waiting m = {.turn = w->place.state == SL_LINE_CALLED};
    struct client *c = w->client;
    if (!c || (!m.turn && c->out_head)) /* it does not read */
        return;
    m.place = sl_line_position(&a->line, &w->place, &m.count);
    bool same = m.place == w->told.place && m.count == w->told.count && m.turn == w->told.turn;
    if (same && m.place > NEAR)
        return;
    why_waits(a, w, m.place, m.why, sizeof(m.why));
    if (same && strcmp(m.why, w->told.why) == 0)
        return;
    sl_packet_init(&m.h, SL_MSG_WAITING, sizeof(m));
    w->told = m;
    if (sl_arb_client_send(a, c, &m.h) < 0)
        sl_arb_client_remove(a, c);
}

/* --- for status --- */

static void describe_ask(struct arbiter *a, const struct waiter *w, struct sl_msg_waiter *m)
{
    struct candidates from;
    m->fields = w->ask.fields;
    m->memory_percent = w->ask.memory_percent;
    m->memory_bytes = w->ask.memory_bytes;
    m->cores_request_permille = w->ask.cores_request_permille;
    m->cores_limit_permille = w->ask.cores_limit_permille;
    m->wanted = w->place.need;
    (void)snprintf(m->name, sizeof(m->name), "%.63s", w->ask.name);
    if (sl_arb_candidates(a, &w->ask, &from, NULL) < 0 || (from.any && w->ask.gpu_count == 0))
        return; /* all GPUs */
    for (; m->gpu_count < from.count && m->gpu_count < SL_MAX_GPUS; m->gpu_count++)
        memcpy(m->gpu[m->gpu_count], a->gpu[from.gpu[m->gpu_count]].uuid, SL_UUID_MAX);
}

static void describe(struct arbiter *a, struct sl_line_place *p, struct sl_msg_waiter *m)
{
    static const struct {
        uint32_t state;
        const char *why;
    } states[] = {
        [SL_LINE_WAITING] = {SL_WAITER_WAITS, NULL},
        [SL_LINE_CALLED] = {SL_WAITER_CALLED, "there is room: it starts now"},
        [SL_LINE_ASLEEP] = {SL_WAITER_ASLEEP,
                            "it is stopped: there was room, it did not answer, and others pass"},
        [SL_LINE_ABSENT] = {SL_WAITER_ABSENT,
                            "the arbiter has restarted, and the command has not come back yet"},
    };
    const struct waiter *w = waiter_of(p);
    uint32_t count;
    *m = (struct sl_msg_waiter){
        .place = sl_line_position(&a->line, p, &count),
        .state = states[p->state].state,
        .pid = (uint32_t)w->pid,
        .priority = p->priority,
        .waited_ns = a->now_ns > w->since_ns ? a->now_ns - w->since_ns : 0,
    };
    sl_packet_init(&m->h, SL_MSG_WAITER, sizeof(*m));
    if (p->state != SL_LINE_ABSENT)
        describe_ask(a, w, m);
    if (states[p->state].why)
        (void)snprintf(m->why, sizeof(m->why), "%s", states[p->state].why);
    else if (m->place > NEAR && w->told.why[0])
        memcpy(m->why, w->told.why, sizeof(m->why)); /* the figures of many would cost too much */
    else
        why_waits(a, w, m->place, m->why, sizeof(m->why));
}

int sl_arb_line_status(struct arbiter *a, struct client *c)
{
    int rc = 0;
    for (struct sl_line_place *p = a->line.first; p && rc == 0; p = p->next) {
        struct sl_msg_waiter m;
        describe(a, p, &m);
        rc = sl_arb_client_send(a, c, &m.h);
    }
    return rc;
}

/* --- the loop --- */

void sl_arb_line_look(struct arbiter *a)
{
    a->line_look_ns = 0;
}

uint64_t sl_arb_line_tick(struct arbiter *a)
{
    if (!a->line.first)
        return UINT64_MAX;
    if (a->now_ns < a->line_look_ns)
        return a->line_look_ns;
    for (struct sl_line_place *p; (p = sl_line_expire(&a->line, a->now_ns));)
        drop(a, waiter_of(p));
    for (struct sl_line_place *p = a->line.first; p; p = p->next)
        p->held = p->state == SL_LINE_WAITING && waiter_of(p)->client &&
                  sl_arb_limits_hold(a, waiter_of(p)->client, &waiter_of(p)->ask, NULL, 0);
    while (sl_line_call(&a->line, a->now_ns, fits, a))
        ;
    a->line_look_ns = a->now_ns + LOOK_NS;
    for (struct sl_line_place *p = a->line.first, *after; p; p = after) {
        after = p->next;
        tell(a, waiter_of(p));
    }
    return least(a->line_look_ns, sl_line_due(&a->line));
}
