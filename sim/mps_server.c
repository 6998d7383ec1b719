/* SPDX-License-Identifier: Apache-2.0 */
/* Servers and clients. A server is a process that is on the daemon's cards and waits to be
 * ended. */
#include "sim/mps_daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/cuda.h"

#define SERVER_BYTES (30ULL << 20) /* what a real one has on a card */

struct mps_server *mps_server_by_pid(struct mps_daemon *d, pid_t pid)
{
    for (size_t i = 0; i < SL_SIM_MPS_SERVERS; i++)
        if (d->servers[i].pid && d->servers[i].pid == pid)
            return &d->servers[i];
    return NULL;
}

unsigned int mps_clients_of(const struct mps_daemon *d, pid_t server)
{
    unsigned int n = 0;
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
        n += d->peers[i].fd >= 0 && d->peers[i].server == server;
    return n;
}

static _Noreturn void server_process(const struct mps_daemon *d, pid_t parent)
{
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "nvidia-cuda-mps");
    if (getppid() != parent)
        _exit(1);
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)close(d->listener);
    (void)close(d->signals);
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
        if (d->peers[i].fd >= 0)
            (void)close(d->peers[i].fd); /* or clients would not see the daemon die */
    sl_sim_lock(d->st);
    int slot = sl_sim_register(d->st);
    for (uint32_t i = 0; slot >= 0 && i < d->count; i++) {
        struct sl_sim_proc_card *pc = &d->st->procs[slot].card[d->card[i]];
        pc->mps = SL_SIM_MPS_SERVER;
        pc->contexts = 1;
        pc->memory_bytes = SERVER_BYTES;
    }
    sl_sim_unlock(d->st);
    for (;;)
        (void)pause();
}

static struct mps_server *start(struct mps_daemon *d, uid_t uid)
{
    struct mps_server *s = NULL;
    for (size_t i = 0; i < SL_SIM_MPS_SERVERS && !s; i++)
        if (d->servers[i].pid == 0)
            s = &d->servers[i];
    (void)fflush(NULL);
    pid_t parent = getpid(), pid = s ? fork() : -1;
    if (pid < 0)
        return NULL;
    if (pid == 0)
        server_process(d, parent);
    *s = (struct mps_server){.pid = pid, .uid = uid, .limits = d->limits};
    mps_log(d->control_log, "Control", 0, "Starting new server %d for user %u", (int)pid,
            (unsigned int)uid);
    mps_log(d->server_log, "Server", pid, "Initializing server process");
    for (uint32_t i = 0; i < d->count; i++)
        mps_log(d->server_log, "Server", pid, "Creating server context on device %u (%s)", i,
                d->st->cards[d->card[i]].desc.name);
    mps_log(d->server_log, "Server", pid, "Active Threads Percentage set to %.1f",
            d->limits.permille / 10.0);
    for (uint32_t i = 0; i < d->count; i++)
        if (d->limits.bytes[i])
            mps_log(d->server_log, "Server", pid,
                    "Device pinned memory limit for device %u set to 0x%llx", i,
                    (unsigned long long)d->limits.bytes[i]);
    mps_log(d->server_log, "Server", pid, "Server has started");
    mps_log(d->control_log, "Control", 0, "NEW SERVER %d: Ready", (int)pid);
    return s;
}

struct mps_server *mps_server_for(struct mps_daemon *d, uid_t uid)
{
    struct mps_server *other = NULL;
    for (size_t i = 0; i < SL_SIM_MPS_SERVERS; i++) {
        if (!d->servers[i].pid)
            continue;
        if (d->many_users || d->servers[i].uid == uid)
            return &d->servers[i];
        other = &d->servers[i];
    }
    if (other && mps_clients_of(d, other->pid) > 0)
        return NULL; /* one user at a time */
    if (other)
        (void)kill(other->pid, SIGTERM);
    return start(d, uid);
}

void mps_peer_close(struct mps_daemon *d, struct mps_peer *p)
{
    pid_t server = p->server;
    (void)close(p->fd);
    p->fd = -1;
    p->server = 0;
    if (!server)
        return;
    mps_log(d->server_log, "Server", server, "Receive command failed, assuming client exit");
    mps_log(d->server_log, "Server", server, "Client process %d disconnected", (int)p->pid);
    struct mps_server *s = mps_server_by_pid(d, server);
    if (s && s->fault && mps_clients_of(d, server) == 0) {
        s->fault = false;
        mps_log(d->server_log, "Server", server, "Status change: ACTIVE");
    }
}

void mps_server_end(struct mps_daemon *d, struct mps_server *s, const char *how)
{
    pid_t pid = s->pid;
    s->pid = 0;
    mps_log(d->control_log, "Control", 0, "Server %d %s", (int)pid, how);
    for (size_t i = 0; i < SL_SIM_MPS_PEERS; i++)
        if (d->peers[i].fd >= 0 && d->peers[i].server == pid)
            mps_peer_close(d, &d->peers[i]); /* they see it as the loss of their server */
}

static void answer(struct mps_peer *p, const char *line)
{
    (void)send(p->fd, line, strlen(line), MSG_NOSIGNAL);
}

static void refuse(struct mps_daemon *d, struct mps_peer *p, CUresult code, const char *why)
{
    char line[64];
    mps_log(d->control_log, "Control", 0, "NEW CLIENT %d from user %u: %s", (int)p->pid,
            (unsigned int)p->uid, why);
    (void)snprintf(line, sizeof(line), "refused %d\n", (int)code);
    answer(p, line);
    mps_peer_close(d, p);
}

void mps_client_join(struct mps_daemon *d, struct mps_peer *p, uint32_t own_permille)
{
    char line[SL_SIM_MPS_LINE];
    struct mps_server *s = mps_server_for(d, p->uid);
    if (!s || s->fault) {
        refuse(d, p, CUDA_ERROR_MPS_SERVER_NOT_READY,
               s ? "Server is in FAULT state" : "Server is not ready, another user's clients run");
        return;
    }
    if (mps_clients_of(d, s->pid) >= SL_SIM_MPS_CLIENTS) {
        refuse(d, p, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "Server has all the clients it can have");
        return;
    }
    p->server = s->pid;
    mps_log(d->control_log, "Control", 0, "NEW CLIENT %d from user %u: Server already exists",
            (int)p->pid, (unsigned int)p->uid);
    mps_log(d->server_log, "Server", s->pid, "Received new client request");
    mps_log(d->server_log, "Server", s->pid, "Worker created");
    uint32_t permille = s->limits.permille;
    if (own_permille && own_permille < permille)
        permille = own_permille;
    int n = snprintf(line, sizeof(line), "ready %d %u", (int)s->pid, permille);
    for (uint32_t i = 0; i < d->count; i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, " %u=%llu", d->card[i],
                      (unsigned long long)s->limits.bytes[i]);
    (void)snprintf(line + n, sizeof(line) - (size_t)n, "\n");
    answer(p, line);
}
