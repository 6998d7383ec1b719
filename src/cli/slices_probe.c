/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes keep one GPU busy, with libsluice preloaded as in any tenant, under leases that ask for slices of 1 and
 * 4 ms; this file is their arbiter for half a second. So the test runs the same code as tenants do, and the work that
 * each process finished shows whether the driver's "OK" means anything.
 */
#include "cli/slices_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/doctor.h"
#include "cli/errors.h"
#include "cli/run_child.h"
#include "shm/packet.h"
#include "shm/pages.h"

#define START_NS     (30 * SL_NS_PER_S) /* a cold driver without persistence loads firmware first */
#define CONTROL_NS   (5 * SL_NS_PER_S)  /* limit until libsluice says whether it can set slices */
#define WARM_NS      (50 * SL_NS_PER_MS)
#define MEASURE_NS   (300 * SL_NS_PER_MS)
#define OFF_NS       (400 * SL_NS_PER_MS)
#define SETTLE_NS    (60 * SL_NS_PER_MS) /* the order travels, the call takes half a millisecond */
#define STILL_NS     (120 * SL_NS_PER_MS)
#define END_NS       (2 * SL_NS_PER_S)
/* With slices of 1 and 4 ms one process gets about four times as much as the other; without effect both get the same.
 * Any other ratio is measured again: the host was busy, and a process did not keep its queue filled. */
#define NONE_TENTHS  15U
#define LEAST_TENTHS 20U
#define MOST_TENTHS  80U
#define ATTEMPTS     4

struct spinner {
    pid_t pid;
    int listener, conn, doorbell;
    struct sl_lease_map lease;
    struct sl_ledger_map ledger;
    struct sl_spin_page *page;
    char socket[SL_DOCTOR_TMP + 24];
};

struct probe {
    char dir[SL_DOCTOR_TMP];
    int memory;
    struct sl_spin_page *pages;
    struct spinner spinner[2];
};

/* --- as an arbiter ------------------------------------------------------------------------------- */

static void answer(struct spinner *s)
{
    union sl_packet p;
    int rc = sl_packet_recv(s->conn, &p, NULL, NULL);
    if (rc == 0 && p.h.type == SL_MSG_HELLO) {
        struct sl_msg_welcome w = {.slot = 0, .host_pid = (uint32_t)s->pid};
        const int fds[] = {s->lease.fd, s->ledger.fd, s->doorbell};
        sl_packet_init(&w.h, SL_MSG_WELCOME, sizeof(w));
        rc = sl_packet_send(s->conn, &w.h, fds, 3, NULL);
    } else if (rc == 0 && p.h.type == SL_MSG_MEASURE) {
        p.measure.overhead_bytes = 0;
        sl_packet_init(&p.h, SL_MSG_MEASURED, sizeof(p.measure));
        rc = sl_packet_send(s->conn, &p.h, NULL, 0, NULL);
    }
    if (rc < 0 && rc != -EAGAIN) {
        (void)close(s->conn);
        s->conn = -1;
    }
}

static void serve_for(struct probe *p, uint64_t ns)
{
    uint64_t end = sl_now_ns() + ns;
    for (uint64_t now = sl_now_ns(); now < end; now = sl_now_ns()) {
        struct pollfd fds[4];
        for (size_t i = 0; i < 2; i++) {
            fds[2 * i] = (struct pollfd){.fd = p->spinner[i].listener, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = p->spinner[i].conn, .events = POLLIN};
        }
        if (poll(fds, 4, (int)((end - now) / SL_NS_PER_MS) + 1) <= 0)
            continue;
        for (size_t i = 0; i < 2; i++) {
            struct spinner *s = &p->spinner[i];
            if (fds[2 * i + 1].revents)
                answer(s);
            if (fds[2 * i].revents && s->conn < 0)
                s->conn = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        }
    }
}

static const struct sl_slot *slot_of(const struct spinner *s)
{
    return &s->ledger.page->slot[0];
}

static void order_off(struct spinner *s, uint64_t until_ns)
{
    struct sl_msg m;
    atomic_store(&s->lease.page->off_until_ns, until_ns);
    sl_packet_init(&m, SL_MSG_GATE, sizeof(m));
    if (s->conn >= 0)
        (void)!sl_packet_send(s->conn, &m, NULL, 0, NULL);
}

/* --- processes ----------------------------------------------------------------------------------- */

static int fill_lease(struct spinner *s, const char *uuid, uint32_t slice_us, struct sl_err *err)
{
    uint8_t cookie[16];
    if (getrandom(cookie, sizeof(cookie), 0) != (ssize_t)sizeof(cookie))
        return sl_err_errno(err, errno, "cannot get random bytes");
    int rc = sl_lease_create(cookie, &s->lease, err);
    if (rc == 0)
        rc = sl_ledger_create(cookie, 1, &s->ledger, err);
    if (rc < 0)
        return rc;
    struct sl_lease_page *l = s->lease.page;
    (void)snprintf(l->name, sizeof(l->name), "doctor");
    (void)snprintf(l->gpu[0].uuid, sizeof(l->gpu[0].uuid), "%s", uuid);
    l->gpu_count = 1;
    l->gpu[0].card_bytes = UINT64_MAX;
    atomic_store(&l->gpu[0].memory_limit_bytes, SL_NO_LIMIT);
    atomic_store(&l->cores_limit_permille, 1000);
    atomic_store(&l->priority, SL_PRIORITY_NORMAL);
    atomic_store(&l->slice_us, slice_us);
    atomic_store(&l->meter, 1);
    atomic_store(&l->gate, SL_GATE_WORD(0, SL_GATE_METER));
    return 0;
}

static void run_spinner(const struct probe *p, size_t i, const char *program, char *const *envp)
{
    char memory[16], index[4];
    char *argv[] = {(char *)(uintptr_t)"sluice", (char *)(uintptr_t)"spin", memory, index, NULL};
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) { /* the libraries' output is not the doctor's output */
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(memory, sizeof(memory), "%d", p->memory);
    (void)snprintf(index, sizeof(index), "%zu", i);
    (void)fcntl(p->memory, F_SETFD, 0);
    (void)execve(program, argv, envp);
    _exit(SL_EXIT_RUN_NOT_FOUND);
}

/* Waits until the process is ready: it has made its context and knows the length of its kernels. */
static int await_ready(struct probe *p, struct spinner *s, struct sl_err *err)
{
    uint64_t end = sl_now_ns() + START_NS;
    while (atomic_load(&s->page->state) == SL_SPIN_STARTING) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            if (atomic_load(&s->page->state) == SL_SPIN_STARTING)
                return sl_err_set(err, -ECHILD, SL_E_PROBE_ENDED);
            break;
        }
        if (sl_now_ns() > end)
            return sl_err_set(err, -ETIMEDOUT, SL_E_PROBE_SILENT);
        serve_for(p, 10 * SL_NS_PER_MS);
    }
    if (atomic_load(&s->page->state) == SL_SPIN_FAILED)
        return sl_err_set(err, -EIO, "%.63s answers %d", s->page->what, s->page->code);
    if (s->conn < 0)
        return sl_err_set(err, -ENOLINK, SL_E_PROBE_NO_LIBSLUICE);
    return 0;
}

static int start_one(struct probe *p, size_t i, const struct sl_world *w, const char *libsluice,
                     const char *uuid, struct sl_err *err)
{
    static const uint32_t slices_us[] = {1000, 4000};
    struct spinner *s = &p->spinner[i];
    struct sl_env env = {0};
    s->page = &p->pages[i];
    (void)snprintf(s->socket, sizeof(s->socket), "%s/%zu", p->dir, i);
    int rc = fill_lease(s, uuid, slices_us[i], err);
    if (rc < 0)
        return rc;
    s->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->doorbell < 0)
        return sl_err_errno(err, errno, "cannot create a doorbell");
    s->listener = sl_packet_listen(s->socket, 4, err);
    if (s->listener < 0)
        return s->listener;
    sl_env_tenant(&env, s->socket, uuid, libsluice);
    if (w->sim_lib[0])
        sl_env_prepend(&env, "LD_LIBRARY_PATH", w->sim_lib, ':');
    (void)fflush(NULL);
    s->pid = fork();
    if (s->pid == 0)
        run_spinner(p, i, w->program, env.list);
    rc = s->pid < 0 ? sl_err_errno(err, errno, "cannot start a process") : 0;
    sl_env_free(&env);
    return rc < 0 ? rc : await_ready(p, s, err);
}

static void end_one(struct spinner *s)
{
    uint64_t end = sl_now_ns() + END_NS;
    if (s->page)
        atomic_store(&s->page->stop, 1);
    while (s->pid > 0 && waitpid(s->pid, NULL, WNOHANG) == 0) {
        if (sl_now_ns() > end)
            (void)kill(s->pid, SIGKILL);
        sl_sleep_ns(5 * SL_NS_PER_MS);
    }
    if (s->socket[0])
        (void)unlink(s->socket);
    sl_cleanup_close(&s->listener);
    sl_cleanup_close(&s->conn);
    sl_cleanup_close(&s->doorbell);
    sl_lease_close(&s->lease);
    sl_ledger_close(&s->ledger);
}

/* --- measuring ----------------------------------------------------------------------------------- */

/* False: a process cannot set its slices, and *ret says why. */
static bool can_control(struct probe *p, struct sl_slices_result *ret)
{
    uint64_t end = sl_now_ns() + CONTROL_NS;
    for (size_t i = 0; i < 2; i++) {
        const struct sl_slot *slot = slot_of(&p->spinner[i]);
        while (atomic_load(&slot->control) == SL_CONTROL_UNKNOWN && sl_now_ns() < end)
            serve_for(p, 5 * SL_NS_PER_MS);
        uint32_t control = atomic_load(&slot->control);
        if (control == SL_CONTROL_WORKS)
            continue;
        ret->status = atomic_load(&slot->control_status);
        ret->verdict = control == SL_CONTROL_REFUSED ? SL_SLICES_REFUSED : SL_SLICES_NO_GROUP;
        return false;
    }
    return true;
}

static uint32_t measure_once(struct probe *p)
{
    uint64_t done[2];
    serve_for(p, WARM_NS);
    for (size_t i = 0; i < 2; i++)
        done[i] = atomic_load(&p->pages[i].done);
    serve_for(p, MEASURE_NS);
    for (size_t i = 0; i < 2; i++)
        done[i] = atomic_load(&p->pages[i].done) - done[i];
    uint64_t tenths = done[0] ? done[1] * 10 / done[0] : UINT64_MAX;
    return tenths > UINT32_MAX ? UINT32_MAX : (uint32_t)tenths;
}

static int measure_slices(struct probe *p, struct sl_slices_result *ret, struct sl_err *err)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        ret->tenths = measure_once(p);
        if (ret->tenths < 10 * 10 / NONE_TENTHS || ret->tenths > MOST_TENTHS ||
            (ret->tenths >= NONE_TENTHS && ret->tenths < LEAST_TENTHS))
            continue;
        ret->verdict = ret->tenths >= LEAST_TENTHS ? SL_SLICES_WORK : SL_SLICES_NO_EFFECT;
        return 0;
    }
    return sl_err_set(err, -EAGAIN, SL_E_PROBE_VARIES);
}

static bool stands_still(struct probe *p)
{
    struct spinner *one = &p->spinner[0];
    const struct sl_slot *slot = slot_of(one);
    order_off(one, sl_now_ns() + OFF_NS);
    serve_for(p, SETTLE_NS);
    uint64_t still = atomic_load(&p->pages[0].done), moving = atomic_load(&p->pages[1].done);
    bool taken = atomic_load(&slot->off);
    serve_for(p, STILL_NS);
    taken = taken && atomic_load(&slot->off) && atomic_load(&p->pages[0].done) == still &&
            atomic_load(&p->pages[1].done) > moving;
    order_off(one, 0);
    serve_for(p, SETTLE_NS);
    return taken;
}

/* Takes one process off the GPU: this process must stand still while the other goes on. Several attempts, because a
 * busy host may count finished work late. */
static void measure_off(struct probe *p, struct sl_slices_result *ret)
{
    const struct sl_slot *slot = slot_of(&p->spinner[0]);
    for (int i = 0; i < ATTEMPTS && !ret->off; i++) {
        bool still = stands_still(p);
        if (atomic_load(&slot->control) != SL_CONTROL_WORKS)
            break;
        ret->off = still;
    }
    ret->status = atomic_load(&slot->control_status);
}

static int make_room(struct probe *p, struct sl_err *err)
{
    int rc = sl_doctor_tmp(p->dir, err);
    if (rc < 0)
        return rc;
    p->memory = (int)syscall(SYS_memfd_create, "sluice-doctor", 0x0001U);
    if (p->memory < 0 || ftruncate(p->memory, 2 * (off_t)sizeof(*p->pages)) != 0)
        return sl_err_errno(err, errno, "cannot make a memory file");
    p->pages = mmap(NULL, 2 * sizeof(*p->pages), PROT_READ | PROT_WRITE, MAP_SHARED, p->memory, 0);
    if (p->pages == MAP_FAILED) {
        p->pages = NULL;
        return sl_err_errno(err, errno, "cannot map a memory file");
    }
    return 0;
}

static void clean_up(struct probe *p)
{
    end_one(&p->spinner[0]);
    end_one(&p->spinner[1]);
    if (p->pages)
        (void)munmap(p->pages, 2 * sizeof(*p->pages));
    sl_cleanup_close(&p->memory);
    if (p->dir[0])
        (void)rmdir(p->dir);
}

int sl_slices_probe(const struct sl_world *world, const char *libsluice, const char *uuid,
                    struct sl_slices_result *ret, struct sl_err *err)
{
    struct probe p = {.memory = -1};
    for (size_t i = 0; i < 2; i++)
        p.spinner[i] = (struct spinner){.listener = -1,
                                        .conn = -1,
                                        .doorbell = -1,
                                        .lease = SL_LEASE_MAP_INIT,
                                        .ledger = SL_LEDGER_MAP_INIT};
    *ret = (struct sl_slices_result){.verdict = SL_SLICES_NO_GROUP};
    int rc = make_room(&p, err);
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = start_one(&p, i, world, libsluice, uuid, err);
    for (size_t i = 0; rc == 0 && i < 2; i++)
        atomic_store(&p.pages[i].go, 1);
    if (rc == 0 && can_control(&p, ret)) {
        rc = measure_slices(&p, ret, err);
        if (rc == 0)
            measure_off(&p, ret);
    }
    clean_up(&p);
    return rc;
}
