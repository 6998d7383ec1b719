/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "sim/engine.h"
#include "sim/tree.h"

/* The liveness bytes lie past the mapped part: POSIX locks may cover bytes that do not exist. */
#define ALIVE_BASE ((off_t)1 << 40)

/* Nobody has the lock for so long, unless it was stopped, or the computer is very busy. */
#define LOCK_PATIENCE_NS 100000000L
#define LOCK_LOOKS       10

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_sim_state *the_state;
static int the_fd = -1;
static int my_slot = -1;
static pid_t my_pid;
static char the_path[PATH_MAX];

uint64_t sl_sim_now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

const char *sl_sim_path(void)
{
    return the_path;
}

static const char *env_or(const char *name, const char *fallback)
{
    const char *v = getenv(name);
    return v && *v ? v : fallback;
}

static int make_path(const char *given, const char *spec, char *buf, size_t size,
                     struct sl_err *err)
{
    if (given && *given) {
        if ((size_t)snprintf(buf, size, "%s", given) >= size)
            return sl_err_set(err, -ENAMETOOLONG, "SLUICE_SIM_STATE is too long");
        return 0;
    }
    int n = snprintf(buf, size, "%s/sluice-sim-%u", env_or("XDG_RUNTIME_DIR", "/tmp"),
                     (unsigned)getuid());
    if (n < 0 || (size_t)n + 70 >= size)
        return sl_err_set(err, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long");
    int r = sl_fs_mkdirs(buf, 0700, err);
    if (r < 0)
        return r;
    char *p = buf + n;
    *p++ = '/';
    for (int i = 0; spec[i] && i < 60; i++)
        *p++ = spec[i] == '/' ? '_' : spec[i];
    *p = '\0';
    return 0;
}

static int lock_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    int r = pthread_mutexattr_init(&a);
    if (r == 0)
        r = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (r == 0)
        r = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (r == 0)
        r = pthread_mutex_init(m, &a);
    (void)pthread_mutexattr_destroy(&a);
    return -r;
}

/* The file is new (all zero), and ours: the caller holds flock. */
static int create(struct sl_sim_state *st, const char *spec, struct sl_err *err)
{
    int r = sl_sim_spec_parse(spec, &st->spec_parsed, err);
    if (r < 0)
        return r;
    (void)snprintf(st->spec, sizeof(st->spec), "%s", spec);
    st->card_count = (uint32_t)st->spec_parsed.count;
    for (uint32_t i = 0; i < st->card_count; i++) {
        st->cards[i].desc = st->spec_parsed.devices[i];
        sl_sim_lanes_init(&st->cards[i]);
    }
    r = lock_init(&st->lock);
    for (uint32_t i = 0; i < SL_SIM_DOORS && r == 0; i++)
        r = lock_init(&st->doors[i].lock);
    if (r < 0)
        return sl_err_errno(err, -r, "cannot make the lock of %s", the_path);
    sl_sim_times_init(st);
    st->created_ns = st->now_ns = sl_sim_now_ns();
    st->version = SL_SIM_VERSION;
    st->size_check = (uint32_t)sizeof(*st);
    st->magic = SL_SIM_MAGIC;
    atomic_store(&st->ready, 1);
    return 0;
}

static int check(const struct sl_sim_state *st, struct sl_err *err)
{
    if (st->magic != SL_SIM_MAGIC || st->version != SL_SIM_VERSION ||
        st->size_check != (uint32_t)sizeof(*st))
        return sl_err_set(err, -EPROTO,
                          "%s was made by another version of the simulated driver: remove it",
                          the_path);
    return 0;
}

/* CLOCK_MONOTONIC starts anew at boot; a file from before it holds only the dead. */
static void refresh_after_boot(struct sl_sim_state *st)
{
    uint64_t now = sl_sim_now_ns();
    if (st->now_ns > now + 1000000000ULL)
        st->now_ns = now;
}

static int open_locked(struct sl_err *err)
{
    struct sl_sim_tree near = {.state = ""};
    const char *given = getenv("SLUICE_SIM_STATE");
    if (!given || !*given)
        given = sl_sim_tree_near(&near) ? near.state : NULL;
    const char *spec = env_or("SLUICE_SIM", near.spec[0] ? near.spec : "h200");
    int r = make_path(given, spec, the_path, sizeof(the_path), err);
    if (r < 0)
        return r;
    int fd = open(the_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot open the simulated machine's state %s", the_path);
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return sl_err_errno(err, errno, "cannot lock %s", the_path);
    struct stat sb;
    if (fstat(fd, &sb) != 0)
        r = sl_err_errno(err, errno, "cannot look at %s", the_path);
    else if (sb.st_size < (off_t)sizeof(struct sl_sim_state) &&
             ftruncate(fd, (off_t)sizeof(struct sl_sim_state)) != 0)
        r = sl_err_errno(err, errno, "cannot size %s", the_path);
    void *p = MAP_FAILED;
    if (r == 0) {
        p = mmap(NULL, sizeof(struct sl_sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            r = sl_err_errno(err, errno, "cannot map %s", the_path);
    }
    if (r == 0) {
        struct sl_sim_state *st = p;
        r = atomic_load(&st->ready) ? check(st, err) : create(st, spec, err);
        if (r == 0) {
            refresh_after_boot(st);
            the_state = st;
            the_fd = fd;
        }
    }
    (void)flock(fd, LOCK_UN);
    return r; /* fd stays open even on failure: closing it could drop another library's locks */
}

int sl_sim_open(struct sl_sim_state **ret, struct sl_err *err)
{
    (void)pthread_mutex_lock(&open_lock);
    int r = the_state ? 0 : open_locked(err);
    (void)pthread_mutex_unlock(&open_lock);
    if (r == 0)
        *ret = the_state;
    return r;
}

/* Numbers a killed process may have left out of range, so that no index walks off. */
static void repair(struct sl_sim_state *st)
{
    st->repairs++;
    if (st->proc_high > SL_SIM_MAX_PROCS)
        st->proc_high = SL_SIM_MAX_PROCS;
    if (st->queue_high > SL_SIM_MAX_QUEUES)
        st->queue_high = SL_SIM_MAX_QUEUES;
    for (uint32_t i = 0; i < st->queue_high; i++) {
        struct sl_sim_queue *q = &st->queues[i];
        if (!q->used)
            continue;
        if (q->tail - q->head > SL_SIM_RING)
            q->head = q->tail;
        if (q->first < q->head || q->first > q->tail)
            q->first = q->head;
        uint32_t slots = 0;
        memset(q->pending, 0, sizeof(q->pending));
        q->spinning = q->ready = q->marks = 0;
        q->run_count = q->run_room = 0;
        q->ahead = 0;
        for (uint64_t s = q->head + 1; s <= q->tail; s++) {
            const struct sl_sim_op *op = sl_sim_op_at(st, i, s);
            if (op->state == SL_SIM_OP_DONE) {
                q->ahead += s > q->first;
                continue;
            }
            if (q->pending[op->stream % SL_SIM_STREAM_SLOTS]++ == 0)
                slots++;
            if (op->kind == SL_SIM_OP_SPIN && op->state != SL_SIM_OP_PENDING)
                q->spinning++;
            sl_sim_kernel_repair(st, i, s);
        }
        q->active_slots = slots;
    }
    for (uint32_t i = 0; i < st->card_count; i++)
        sl_sim_lanes_repair(st, i);
}

static uint64_t pid_namespace(void)
{
    struct stat sb;
    return stat("/proc/self/ns/pid", &sb) == 0 ? (uint64_t)sb.st_ino : 0;
}

static uint32_t find_door(struct sl_sim_state *st)
{
    uint64_t space = pid_namespace();
    for (uint32_t i = 0; space && i < SL_SIM_DOORS - 1; i++) {
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong(&st->doors[i].space, &seen, space) || seen == space)
            return i;
    }
    return SL_SIM_DOORS - 1;
}

struct sl_sim_door *sl_sim_door(struct sl_sim_state *st)
{
    static _Atomic uint32_t known; /* and 1; 0: not known yet */
    uint32_t door = atomic_load_explicit(&known, memory_order_relaxed);
    if (door == 0) {
        int saved = errno;
        door = find_door(st) + 1;
        errno = saved;
        atomic_store_explicit(&known, door, memory_order_relaxed);
    }
    return &st->doors[door - 1];
}

static bool is_stopped(pid_t pid)
{
    char path[64], text[256];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    SL_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* Not in the critical section, as the analyzer thinks: whoever calls this waits for the lock. */
    ssize_t n = fd < 0 ? -1
                       : read(fd, text, /* NOLINT(clang-analyzer-unix.BlockInCriticalSection) */
                              sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')');
    return end && strncmp(end, ") T", 3) == 0;
}

static int lock_until(pthread_mutex_t *lock, const struct timespec *until)
{
#ifdef __SANITIZE_THREAD__ /* its pthread_mutex_timedlock takes a dead owner's lock for one that was not got */
    struct timespec now, pause = {.tv_nsec = 100000};
    int r = pthread_mutex_trylock(lock);
    for (; r == EBUSY; r = pthread_mutex_trylock(lock)) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until->tv_sec ||
            (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
            return ETIMEDOUT;
        (void)nanosleep(&pause, NULL);
    }
    return r;
#else
    return pthread_mutex_timedlock(lock, until);
#endif
}

/* The kernel releases the robust locks of a dead thread, so the word of such a lock has the owner's thread number in it
 * from the very instruction that takes the lock. A number that is noted after that instruction would be missing if the
 * owner is stopped in between. 0: nobody has the lock. */
static pid_t lock_owner(const pthread_mutex_t *lock)
{
    return __atomic_load_n(&lock->__data.__lock, __ATOMIC_RELAXED) & FUTEX_TID_MASK;
}

/*
 * A real driver's locks are the kernel's, and a process that is told to stop leaves the kernel first. Here it
 * may stop inside and hold up everybody. So whoever waits for long at its door lets it go on; it stops itself again when
 * it has left. (If those who wait stopped it, one of them could do so late, after it was told to go on.) Returns as the
 * lock functions do.
 */
static int lock_from_stopped(struct sl_sim_door *door)
{
    for (int looks = 0;;) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOCK_PATIENCE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        int r = lock_until(&door->lock, &until);
        if (r != ETIMEDOUT)
            return r;
        pid_t pid = lock_owner(&door->lock);
        if (pid == 0 || atomic_load(&door->space) == 0 || !is_stopped(pid))
            continue;
        /* One of those who wait does it, or another one if that one seems to have died. */
        pid_t before = atomic_load(&door->stops);
        if (before == pid && looks++ < LOCK_LOOKS)
            continue;
        looks = 0;
        if (!atomic_compare_exchange_strong(&door->stops, &before, pid))
            continue;
        if (lock_owner(&door->lock) == pid && is_stopped(pid))
            (void)kill(pid, SIGCONT);
        else /* it has gone on meanwhile */
            (void)atomic_compare_exchange_strong(&door->stops, &pid, 0);
    }
}

void sl_sim_lock(struct sl_sim_state *st)
{
    struct sl_sim_door *door = sl_sim_door(st);
    int r = pthread_mutex_trylock(&door->lock);
    if (r == EBUSY) {
        int saved = errno;
        r = lock_from_stopped(door);
        errno = saved;
    }
    if (r == EOWNERDEAD)
        (void)pthread_mutex_consistent(&door->lock);
    /* Whoever has it now came through another door. Those who wait there see to it that it goes on. */
    if (pthread_mutex_lock(&st->lock) == EOWNERDEAD) {
        repair(st);
        (void)pthread_mutex_consistent(&st->lock);
    }
}

void sl_sim_unlock(struct sl_sim_state *st)
{
    struct sl_sim_door *door = sl_sim_door(st);
    pid_t me = lock_owner(&door->lock);
    (void)pthread_mutex_unlock(&st->lock);
    (void)pthread_mutex_unlock(&door->lock);
    if (me != 0 && atomic_load_explicit(&door->stops, memory_order_relaxed) == me &&
        atomic_compare_exchange_strong(&door->stops, &me, 0))
        (void)raise(SIGSTOP);
}

static int slot_lock(uint32_t slot, int cmd, short type, struct flock *ret)
{
    *ret = (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = ALIVE_BASE + (off_t)slot, .l_len = 1};
    int saved = errno, r;
    while ((r = fcntl(the_fd, cmd, ret)) != 0 && errno == EINTR)
        ;
    r = r == 0 ? 0 : -errno;
    errno = saved;
    return r;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Tells this process from every other: PIDs repeat from namespace to namespace (half of all
 * containers' processes are PID 1), so the namespace is in it, and the random bytes the kernel gives
 * each program it starts: after exec the locks are gone and the PID is the same. */
static uint64_t identity(void)
{
    struct stat sb = {0};
    uint64_t random[2] = {0, 0};
    const void *bytes = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    if (bytes)
        memcpy(random, bytes, sizeof(random));
    (void)stat("/proc/self/ns/pid", &sb);
    return mix(mix(mix(random[0]) ^ random[1]) ^ (uint64_t)sb.st_ino) ^ (uint64_t)getpid();
}

/* F_GETLK does not show a process its own lock, and the two simulated libraries of one process do
 * not know each other. */
static bool own_slot(const struct sl_sim_state *st, uint32_t slot)
{
    return my_slot < 0 && st->procs[slot].pid == getpid() && st->procs[slot].identity == identity();
}

bool sl_sim_alive(struct sl_sim_state *st, uint32_t slot)
{
    struct flock fl;
    if (!st->procs[slot].used)
        return false;
    if ((int)slot == my_slot && my_pid == getpid())
        return true;
    return slot_lock(slot, F_GETLK, F_WRLCK, &fl) != 0 || fl.l_type != F_UNLCK ||
           own_slot(st, slot);
}

pid_t sl_sim_proc_pid(struct sl_sim_state *st, uint32_t slot)
{
    struct flock fl;
    if (!st->procs[slot].used)
        return 0;
    if ((int)slot == my_slot && my_pid == getpid())
        return my_pid;
    if (slot_lock(slot, F_GETLK, F_WRLCK, &fl) != 0)
        return 0;
    /* F_UNLCK: dead, or the caller's own lock, taken through the other simulated library. */
    if (fl.l_type == F_UNLCK)
        return own_slot(st, slot) ? getpid() : 0;
    return fl.l_pid > 0 ? fl.l_pid : 0;
}

static void bury(struct sl_sim_state *st, uint32_t slot)
{
    for (uint32_t i = 0; i < st->queue_high; i++)
        if (st->queues[i].used && st->queues[i].proc == slot)
            sl_sim_queue_destroy(st, i);
    for (uint32_t i = 0; i < SL_SIM_MAX_IPC_EVENTS; i++)
        if (st->ipc_events[i].used && st->ipc_events[i].owner == slot)
            st->ipc_events[i].used = 0;
    for (uint32_t i = 0; i < SL_SIM_MAX_BLOCKS; i++) {
        struct sl_sim_block *b = &st->blocks[i];
        if (!b->used)
            continue;
        b->holders[slot / 64] &= ~(1ULL << (slot % 64));
        if (b->owner == slot) {
            char path[PATH_MAX + 40];
            b->owner = SL_SIM_NONE;
            (void)snprintf(path, sizeof(path), "%s.ipc-%llu", the_path, (unsigned long long)b->id);
            (void)unlink(path);
        }
        uint64_t any = 0;
        for (size_t w = 0; w < SL_ARRAY_LEN(b->holders); w++)
            any |= b->holders[w];
        if (b->owner == SL_SIM_NONE && !any)
            b->used = 0;
    }
    memset(st->procs[slot].card, 0, sizeof(st->procs[slot].card));
    st->procs[slot].used = 0;
}

void sl_sim_reap(struct sl_sim_state *st, bool force)
{
    uint64_t now = sl_sim_now_ns();
    if (!force && now - st->reaped_ns < 5000000ULL)
        return;
    st->reaped_ns = now;
    int saved = errno;
    for (uint32_t i = 0; i < st->proc_high; i++) {
        if (st->procs[i].used && !sl_sim_alive(st, i))
            bury(st, i);
    }
    errno = saved;
}

int sl_sim_register(struct sl_sim_state *st)
{
    sl_sim_reap(st, true);
    for (uint32_t i = 0; i < SL_SIM_MAX_PROCS; i++) {
        struct flock fl;
        if (st->procs[i].used)
            continue;
        if (slot_lock(i, F_SETLK, F_WRLCK, &fl) != 0)
            continue;
        struct sl_sim_proc *p = &st->procs[i];
        memset(p->card, 0, sizeof(p->card));
        p->pid = getpid();
        p->generation = ++st->next_id;
        p->start_ns = sl_sim_now_ns();
        p->identity = identity();
        (void)snprintf(p->name, sizeof(p->name), "%s", program_invocation_short_name);
        if (i >= st->proc_high)
            st->proc_high = i + 1;
        p->used = 1;
        my_slot = (int)i;
        my_pid = getpid();
        return (int)i;
    }
    return -ENOSPC;
}

/* Who keeps the memory of a block that has lost its maker; SL_SIM_NONE when nobody does. */
static uint32_t first_holder(const struct sl_sim_block *b)
{
    for (uint32_t w = 0; w < SL_ARRAY_LEN(b->holders); w++)
        if (b->holders[w])
            return w * 64 + (uint32_t)__builtin_ctzll(b->holders[w]);
    return SL_SIM_NONE;
}

uint64_t sl_sim_proc_bytes(const struct sl_sim_state *st, uint32_t slot, uint32_t card)
{
    uint64_t sum = st->procs[slot].card[card].memory_bytes;
    for (uint32_t i = 0; i < SL_SIM_MAX_BLOCKS; i++) {
        const struct sl_sim_block *b = &st->blocks[i];
        if (b->used && b->card == card && b->owner == SL_SIM_NONE && first_holder(b) == slot)
            sum += b->bytes;
    }
    return sum;
}

uint64_t sl_sim_used_bytes(const struct sl_sim_state *st, uint32_t card)
{
    uint64_t sum = st->cards[card].foreign_bytes;
    for (uint32_t i = 0; i < st->proc_high; i++)
        if (st->procs[i].used)
            sum += st->procs[i].card[card].memory_bytes;
    for (uint32_t i = 0; i < SL_SIM_MAX_BLOCKS; i++)
        if (st->blocks[i].used && st->blocks[i].card == card && st->blocks[i].owner == SL_SIM_NONE)
            sum += st->blocks[i].bytes;
    return sum;
}

uint64_t sl_sim_used_bytes_in(const struct sl_sim_state *st, uint32_t card, uint32_t gi_id)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < st->proc_high; i++) {
        const struct sl_sim_proc_card *pc = &st->procs[i].card[card];
        if (st->procs[i].used && pc->mig && pc->gi == gi_id)
            sum += sl_sim_proc_bytes(st, i, card);
    }
    return sum;
}

void sl_sim_event_add(struct sl_sim_state *st, uint32_t card, uint64_t type, uint64_t data,
                      uint32_t gi, uint32_t ci)
{
    struct sl_sim_card *c = &st->cards[card];
    uint64_t seq = c->event_seq + 1;
    c->events[seq % SL_SIM_EVENTS] = (struct sl_sim_event){
        .seq = seq, .time_ns = sl_sim_now_ns(), .type = type, .data = data, .gi = gi, .ci = ci};
    c->event_seq = seq;
}

uint64_t sl_sim_usage_between(const struct sl_sim_usage *u, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t sum = 0;
    for (uint64_t b = from_ns / SL_SIM_BUCKET_NS; b * SL_SIM_BUCKET_NS < to_ns; b++)
        if (u->history[b % SL_SIM_HISTORY].bucket == b)
            sum += u->history[b % SL_SIM_HISTORY].busy_ns;
    return sum;
}
