/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arbiter that restarts refuses nobody what is below the limit, and counts nobody twice: not the
 * processes that come back at once, nor one that comes back late, nor one that begins meanwhile.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/world_case.h"
#include "integration/tenant_world.h"

#define RESTARTS 20
/* Of the churning thread, which rests a millisecond after each: more than a second's worth. */
#define ROUNDS   1200
#define LIMIT    (60 * GIB)
#define HELD     (40 * GIB)
#define PIECE    (5 * GIB)

struct counts {
    unsigned long granted, refused, other;
};

static struct counts count(struct program *p)
{
    struct counts c;
    char line[128];
    program_ask(p, "count", line, sizeof(line));
    if (sscanf(line, "count %lu %lu %lu", &c.granted, &c.refused, &c.other) != 3)
        fail_msg("%s", line);
    return c;
}

static void start_with(const struct tenant *t, const char *const *extra, struct program *p)
{
    const char *argv[] = {"restart_tenant", NULL};
    char line[64];
    program_start(t, argv, extra, p);
    program_answer(p, line, sizeof(line));
    assert_string_equal(line, "ready 0\n");
}

static void start(const struct tenant *t, struct program *p)
{
    start_with(t, NULL, p);
}

static void ask(struct program *p, const char *word, uint64_t bytes, const char *answer)
{
    char line[64];
    (void)snprintf(line, sizeof(line), "%s %lu", word, bytes);
    program_ask(p, line, line, sizeof(line));
    assert_string_equal(line, answer);
}

struct looked_for {
    const char *tenant; /* NULL: anybody's */
    unsigned found;
};

static void count_finding(const union sl_packet *p, void *arg)
{
    struct looked_for *l = arg;
    l->found +=
        p->h.type == SL_MSG_AUDIT && (!l->tenant || strcmp(p->audit.tenant, l->tenant) == 0);
}

/* Findings of the audit about one tenant's processes, or all of them together. */
static unsigned findings(const char *tenant)
{
    struct looked_for l = {.tenant = tenant};
    world_status(count_finding, &l);
    return l.found;
}

/* The churning thread goes on for a while, and status says nothing that is not so meanwhile. */
static void watch_rounds(const struct tenant *t, struct program *p)
{
    unsigned long until = count(p).granted + ROUNDS;
    struct counts c;
    do {
        struct usage u = tenant_usage(t);
        if (u.used_bytes + u.overhead_bytes > LIMIT)
            fail_msg("status shows %lu and %lu of %lu", u.used_bytes, u.overhead_bytes,
                     u.limit_bytes);
        assert_int_equal(findings(NULL), 0);
        c = count(p);
        if (c.refused || c.other)
            fail_msg("%lu granted, %lu refused, %lu failed", c.granted, c.refused, c.other);
    } while (c.granted < until);
}

static void restart_often(const char *name, void (*end)(struct world *))
{
    struct tenant t;
    struct program p, idle;
    tenant_begin(&world, name, LIMIT, &t);
    start(&t, &p);
    start(&t, &idle);
    ask(&p, "hold", HELD, "held 0\n");
    ask(&idle, "hold", GIB, "held 0\n");
    ask(&p, "churn", PIECE, "churn 0\n");
    watch_rounds(&t, &p);
    for (int i = 0; i < RESTARTS; i++) {
        end(&world);
        world_start(&world);
        EVENTUALLY(tenant_usage(&t).processes == 2);
        watch_rounds(&t, &p);
    }
    struct counts c = count(&p);
    (void)printf("%s: %d restarts, %lu granted, %lu refused\n", name, RESTARTS, c.granted,
                 c.refused);
    assert_int_equal(program_end(&p), 0);
    assert_int_equal(program_end(&idle), 0);
    EVENTUALLY(tenant_usage(&t).used_bytes == 0);
    tenant_end(&t);
}

static void test_killed(void **state)
{
    (void)state;
    restart_often("killed", world_kill);
}

static void test_stopped(void **state)
{
    (void)state;
    restart_often("stopped", world_stop);
}

/* A process that is stopped through the whole recovery is charged as what the driver shows of it;
 * when it comes back its own ledger says that, and nothing says it twice. */
static void test_late(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    char line[64];
    tenant_begin(&world, "late", LIMIT, &t);
    for (int i = 0; i < 3; i++) {
        start(&t, &p);
        ask(&p, "hold", HELD, "held 0\n");
        /* Not in the middle of a call: no real driver waits for a stopped process, the simulated one does. */
        ask(&p, "churn", PIECE, "churn 0\n");
        program_ask(&p, "calm", line, sizeof(line));
        assert_string_equal(line, "calm 0\n");
        world_stop_process(p.pid);
        world_kill(&world);
        world_start(&world);
        EVENTUALLY(findings("late") == 1 && tenant_usage(&t).overhead_bytes >= HELD);
        assert_int_equal(kill(p.pid, SIGCONT), 0);
        EVENTUALLY(tenant_usage(&t).processes == 1 && tenant_usage(&t).used_bytes >= HELD);
        ask(&p, "churn", PIECE, "churn 0\n");
        watch_rounds(&t, &p);
        assert_int_equal(program_end(&p), 0);
        EVENTUALLY(tenant_usage(&t).processes == 0);
    }
    tenant_end(&t);
}

/* Stops the process in the middle of its return: it has said HELLO, and has not entered its memory into the ledger. */
static void stop_half_back(const struct tenant *t, const struct program *p)
{
    for (unsigned i = 0; i < 200; i++) {
        world_stop_process(p->pid);
        world_kill(&world);
        world_start(&world);
        EVENTUALLY(tenant_usage(t).overhead_bytes >= HELD && findings(t->name) == 1);
        assert_int_equal(kill(p->pid, SIGCONT), 0);
        (void)usleep(i % 10 * 150);
        world_stop_process(p->pid);
        struct usage u = tenant_usage(t);
        if (u.processes == 2 && u.used_bytes < HELD)
            return;
        assert_int_equal(kill(p->pid, SIGCONT), 0);
        EVENTUALLY(tenant_usage(t).processes == 2 && tenant_usage(t).used_bytes >= HELD);
    }
    fail_msg("the process was never stopped in the middle of its return");
}

/* A process that is stopped there for long is charged as what the driver shows of it. When it goes on and enters its
 * memory, that counts twice until the next measurement: others of the tenant wait for that before they are refused. */
static void test_half_back(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, other;
    tenant_begin(&world, "half", LIMIT, &t);
    start(&t, &p);
    start(&t, &other);
    ask(&p, "hold", HELD, "held 0\n");
    for (int i = 0; i < 3; i++) {
        stop_half_back(&t, &p);
        EVENTUALLY(tenant_usage(&t).overhead_bytes >= HELD && findings("half") == 1);
        ask(&other, "hold", LIMIT - HELD, "held 2\n"); /* it counts */
        assert_int_equal(kill(p.pid, SIGCONT), 0);
        EVENTUALLY(tenant_usage(&t).used_bytes >= HELD);
        ask(&other, "hold", PIECE, "held 0\n");
    }
    ask(&other, "hold", LIMIT - HELD - 3 * PIECE, "held 2\n");
    assert_int_equal(program_end(&p), 0);
    assert_int_equal(program_end(&other), 0);
    tenant_end(&t);
}

/* What contexts cost is known from the first moment on: a tenant at its limit stays there. */
static void test_overhead(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, q;
    tenant_begin(&world, "overhead", LIMIT, &t);
    start(&t, &p);
    start(&t, &q);
    EVENTUALLY(tenant_usage(&t).overhead_bytes > 2 * (GIB / 4));
    uint64_t overhead = tenant_usage(&t).overhead_bytes;
    ask(&p, "hold", LIMIT - overhead - GIB / 8, "held 0\n");
    ask(&p, "hold", GIB / 4, "held 2\n");
    for (int i = 0; i < RESTARTS; i++) {
        (i % 2 ? world_kill : world_stop)(&world);
        world_start(&world);
        EVENTUALLY(tenant_usage(&t).processes == 2);
        assert_int_equal(tenant_usage(&t).overhead_bytes, overhead);
        ask(&p, "hold", GIB / 4, "held 2\n");
        if (i == 0) /* measured again: the same */
            EVENTUALLY(findings(NULL) == 0 && tenant_usage(&t).overhead_bytes == overhead);
    }
    assert_int_equal(program_end(&p), 0);
    assert_int_equal(program_end(&q), 0);
    tenant_end(&t);
}

/* Processes that begin while old ones have yet to come back get slots of their own. */
static void test_newcomers(void **state)
{
    (void)state;
    struct tenant t;
    struct program old[3], young[3];
    tenant_begin(&world, "newcomers", LIMIT, &t);
    for (int i = 0; i < 3; i++) {
        start(&t, &old[i]);
        ask(&old[i], "hold", (10 + (uint64_t)i) * GIB, "held 0\n");
    }
    for (int i = 1; i < 3; i++)
        world_stop_process(old[i].pid);
    world_kill(&world);
    world_start(&world);
    EVENTUALLY(tenant_usage(&t).processes == 1); /* it brought the ledger */
    for (int i = 0; i < 3; i++) {
        start(&t, &young[i]);
        ask(&young[i], "hold", GIB, "held 0\n");
    }
    for (int i = 1; i < 3; i++)
        assert_int_equal(kill(old[i].pid, SIGCONT), 0);
    EVENTUALLY(tenant_usage(&t).processes == 6);
    EVENTUALLY(tenant_usage(&t).used_bytes == 36 * GIB);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(program_end(&old[i]), 0);
        EVENTUALLY(tenant_usage(&t).processes == 5U - (unsigned)i);
    }
    assert_int_equal(tenant_usage(&t).used_bytes, 3 * GIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(program_end(&young[i]), 0);
    tenant_end(&t);
}

/* A limit that is raised just after a restart holds for a process that is not back yet: before it is
 * refused anything it comes back. The longer the arbiter was away, the rarer are its regular tries. */
static void test_raised(void **state)
{
    (void)state;
    struct tenant t;
    struct program p, young;
    uint64_t limit = 10 * GIB;
    tenant_begin(&world, "raised", limit, &t);
    start(&t, &p);
    ask(&p, "hold", 9 * GIB, "held 0\n");
    for (int i = 0; i < RESTARTS; i++) {
        (i % 2 ? world_kill : world_stop)(&world);
        if (i < 2) /* nobody listens: the old limit, as soon as it is clear that no arbiter comes */
            ask(&p, "hold", GIB, "held 2\n");
        (void)usleep((useconds_t)(i % 4) * 200000);
        world_start(&world);
        limit += GIB;
        tenant_set_limit(&t, limit);
        ask(&p, "hold", GIB, "held 0\n");
        ask(&p, "hold", GIB, "held 2\n");
    }
    start(&t, &young);
    assert_int_equal(program_end(&young), 0);
    assert_int_equal(program_end(&p), 0);
    tenant_end(&t);
}

/* The limit was raised by an arbiter that ended before the process came back to it: the process waits for the next
 * arbiter before it is refused. */
static void test_missed(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    char line[64];
    uint64_t limit = 10 * GIB;
    tenant_begin(&world, "missed", limit, &t);
    start(&t, &p);
    ask(&p, "hold", 9 * GIB, "held 0\n");
    for (int i = 0; i < RESTARTS; i++) {
        world_stop_process(p.pid);
        world_kill(&world);
        world_start(&world);
        limit += GIB;
        tenant_set_limit(&t, limit);
        (i % 2 ? world_kill : world_stop)(&world);
        (void)snprintf(line, sizeof(line), "hold %llu", GIB);
        program_say(&p, line);
        assert_int_equal(kill(p.pid, SIGCONT), 0);
        (void)usleep((useconds_t)(i % 4) *
                     100000); /* it asks before, or after, the next arbiter is there */
        world_start(&world);
        program_answer(&p, line, sizeof(line));
        assert_string_equal(line, "held 0\n");
        EVENTUALLY(tenant_usage(&t).processes == 1);
    }
    assert_int_equal(program_end(&p), 0);
    tenant_end(&t);
}

/* In the environment of a program: the libsluice with fault points, and one that holds a thread until the file is gone. */
struct held_point {
    char file[80], fault[128], preload[2048];
    const char *extra[3];
};

static void hold_at(struct held_point *h, const char *point, unsigned times)
{
    const char *library = getenv("SLUICE_TEST_PRELOAD_FAULT");
    assert_non_null(library);
    (void)snprintf(h->file, sizeof(h->file), "%s/held", world.dir);
    (void)snprintf(h->fault, sizeof(h->fault), "SLUICE_FAULT=hold:%s:%u:%s", point, times, h->file);
    tenant_preload_library("", library, h->preload, sizeof(h->preload));
    h->extra[0] = h->fault;
    h->extra[1] = h->preload;
    h->extra[2] = NULL;
}

/* The process comes back to an arbiter just after a charge failed by the old limit, and before it asks whether it should
 * wait: it looks at the new limit before it refuses. */
static void test_back_between(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    struct held_point point;
    char line[64];
    uint64_t limit = 10 * GIB;
    tenant_begin(&world, "between", limit, &t);
    hold_at(&point, "attempt.failed", 1);
    for (int i = 0; i < 3; i++) {
        start_with(&t, point.extra, &p);
        ask(&p, "hold", limit - GIB, "held 0\n");
        (i % 2 ? world_kill : world_stop)(&world);
        (void)snprintf(line, sizeof(line), "hold %llu", GIB);
        program_say(&p, line);
        EVENTUALLY(access(point.file, F_OK) == 0);
        world_start(&world);
        limit += GIB;
        tenant_set_limit(&t, limit);
        EVENTUALLY(tenant_usage(&t).processes == 1);
        assert_int_equal(unlink(point.file), 0);
        program_answer(&p, line, sizeof(line));
        assert_string_equal(line, "held 0\n");
        assert_int_equal(program_end(&p), 0);
        EVENTUALLY(tenant_usage(&t).processes == 0);
    }
    tenant_end(&t);
}

/* A process was stopped while the arbiter restarted, and goes on. What it takes and gives before it is back changes its
 * own books, not those of a process that began meanwhile. */
static void test_slot_of_stopped(void **state)
{
    (void)state;
    struct tenant t;
    struct program old, other, young;
    struct held_point point;
    tenant_begin(&world, "slot", LIMIT, &t);
    hold_at(&point, "link.lost", 1);
    start_with(&t, point.extra, &old);
    start(&t, &other);
    ask(&old, "hold", 10 * GIB, "held 0\n");
    ask(&old, "hold", 3 * GIB, "held 0\n");
    ask(&other, "hold", GIB, "held 0\n");
    world_stop_process(old.pid);
    world_kill(&world);
    world_start(&world);
    /* The arbiter no longer waits for it. */
    EVENTUALLY(findings("slot") == 1 && tenant_usage(&t).overhead_bytes >= 13 * GIB);
    start(&t, &young);
    ask(&young, "hold", 7 * GIB, "held 0\n");
    assert_int_equal(kill(old.pid, SIGCONT), 0);
    EVENTUALLY(access(point.file, F_OK) == 0);
    ask(&old, "hold", 2 * GIB, "held 0\n");
    ask(&old, "give", 3 * GIB, "gave 0\n");
    assert_int_equal(unlink(point.file), 0);
    EVENTUALLY(tenant_usage(&t).processes == 3 && tenant_usage(&t).used_bytes >= 20 * GIB);
    assert_int_equal(tenant_usage(&t).used_bytes, 20 * GIB);
    assert_int_equal(program_end(&old), 0);
    EVENTUALLY(tenant_usage(&t).processes == 2);
    assert_int_equal(tenant_usage(&t).used_bytes, 8 * GIB);
    assert_int_equal(program_end(&young), 0);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(tenant_usage(&t).used_bytes, GIB);
    assert_int_equal(program_end(&other), 0);
    tenant_end(&t);
}

/* A process is stopped in the middle of an entry in the ledger, so long that a new arbiter takes it for absent. Then it
 * goes on where it was. */
static void stopped_inside(const struct tenant *t, const char *point, const char *word,
                           uint64_t held_then)
{
    struct program p, other;
    struct held_point held;
    char line[64];
    hold_at(&held, point, strcmp(word, "hold") == 0 ? 3 : 1);
    start_with(t, held.extra, &p);
    start(t, &other);
    ask(&other, "hold", GIB, "held 0\n");
    ask(&p, "hold", HELD, "held 0\n");
    ask(&p, "hold", PIECE, "held 0\n");
    (void)snprintf(line, sizeof(line), "%s %llu", word, PIECE);
    program_say(&p, line);
    EVENTUALLY(access(held.file, F_OK) == 0);
    world_stop_process(p.pid);
    world_kill(&world);
    world_start(&world);
    EVENTUALLY(findings(t->name) == 1 && tenant_usage(t).overhead_bytes >= HELD);
    assert_int_equal(unlink(held.file), 0);
    assert_int_equal(kill(p.pid, SIGCONT), 0);
    program_answer(&p, line, sizeof(line));
    assert_string_equal(line, strcmp(word, "hold") == 0 ? "held 0\n" : "gave 0\n");
    EVENTUALLY(tenant_usage(t).used_bytes == held_then + GIB);
    ask(&other, "hold", GIB, "held 0\n");
    assert_int_equal(tenant_usage(t).used_bytes, held_then + 2 * GIB);
    assert_int_equal(program_end(&p), 0);
    EVENTUALLY(tenant_usage(t).used_bytes == 2 * GIB);
    assert_int_equal(program_end(&other), 0);
    EVENTUALLY(tenant_usage(t).processes == 0);
}

static void test_stopped_inside(void **state)
{
    (void)state;
    struct tenant t;
    tenant_begin(&world, "inside", LIMIT, &t);
    stopped_inside(&t, "account.reserve.prepared", "hold", HELD + 2 * PIECE);
    stopped_inside(&t, "account.release.prepared", "give", HELD);
    stopped_inside(&t, "account.reserve.moved", "hold", HELD + 2 * PIECE);
    stopped_inside(&t, "account.release.moved", "give", HELD);
    tenant_end(&t);
}

/* The file of a process's ledger. */
static ino_t ledger_of(pid_t pid)
{
    char path[64], target[64];
    struct stat st;
    for (int fd = 0; fd < 1024; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, "/memfd:sluice-ledger", 20) == 0 && stat(path, &st) == 0)
            return st.st_ino;
    }
    fail_msg("process %d has no ledger", (int)pid);
    return 0;
}

/* An arbiter that is stopped as soon as it has begun, for longer than it waits for processes to return: when it goes on,
 * it hears those who came meanwhile before it gives up on them. So the ledger with all that is known stays. */
static void test_stalled(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    tenant_begin(&world, "stalled", LIMIT, &t);
    start(&t, &p);
    ask(&p, "hold", HELD, "held 0\n");
    for (int i = 0; i < 3; i++) {
        ino_t before = ledger_of(p.pid);
        world_stop_process(p.pid);
        world_kill(&world);
        world_start(&world);
        world_stop_process(world.arbiter);
        assert_int_equal(kill(p.pid, SIGCONT), 0);
        (void)usleep(1500000); /* it waits for a second */
        assert_int_equal(kill(world.arbiter, SIGCONT), 0);
        EVENTUALLY(tenant_usage(&t).processes == 1 && tenant_usage(&t).used_bytes >= HELD);
        ask(&p, "hold", LIMIT - HELD, "held 2\n"); /* now it is back */
        assert_true(ledger_of(p.pid) == before);
    }
    assert_int_equal(program_end(&p), 0);
    tenant_end(&t);
}

/* The new arbiter takes the connection and never answers: who is refused hears that all the same, and memory
 * below the last limit is granted. */
static void test_unanswered(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    tenant_begin(&world, "unanswered", 10 * GIB, &t);
    start(&t, &p);
    world_stop_process(p.pid);
    world_kill(&world);
    world_start(&world);
    world_stop_process(world.arbiter);
    assert_int_equal(kill(p.pid, SIGCONT), 0);
    for (int i = 0; i < 3; i++) {
        ask(&p, "hold", 10 * GIB, "held 2\n");
        ask(&p, "hold", GIB, "held 0\n");
    }
    assert_int_equal(kill(world.arbiter, SIGCONT), 0);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(program_end(&p), 0);
    tenant_end(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_CASE(test_raised),
        WORLD_CASE(test_unanswered),
        WORLD_CASE(test_killed),
        WORLD_CASE(test_stopped),
        WORLD_CASE(test_late),
        WORLD_CASE(test_overhead),
        WORLD_CASE(test_newcomers),
        WORLD_CASE(test_half_back),
        WORLD_CASE(test_missed),
        WORLD_CASE(test_back_between),
        WORLD_CASE(test_slot_of_stopped),
        WORLD_CASE(test_stopped_inside),
        WORLD_CASE(test_stalled),
    };
    return WORLD_MAIN(tests, argc, argv);
}
