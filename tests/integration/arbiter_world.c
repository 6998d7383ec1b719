/* SPDX-License-Identifier: Apache-2.0 */
#include "arbiter_world.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter/arbiter.h"
#include "base/log.h"

void world_begin(struct world *w)
{
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    char state[128];
    (void)snprintf(state, sizeof(state), "%s/sim.state", w->dir);
    assert_int_equal(setenv("SLUICE_SIM", "h200", 1), 0);
    assert_int_equal(setenv("SLUICE_SIM_STATE", state, 1), 0);
    world_start(w);
}

/* cmocka catches these and goes on with the next test: in a forked arbiter they must end it. */
static void crash_for_real(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
        (void)signal(crashes[i], SIG_DFL);
}

void world_start(struct world *w)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    w->arbiter = fork();
    if (w->arbiter == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        crash_for_real();
        /* A test's own descriptors are no business of the arbiter, which counts its own. */
        if (ready[1] > 3)
            (void)close_range(3, (unsigned)ready[1] - 1, 0);
        (void)close_range((unsigned)ready[1] + 1, ~0U, 0);
        sl_log_open(sl_log_level_parse(getenv("SLUICE_TEST_LOG"), SL_LOG_OFF), STDERR_FILENO);
        struct sl_arbiter_options o = {
            .dir = w->dir, .nvml_library = getenv("SLUICE_TEST_NVML"), .ready_fd = ready[1]};
        struct sl_err err = SL_ERR_INIT;
        _exit(sl_arbiter_serve(&o, &err) < 0);
    }
    (void)close(ready[1]);
    char text[500] = "";
    ssize_t n = read(ready[0], text, sizeof(text) - 1);
    (void)close(ready[0]);
    if (n < 1 || text[0] != 'R')
        fail_msg("the arbiter did not start: %s", text);
}

void world_stop_process(pid_t pid)
{
    int status = 0;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

void world_kill(struct world *w)
{
    (void)kill(w->arbiter, SIGKILL);
    (void)waitpid(w->arbiter, NULL, 0);
}

void world_stop(struct world *w)
{
    int status;
    (void)kill(w->arbiter, SIGTERM);
    assert_int_equal(waitpid(w->arbiter, &status, 0), w->arbiter);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void world_end(struct world *w)
{
    world_stop(w);
    char command[160];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
    assert_int_equal(system(command), 0);
}

int world_connect(const struct world *w)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", w->dir, SL_CONTROL_SOCKET);
    struct sl_err err = SL_ERR_INIT;
    int fd = sl_packet_connect(path, &err);
    if (fd < 0)
        fail_msg("%s", err.msg);
    return fd;
}

struct sl_msg_lease lease_ask(const char *name, uint64_t memory_bytes)
{
    struct sl_msg_lease m = {.memory_bytes = memory_bytes};
    sl_packet_init(&m.h, SL_MSG_CREATE, sizeof(m));
    m.fields = memory_bytes ? SL_FIELD_MEMORY : 0;
    (void)snprintf(m.name, sizeof(m.name), "%s", name);
    return m;
}

enum sl_msg_type world_call(int fd, const struct sl_msg *ask, union sl_packet *ret)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_packet_send(fd, ask, NULL, 0, &err) < 0 ||
        sl_packet_wait(fd, WORLD_ANSWER_MS, &err) < 0 || sl_packet_recv(fd, ret, NULL, &err) < 0)
        fail_msg("%s", err.msg);
    return (enum sl_msg_type)ret->h.type;
}

int peer_attach(const char *path, uint32_t slot, int ledger_fd, struct peer *ret)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_packet_fds fds;
    union sl_packet p;
    int sock = sl_packet_connect(path, &err);
    if (sock < 0)
        return sock;
    struct sl_msg_hello m = {.slot = slot, .own_pid = (uint32_t)getpid(), .command = "test"};
    sl_packet_init(&m.h, SL_MSG_HELLO, sizeof(m));
    int rc = sl_packet_send(sock, &m.h, &ledger_fd, ledger_fd >= 0, &err);
    if (rc == 0 || rc == -EPIPE) /* refused before we spoke: the reason can still be read */
        rc = sl_packet_wait(sock, WORLD_ANSWER_MS, &err);
    if (rc == 0)
        rc = sl_packet_recv(sock, &p, &fds, &err);
    if (rc == 0 && p.h.type == SL_MSG_ERROR)
        rc = p.text.code;
    if (rc < 0) {
        (void)close(sock);
        return rc;
    }
    *ret = (struct peer){.sock = sock, .slot = p.welcome.slot, .doorbell = fds.fd[2]};
    rc = sl_lease_attach(fds.fd[0], &ret->lease, &err);
    return rc < 0 ? rc : sl_ledger_attach(fds.fd[1], NULL, &ret->ledger, &err);
}

void peer_close(struct peer *p)
{
    (void)close(p->sock);
    (void)close(p->doorbell);
    sl_lease_close(&p->lease);
    sl_ledger_close(&p->ledger);
}

uint64_t world_used(const struct world *w, const char *name, uint32_t *ret_processes)
{
    struct sl_msg ask;
    union sl_packet p;
    uint64_t used = UINT64_MAX;
    int fd = world_connect(w);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    for (enum sl_msg_type t = world_call(fd, &ask, &p); t != SL_MSG_END;) {
        if (t == SL_MSG_TENANT && strcmp(p.tenant.name, name) == 0) {
            used = p.tenant.gpu[0].used_bytes;
            if (ret_processes)
                *ret_processes = p.tenant.processes;
        }
        struct sl_err err = SL_ERR_INIT;
        if (sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("%s", err.msg);
        t = (enum sl_msg_type)p.h.type;
    }
    (void)close(fd);
    return used;
}
