/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that goes from process to process counts once in a tenant, as long as one of its processes or a
 * descriptor keeps it, and not a moment longer.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tenant_world.h"

#define LIMIT         (10 * GIB)
#define OUT_OF_MEMORY 2
#define IPC_BYTES     (64ULL << 20) /* the simulated driver copies what it shares */

static struct world world;

static void start(const struct tenant *t, struct program *p)
{
    const char *argv[] = {"memory_shared_tenant", NULL};
    char line[64];
    program_start(t, argv, NULL, p);
    program_answer(p, line, sizeof(line));
    assert_string_equal(line, "ready\n");
}

/* Asks and returns the value; the result must be `want`. */
__attribute__((format(printf, 3, 4))) static long long expect(struct program *p, int want,
                                                              const char *format, ...)
{
    char request[256], line[256];
    int rc = -1;
    long long value = 0;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(request, sizeof(request), format, args);
    va_end(args);
    program_ask(p, request, line, sizeof(line));
    if (sscanf(line, "%d %lld", &rc, &value) < 1 || rc != want)
        fail_msg("%s: %s instead of %d", request, line, want);
    return value;
}

static uint64_t used(const struct tenant *t)
{
    return tenant_usage(t).used_bytes;
}

static void die(struct program *p)
{
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    (void)program_end(p);
}

/* One process that exports to itself, imports, and releases what it made. */
static void test_to_oneself(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    tenant_begin(&world, "self", LIMIT, &t);
    start(&t, &p);
    assert_int_equal(expect(&p, OUT_OF_MEMORY, "churn 1 20"), 9);
    assert_int_equal(used(&t), 9 * GIB);
    expect(&p, 0, "release 1");
    assert_int_equal(used(&t), 8 * GIB);
    die(&p);
    EVENTUALLY(used(&t) == 0);
    tenant_end(&t);
}

/* Producers that make 8 GiB, hand it over and exit; the consumer keeps what it got. */
static void test_dead_producers(void **state)
{
    (void)state;
    struct tenant t;
    struct program keeper, p;
    tenant_begin(&world, "producers", LIMIT, &t);
    start(&t, &keeper);
    start(&t, &p);
    expect(&p, 0, "create 0 8");
    long long fd = expect(&p, 0, "export 0");
    expect(&keeper, 0, "import 0 %d %lld", (int)p.pid, fd);
    assert_int_equal(used(&t), 8 * GIB);
    (void)program_end(&p);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), 8 * GIB);
    start(&t, &p);
    expect(&p, OUT_OF_MEMORY, "create 0 8");
    expect(&keeper, 0, "release 0");
    assert_int_equal(used(&t), 0);
    expect(&p, 0, "create 0 8");
    (void)program_end(&p);
    (void)program_end(&keeper);
    tenant_end(&t);
}

/* Two that hold the same: once, whoever leaves first, by whatever road. */
static void test_counted_once(void **state)
{
    (void)state;
    struct tenant t;
    struct program a, b;
    tenant_begin(&world, "once", LIMIT, &t);
    start(&t, &a);
    start(&t, &b);
    expect(&a, 0, "create 0 6");
    long long fd = expect(&a, 0, "export 0");
    expect(&b, 0, "import 0 %d %lld", (int)a.pid, fd);
    expect(&b, 0, "import 1 %d %lld", (int)a.pid, fd);
    expect(&b, 0, "map 0 6");
    expect(&a, 0, "close %lld", fd);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&a, 0, "release 0");
    expect(&b, 0, "release 0");
    expect(&b, 0, "release 1");
    assert_int_equal(used(&t), 6 * GIB); /* the mapping is left */
    expect(&a, OUT_OF_MEMORY, "create 1 6");
    expect(&b, 0, "unmap 0 6");
    assert_int_equal(used(&t), 0);
    /* Now the maker stays and the other dies with it. */
    expect(&a, 0, "create 0 6");
    fd = expect(&a, 0, "export 0");
    expect(&b, 0, "import 0 %d %lld", (int)a.pid, fd);
    die(&b);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&a, 0, "close %lld", fd);
    expect(&a, 0, "release 0");
    assert_int_equal(used(&t), 0);
    die(&a);
    tenant_end(&t);
}

/* A descriptor alone keeps the memory: it counts until that is closed. */
static void test_descriptor_alone(void **state)
{
    (void)state;
    struct tenant t;
    struct program p;
    tenant_begin(&world, "descriptor", LIMIT, &t);
    start(&t, &p);
    expect(&p, 0, "create 0 6");
    long long fd = expect(&p, 0, "export 0");
    expect(&p, 0, "release 0");
    assert_int_equal(used(&t), 6 * GIB);
    expect(&p, OUT_OF_MEMORY, "create 1 6");
    expect(&p, 0, "close %lld", fd);
    expect(&p, 0, "create 1 6"); /* needs the room: so the closed descriptor is noticed */
    assert_int_equal(used(&t), 6 * GIB);
    fd = expect(&p, 0, "export 1");
    expect(&p, 0, "release 1");
    expect(&p, 0, "close %lld", fd);
    assert_true(expect(&p, 0, "info") > 9 * 1024); /* who asks what is free is told the truth */
    assert_int_equal(used(&t), 0);
    die(&p);
    tenant_end(&t);
}

static void open_handle(struct program *from, struct program *to, int place)
{
    char line[256], hex[160];
    int rc = -1;
    program_ask(from, "get 0", line, sizeof(line));
    assert_int_equal(sscanf(line, "%d %159s", &rc, hex), 2);
    assert_int_equal(rc, 0);
    expect(to, 0, "open %d %s", place, hex);
}

/* IPC handles: once while both have it, and still after its maker freed it or died. */
static void test_ipc(void **state)
{
    (void)state;
    struct tenant t;
    struct program a, b;
    tenant_begin(&world, "ipc", LIMIT, &t);
    start(&t, &a);
    start(&t, &b);
    expect(&a, 0, "alloc 0 64");
    open_handle(&a, &b, 0);
    open_handle(&a, &b, 1);
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&a, 0, "free 0");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "shut 0");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "shut 1");
    assert_int_equal(used(&t), 0);
    expect(&a, 0, "alloc 0 64");
    open_handle(&a, &b, 0);
    die(&a);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "shut 0");
    assert_int_equal(used(&t), 0);
    die(&b);
    tenant_end(&t);
}

/* Memory of another tenant: each tenant that holds it pays for it, and cannot take more than it may. */
static void test_between_tenants(void **state)
{
    (void)state;
    struct tenant rich, poor;
    struct program a, b;
    tenant_begin(&world, "rich", 20 * GIB, &rich);
    tenant_begin(&world, "poor", LIMIT, &poor);
    start(&rich, &a);
    start(&poor, &b);
    expect(&a, 0, "create 0 6");
    long long fd = expect(&a, 0, "export 0");
    expect(&b, 0, "import 0 %d %lld", (int)a.pid, fd);
    assert_int_equal(used(&rich), 6 * GIB);
    assert_int_equal(used(&poor), 6 * GIB);
    expect(&b, OUT_OF_MEMORY, "import 1 %d %lld", (int)a.pid, fd);
    die(&a);
    EVENTUALLY(used(&rich) == 0);
    expect(&b, 0, "release 0");
    assert_int_equal(used(&poor), 0);
    die(&b);
    tenant_end(&rich);
    tenant_end(&poor);
}

/* The same memory by cuImportExternalMemory. */
static void test_external(void **state)
{
    (void)state;
    struct tenant t;
    struct program a, b;
    tenant_begin(&world, "external", LIMIT, &t);
    start(&t, &a);
    start(&t, &b);
    expect(&a, 0, "create 0 6");
    long long fd = expect(&a, 0, "export 0");
    expect(&b, 0, "external 0 %d %lld 6", (int)a.pid, fd);
    assert_int_equal(used(&t), 6 * GIB);
    (void)program_end(&a);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&b, 0, "destroy 0");
    assert_int_equal(used(&t), 0);
    die(&b);
    tenant_end(&t);
}

static void ask_hex(struct program *p, const char *request, char hex[160])
{
    char line[256];
    int rc = -1;
    program_ask(p, request, line, sizeof(line));
    assert_int_equal(sscanf(line, "%d %159s", &rc, hex), 2);
    assert_int_equal(rc, 0);
}

/* By fabric handle, which is bytes: the same once, and as long as one of both has it. */
static void test_fabric(void **state)
{
    (void)state;
    struct tenant t, other;
    struct program a, b, c;
    char hex[160];
    tenant_begin(&world, "fabric", LIMIT, &t);
    tenant_begin(&world, "stranger", LIMIT, &other);
    start(&t, &a);
    start(&t, &b);
    start(&other, &c);
    expect(&a, 0, "fabric 0 6");
    ask_hex(&a, "give 0", hex);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&b, 0, "take 0 %s", hex);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&b, OUT_OF_MEMORY, "create 1 4"); /* its context is there too */
    /* Another tenant that takes it pays for what it maps. */
    expect(&c, 0, "take 0 %s", hex);
    expect(&c, 0, "map 0 6");
    assert_int_equal(used(&other), 6 * GIB);
    expect(&c, 0, "unmap 0 6");
    expect(&c, 0, "release 0");
    assert_int_equal(used(&other), 0);
    expect(&a, 0, "release 0");
    assert_int_equal(used(&t), 6 * GIB);
    (void)program_end(&a);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), 6 * GIB);
    expect(&b, 0, "release 0");
    assert_int_equal(used(&t), 0);
    die(&b);
    die(&c);
    tenant_end(&t);
    tenant_end(&other);
}

/* What is bound to a multicast object is held without handle and mapping, and counts as long. */
static void test_multicast(void **state)
{
    (void)state;
    struct tenant t;
    struct program a;
    tenant_begin(&world, "multicast", LIMIT, &t);
    start(&t, &a);
    expect(&a, 0, "cast 0 8");
    assert_int_equal(used(&t), 0); /* addresses only */
    expect(&a, 0, "create 1 6");
    expect(&a, 0, "bind 0 1 6");
    expect(&a, 0, "release 1");
    assert_int_equal(used(&t), 6 * GIB);
    expect(&a, OUT_OF_MEMORY, "create 2 6");
    expect(&a, 0, "unbind 0 6");
    assert_int_equal(used(&t), 0);
    /* By address; and the end of the object, which is mapped, ends its bindings. */
    expect(&a, 0, "create 1 6");
    expect(&a, 0, "map 1 6");
    expect(&a, 0, "bindat 0 1 6");
    expect(&a, 0, "release 1");
    expect(&a, 0, "unmap 1 6");
    assert_int_equal(used(&t), 6 * GIB);
    expect(&a, 0, "map 0 8");
    expect(&a, 0, "release 0");
    assert_int_equal(used(&t), 6 * GIB);
    expect(&a, 0, "unmap 0 8");
    assert_int_equal(used(&t), 0);
    expect(&a, 0, "create 2 9");
    expect(&a, 0, "release 2");
    die(&a);
    tenant_end(&t);
}

static void accept_piece(struct program *from, int piece, struct program *to, int place)
{
    char request[64], hex[160];
    (void)snprintf(request, sizeof(request), "offer %d", piece);
    ask_hex(from, request, hex);
    expect(to, 0, "accept %d 0 %s", place, hex);
}

/* The tenant's pool in place 0 of a, imported into place 0 of b. */
static void share_pool(struct program *a, struct program *b)
{
    expect(a, 0, "pool 0");
    long long fd = expect(a, 0, "share 0");
    expect(b, 0, "use 0 %d %lld", (int)a->pid, fd);
    expect(a, 0, "close %lld", fd);
}

/* A piece of an exported pool: once while both have it, and still when its maker is gone. */
static void test_pool(void **state)
{
    (void)state;
    struct tenant t;
    struct program a, b;
    tenant_begin(&world, "pool", LIMIT, &t);
    start(&t, &a);
    start(&t, &b);
    share_pool(&a, &b);
    expect(&a, 0, "piece 0 0 64");
    assert_int_equal(used(&t), IPC_BYTES);
    accept_piece(&a, 0, &b, 0);
    accept_piece(&a, 0, &b, 1);
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "back 0");
    expect(&b, 0, "free 1");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&a, 0,
           "back 0"); /* nobody else has it: it is the pool's again, and the pool gives it back */
    assert_int_equal(used(&t), 0);
    expect(&a, 0, "piece 0 0 64");
    expect(&a, 0, "piece 1 0 64");
    accept_piece(&a, 0, &b, 0);
    assert_int_equal(used(&t), 2 * IPC_BYTES);
    die(&a);
    EVENTUALLY(tenant_usage(&t).processes == 1);
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "free 0");
    assert_int_equal(used(&t), 0);
    die(&b);
    tenant_end(&t);
}

/* Its maker frees it, or destroys the pool, while another process has it. */
static void test_pool_let_go(void **state)
{
    (void)state;
    struct tenant t;
    struct program a, b;
    tenant_begin(&world, "pool-gone", LIMIT, &t);
    start(&t, &a);
    start(&t, &b);
    share_pool(&a, &b);
    expect(&a, 0, "piece 0 0 64");
    accept_piece(&a, 0, &b, 0);
    expect(&a, 0, "back 0");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "back 0");
    assert_int_equal(used(&t), 0);
    expect(&a, 0, "piece 0 0 64");
    expect(&a, 0, "piece 1 0 128");
    accept_piece(&a, 0, &b, 0);
    expect(&a, 0, "drop 0");
    assert_int_equal(used(&t), 3 * IPC_BYTES);
    expect(&a, 0, "back 1");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&a, 0, "free 0");
    assert_int_equal(used(&t), IPC_BYTES);
    expect(&b, 0, "free 0");
    assert_int_equal(used(&t), 0);
    die(&a);
    die(&b);
    tenant_end(&t);
}

/* Piece by piece past the limit: what others keep leaves no room. A tenant that has none of it pays in full. */
static void test_pool_limit(void **state)
{
    (void)state;
    struct tenant small, other;
    struct program a, b, c;
    tenant_begin(&world, "pool-small", 3 * GIB, &small);
    tenant_begin(&world, "pool-other", LIMIT, &other);
    start(&small, &a);
    start(&small, &b);
    start(&other, &c);
    share_pool(&a, &b);
    long long fd = expect(&a, 0, "share 0");
    expect(&c, 0, "use 0 %d %lld", (int)a.pid, fd);
    long long before = expect(&a, 0, "info");
    for (int i = 0; i < 3; i++) {
        expect(&a, 0, "piece 0 0 64");
        accept_piece(&a, 0, &b, i);
        if (i == 0)
            accept_piece(&a, 0, &c, 0);
        expect(&a, 0, "back 0");
    }
    assert_int_equal(used(&small), 3 * IPC_BYTES);
    assert_int_equal(used(&other), IPC_BYTES);
    assert_int_equal(expect(&a, 0, "info"), before - 3 * 64);
    expect(&a, OUT_OF_MEMORY, "alloc 1 %lld", before - 2 * 64);
    expect(&a, 0, "alloc 1 %lld", before - 3 * 64);
    expect(&c, 0, "free 0");
    assert_int_equal(used(&other), 0);
    die(&a);
    die(&b);
    die(&c);
    tenant_end(&small);
    tenant_end(&other);
}

static int begin(void **state)
{
    (void)state;
    world_begin(&world);
    return 0;
}

static int end(void **state)
{
    (void)state;
    world_end(&world);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_oneself),   cmocka_unit_test(test_dead_producers),
        cmocka_unit_test(test_counted_once), cmocka_unit_test(test_descriptor_alone),
        cmocka_unit_test(test_ipc),          cmocka_unit_test(test_between_tenants),
        cmocka_unit_test(test_external),     cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_let_go),  cmocka_unit_test(test_pool_limit),
    };
    /* Their own arbiter: the promises of the others fill the card. */
    const struct CMUnitTest more[] = {
        cmocka_unit_test(test_fabric),
        cmocka_unit_test(test_multicast),
    };
    int failed = cmocka_run_group_tests(tests, begin, end);
    return failed + cmocka_run_group_tests(more, begin, end);
}
