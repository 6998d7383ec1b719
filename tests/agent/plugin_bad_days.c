/* SPDX-License-Identifier: Apache-2.0 */
/* Device plugins on bad days: kubelet comes and goes, files vanish, somebody else wants the same. */
#include "plugin_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/unix.h"
#include "../support/rng.h"

#define GPU "nvidia.com/gpu"

static bool no_inotify;
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);

int __wrap_inotify_init1(int flags)
{
    if (!no_inotify)
        return __real_inotify_init1(flags);
    errno = EMFILE;
    return -1;
}

static void socket_path(const struct world *w, char path[120])
{
    (void)snprintf(path, 120, "%s/nvidia-gpu.sock", w->dir);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void kubelet_restarts_ten_times(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    const struct world_resource both[] = {
        {.name = GPU, .gpus = 2, .replicas = 1},
        {.name = "nvidia.com/gpu.shared", .gpus = 2, .replicas = 2}};
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply(&w, both, 2);
    (void)world_wait(&w, GPU, 2);
    for (unsigned i = 0; i < 10; i++) {
        fake_stop(&w.kubelet, i % 2);
        if (i % 3 == 0)
            world_settle(&w); /* sometimes it is back before anybody has noticed */
        fake_start(&w.kubelet, w.loop, w.dir);
        (void)world_wait(&w, GPU, 2);
        (void)world_wait(&w, "nvidia.com/gpu.shared", 4);
    }
    struct sl_plugins_stats stats;
    sl_plugins_stats(w.plugins, &stats);
    assert_true(stats.registrations >= 22);
    assert_true(w.started >= 10);
    assert_int_equal(w.notices, 0);
    world_close(&w);
}

static void kubelet_comes_later(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    world_apply_one(&w, GPU, 1, 1);
    world_settle(&w);
    assert_false(sl_plugins_ready(w.plugins));
    fake_stop(&w.kubelet, true); /* only a file of one that died */
    world_settle(&w);
    assert_false(sl_plugins_ready(w.plugins));
    fake_start(&w.kubelet, w.loop, w.dir);
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

static void remove_dir(const struct world *w)
{
    char command[160];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
    assert_int_equal(system(command), 0);
}

static void directory_goes_and_comes(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    world_apply_one(&w, GPU, 1, 1);
    for (int i = 0; i < 3; i++) {
        fake_stop(&w.kubelet, false);
        remove_dir(&w);
        world_settle(&w);
        world_step(&w, 300);
        assert_int_equal(mkdir(w.dir, 0700), 0);
        fake_start(&w.kubelet, w.loop, w.dir);
        (void)world_wait(&w, GPU, 1);
    }
    world_close(&w);
}

static void no_directory_at_start(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    sl_plugins_destroy(w.plugins);
    remove_dir(&w);
    w.plugins = world_plugins(&w);
    world_apply_one(&w, GPU, 1, 1);
    world_step(&w, 100);
    assert_int_equal(mkdir(w.dir, 0700), 0);
    fake_start(&w.kubelet, w.loop, w.dir);
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

static void works_without_inotify(void **state)
{
    (void)state;
    struct world w;
    no_inotify = true;
    world_open(&w, 1);
    no_inotify = false;
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 1);
    (void)world_wait(&w, GPU, 1);
    fake_stop(&w.kubelet, true);
    fake_start(&w.kubelet, w.loop, w.dir);
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

static void inotify_runs_over(void **state)
{
    (void)state;
    struct world w;
    char path[120], other[120];
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 1);
    struct fake_resource *r = world_wait(&w, GPU, 1);
    socket_path(&w, path);
    (void)snprintf(other, sizeof(other), "%s/noise", w.dir);
    FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    unsigned events = 0;
    if (!f || fscanf(f, "%u", &events) != 1 || events > 100000)
        skip();
    (void)fclose(f);
    for (unsigned i = 0; i <= events / 2; i++) {
        int fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        (void)close(fd);
        (void)unlink(other);
    }
    assert_int_equal(unlink(path), 0); /* lost in the noise */
    world_until(&w, exists(path));
    assert_int_equal(r->blips, 0);
    world_close(&w);
}

/* Kubelet is connected: nothing it would notice may happen. */
static void socket_is_removed_under_a_stream(void **state)
{
    (void)state;
    struct world w;
    char path[120];
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 2);
    struct fake_resource *r = world_wait(&w, GPU, 2);
    socket_path(&w, path);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(unlink(path), 0);
        world_until(&w, exists(path));
    }
    world_settle(&w);
    assert_int_equal(r->registrations, 1);
    assert_int_equal(r->ends, 0);
    assert_int_equal(r->blips, 0);
    struct sl_err err = SL_ERR_INIT;
    int fd = sl_rpc_unix_connect(path, &err);
    assert_true(fd >= 0);
    (void)close(fd);
    world_close(&w);
}

static void socket_is_removed_without_a_stream(void **state)
{
    (void)state;
    struct world w;
    char path[120];
    world_open(&w, 1);
    world_apply_one(&w, GPU, 1, 1);
    socket_path(&w, path);
    assert_int_equal(unlink(path), 0);
    world_until(&w, exists(path));
    fake_start(&w.kubelet, w.loop, w.dir);
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

/* Up to 1.36 a stream that ends takes the next registration with it. */
static void stream_drops_and_is_registered_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    w.kubelet.manners = FAKE_RACES;
    world_apply_one(&w, GPU, 1, 1);
    struct fake_resource *r = world_wait(&w, GPU, 1);
    assert_int_equal(r->registrations, 2);
    world_close(&w);
}

/* Whatever kubelet does instead of what it should: asked again, not too often, and served in the end. */
static void bad_manners(void **state)
{
    (void)state;
    static const struct {
        enum fake_manners manners;
        uint64_t pass_ms;
        unsigned at_least, at_most;
    } days[] = {
        {FAKE_REFUSES, 10000, 5, 12}, {FAKE_GARBAGE, 25000, 2, 20}, {FAKE_INCONSTANT, 10000, 5, 12},
        {FAKE_DEAF, 16000, 5, 10},    {FAKE_SILENT, 25000, 2, 6},
    };
    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
        struct world w;
        world_open_timeless(&w, 1);
        fake_start(&w.kubelet, w.loop, w.dir);
        w.kubelet.manners = days[i].manners;
        world_apply_one(&w, GPU, 1, 1);
        world_pass(&w, days[i].pass_ms);
        if (w.kubelet.registrations < days[i].at_least || w.kubelet.registrations > days[i].at_most)
            fail_msg("manners %d: %u registrations in %u ms", (int)days[i].manners,
                     w.kubelet.registrations, (unsigned)days[i].pass_ms);
        assert_false(sl_plugins_ready(w.plugins));
        w.kubelet.manners = FAKE_GOOD;
        world_pass(&w, 16000);
        (void)world_wait(&w, GPU, 1);
        world_close(&w);
    }
}

/* While nobody answers it is asked about once a second, and at once when there is a new socket. */
static void back_off_while_kubelet_is_away(void **state)
{
    (void)state;
    struct world w;
    world_open_timeless(&w, 1);
    world_apply_one(&w, GPU, 1, 1);
    world_pass(&w, 60000);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_settle(&w); /* no time passes */
    (void)world_wait(&w, GPU, 1);
    assert_int_equal(fake_find(&w.kubelet, GPU)->registrations, 1);
    world_close(&w);
}

static int rival_listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 128), 0);
    return fd;
}

/* Another plugin, not ours, takes the socket: no fight, and back when it has died. */
static void a_rival_takes_the_socket(void **state)
{
    (void)state;
    struct world w;
    char path[120];
    world_open_timeless(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 1);
    struct fake_resource *r = world_wait(&w, GPU, 1);
    socket_path(&w, path);
    int rival = rival_listens(path);
    world_settle(&w);
    struct sl_plugins_resource info;
    sl_plugins_resource(w.plugins, 0, &info);
    assert_true(info.contested);
    assert_false(info.registered);
    assert_int_equal(w.notices, 1);
    assert_non_null(strstr(w.notice, "two device plugins"));
    world_pass(&w, 300000);
    assert_int_equal(w.notices, 1);
    assert_int_equal(r->registrations, 1);
    unsigned looks = 0;
    for (int fd; (fd = accept(rival, NULL, NULL)) >= 0; looks++)
        (void)close(fd);
    assert_in_range(looks, 5, 60);
    (void)close(rival); /* killed: the file stays */
    world_pass(&w, 31000);
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

static void two_agents_on_one_node(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 1);
    (void)world_wait(&w, GPU, 1);
    struct sl_plugins *first = w.plugins, *second = world_plugins(&w);
    w.plugins = second;
    world_apply_one(&w, GPU, 1, 1);
    (void)world_wait(&w, GPU, 1);
    struct sl_plugins_resource info;
    world_until(&w, (sl_plugins_resource(first, 0, &info), info.contested));
    assert_int_equal(w.notices, 2); /* one took over, one stepped back */
    struct fake_resource *r = world_wait(&w, GPU, 1);
    unsigned registrations = r->registrations;
    for (int i = 0; i < 5; i++)
        world_step(&w, 300);
    assert_int_equal(r->registrations, registrations); /* no fight */
    /* Kubelet restarts: the one that has it keeps it. */
    fake_stop(&w.kubelet, true);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_until(&w, sl_plugins_ready(first) != sl_plugins_ready(second));
    /* The second one leaves, the first is back. */
    sl_plugins_destroy(second);
    w.plugins = first;
    (void)world_wait(&w, GPU, 1);
    world_close(&w);
}

static void hostile_bytes(void **state)
{
    (void)state;
    struct world w;
    struct fake_call c;
    char path[120];
    struct rng rng = {7};
    world_open(&w, 1);
    fake_start(&w.kubelet, w.loop, w.dir);
    world_apply_one(&w, GPU, 1, 2);
    struct fake_resource *r = world_wait(&w, GPU, 2);
    socket_path(&w, path);
    static const char *const methods[] = {"Allocate", "GetPreferredAllocation", "PreStartContainer",
                                          "GetDevicePluginOptions"};
    for (int i = 0; i < 200; i++) {
        uint8_t noise[64];
        size_t n = rng_below(&rng, sizeof(noise));
        for (size_t k = 0; k < n; k++)
            noise[k] = (uint8_t)rng_next(&rng);
        fake_call(r, methods[i % 4], noise, n, &c);
        world_call_end(&w, &c);
        fake_call_free(&c);
        struct sl_err err = SL_ERR_INIT;
        int fd = sl_rpc_unix_connect(path, &err);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, noise, n), n);
        (void)close(fd);
        world_settle(&w);
    }
    assert_int_equal(r->ends, 0);
    const char *id = r->id[0];
    fake_allocate(r, &id, 1, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_OK);
    fake_call_free(&c);
    world_close(&w);
}

/* An agent in a process of its own, until it is killed. */
static pid_t agent(struct world *w, bool dies_in_allocate)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    struct world child = *w; /* its own loop; nothing of the parent's is touched */
    struct sl_err err = SL_ERR_INIT;
    if (sl_loop_create(NULL, &child.loop, &err) < 0)
        _exit(1);
    child.allocate_kills = dies_in_allocate;
    child.plugins = world_plugins(&child);
    world_apply_one(&child, GPU, 1, 2);
    for (;;)
        if (sl_loop_step(child.loop, -1, &err) < 0)
            _exit(1);
}

static void killed_during_allocate(void **state)
{
    (void)state;
    struct world w;
    struct fake_call c;
    int status;
    world_open(&w, 1);
    sl_plugins_destroy(w.plugins);
    w.plugins = NULL;
    fake_start(&w.kubelet, w.loop, w.dir);
    pid_t pid = agent(&w, true);
    struct fake_resource *r = NULL;
    world_until(&w, (r = fake_find(&w.kubelet, GPU)) && r->healthy == 2);
    char id[80];
    (void)snprintf(id, sizeof(id), "%s", r->id[1]);
    const char *ids[] = {id};
    fake_allocate(r, ids, 1, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_UNAVAILABLE);
    fake_call_free(&c);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    /* The next one finds a socket of the dead and serves the very same devices. */
    unsigned before = r->registrations;
    pid = agent(&w, false);
    world_until(&w, r->registrations > before && r->stream && r->healthy == 2);
    fake_allocate(r, ids, 1, &c);
    world_call_end(&w, &c);
    assert_int_equal(c.code, SL_RPC_OK);
    fake_call_free(&c);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    world_close(&w);
}

static void destroyed_at_any_moment(void **state)
{
    (void)state;
    for (int steps = 0; steps < 25; steps++) {
        struct world w;
        world_open(&w, 2);
        fake_start(&w.kubelet, w.loop, w.dir);
        world_apply_one(&w, GPU, 2, 1);
        if (steps % 2)
            world_apply_one(&w, "nvidia.com/gpu.shared", 2, 2); /* one goes, one comes */
        for (int i = 0; i < steps; i++)
            world_step(&w, 0);
        world_close(&w);
    }
}

static void paths_that_are_none(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    static const char *const paths[] = {"", "kubelet.sock", "/kubelet.sock", "/tmp/"};
    for (size_t i = 0; i < 4; i++) {
        const struct sl_plugins_options options = {.kubelet_socket = paths[i]};
        struct sl_plugins *plugins = NULL;
        struct sl_err err = SL_ERR_INIT;
        assert_int_equal(sl_plugins_create(w.loop, &options, &plugins, &err), -EINVAL);
        assert_non_null(strstr(err.msg, "the socket of kubelet"));
        assert_null(plugins);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kubelet_restarts_ten_times),
        cmocka_unit_test(kubelet_comes_later),
        cmocka_unit_test(directory_goes_and_comes),
        cmocka_unit_test(no_directory_at_start),
        cmocka_unit_test(works_without_inotify),
        cmocka_unit_test(inotify_runs_over),
        cmocka_unit_test(socket_is_removed_under_a_stream),
        cmocka_unit_test(socket_is_removed_without_a_stream),
        cmocka_unit_test(stream_drops_and_is_registered_again),
        cmocka_unit_test(bad_manners),
        cmocka_unit_test(back_off_while_kubelet_is_away),
        cmocka_unit_test(a_rival_takes_the_socket),
        cmocka_unit_test(two_agents_on_one_node),
        cmocka_unit_test(hostile_bytes),
        cmocka_unit_test(killed_during_allocate),
        cmocka_unit_test(destroyed_at_any_moment),
        cmocka_unit_test(paths_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
