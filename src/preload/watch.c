/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "preload/alone.h"
#include "preload/charge.h"
#include "preload/device.h"
#include "preload/gate.h"
#include "preload/thread.h"
#include "shm/packet.h"

#define RETRY_MIN_NS   (10 * SL_NS_PER_MS)
#define RETRY_MAX_NS   (250 * SL_NS_PER_MS)
#define HANDSHAKE_MS   2000
#define HANDSHAKE_NS   (HANDSHAKE_MS * SL_NS_PER_MS)
#define MEASURE_NS     (2 * SL_NS_PER_S)
/* The longest wait for figures of the arbiter that are about to change. The next arbiter may have to start first. */
#define SETTLE_NS      (4 * SL_NS_PER_S)
/* Between two attempts to reach the next arbiter. */
#define SETTLE_STEP_NS (20 * SL_NS_PER_MS)
/* Somebody starts the next arbiter within this time: the agent waits two seconds at most. */
#define AWAY_NS        (3 * SL_NS_PER_S)
/* Closing a descriptor does not wake a thread that waits for it: check the descriptors this often. */
#define LOOK_AFTER_NS  SL_NS_PER_S

struct sl_lock sl_attach_lock;

static struct {
    struct sl_own_fd sock, kick, ledger, lease, doorbell;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    bool running;
    _Atomic bool connected;
    _Atomic uint64_t lost_ns; /* when the last connection ended */
    bool no_kick;             /* the program closed our bell; used only by the watch thread */
    struct sl_process *process;
} watch = {.sock = SL_OWN_FD_INIT,
           .kick = SL_OWN_FD_INIT,
           .ledger = SL_OWN_FD_INIT,
           .lease = SL_OWN_FD_INIT,
           .doorbell = SL_OWN_FD_INIT};

static uint64_t (*_Atomic poll_function)(struct sl_process *);

/* Requests for a measurement and their answers, per GPU. Only one request is open at a time, so that an answer
 * certainly belongs to it. The lock also guards the socket: only the watch thread changes the socket, and holds the
 * lock for that. */
static struct sl_lock measure_lock;
static struct {
    _Atomic uint32_t asked;
    _Atomic uint32_t answered; /* a futex */
    /* Units charged in advance for the overhead to be measured: by the next request, and by the open one. */
    _Atomic uint64_t next_units, asked_units;
} measures[SL_MAX_GPUS];

/* Attempts to connect to an arbiter again; only the watch thread makes them. */
static struct {
    _Atomic uint32_t begun;
    _Atomic uint32_t ended; /* a futex */
    _Atomic bool hurry;     /* a thread waits for the next attempt */
    _Atomic bool stuck;     /* the last attempt got no answer within its time limit */
} tries;

void sl_watch_set_poll(uint64_t (*poll)(struct sl_process *))
{
    atomic_store(&poll_function, poll);
    sl_watch_kick();
}

void sl_watch_kick(void)
{
    int saved = errno;
    uint64_t one = 1;
    if (watch.running && sl_own_fd_valid(&watch.kick)) {
        ssize_t ignored = write(watch.kick.fd, &one, sizeof(one));
        (void)ignored;
    }
    errno = saved;
}

bool sl_process_connected(void)
{
    return atomic_load(&watch.connected);
}

static void answer_all(uint32_t gpu)
{
    atomic_store(&measures[gpu].answered, atomic_load(&measures[gpu].asked));
    sl_futex_wake_all(&measures[gpu].answered);
}

static void give_back(uint32_t gpu, _Atomic uint64_t *units)
{
    sl_charge_estimate_end(watch.process, (int)gpu, atomic_exchange(units, 0));
}

/* The next arbiter measures all returning processes by itself. */
static void disconnected(void)
{
    atomic_store(&watch.lost_ns, sl_now_ns());
    atomic_store(&watch.connected, false);
    for (uint32_t gpu = 0; gpu < SL_MAX_GPUS; gpu++) {
        give_back(gpu, &measures[gpu].asked_units);
        give_back(gpu, &measures[gpu].next_units);
        answer_all(gpu);
    }
}

/* Sends a request unless one is open (returns false). *ret_ticket: the number to wait for. */
static bool send_request(uint32_t gpu, uint32_t *ret_ticket, bool *ret_sent)
{
    struct sl_msg_measure m;
    memset(&m, 0, sizeof(m));
    sl_packet_init(&m.h, SL_MSG_MEASURE, sizeof(m));
    m.gpu = gpu;
    *ret_sent = false;
    sl_lock_take(&measure_lock);
    uint32_t asked = atomic_load(&measures[gpu].asked);
    bool idle = atomic_load(&measures[gpu].answered) == asked;
    if (idle && sl_own_fd_valid(&watch.sock)) {
        atomic_store(&measures[gpu].asked, asked + 1);
        uint64_t units = atomic_exchange(&measures[gpu].next_units, 0);
        m.overhead_bytes = (atomic_fetch_add(&measures[gpu].asked_units, units) + units)
                           << SL_UNIT_SHIFT;
        *ret_sent = sl_packet_send(watch.sock.fd, &m.h, NULL, 0, NULL) == 0;
        if (!*ret_sent)
            atomic_store(&measures[gpu].asked, asked);
    }
    if (idle && !*ret_sent) { /* there will be no answer */
        give_back(gpu, &measures[gpu].asked_units);
        give_back(gpu, &measures[gpu].next_units);
    }
    sl_lock_drop(&measure_lock);
    *ret_ticket = asked + 1;
    return idle;
}

static void handle_packet(const union sl_packet *packet)
{
    uint32_t gpu = packet->measure.gpu, ignored;
    bool sent;
    if (packet->h.type != SL_MSG_MEASURED || gpu >= SL_MAX_GPUS)
        return;
    give_back(gpu, &measures[gpu].asked_units);
    answer_all(gpu);
    /* More units were charged since: the measurement may not include their overhead. */
    if (atomic_load(&measures[gpu].next_units))
        (void)send_request(gpu, &ignored, &sent);
}

/* Reads all packets. A closed or broken connection is given up and made again. */
static void drain_socket(void)
{
    union sl_packet packet;
    struct sl_err err = SL_ERR_INIT;
    for (;;) {
        struct pollfd p = {.fd = watch.sock.fd, .events = POLLIN};
        if (!sl_own_fd_valid(&watch.sock)) {
            disconnected();
            return;
        }
        if (poll(&p, 1, 0) <= 0)
            return;
        int rc = sl_packet_recv(watch.sock.fd, &packet, NULL, &err);
        if (rc < 0) {
            sl_info("the arbiter ended (%s): this process continues under its last limits",
                    err.msg);
            disconnected();
            return;
        }
        handle_packet(&packet);
    }
}

static void set_doorbell(struct sl_process *p)
{
    p->doorbell_device = watch.doorbell.device;
    p->doorbell_inode = watch.doorbell.inode;
    p->doorbell_fd = watch.doorbell.fd;
}

/* Replaces the old link by a new one. Readers may hold the old pages: they stay mapped. */
static void adopt(struct sl_process *p, struct sl_link *link)
{
    struct sl_ledger_page *old = atomic_load(&p->ledger);
    bool same =
        sl_own_fd_valid(&watch.ledger) && sl_own_fd_same_file(&watch.ledger, link->ledger.fd);
    if (same) { /* the arbiter adopted the ledger we sent: keep our mapping of it */
        (void)munmap(link->ledger.page, sizeof(*link->ledger.page));
        (void)close(link->ledger.fd);
    } else {
        sl_own_fd_replace(&watch.ledger, link->ledger.fd);
    }
    sl_charge_move(p, same ? old : link->ledger.page, link->slot);
    atomic_store(&p->lease, link->lease.page);
    sl_device_forget();
    sl_own_fd_replace(&watch.lease, link->lease.fd);
    sl_own_fd_replace(&watch.doorbell, link->doorbell);
    set_doorbell(p);
    p->host_pid = link->host_pid;
    sl_alone_told(p);
    sl_lock_take(&measure_lock);
    sl_own_fd_replace(&watch.sock, link->sock);
    sl_lock_drop(&measure_lock);
    atomic_store(&watch.connected, true);
    sl_gate_replaced(p);
    sl_info("attached again, slot %u, protocol %u", link->slot, link->protocol);
}

static bool reconnect(struct sl_process *p)
{
    struct sl_link link;
    struct sl_err err = SL_ERR_INIT;
    SL_FAULT("link.lost");
    atomic_store(&tries.hurry, false);
    atomic_fetch_add(&tries.begun, 1);
    sl_lock_take(&sl_attach_lock);
    int ledger = sl_own_fd_valid(&watch.ledger) ? watch.ledger.fd : -1;
    int rc = sl_link_open(watch.path, atomic_load(&p->slot), ledger, HANDSHAKE_MS, &link, &err);
    if (rc == 0)
        adopt(p, &link);
    sl_lock_drop(&sl_attach_lock);
    if (rc == 0)
        sl_alone_over(p);
    atomic_store(&tries.stuck, rc == -ETIMEDOUT);
    atomic_fetch_add(&tries.ended, 1);
    sl_futex_wake_all(&tries.ended);
    return rc == 0;
}

/* A descriptor that the program closed may be one of its own files by now, and silent. */
static void look_after(bool connected)
{
    watch.no_kick = watch.no_kick || !sl_own_fd_valid(&watch.kick);
    if (connected && (!sl_own_fd_valid(&watch.sock) || !sl_own_fd_valid(&watch.doorbell)))
        disconnected();
}

static void wait_events(uint64_t timeout_ns)
{
    bool connected = atomic_load(&watch.connected);
    struct pollfd fds[2] = {{.fd = connected ? watch.sock.fd : -1, .events = POLLIN},
                            {.fd = watch.no_kick ? -1 : watch.kick.fd, .events = POLLIN}};
    if (timeout_ns > LOOK_AFTER_NS)
        timeout_ns = LOOK_AFTER_NS;
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / SL_NS_PER_S),
                          .tv_nsec = (long)(timeout_ns % SL_NS_PER_S)};
    int n = ppoll(fds, 2, &ts, NULL);
    if (n == 0 && timeout_ns == LOOK_AFTER_NS)
        look_after(connected);
    if (n <= 0)
        return;
    if (fds[1].revents & POLLIN && sl_own_fd_valid(&watch.kick)) {
        uint64_t count;
        ssize_t ignored = read(watch.kick.fd, &count, sizeof(count));
        (void)ignored;
    } else if (fds[1].revents) { /* the program closed it: without a bell, poll */
        watch.no_kick = true;
    }
    if (fds[0].revents)
        drain_socket();
}

static void *watch_main(void *arg)
{
    struct sl_process *p = arg;
    uint64_t backoff_ns = RETRY_MIN_NS, retry_at_ns = 0, keep_at_ns = 0;
    sl_thread_name("sluice-watch");
    for (;;) {
        uint64_t (*poll_now)(struct sl_process *) = atomic_load(&poll_function);
        uint64_t wait_ns = poll_now ? poll_now(p) : UINT64_MAX, now_ns = sl_now_ns();
        if (now_ns >= keep_at_ns) {
            sl_alone_keep(p, watch.path);
            keep_at_ns = now_ns + LOOK_AFTER_NS;
        }
        if (!atomic_load(&watch.connected)) {
            if (now_ns >= retry_at_ns || atomic_load(&tries.hurry)) {
                backoff_ns = reconnect(p) ? RETRY_MIN_NS : backoff_ns * 2;
                if (backoff_ns > RETRY_MAX_NS)
                    backoff_ns = RETRY_MAX_NS;
                retry_at_ns = sl_now_ns() + backoff_ns;
            }
            if (!atomic_load(&watch.connected) && wait_ns > backoff_ns)
                wait_ns = backoff_ns;
        }
        if ((watch.no_kick || watch.kick.fd < 0) && wait_ns > RETRY_MIN_NS)
            wait_ns = RETRY_MIN_NS;
        wait_events(wait_ns);
    }
    return NULL;
}

void sl_watch_start(struct sl_process *p, const char *path, struct sl_link *link)
{
    (void)snprintf(watch.path, sizeof(watch.path), "%s", path);
    watch.process = p;
    watch.sock = sl_own_fd_take(link->sock);
    watch.doorbell = sl_own_fd_take(link->doorbell);
    watch.lease = sl_own_fd_take(link->lease.fd);
    watch.ledger = sl_own_fd_take(link->ledger.fd);
    watch.kick = sl_own_fd_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    watch.no_kick = false;
    set_doorbell(p);
    atomic_store(&watch.connected, link->sock >= 0);
    watch.running = sl_thread_start(watch_main, p);
    if (watch.running)
        sl_alone_told(p);
    else
        sl_warn(
            "cannot start the watch thread: this process will not attach to a restarted arbiter");
}

void sl_watch_forget(struct sl_process *p)
{
    sl_own_fd_close(&watch.sock);
    sl_own_fd_close(&watch.kick);
    sl_own_fd_close(&watch.doorbell);
    sl_own_fd_close(&watch.lease);
    sl_own_fd_close(&watch.ledger);
    (void)munmap(atomic_load(&p->lease), sizeof(struct sl_lease_page));
    (void)munmap(atomic_load(&p->ledger), sizeof(struct sl_ledger_page));
    watch.running = false;
    atomic_store(&watch.connected, false);
    memset(&tries, 0, sizeof(tries));
    sl_lock_reset(&measure_lock);
    memset(measures, 0, sizeof(measures));
}

/* The other end may be closed before the watch thread had the time to notice it. */
static bool link_is_up(void)
{
    struct pollfd p = {.events = 0};
    sl_lock_take(&measure_lock);
    p.fd = sl_own_fd_valid(&watch.sock) ? watch.sock.fd : -1;
    bool up = atomic_load(&watch.connected) && p.fd >= 0 && poll(&p, 1, 0) == 0;
    sl_lock_drop(&measure_lock);
    return up;
}

static bool catch_up(uint64_t end_ns)
{
    int saved = errno;
    /* A running attempt may have begun before there was an arbiter: unless it succeeds, the next attempt counts. These
     * are read before the look at the link: an attempt that succeeds after that look is noticed. */
    uint32_t enough = atomic_load(&tries.begun) + 1, before = atomic_load(&tries.ended);
    if (!watch.running || atomic_load(&tries.stuck) || link_is_up()) {
        errno = saved;
        return false;
    }
    bool back = false;
    atomic_store(&tries.hurry, true);
    sl_watch_kick();
    for (;;) {
        uint32_t ended = atomic_load(&tries.ended);
        uint64_t now_ns = sl_now_ns();
        back = ended != before && atomic_load(&watch.connected);
        if (back || (int32_t)(ended - enough) >= 0 || now_ns >= end_ns)
            break;
        sl_futex_wait(&tries.ended, ended, end_ns - now_ns, false);
    }
    errno = saved;
    return back;
}

bool sl_process_catch_up(void)
{
    return catch_up(sl_now_ns() + HANDSHAKE_NS);
}

/* Waits until request number `ticket` is answered. */
static bool wait_answer(uint32_t gpu, uint32_t ticket, uint64_t end_ns)
{
    for (;;) {
        uint32_t answered = atomic_load(&measures[gpu].answered);
        uint64_t now_ns = sl_now_ns();
        if ((int32_t)(answered - ticket) >= 0)
            return true;
        if (now_ns >= end_ns)
            return false;
        sl_futex_wait(&measures[gpu].answered, answered, end_ns - now_ns, false);
    }
}

/* Sends a request once no other is open. */
static bool ask_measure(uint32_t gpu, uint64_t end_ns, uint32_t *ret_ticket)
{
    for (;;) {
        bool sent;
        if (send_request(gpu, ret_ticket, &sent) || !wait_answer(gpu, *ret_ticket - 1, end_ns))
            return sent;
    }
}

bool sl_process_measure(struct sl_process *p, uint32_t gpu, bool wait, uint64_t put_by_units)
{
    if (p->mode != SL_MODE_TENANT || gpu >= SL_MAX_GPUS || !watch.running ||
        !atomic_load(&watch.connected)) {
        sl_charge_estimate_end(p, (int)gpu, put_by_units);
        return false;
    }
    int saved = errno;
    atomic_fetch_add(&measures[gpu].next_units, put_by_units); /* first: the answer reads it */
    uint32_t ticket = 0;
    uint64_t end_ns = sl_now_ns() + MEASURE_NS;
    bool done = false;
    if (!wait && atomic_load(&measures[gpu].answered) != atomic_load(&measures[gpu].asked)) {
        errno = saved; /* a request is open, and the arbiter measures by itself every second; the
                        * new units are requested as soon as the open request is answered */
        return false;
    }
    if (ask_measure(gpu, end_ns, &ticket) && wait) {
        done = wait_answer(gpu, ticket, end_ns);
        if (!done)
            answer_all(gpu); /* no thread waits for it any more */
    }
    errno = saved;
    return done;
}

/* How long ago an arbiter made the socket, or removed it: also one that was there too briefly for us to notice. */
static uint64_t socket_age_ns(void)
{
    char folder[sizeof(watch.path)];
    struct statx made; /* not stat: libsluice also runs with C libraries that lack it */
    (void)snprintf(folder, sizeof(folder), "%s", watch.path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    struct timespec now;
    if ((statx(AT_FDCWD, watch.path, 0, STATX_CTIME, &made) < 0 &&
         (!slash || statx(AT_FDCWD, folder, 0, STATX_CTIME, &made) < 0)) ||
        clock_gettime(CLOCK_REALTIME, &now) < 0 || made.stx_ctime.tv_sec > now.tv_sec)
        return UINT64_MAX;
    return (uint64_t)(now.tv_sec - made.stx_ctime.tv_sec) * SL_NS_PER_S;
}

/* There is no arbiter. Was there one a moment ago? */
static bool arbiter_was_near(void)
{
    return watch.running &&
           (atomic_load(&watch.connected) || /* the watch thread has not noticed the end yet */
            sl_now_ns() - atomic_load(&watch.lost_ns) < AWAY_NS || socket_age_ns() < AWAY_NS);
}

/* May the figures of the last attempt be wrong? Then this has waited a little. False from end_ns on. */
static bool settles(struct sl_process *p, int gpu, uint64_t end_ns)
{
    int saved = errno;
    uint64_t now_ns = sl_now_ns();
    if (gpu < 0 || p->mode != SL_MODE_TENANT || now_ns >= end_ns)
        return false;
    bool again = atomic_load(&atomic_load(&p->lease)->settling);
    if (link_is_up()) {
        if (again)
            (void)sl_process_measure(p, (uint32_t)gpu, true, 0);
    } else if (catch_up(now_ns + HANDSHAKE_NS < end_ns ? now_ns + HANDSHAKE_NS : end_ns)) {
        again = true;
    } else {
        again = again || arbiter_was_near();
        if (again)
            sl_sleep_ns(SETTLE_STEP_NS);
    }
    errno = saved;
    return again;
}

bool sl_process_attempt(struct sl_process *p, int gpu, sl_attempt *attempt, void *arg)
{
    uint64_t end_ns = sl_now_ns() + SETTLE_NS;
    bool done = attempt(p, gpu, arg);
    for (bool again = true; !done && again; done = attempt(p, gpu, arg)) {
        SL_FAULT("attempt.failed");
        again = settles(p, gpu, end_ns);
    }
    return done;
}
