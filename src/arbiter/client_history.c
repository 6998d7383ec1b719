/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter/client.h"
#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "policy/history.h"
#include "shm/packet.h"

static_assert(SL_HISTORY_TEXT_MAX >= SL_HISTORY_LINE_MAX, "every line fits into a packet");

/* More than an arbiter keeps: a longer answer comes from a broken peer. */
#define ANSWER_MAX (4 * SL_HISTORY_BYTES)

void sl_client_ended(int fd, const char *name, int status)
{
    struct sl_msg_ended m = {.status = status};
    sl_packet_init(&m.h, SL_MSG_ENDED, sizeof(m));
    (void)snprintf(m.name, sizeof(m.name), "%s", name);
    if (sl_packet_send(fd, &m.h, NULL, 0, NULL) < 0)
        sl_debug("the arbiter ended before it could be told the exit code");
}

static int take(const struct sl_msg_history *m, char **text, size_t *size, struct sl_err *err)
{
    if (m->used > sizeof(m->text) || *size + m->used > ANSWER_MAX)
        return sl_err_set(err, -E2BIG, SL_E_ARBITER_LIST);
    *text = sl_xreallocarray(*text, *size + m->used + 1, 1);
    memcpy(*text + *size, m->text, m->used);
    *size += m->used;
    (*text)[*size] = '\0';
    return 0;
}

int sl_client_history(int fd, char **ret_text, size_t *ret_size, uint32_t *ret_damaged,
                      struct sl_err *err)
{
    union sl_packet got = {.h = {0}};
    struct sl_msg question;
    SL_CLEANUP(free) char *text = sl_xstrdup("");
    size_t size = 0;
    *ret_damaged = 0;
    sl_packet_init(&question, SL_MSG_HISTORY, sizeof(question));
    int rc = sl_client_ask(fd, &question, &got, err);
    while (rc == 0 && got.h.type == SL_MSG_HISTORY_LINES) {
        *ret_damaged = got.history.damaged;
        rc = take(&got.history, &text, &size, err);
        if (rc == 0)
            rc = sl_client_receive(fd, &got, err);
    }
    if (rc == 0 && got.h.type != SL_MSG_END)
        rc = sl_err_set(err, -EPROTO, SL_E_ARBITER_ANSWER, got.h.type);
    if (rc < 0)
        return rc;
    *ret_text = sl_take_ptr(text);
    *ret_size = size;
    return 0;
}
