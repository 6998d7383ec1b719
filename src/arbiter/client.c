/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter/client.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "shm/packet.h"

#define ANSWER_TIMEOUT_MS 10000
#define STATUS_MAX        65536 /* of each kind: a longer list comes from a broken peer */

static int not_in_group(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    char group[64], user[64];
    const struct group *g = getgrgid(place->group);
    const struct passwd *u = getpwuid(geteuid());
    if (g)
        (void)snprintf(group, sizeof(group), "%s", g->gr_name);
    else
        (void)snprintf(group, sizeof(group), "%u", (unsigned)place->group);
    if (u)
        (void)snprintf(user, sizeof(user), "%s", u->pw_name);
    else
        (void)snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
    return sl_err_set(err, -EACCES, SL_E_SYSTEM_GROUP, place->dir, group, user, group, user);
}

int sl_client_connect(const struct sl_arbiter_dir *place, struct sl_err *err)
{
    int rc = sl_arbiter_dir_check(place, err);
    if (rc == -ENOENT)
        return sl_err_set(err, -ENOENT, SL_E_NO_ARBITER, place->dir);
    if (rc < 0)
        return rc;
    int fd = sl_packet_connect(place->socket, err);
    if (fd == -EACCES && place->system)
        return not_in_group(place, err);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return sl_err_set(err, -ENOENT, SL_E_NO_ARBITER, place->dir);
    return fd;
}

int sl_client_peer_pid(int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 ? cred.pid : 0;
}

/* The arbiter's own message, where it refuses. */
static int refusal(union sl_packet *got, struct sl_err *err)
{
    if (got->h.type != SL_MSG_ERROR)
        return 0;
    got->text.text[sizeof(got->text.text) - 1] = '\0';
    return sl_err_set(err, got->text.code < 0 ? got->text.code : -EIO, "%s", got->text.text);
}

/* Waits for an answer; the error for a silent arbiter names it, so that the user can act. */
static int wait_for_answer(int fd, struct sl_err *err)
{
    int rc = sl_packet_wait(fd, ANSWER_TIMEOUT_MS, err);
    int pid = sl_client_peer_pid(fd);
    if (rc != -ETIMEDOUT || pid <= 0)
        return rc < 0 ? sl_err_wrap(err, "asking the arbiter") : rc;
    if (pid == 1) /* the service manager still holds the socket for it */
        return sl_err_set(err, rc, SL_E_SYSTEM_SILENT, ANSWER_TIMEOUT_MS / 1000);
    return sl_err_set(err, rc, SL_E_ARBITER_SILENT, pid, ANSWER_TIMEOUT_MS / 1000, pid);
}

int sl_client_receive(int fd, union sl_packet *ret, struct sl_err *err)
{
    int rc = wait_for_answer(fd, err);
    if (rc < 0)
        return rc;
    rc = sl_packet_recv(fd, ret, NULL, err);
    if (rc < 0)
        return sl_err_wrap(err, "asking the arbiter");
    return refusal(ret, err);
}

static int unexpected(const union sl_packet *got, struct sl_err *err)
{
    return sl_err_set(err, -EPROTO, SL_E_ARBITER_ANSWER, got->h.type);
}

/* A connection that breaks during the question counts as broken before the answer. */
int sl_client_ask(int fd, const struct sl_msg *question, union sl_packet *ret, struct sl_err *err)
{
    int rc = sl_packet_send(fd, question, NULL, 0, err);
    if (rc < 0 && rc != -EPIPE)
        return sl_err_wrap(err, "asking the arbiter");
    /* The arbiter may have sent the reason before it closed the connection. */
    int answered = sl_client_receive(fd, ret, err);
    if (rc == -EPIPE && answered == -ECONNRESET)
        return sl_err_set(err, -ECONNRESET, SL_E_ARBITER_ENDED);
    return answered;
}

/* want 0: any answer. */
static int ask(int fd, enum sl_msg_type type, const struct sl_msg_lease *lease, int want,
               union sl_packet *ret, struct sl_err *err)
{
    struct sl_msg_lease question = *lease;
    sl_packet_init(&question.h, type, sizeof(question));
    int rc = sl_client_ask(fd, &question.h, ret, err);
    return rc == 0 && want && ret->h.type != want ? unexpected(ret, err) : rc;
}

/* An older arbiter does not know how many GPUs the request wants, and gives one. Its tenant ends with this process; one
 * that would stay is removed. */
static int check_count(int fd, const struct sl_msg_lease *lease, const struct sl_msg_created *got,
                       struct sl_err *err)
{
    uint32_t wanted = lease->flags & SL_LEASE_ANY ? sl_lease_wanted(lease->flags) : got->gpu_count;
    struct sl_err ignored = SL_ERR_INIT;
    if (got->gpu_count == wanted)
        return 0;
    if (lease->flags & SL_LEASE_KEEP)
        (void)!sl_client_remove(fd, got->name, &ignored);
    return sl_err_set(err, -EPROTO, SL_E_ARBITER_ONE_GPU, sl_client_peer_pid(fd));
}

static int take_created(int fd, const struct sl_msg_lease *lease, const union sl_packet *got,
                        struct sl_msg_created *ret, struct sl_err *err)
{
    if (got->h.type != SL_MSG_CREATED)
        return unexpected(got, err);
    *ret = got->created;
    ret->name[sizeof(ret->name) - 1] = '\0';
    ret->attach_path[sizeof(ret->attach_path) - 1] = '\0';
    if (ret->gpu_count > SL_MAX_GPUS)
        ret->gpu_count = SL_MAX_GPUS;
    for (size_t i = 0; i < SL_MAX_GPUS; i++)
        ret->gpu[i][SL_UUID_MAX - 1] = '\0';
    return check_count(fd, lease, ret, err);
}

int sl_client_create(int fd, const struct sl_msg_lease *lease, struct sl_msg_created *ret,
                     struct sl_err *err)
{
    union sl_packet got = {.h = {0}};
    int rc = ask(fd, SL_MSG_CREATE, lease, 0, &got, err);
    return rc < 0 ? rc : take_created(fd, lease, &got, ret, err);
}

/* -ETIME: nothing came before the deadline. */
static int receive_until(int fd, uint64_t deadline_ns, union sl_packet *ret, struct sl_err *err)
{
    int rc = -ETIMEDOUT;
    while (rc == -ETIMEDOUT) {
        uint64_t now = sl_now_ns();
        if (now >= deadline_ns)
            return sl_err_set(err, -ETIME, SL_E_LINE_TIME_OVER);
        uint64_t left_ms = (deadline_ns - now) / SL_NS_PER_MS + 1;
        rc = sl_packet_wait(fd, left_ms < INT_MAX ? (int)left_ms : INT_MAX, err);
    }
    if (rc == 0)
        rc = sl_packet_recv(fd, ret, NULL, err);
    return rc < 0 ? rc : refusal(ret, err);
}

int sl_client_create_waiting(int fd, const struct sl_msg_lease *lease,
                             const struct sl_client_wait *how, struct sl_msg_created *ret,
                             struct sl_err *err)
{
    struct sl_msg_lease question = *lease;
    union sl_packet got = {.h = {0}};
    question.flags |= SL_LEASE_WAIT;
    int rc = ask(fd, SL_MSG_CREATE, &question, 0, &got, err);
    if (rc == -ENOSPC || rc == -EAGAIN)
        return sl_err_set(err, -EPROTO, SL_E_ARBITER_NO_LINE, sl_client_peer_pid(fd));
    while (rc == 0 && got.h.type == SL_MSG_WAITING) {
        struct sl_msg_waiting place = got.waiting;
        place.why[sizeof(place.why) - 1] = '\0';
        how->notice(how->arg, &place);
        rc = place.turn ? ask(fd, SL_MSG_CREATE, &question, 0, &got, err)
                        : receive_until(fd, how->deadline_ns, &got, err);
    }
    return rc < 0 ? rc : take_created(fd, lease, &got, ret, err);
}

int sl_client_set(int fd, const struct sl_msg_lease *lease, struct sl_msg_text *ret_remark,
                  struct sl_err *err)
{
    union sl_packet got = {.h = {0}};
    int rc = ask(fd, SL_MSG_SET, lease, SL_MSG_OK, &got, err);
    if (rc < 0)
        return rc;
    *ret_remark = got.text;
    ret_remark->text[sizeof(ret_remark->text) - 1] = '\0';
    return 0;
}

int sl_client_remove(int fd, const char *name, struct sl_err *err)
{
    struct sl_msg_lease question = {0};
    union sl_packet got = {.h = {0}};
    (void)snprintf(question.name, sizeof(question.name), "%s", name);
    return ask(fd, SL_MSG_REMOVE, &question, SL_MSG_OK, &got, err);
}

bool sl_client_about(const char *about, const char *key, char *buf, size_t size)
{
    size_t n = strlen(key);
    for (const char *p = about; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strncmp(p, key, n) == 0 && p[n] == '=') {
            (void)snprintf(buf, size, "%.*s", (int)strcspn(p + n + 1, " "), p + n + 1);
            return true;
        }
    if (size)
        buf[0] = '\0';
    return false;
}

/* Appends one record to a growing array. */
static int append(void **list, size_t *count, const void *item, size_t size, struct sl_err *err)
{
    if (*count >= STATUS_MAX)
        return sl_err_set(err, -E2BIG, SL_E_ARBITER_LIST);
    if ((*count & (*count - 1)) == 0)
        *list = sl_xreallocarray(*list, *count ? *count * 2 : 1, size);
    memcpy((char *)*list + *count * size, item, size);
    (*count)++;
    return 0;
}

/* Ends the peer's strings inside their fields. */
static int take(struct sl_client_status *s, union sl_packet *got, struct sl_err *err)
{
    switch (got->h.type) {
    case SL_MSG_GPU:
        got->gpu.uuid[SL_UUID_MAX - 1] = got->gpu.name[SL_NAME_MAX - 1] = '\0';
        got->gpu.compute_why[sizeof(got->gpu.compute_why) - 1] = '\0';
        return append((void **)&s->gpu, &s->gpu_count, &got->gpu, sizeof(got->gpu), err);
    case SL_MSG_TENANT:
        got->tenant.name[SL_NAME_MAX - 1] = got->tenant.about[SL_ABOUT_MAX - 1] = '\0';
        if (got->tenant.gpu_count > SL_MAX_GPUS)
            got->tenant.gpu_count = SL_MAX_GPUS;
        for (size_t i = 0; i < SL_MAX_GPUS; i++)
            got->tenant.gpu[i].uuid[SL_UUID_MAX - 1] = '\0';
        return append((void **)&s->tenant, &s->tenant_count, &got->tenant, sizeof(got->tenant),
                      err);
    case SL_MSG_AUDIT:
        got->audit.uuid[SL_UUID_MAX - 1] = got->audit.tenant[SL_NAME_MAX - 1] = '\0';
        got->audit.command[sizeof(got->audit.command) - 1] = '\0';
        return append((void **)&s->audit, &s->audit_count, &got->audit, sizeof(got->audit), err);
    case SL_MSG_WAITER:
        got->waiter.name[SL_NAME_MAX - 1] = got->waiter.why[sizeof(got->waiter.why) - 1] = '\0';
        if (got->waiter.gpu_count > SL_MAX_GPUS)
            got->waiter.gpu_count = SL_MAX_GPUS;
        for (size_t i = 0; i < SL_MAX_GPUS; i++)
            got->waiter.gpu[i][SL_UUID_MAX - 1] = '\0';
        return append((void **)&s->waiter, &s->waiter_count, &got->waiter, sizeof(got->waiter),
                      err);
    default:
        return unexpected(got, err);
    }
}

int sl_client_status_take(struct sl_client_status *status, union sl_packet *got, struct sl_err *err)
{
    int rc = refusal(got, err);
    if (rc < 0)
        return rc;
    return got->h.type == SL_MSG_END ? 1 : take(status, got, err);
}

int sl_client_status(int fd, struct sl_client_status *ret, struct sl_err *err)
{
    struct sl_client_status s = {0};
    struct sl_msg question;
    union sl_packet got = {.h = {0}};
    sl_packet_init(&question, SL_MSG_STATUS, sizeof(question));
    question.option = SL_STATUS_LINE;
    int rc = sl_packet_send(fd, &question, NULL, 0, err);
    if (rc == -EPIPE) { /* it may have sent the reason before it closed the connection */
        rc = sl_client_receive(fd, &got, err);
        return rc < 0 && rc != -ECONNRESET ? rc : sl_err_set(err, -ECONNRESET, SL_E_ARBITER_ENDED);
    }
    if (rc < 0)
        return sl_err_wrap(err, "asking the arbiter");
    while (rc == 0) {
        rc = wait_for_answer(fd, err);
        if (rc == 0 && (rc = sl_packet_recv(fd, &got, NULL, err)) < 0)
            rc = rc == -EAGAIN ? 0 : sl_err_wrap(err, "asking the arbiter");
        else if (rc == 0)
            rc = sl_client_status_take(&s, &got, err);
    }
    if (rc < 0) {
        sl_client_status_free(&s);
        return rc;
    }
    *ret = s;
    return 0;
}

int sl_client_processes(int fd, const char *name, struct sl_msg_process **ret, size_t *ret_count,
                        struct sl_err *err)
{
    struct sl_msg_lease question = {0};
    union sl_packet got = {.h = {0}};
    void *list = NULL;
    size_t count = 0;
    (void)snprintf(question.name, sizeof(question.name), "%s", name);
    int rc = ask(fd, SL_MSG_PROCESSES, &question, 0, &got, err);
    while (rc == 0 && got.h.type == SL_MSG_PROCESS) {
        got.process.command[sizeof(got.process.command) - 1] = '\0';
        if (got.process.gpu_count > SL_MAX_GPUS)
            got.process.gpu_count = SL_MAX_GPUS;
        rc = append(&list, &count, &got.process, sizeof(got.process), err);
        if (rc == 0)
            rc = sl_client_receive(fd, &got, err);
    }
    if (rc == 0 && got.h.type != SL_MSG_END)
        rc = unexpected(&got, err);
    if (rc < 0) {
        free(list);
        return rc;
    }
    *ret = list;
    *ret_count = count;
    return 0;
}

void sl_client_status_free(struct sl_client_status *status)
{
    free(status->gpu);
    free(status->tenant);
    free(status->audit);
    free(status->waiter);
    *status = (struct sl_client_status){0};
}
