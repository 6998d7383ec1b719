/* SPDX-License-Identifier: Apache-2.0 */
/* An arbiter that answers whatever the test says: libsluice takes a proper welcome and nothing else,
 * loses no descriptor, comes back after a broken connection with what it holds. */
#include "world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/handshake.h"
#include "shm/packet.h"

static char path[64];
static const uint8_t cookie[16] = {1}, other_cookie[16] = {2};

enum reply {
    SILENT,
    HANG_UP,
    REFUSE,
    REFUSE_AT_ONCE, /* before the HELLO, and hang up */
    NONSENSE,
    SLOT_TOO_LARGE,
    TWO_FDS,
    BAD_LEASE,
    BAD_LEDGER,
    OTHER_LEDGER,
    WELCOME,
};

static struct {
    int listener, peer;
    _Atomic int reply; /* enum reply */
    _Atomic unsigned int hellos, with_ledger;
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic bool answer_measure;
    _Atomic unsigned int measures; /* so many were asked for */
    _Atomic bool same_ledger;      /* adopt the one that is sent */
} arbiter = {.listener = -1, .peer = -1};

static void fresh_pages(void)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_lease_create(cookie, &arbiter.lease, &err), 0);
    arbiter.lease.page->gpu_count = 1;
    atomic_store(&arbiter.lease.page->gpu[0].memory_limit_bytes, GIB);
    memcpy(arbiter.lease.page->gpu[0].uuid, world_lease.gpu[0].uuid, SL_UUID_MAX);
    assert_int_equal(sl_ledger_create(cookie, 1, &arbiter.ledger, &err), 0);
}

static void send_fds(int sock, uint32_t slot, const int *fds, int count)
{
    struct sl_msg_welcome w;
    memset(&w, 0, sizeof(w));
    sl_packet_init(&w.h, SL_MSG_WELCOME, sizeof(w));
    w.slot = slot;
    w.host_pid = 4242;
    (void)!sl_packet_send(sock, &w.h, fds, count, NULL);
}

static void answer(int sock, enum reply reply, int old_ledger)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_text text;
    struct sl_msg_measure nonsense;
    struct sl_ledger_map stranger = SL_LEDGER_MAP_INIT;
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int plain = memfd_create("plain", MFD_CLOEXEC);
    int ledger =
        atomic_load(&arbiter.same_ledger) && old_ledger >= 0 ? old_ledger : arbiter.ledger.fd;
    memset(&text, 0, sizeof(text));
    memset(&nonsense, 0, sizeof(nonsense));
    switch (reply) {
    case REFUSE:
        sl_packet_init(&text.h, SL_MSG_ERROR, sizeof(text));
        text.code = -EACCES;
        (void)!sl_packet_send(sock, &text.h, NULL, 0, NULL);
        break;
    case NONSENSE:
        sl_packet_init(&nonsense.h, SL_MSG_MEASURED, sizeof(nonsense));
        (void)!sl_packet_send(sock, &nonsense.h, NULL, 0, NULL);
        break;
    case SLOT_TOO_LARGE:
        send_fds(sock, SL_MAX_SLOTS, (int[]){arbiter.lease.fd, ledger, bell}, 3);
        break;
    case TWO_FDS:
        send_fds(sock, 5, (int[]){arbiter.lease.fd, ledger}, 2);
        break;
    case BAD_LEASE:
        send_fds(sock, 5, (int[]){plain, ledger, bell}, 3);
        break;
    case BAD_LEDGER:
        send_fds(sock, 5, (int[]){arbiter.lease.fd, plain, bell}, 3);
        break;
    case OTHER_LEDGER:
        (void)!sl_ledger_create(other_cookie, 1, &stranger, &err);
        send_fds(sock, 5, (int[]){arbiter.lease.fd, stranger.fd, bell}, 3);
        sl_ledger_close(&stranger);
        break;
    case WELCOME:
        send_fds(sock, 5, (int[]){arbiter.lease.fd, ledger, bell}, 3);
        break;
    default:
        break;
    }
    (void)close(bell);
    (void)close(plain);
}

/* One connection at a time: greets, then answers measurements until the test drops it. */
static void *serve(void *arg)
{
    (void)arg;
    while (!atomic_load(&arbiter.stop)) {
        union sl_packet p;
        struct sl_packet_fds fds = {.count = 0};
        struct sl_err err = SL_ERR_INIT;
        int sock = accept4(arbiter.listener, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0) {
            usleep(1000);
            continue;
        }
        enum reply reply = (enum reply)atomic_load(&arbiter.reply);
        if (reply == REFUSE_AT_ONCE) {
            answer(sock, REFUSE, -1);
            if (!sl_packet_hang_up(sock))
                (void)close(sock);
            continue;
        }
        if (sl_packet_wait(sock, 1000, &err) == 0 && sl_packet_recv(sock, &p, &fds, &err) == 0) {
            atomic_fetch_add(&arbiter.hellos, 1);
            atomic_fetch_add(&arbiter.with_ledger, fds.count > 0);
            if (reply != HANG_UP)
                answer(sock, reply, fds.count ? fds.fd[0] : -1);
        }
        sl_packet_fds_close(&fds);
        while (reply == WELCOME && atomic_load(&arbiter.reply) == WELCOME &&
               !atomic_load(&arbiter.stop))
            if (sl_packet_wait(sock, 20, &err) == 0) {
                if (sl_packet_recv(sock, &p, NULL, &err) < 0)
                    break;
                atomic_fetch_add(&arbiter.measures, p.h.type == SL_MSG_MEASURE);
                if (!atomic_load(&arbiter.answer_measure))
                    continue;
                p.h.type = SL_MSG_MEASURED;
                (void)!sl_packet_send(sock, &p.h, NULL, 0, NULL);
                p.measure.gpu = 9999; /* and one that is none of ours */
                (void)!sl_packet_send(sock, &p.h, NULL, 0, NULL);
            }
        if (reply == SILENT)
            usleep(100000);
        (void)close(sock);
    }
    return NULL;
}

static int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static void settle(void)
{
    usleep(150000); /* the serving thread closes its side */
}

#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        int tries_ = 0;                                                                            \
        while (!(condition) && tries_++ < 500)                                                     \
            usleep(10000);                                                                         \
        assert_true(condition);                                                                    \
    } while (0)

static void test_replies(void **state)
{
    (void)state;
    static const struct {
        enum reply reply;
        int rc;
    } cases[] = {{REFUSE, -EACCES},     {REFUSE_AT_ONCE, -EACCES},
                 {NONSENSE, -EPROTO},   {SLOT_TOO_LARGE, -EPROTO},
                 {TWO_FDS, -EPROTO},    {BAD_LEASE, -EPROTO},
                 {BAD_LEDGER, -EPROTO}, {OTHER_LEDGER, 0},
                 {HANG_UP, 0},          {SILENT, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sl_link link;
        struct sl_err err = SL_ERR_INIT;
        int before = open_fds();
        atomic_store(&arbiter.reply, (int)cases[i].reply);
        /* Only silence is waited out; on a busy machine the others may take their time. */
        int wait_ms = cases[i].reply == SILENT ? 50 : 10000;
        int rc = sl_link_open(path, SL_NO_SLOT, -1, wait_ms, &link, &err);
        assert_true(rc < 0);
        if (cases[i].rc)
            assert_int_equal(rc, cases[i].rc);
        assert_true(err.msg[0]);
        settle();
        assert_int_equal(open_fds(), before);
    }
    struct sl_link link;
    struct sl_err err = SL_ERR_INIT;
    assert_true(sl_link_open("/nonexistent/attach.sock", SL_NO_SLOT, -1, 50, &link, &err) < 0);
    atomic_store(&arbiter.reply, WELCOME);
    assert_int_equal(sl_link_open(path, SL_NO_SLOT, -1, 1000, &link, &err), 0);
    assert_int_equal(link.slot, 5);
    assert_int_equal(link.host_pid, 4242);
    sl_link_close(&link);
    settle();
}

static void test_own_descriptors(void **state)
{
    (void)state;
    struct sl_own_fd none = sl_own_fd_take(-1);
    assert_int_equal(none.fd, -1);
    assert_false(sl_own_fd_valid(&none));
    struct sl_own_fd own = sl_own_fd_take(eventfd(0, EFD_CLOEXEC));
    assert_true(own.fd >= 500 && sl_own_fd_valid(&own));
    int file = memfd_create("another", MFD_CLOEXEC);
    assert_false(sl_own_fd_same_file(&own, file));
    int number = own.fd;
    sl_own_fd_replace(&own, file); /* still ours: the number stays */
    assert_int_equal(own.fd, number);
    /* The program closed it, then opened its own under the number: not touched. */
    assert_int_equal(close(own.fd), 0);
    assert_false(sl_own_fd_valid(&own));
    int theirs = memfd_create("theirs", MFD_CLOEXEC);
    assert_int_equal(dup2(theirs, number), number);
    assert_false(sl_own_fd_valid(&own));
    sl_own_fd_replace(&own, memfd_create("ours", MFD_CLOEXEC));
    assert_true(own.fd != number && sl_own_fd_valid(&own));
    struct sl_own_fd lost = {number, 1, 1};
    sl_own_fd_close(&lost);
    assert_int_equal(fcntl(number, F_GETFD), 0);
    sl_own_fd_close(&own);
    (void)close(number);
    (void)close(theirs);
}

static void test_attach(void **state)
{
    (void)state;
    char log[80];
    (void)snprintf(log, sizeof(log), "%s.log", path);
    atomic_store(&sl_process_current, NULL);
    (void)setenv(SL_ATTACH_ENV, "", 1);
    assert_int_equal(sl_process_attach()->mode, SL_MODE_NONE);
    atomic_store(&sl_process_current, NULL);
    (void)setenv("SLUICE_LOG", "info", 1);
    (void)setenv("SLUICE_LOG_FILE", log, 1);
    (void)setenv(SL_ATTACH_ENV, path, 1);
    atomic_store(&arbiter.reply, REFUSE);
    assert_int_equal(sl_process_attach()->mode, SL_MODE_REFUSED);
    assert_int_equal(cuInit(0), CUDA_ERROR_NOT_PERMITTED); /* asked once more, refused again */
    atomic_store(&arbiter.reply, WELCOME);
    struct sl_process *p = sl_process_retry();
    assert_int_equal(p->mode, SL_MODE_TENANT);
    assert_ptr_equal(sl_process_retry(), p);
    assert_true(sl_process_connected());
    assert_int_equal(access(log, F_OK), 0);
    (void)unlink(log);
}

static void test_measure(void **state)
{
    (void)state;
    struct sl_process *p = sl_process_get();
    atomic_store(&arbiter.answer_measure, true);
    assert_true(sl_process_measure(p, 0, true, 0));
    assert_false(sl_process_measure(p, SL_MAX_GPUS, true, 0));
    assert_false(sl_process_measure(&world_process, SL_MAX_GPUS, false, 0));
    atomic_store(&arbiter.answer_measure, false);
    (void)sl_process_measure(p, 0, false, 0);
    assert_false(sl_process_measure(p, 0, false, 0)); /* one is under way */
    /* The arbiter goes away under a waiting caller: it is told at once. */
    atomic_store(&arbiter.reply, HANG_UP);
    (void)sl_process_measure(p, 0, true, 0);
    EVENTUALLY(!sl_process_connected());
    assert_false(sl_process_measure(p, 0, true, 0));
}

static void test_back(void **state)
{
    (void)state;
    struct sl_process *p = sl_process_get();
    assert_true(sl_charge(p, 0, 300, false));
    usleep(300000); /* some tries in vain: the pauses grow to their end */
    fresh_pages();  /* an arbiter that knows nothing of us */
    atomic_store(&arbiter.with_ledger, 0);
    atomic_store(&arbiter.reply, WELCOME);
    EVENTUALLY(sl_process_connected());
    assert_true(atomic_load(&arbiter.with_ledger) > 0); /* it was offered the old ledger */
    EVENTUALLY(sl_charge_budget(p, 0).used_bytes == 300 * SL_UNIT_BYTES);
    assert_ptr_equal(atomic_load(&p->lease) == NULL, false);
    /* One that adopts what we send. */
    atomic_store(&arbiter.same_ledger, true);
    struct sl_ledger_page *before = atomic_load(&p->ledger);
    atomic_store(&arbiter.reply, HANG_UP);
    EVENTUALLY(!sl_process_connected());
    atomic_store(&arbiter.reply, WELCOME);
    EVENTUALLY(sl_process_connected());
    assert_ptr_equal(atomic_load(&p->ledger), before);
    assert_int_equal(sl_charge_budget(p, 0).used_bytes, 300 * SL_UNIT_BYTES);
    sl_charge_return(p, 0, 300);
}

/* A driver that takes 1.5 GiB where nobody could have foreseen it; meanwhile the arbiter restarts. */
static uint64_t taken;

static void restart_with_more(void)
{
    atomic_store(&arbiter.reply, HANG_UP);
    for (int i = 0; i < 500 && sl_process_connected(); i++)
        usleep(10000);
    usleep(600000); /* tries in vain, with the longest pause between them in the end */
    fresh_pages();
    atomic_store(&arbiter.lease.page->gpu[0].memory_limit_bytes, 2 * GIB);
    atomic_store(&arbiter.reply, WELCOME);
}

static CUresult take_much(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)bytes;
    (void)pool;
    (void)stream;
    taken = 3 * GIB / 2;
    *dptr = 0x70000000;
    restart_with_more();
    return CUDA_SUCCESS;
}

static CUresult take_wide(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                          unsigned int element)
{
    (void)width;
    (void)element;
    *pitch = 3 * GIB / 2 / height;
    *dptr = 0x70000000;
    restart_with_more();
    return CUDA_SUCCESS;
}

static CUresult forget(CUdeviceptr dptr)
{
    (void)dptr;
    return CUDA_SUCCESS;
}

static CUresult give_back(CUdeviceptr dptr, CUstream stream)
{
    (void)dptr;
    (void)stream;
    taken = 0;
    return CUDA_SUCCESS;
}

static CUresult how_much(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    (void)pool;
    (void)attr;
    *(cuuint64_t *)value = taken;
    return CUDA_SUCCESS;
}

/* What fits in the limit of the new arbiter is not refused by that of the old one. */
static void test_more_after_restart(void **state)
{
    (void)state;
    CUdeviceptr d = 0;
    size_t pitch;
    CUmemoryPool pool = NULL;
    CUcontext context = NULL;
    atomic_store(&arbiter.answer_measure, true);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    WORLD_ANSWER(cuMemAllocFromPoolAsync, take_much);
    WORLD_ANSWER(cuMemFreeAsync, give_back);
    WORLD_ANSWER(cuMemPoolGetAttribute, how_much);
    assert_int_equal(cuMemAllocFromPoolAsync(&d, 1 << 20, pool, NULL), CUDA_SUCCESS);
    EVENTUALLY(sl_process_connected());
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 3 * GIB / 2);
    assert_int_equal(cuMemFreeAsync(d, NULL), CUDA_SUCCESS);
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 0);
    atomic_store(&arbiter.lease.page->gpu[0].memory_limit_bytes, GIB);
    WORLD_ANSWER(cuMemAllocPitch_v2, take_wide);
    WORLD_ANSWER(cuMemFree_v2, forget);
    assert_int_equal(cuMemAllocPitch_v2(&d, &pitch, 512, 16, 4), CUDA_SUCCESS);
    EVENTUALLY(sl_process_connected());
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 3 * GIB / 2);
    assert_int_equal(cuMemFree_v2(d), CUDA_SUCCESS);
    world_restore();
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    atomic_store(&arbiter.answer_measure, false);
}

static CUresult take_and_fail(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)dptr;
    (void)bytes;
    (void)pool;
    (void)stream;
    taken = 3 * GIB;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* An error of the driver is the answer at once, also where its pool has grown beyond the limit and the figures are about
 * to change: nobody asks the arbiter about them. */
static void test_error_of_the_driver(void **state)
{
    (void)state;
    CUdeviceptr d = 0;
    CUmemoryPool pool = NULL;
    CUcontext context = NULL;
    atomic_store(&arbiter.answer_measure, true);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    atomic_store(&arbiter.lease.page->gpu[0].memory_limit_bytes, 2 * GIB);
    atomic_store(&arbiter.lease.page->settling, 1);
    WORLD_ANSWER(cuMemAllocFromPoolAsync, take_and_fail);
    WORLD_ANSWER(cuMemPoolGetAttribute, how_much);
    taken = 0;
    unsigned int asked = atomic_load(&arbiter.measures);
    assert_int_equal(cuMemAllocFromPoolAsync(&d, 1 << 20, pool, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&arbiter.measures), asked);
    /* What the driver took is charged all the same, and returned with the pool's next settlement. */
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 3 * GIB);
    taken = 0;
    assert_int_equal(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 0);
    atomic_store(&arbiter.lease.page->settling, 0);
    world_restore();
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    atomic_store(&arbiter.answer_measure, false);
}

static void test_fork(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) { /* a process of its own: nothing of the parent's is left to it */
        (void)setenv(SL_ATTACH_ENV, "/nonexistent/attach.sock", 1);
        bool clean = atomic_load(&sl_process_current) == NULL && !sl_process_connected();
        exit(clean && sl_process_get()->mode == SL_MODE_REFUSED ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(sl_process_connected());
}

static void test_everything_closed(void **state)
{
    (void)state;
    /* A program closes all it finds (but our log, the first of them): without bell and connection,
     * the way back is still found. */
    unsigned int hellos = atomic_load(&arbiter.hellos);
    for (int fd = 501; fd < 540; fd++)
        (void)close(fd);
    sl_watch_kick();
    atomic_store(&arbiter.reply, HANG_UP);
    EVENTUALLY(atomic_load(&arbiter.hellos) > hellos);
    atomic_store(&arbiter.reply, WELCOME);
    EVENTUALLY(sl_process_connected());
    assert_int_equal(sl_charge_budget(sl_process_get(), 0).used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_descriptors),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_more_after_restart),
        cmocka_unit_test(test_error_of_the_driver),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_everything_closed),
    };
    struct sl_err err = SL_ERR_INIT;
    world_open("h200", GIB);
    (void)snprintf(path, sizeof(path), "/tmp/sluice-link-%d.sock", (int)getpid());
    arbiter.listener = sl_packet_listen(path, 8, &err);
    if (arbiter.listener < 0)
        return 2;
    fresh_pages();
    if (pthread_create(&arbiter.thread, NULL, serve, NULL) != 0)
        return 2;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    atomic_store(&arbiter.stop, true);
    (void)pthread_join(arbiter.thread, NULL);
    (void)unlink(path);
    world_close();
    return rc;
}
