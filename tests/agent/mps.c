/* SPDX-License-Identifier: Apache-2.0 */
/* MPS daemons over a control program that misbehaves (fake_mps.c). Real processes, real time, all
 * waits bounded by the test's own limit. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/mps/mps_internal.h"
#include "base/clock.h"

#define MS  SL_NS_PER_MS
#define MIB (1024ULL * 1024)

static const char *fake;

struct world {
    struct sl_loop *loop;
    struct sl_mps *mps;
    char dir[128], root[160], manners[160];
    char log[1024]; /* "GPU-a:ready …": what `state` said, in order */
    char reason[400];
    struct sl_mps_options options;
};

static void on_state(void *data, const char *uuid, enum sl_mps_state state, bool restarted,
                     const char *reason)
{
    static const char *const names[] = {"starting", "ready", "faulted", "failed"};
    struct world *w = data;
    size_t n = strlen(w->log);
    (void)snprintf(w->log + n, sizeof(w->log) - n, "%s%s:%s%s", n ? " " : "", uuid + 4,
                   names[state], restarted ? "-again" : "");
    (void)snprintf(w->reason, sizeof(w->reason), "%s", reason);
}

static void begin(struct world *w)
{
    w->log[0] = '\0';
    w->options.state = on_state;
    w->options.data = w;
    assert_int_equal(sl_mps_create(w->loop, &w->options, &w->mps, NULL), 0);
}

#define until(w, condition)                                                                        \
    while (!(condition))                                                                           \
    assert_int_equal(sl_loop_step((w)->loop, 100, NULL), 0)

/* Ends the daemons and waits for them. */
static void end(struct world *w)
{
    assert_int_equal(sl_mps_apply(w->mps, NULL, 0, NULL), 0);
    until(w, !w->mps->daemons);
    sl_mps_destroy(w->mps);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->dir, "/tmp/sluice-agent-mps-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->root, sizeof(w->root), "%s/mps", w->dir);
    (void)snprintf(w->manners, sizeof(w->manners), "%s/manners", w->dir);
    assert_int_equal(mkdir(w->manners, 0700), 0);
    assert_int_equal(setenv("FAKE_MPS", w->manners, 1), 0);
    assert_int_equal(sl_loop_create(NULL, &w->loop, NULL), 0);
    w->options = (struct sl_mps_options){
        .root = w->root,
        .control = fake,
        .no_own_shm = true,
        .backoff_ns = 20 * MS,
        .command_ns = 2000 * MS,
        .start_ns = 5000 * MS,
        .watch_ns = 100 * MS,
        .quit_ns = 2000 * MS,
    };
    begin(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[256];
    end(w);
    sl_loop_destroy(w->loop);
    (void)snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static void behave(struct world *w, const char *manner, bool on)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", w->manners, manner);
    if (on)
        (void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    else
        (void)unlink(path);
}

/* The lines of `starts`. */
static const char *starts(struct world *w)
{
    static char text[1024];
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/starts", w->manners);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = '\0';
    if (f)
        (void)fclose(f);
    return text;
}

/* Says something to a daemon, past the control program. */
static const char *tell(struct world *w, const char *uuid, const char *text)
{
    static char reply[1024];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.60s/%s/pipe/control", w->root, uuid);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
        fail_msg("no daemon at %s (%s): %s; %s", addr.sun_path, strerror(errno), w->log, w->reason);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)shutdown(fd, SHUT_WR);
    size_t n = 0;
    ssize_t got;
    while ((got = read(fd, reply + n, sizeof(reply) - 1 - n)) > 0)
        n += (size_t)got;
    reply[n] = '\0';
    (void)close(fd);
    return reply;
}

static pid_t daemon_pid(struct world *w, const char *uuid)
{
    char path[256];
    int pid = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/pipe/nvidia-cuda-mps-control.pid", w->root, uuid);
    FILE *f = fopen(path, "re");
    if (f) {
        assert_int_equal(fscanf(f, "%d", &pid), 1);
        (void)fclose(f);
    }
    return pid;
}

static const struct sl_mps_gpu a4 = {
    .uuid = "GPU-a", .index = 0, .memory_bytes = 1000 * MIB, .replicas = 4};
static const struct sl_mps_gpu a3 = {
    .uuid = "GPU-a", .index = 0, .memory_bytes = 1000 * MIB, .replicas = 3};

static void apply(struct world *w, const struct sl_mps_gpu *gpu)
{
    assert_int_equal(sl_mps_apply(w->mps, gpu, gpu ? 1 : 0, NULL), 0);
}

static void make_ready(struct world *w)
{
    apply(w, &a4);
    until(w, strcmp(w->log, "a:starting a:ready") == 0);
}

static void test_two_cards(void **state)
{
    struct world *w = *state;
    struct sl_mps_gpu gpus[] = {
        a4, {.uuid = "GPU-b", .index = 1, .memory_bytes = 900 * MIB, .replicas = 1}};
    struct sl_edits edits = {0};
    assert_int_equal(sl_mps_apply(w->mps, gpus, 2, NULL), 0);
    assert_string_equal(w->log, ""); /* never from inside a call */
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_mps_edits(w->mps, "GPU-a", &edits, &err), -EAGAIN);
    assert_false(sl_mps_ready(w->mps, "GPU-a"));
    until(w, strstr(w->log, "a:ready") && strstr(w->log, "b:ready"));
    assert_string_equal(tell(w, "GPU-a", "fake_show\n"), "25.0 250M \n");
    assert_string_equal(tell(w, "GPU-b", "fake_show\n"), "100.0 900M \n");
    /* each sees its card only */
    assert_non_null(strstr(starts(w), "-f -multiuser-server GPU-a\n"));
    assert_non_null(strstr(starts(w), "-f -multiuser-server GPU-b\n"));
    assert_true(sl_mps_ready(w->mps, "GPU-b"));
    assert_int_equal(sl_mps_edits(w->mps, "GPU-c", &edits, NULL), -ENOENT);
    assert_int_equal(sl_mps_edits(w->mps, "GPU-a", &edits, NULL), 0);
    char expected[256];
    (void)snprintf(expected, sizeof(expected), "%s/GPU-a/pipe", w->root);
    assert_int_equal(edits.env_count, 1);
    assert_string_equal(edits.env[0].name, "CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(edits.env[0].value, expected);
    assert_int_equal(edits.mount_count, 1);
    assert_string_equal(edits.mount[0].host, expected);
    sl_edits_clear(&edits);
}

static void test_bad_lists(void **state)
{
    struct world *w = *state;
    struct sl_err err = SL_ERR_INIT;
    struct sl_mps_gpu g = a4;
    g.replicas = 2000;
    assert_int_equal(sl_mps_apply(w->mps, &g, 1, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "fewer replicas"));
    g = a4;
    g.uuid = "../x";
    assert_int_equal(sl_mps_apply(w->mps, &g, 1, &err), -EINVAL);
    struct sl_mps_options none = {0};
    struct sl_mps *mps;
    assert_int_equal(sl_mps_create(w->loop, &none, &mps, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "--mps-root"));
}

/* An older driver: without -multiuser-server, then without -f. */
static void test_variants(void **state)
{
    struct world *w = *state;
    behave(w, "no-multiuser", true);
    make_ready(w);
    assert_string_equal(starts(w), "-f GPU-a\n");
    assert_non_null(strstr(w->reason, "no -multiuser-server"));
}

/* It was ready, failed, and is ready again. A busy machine may take several tries to start it. */
static bool recovered(const struct world *w)
{
    const char *end = strrchr(w->log, ' ');
    return strstr(w->log, "a:ready a:failed") && end && strcmp(end, " a:ready-again") == 0;
}

static void test_background(void **state)
{
    struct world *w = *state;
    behave(w, "no-multiuser", true);
    behave(w, "no-foreground", true);
    make_ready(w);
    assert_string_equal(starts(w), "-d GPU-a\n");
    pid_t pid = daemon_pid(w, "GPU-a");
    (void)kill(pid, SIGKILL); /* not our child, and noticed all the same */
    until(w, recovered(w));
}

static void test_death(void **state)
{
    struct world *w = *state;
    struct sl_edits edits = {0};
    make_ready(w);
    (void)tell(w, "GPU-a", "fake_die\n");
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "exit status 9"));
    assert_non_null(strstr(w->reason, "something terrible happened"));
    assert_int_equal(sl_mps_edits(w->mps, "GPU-a", &edits, NULL), -EAGAIN);
    until(w, recovered(w));
    assert_string_equal(tell(w, "GPU-a", "fake_show\n"), "25.0 250M \n"); /* with its limits */
}

static void test_does_not_start(void **state)
{
    struct world *w = *state;
    behave(w, "no-start", true);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "no CUDA-capable device is detected"));
    behave(w, "no-start", false);
    until(w, strcmp(w->log, "a:starting a:failed a:ready-again") == 0); /* tried again by itself */
}

static void test_no_program(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.control = NULL;
    w->options.driver_root = w->dir;
    begin(w);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "no nvidia-cuda-mps-control under /tmp/"));
}

static void test_refuses_limits(void **state)
{
    struct world *w = *state;
    behave(w, "no-limits", true);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "refuses its limits: Error: invalid limit"));
    behave(w, "no-limits", false);
    until(w, strstr(w->log, "a:ready-again"));
}

static void test_forgets_limits(void **state)
{
    struct world *w = *state;
    behave(w, "no-percent", true);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "25 % were set, it reports \"100.0\""));
}

static void test_daemon_hangs(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.command_ns = 200 * MS;
    begin(w);
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    (void)tell(w, "GPU-a", "fake_hang\n");
    until(w, strstr(w->log, "a:failed"));
    assert_non_null(strstr(w->reason, "does not answer"));
    until(w, strstr(w->log, "a:ready-again"));
    assert_int_not_equal(daemon_pid(w, "GPU-a"), pid);
    assert_int_equal(kill(pid, 0), -1); /* it was ended first */
}

/* The control program itself hangs: the loop does not. */
static void test_control_hangs(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.command_ns = 100 * MS;
    w->options.start_ns = 300 * MS;
    begin(w);
    behave(w, "no-answer", true);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    behave(w, "no-answer", false);
    until(w, strstr(w->log, "a:ready-again"));
}

/* A client's fault: unhealthy at the line in the log, healthy when the server has recovered. */
static void test_client_fault(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.watch_ns = 3600ULL * SL_NS_PER_S; /* only the log */
    begin(w);
    make_ready(w);
    (void)tell(w, "GPU-a", "fake_log the default limit was set to 25\nfake_log all is well\n");
    (void)tell(w, "GPU-a",
               "fake_server 4242 FAULT\nfake_log Server is handling a fatal GPU error\n");
    until(w, strstr(w->log, "a:faulted"));
    assert_string_equal(w->log, "a:starting a:ready a:faulted");
    assert_non_null(strstr(w->reason, "failed under MPS: Server is handling a fatal GPU error"));
    for (int i = 0; i < 8; i++) /* it looks, and finds it still so */
        assert_int_equal(sl_loop_step(w->loop, 100, NULL), 0);
    assert_string_equal(w->log, "a:starting a:ready a:faulted");
    (void)tell(w, "GPU-a", "fake_server 4242 ACTIVE\n");
    until(w, strcmp(w->log, "a:starting a:ready a:faulted a:ready-again") == 0);
    assert_string_equal(starts(w), "-f -multiuser-server GPU-a\n"); /* the same daemon */
}

/* Noticed by the watch alone, and healed by a new daemon when it does not heal itself. */
static void test_fault_that_stays(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.heal_ns = 100 * MS;
    begin(w);
    make_ready(w);
    (void)tell(w, "GPU-a", "fake_server 4242 FAULT\n");
    until(w, strcmp(w->log, "a:starting a:ready a:faulted a:failed a:ready-again") == 0);
    assert_non_null(strstr(starts(w), "GPU-a\n-f -multiuser-server GPU-a\n"));
}

static void test_new_limits(void **state)
{
    struct world *w = *state;
    make_ready(w);
    (void)tell(w, "GPU-a", "fake_server 4242 ACTIVE\n");
    apply(w, &a3);
    until(w, strncmp(tell(w, "GPU-a", "fake_show\n"), "33.0 333M ", 10) == 0);
    const char *show = tell(w, "GPU-a", "fake_show\n"); /* the running server's next clients too */
    assert_non_null(strstr(show, "set_device_pinned_mem_limit 4242 0 333M;"));
    assert_non_null(strstr(show, "set_active_thread_percentage 4242 33;"));
    assert_string_equal(w->log, "a:starting a:ready"); /* and nobody noticed */
    struct sl_mps_gpu whole = a4;
    whole.replicas = 1;
    apply(w, &whole);
    until(w, strncmp(tell(w, "GPU-a", "fake_show\n"), "100.0 1000M ", 12) == 0);
}

static void test_removed(void **state)
{
    struct world *w = *state;
    char path[256];
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    apply(w, NULL);
    assert_int_equal(sl_mps_edits(w->mps, "GPU-a", NULL, NULL), -ENOENT);
    (void)snprintf(path, sizeof(path), "%s/GPU-a", w->root);
    until(w, access(path, F_OK) != 0); /* directories and all */
    assert_int_equal(kill(pid, 0), -1);
    assert_string_equal(w->log, "a:starting a:ready");
}

static void test_removed_and_back(void **state)
{
    struct world *w = *state;
    make_ready(w);
    apply(w, NULL);
    apply(w, &a4);
    until(w, strcmp(w->log, "a:starting a:ready a:starting a:ready") == 0);
}

static void test_stubborn(void **state)
{
    struct world *w = *state;
    end(w);
    w->options.quit_ns = 100 * MS;
    begin(w);
    behave(w, "stubborn", true);
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    end(w);
    assert_int_equal(kill(pid, 0), -1);
    begin(w);
}

/* The agent ends or is killed, its daemons serve on, the next agent takes them over. */
static void test_adopted(void **state)
{
    struct world *w = *state;
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    (void)tell(w, "GPU-a", "fake_server 4242 ACTIVE\n");
    sl_mps_destroy(w->mps);
    assert_int_equal(kill(pid, 0), 0);
    begin(w);
    apply(w, &a3);
    until(w, strcmp(w->log, "a:starting a:ready") == 0);
    assert_non_null(strstr(w->reason, "running already"));
    assert_int_equal(daemon_pid(w, "GPU-a"), pid);
    assert_string_equal(starts(w), "-f -multiuser-server GPU-a\n"); /* one, ever */
    assert_non_null(
        strstr(tell(w, "GPU-a", "fake_show\n"), "33.0 333M set_device_pinned_mem_limit 4242"));
    (void)kill(pid, SIGKILL); /* it is watched like our own (and is our child: reap it) */
    until(w, strstr(w->log, "a:failed"));
    (void)waitpid(pid, NULL, WNOHANG);
    until(w, strstr(w->log, "a:ready-again"));
}

/* One that does not answer any more is ended, not doubled. */
static void test_not_adopted(void **state)
{
    struct world *w = *state;
    w->options.command_ns = 100 * MS;
    w->options.start_ns = 300 * MS;
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    sl_mps_destroy(w->mps);
    (void)tell(w, "GPU-a", "fake_hang\n");
    begin(w);
    apply(w, &a4);
    until(w, strstr(w->log, "a:failed"));
    (void)waitpid(pid, NULL, 0);
    until(w, strstr(w->log, "a:ready"));
    assert_int_not_equal(daemon_pid(w, "GPU-a"), pid);
}

/* Directories of a dead daemon, and a record that names somebody else's process. */
static void test_stale(void **state)
{
    struct world *w = *state;
    char path[300];
    make_ready(w);
    pid_t pid = daemon_pid(w, "GPU-a");
    sl_mps_destroy(w->mps);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)snprintf(path, sizeof(path), "%s/GPU-a/daemon.pid", w->root);
    FILE *f = fopen(path, "we");
    fprintf(f, "%d\n", (int)getpid()); /* us */
    (void)fclose(f);
    begin(w);
    make_ready(w);
    assert_int_not_equal(daemon_pid(w, "GPU-a"), pid);
}

/* Only where the test may make namespaces: as root on most machines. */
static void test_own_shm(void **state)
{
    struct world *w = *state;
    pid_t can = fork();
    if (can == 0)
        _exit(unshare(CLONE_NEWNS) == 0 ? 0 : 1);
    int status = 1;
    (void)waitpid(can, &status, 0);
    if (status != 0) {
        print_message("no mount namespaces here: only the error is tested\n");
    }
    end(w);
    w->options.no_own_shm = false;
    begin(w);
    apply(w, &a4);
    until(w, strstr(w->log, "a:ready") || strstr(w->log, "a:failed"));
    if (strstr(w->log, "a:failed")) {
        assert_int_not_equal(status, 0);
        assert_non_null(strstr(w->reason, "private /dev/shm"));
        return;
    }
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/GPU-a/shm/probe", w->root);
    (void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    (void)snprintf(path, sizeof(path), "/proc/%d/root/dev/shm/probe", (int)daemon_pid(w, "GPU-a"));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access("/dev/shm/probe", F_OK), 0);
    struct sl_edits edits = {0};
    assert_int_equal(sl_mps_edits(w->mps, "GPU-a", &edits, NULL), 0);
    assert_int_equal(edits.mount_count, 2);
    assert_string_equal(edits.mount[1].container, "/dev/shm");
    sl_edits_clear(&edits);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    fake = argv[1];
    const struct CMUnitTest tests[] = {
        CASE(test_two_cards),        CASE(test_bad_lists),      CASE(test_variants),
        CASE(test_background),       CASE(test_death),          CASE(test_does_not_start),
        CASE(test_no_program),       CASE(test_refuses_limits), CASE(test_forgets_limits),
        CASE(test_daemon_hangs),     CASE(test_control_hangs),  CASE(test_client_fault),
        CASE(test_fault_that_stays), CASE(test_new_limits),     CASE(test_removed),
        CASE(test_removed_and_back), CASE(test_stubborn),       CASE(test_adopted),
        CASE(test_not_adopted),      CASE(test_stale),          CASE(test_own_shm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
