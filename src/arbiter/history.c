/* SPDX-License-Identifier: Apache-2.0 */
/* The history of ended tenants: who is entered, and who may read it. */
#include "arbiter/arbiter_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"

void sl_arb_history_open(struct arbiter *a)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_history_load(&a->history, a->dir_fd, &err);
    if (rc < 0 && rc != -ENOENT)
        sl_warn("the history begins anew: %s", err.msg);
    else if (a->history.damaged)
        sl_warn("%u damaged lines of the history are left out", a->history.damaged);
}

void sl_arb_history_close(struct arbiter *a)
{
    sl_history_free(&a->history);
}

void sl_arb_history_enter(struct arbiter *a, struct tenant *t)
{
    struct sl_history_entry e;
    if (!t->use.counts)
        return;
    sl_arb_use_entry(a, t, &e);
    if (t->kept)
        e.end = SL_HISTORY_REMOVED;
    /* An arbiter that was killed after this point leaves the tenant to the next one, which enters it again. */
    if (!sl_history_has(&a->history, e.id))
        sl_history_add(&a->history, a->dir_fd, &e);
}

void sl_arb_history_ended(struct arbiter *a, const struct client *c, const struct sl_msg_ended *m)
{
    char name[SL_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, m->name);
    struct tenant *t = sl_arb_tenant_find(a, name);
    /* While the creator is watched, its PID is its own. */
    if (!t || t->kept || t->creator.fd < 0 || t->creator_pid != c->pid)
        return;
    int status = m->status;
    if (WIFEXITED(status)) {
        t->use.end = SL_HISTORY_EXIT;
        t->use.code = (uint32_t)WEXITSTATUS(status);
    } else if (WIFSIGNALED(status)) {
        t->use.end = SL_HISTORY_SIGNAL;
        t->use.code = (uint32_t)WTERMSIG(status);
    }
    if (t->members || t->recover_until_ns) /* the tenant does not end now, and may outlive us */
        sl_arb_use_save(a, t);
}

static int send_lines(struct arbiter *a, struct client *c, struct sl_msg_history *m)
{
    int rc = m->used ? sl_arb_client_send(a, c, &m->h) : 0;
    m->used = 0;
    return rc;
}

int sl_arb_history_send(struct arbiter *a, struct client *c)
{
    struct sl_msg_history m = {.damaged = a->history.damaged};
    struct sl_msg end;
    int rc = 0;
    sl_packet_init(&m.h, SL_MSG_HISTORY_LINES, sizeof(m));
    for (const struct sl_history_line *l = a->history.oldest; l && rc == 0; l = l->next) {
        if (!sl_peer_may_see(c->uid, l->uid))
            continue;
        if (m.used + l->size + 1 > sizeof(m.text))
            rc = send_lines(a, c, &m);
        memcpy(m.text + m.used, l->text, l->size);
        m.used += l->size;
        m.text[m.used++] = '\n';
    }
    if (rc == 0)
        rc = send_lines(a, c, &m);
    sl_packet_init(&end, SL_MSG_END, sizeof(end));
    return rc < 0 ? rc : sl_arb_client_send(a, c, &end);
}
