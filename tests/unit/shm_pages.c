/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: what a tenant can do with the descriptors it gets, and which descriptors are refused. */
#include "shm/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const uint8_t cookie[16] = "0123456789abcde";

static void make_lease(struct sl_lease_map *lease)
{
    struct sl_err err = SL_ERR_INIT;
    *lease = (struct sl_lease_map)SL_LEASE_MAP_INIT;
    assert_int_equal(sl_lease_create(cookie, lease, &err), 0);
    lease->page->gpu_count = 1;
}

static void lease_shows_the_arbiters_changes(void **state)
{
    (void)state;
    struct sl_lease_map arbiter, tenant = SL_LEASE_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    make_lease(&arbiter);
    assert_int_equal(sl_lease_attach(dup(arbiter.fd), &tenant, &err), 0);
    assert_int_equal(fcntl(arbiter.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_memory_equal(tenant.page->cookie, cookie, sizeof(cookie));
    arbiter.page->gpu[0].memory_limit_bytes = 12345;
    assert_int_equal(tenant.page->gpu[0].memory_limit_bytes, 12345);
    sl_lease_close(&tenant);
    sl_lease_close(&arbiter);
    assert_int_equal(arbiter.fd, -1);
    assert_null(arbiter.page);
    sl_lease_close(&arbiter); /* closed, empty, NULL: all fine */
    sl_lease_close(NULL);
    sl_ledger_close(NULL);
}

/* The mapping a tenant gets cannot be written: the store faults. */
static void storing_into_the_lease_faults(void **state)
{
    (void)state;
    struct sl_lease_map arbiter, tenant = SL_LEASE_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    make_lease(&arbiter);
    assert_int_equal(sl_lease_attach(dup(arbiter.fd), &tenant, &err), 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* A sanitizer's handler would turn the signal into a report. */
        (void)signal(SIGSEGV, SIG_DFL);
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        tenant.page->gpu[0].memory_limit_bytes = UINT64_MAX;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    sl_lease_close(&tenant);
    sl_lease_close(&arbiter);
}

/* Nor can any other way in: no writable mapping, no write(), no mprotect, no reopening through
 * /proc, no truncation, and no unsealing. Root is no exception. */
static void lease_cannot_be_written_by_any_way(void **state)
{
    (void)state;
    struct sl_lease_map arbiter, tenant = SL_LEASE_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    make_lease(&arbiter);
    int seals = fcntl(arbiter.fd, F_GET_SEALS);
    if (!(seals & F_SEAL_FUTURE_WRITE))
        skip(); /* a kernel before 5.1; `sluice doctor` says so */
    assert_int_equal(sl_lease_attach(dup(arbiter.fd), &tenant, &err), 0);
    size_t size = sizeof(struct sl_lease_page);
    uint64_t lie = UINT64_MAX;

    assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, tenant.fd, 0),
                     MAP_FAILED);
    assert_int_equal(mprotect(tenant.page, size, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(tenant.fd, &lie, sizeof(lie), 0), -1);
    assert_int_equal(ftruncate(tenant.fd, 0), -1);
    assert_int_equal(ftruncate(tenant.fd, (off_t)size * 2), -1);
    assert_int_equal(fallocate(tenant.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    assert_int_equal(fcntl(tenant.fd, F_ADD_SEALS, 0), -1);

    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", tenant.fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        assert_int_equal(write(again, &lie, sizeof(lie)), -1);
        assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0),
                         MAP_FAILED);
        (void)close(again);
    }
    again = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
    if (again >= 0)
        (void)close(again);
    assert_true(tenant.page->magic == SL_LEASE_MAGIC);
    sl_lease_close(&tenant);
    sl_lease_close(&arbiter);
}

static void lease_of_another_build_is_refused(void **state)
{
    (void)state;
    struct sl_lease_map arbiter, tenant = SL_LEASE_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    make_lease(&arbiter);

    arbiter.page->magic ^= 1;
    assert_int_equal(sl_lease_attach(arbiter.fd, &tenant, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "magic"));
    arbiter.page->magic ^= 1;
    arbiter.page->version++;
    assert_int_equal(sl_lease_attach(arbiter.fd, &tenant, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "version 3"));
    assert_non_null(strstr(err.msg, "install the same"));
    arbiter.page->version--;
    arbiter.page->gpu_count = 0;
    assert_int_equal(sl_lease_attach(arbiter.fd, &tenant, &err), -EPROTO);
    arbiter.page->gpu_count = SL_MAX_GPUS + 1;
    assert_int_equal(sl_lease_attach(arbiter.fd, &tenant, &err), -EPROTO);
    assert_null(tenant.page);
    assert_true(fcntl(arbiter.fd, F_GETFD) >= 0); /* on failure the descriptor stays the caller's */
    sl_lease_close(&arbiter);
}

/* A memfd of the given size with the given seals. */
static int memfd(size_t size, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refused(int fd, const char *part)
{
    struct sl_lease_map lease = SL_LEASE_MAP_INIT;
    struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    assert_true(sl_lease_attach(fd, &lease, &err) < 0);
    assert_true(sl_ledger_attach(fd, NULL, &ledger, &err) < 0);
    if (!strstr(err.msg, part))
        fail_msg("no \"%s\" in: %s", part, err.msg);
    assert_null(lease.page);
    assert_null(ledger.page);
    if (fd >= 0)
        (void)close(fd);
}

static void foreign_descriptors_are_refused(void **state)
{
    (void)state;
    refused(-1, "Bad file descriptor");
    refused(memfd(0, F_SEAL_SHRINK | F_SEAL_GROW), "0 bytes");
    refused(memfd(4096, F_SEAL_SHRINK | F_SEAL_GROW), "different versions");
    refused(memfd(sizeof(struct sl_ledger_page), 0), "not a sealed memfd");
    refused(memfd(sizeof(struct sl_ledger_page), F_SEAL_GROW), "not a sealed memfd");
    refused(memfd(sizeof(struct sl_ledger_page), F_SEAL_SHRINK), "not a sealed memfd");
    refused(memfd(sizeof(struct sl_ledger_page), F_SEAL_SHRINK | F_SEAL_GROW), "magic");
    int p[2];
    assert_int_equal(pipe(p), 0);
    refused(p[0], "not a sealed memfd");
    (void)close(p[1]);

    /* A file on disk can be truncated under the reader whatever its size. */
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), sizeof(struct sl_ledger_page)), 0);
    refused(dup(fileno(f)), "not a sealed memfd");
    (void)fclose(f);
}

static void ledger_is_shared_and_bound_to_its_lease(void **state)
{
    (void)state;
    struct sl_ledger_map a = SL_LEDGER_MAP_INIT, b = SL_LEDGER_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    static const uint8_t other[16] = "another lease..";
    assert_int_equal(sl_ledger_create(cookie, 3, &a, &err), 0);
    assert_int_equal(a.page->gpu_count, 3);
    assert_int_equal(a.page->slot_count, SL_MAX_SLOTS);
    assert_int_equal(sl_ledger_attach(a.fd, other, &b, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "another lease"));
    assert_int_equal(sl_ledger_attach(dup(a.fd), cookie, &b, &err), 0);
    b.page->slot[SL_MAX_SLOTS - 1].launches = 9;
    assert_int_equal(a.page->slot[SL_MAX_SLOTS - 1].launches, 9);
    assert_int_equal(ftruncate(b.fd, 0), -1);
    sl_ledger_close(&b);

    a.page->version = 9;
    assert_int_equal(sl_ledger_attach(a.fd, cookie, &b, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "version 9"));
    sl_ledger_close(&a);
}

static void no_descriptors_left_is_an_error_not_a_crash(void **state)
{
    (void)state;
    struct sl_lease_map lease = SL_LEASE_MAP_INIT;
    struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc_lease = sl_lease_create(cookie, &lease, &err);
    int rc_ledger = sl_ledger_create(cookie, 1, &ledger, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(rc_lease, -EMFILE);
    assert_int_equal(rc_ledger, -EMFILE);
    assert_non_null(strstr(err.msg, "Too many open files"));
}

/* Runs `f` in a child that has hit a resource limit; the child's exit status says what it saw. */
static int in_limited_child(__rlimit_resource_t resource, rlim_t most, int (*f)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit r = {most, most};
        (void)signal(SIGXFSZ, SIG_IGN);
        _exit(setrlimit(resource, &r) == 0 ? f() : 99);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int create_fails_with_efbig(void)
{
    struct sl_lease_map lease = SL_LEASE_MAP_INIT;
    struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
    if (sl_lease_create(cookie, &lease, NULL) != -EFBIG || lease.fd != -1)
        return 1;
    return sl_ledger_create(cookie, 1, &ledger, NULL) != -EFBIG || ledger.fd != -1 ? 2 : 0;
}

static int shared_fd;

static int mapping_fails_with_enomem(void)
{
    struct sl_lease_map lease = SL_LEASE_MAP_INIT;
    struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
    struct sl_err err = SL_ERR_INIT;
    if (sl_ledger_create(cookie, 1, &ledger, &err) != -ENOMEM || ledger.page)
        return 1;
    if (sl_ledger_attach(shared_fd, cookie, &ledger, &err) != -ENOMEM || ledger.page)
        return 2;
    return lease.page ? 3 : 0;
}

static void pages_that_do_not_fit_are_errors(void **state)
{
    (void)state;
    assert_int_equal(in_limited_child(RLIMIT_FSIZE, 100, create_fails_with_efbig), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* A sanitizer's shadow memory does not fit in any such limit. */
    struct sl_ledger_map ledger = SL_LEDGER_MAP_INIT;
    assert_int_equal(sl_ledger_create(cookie, 1, &ledger, NULL), 0);
    shared_fd = ledger.fd;
    assert_int_equal(in_limited_child(RLIMIT_AS, 1 << 20, mapping_fails_with_enomem), 0);
    sl_ledger_close(&ledger);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_shows_the_arbiters_changes),
        cmocka_unit_test(storing_into_the_lease_faults),
        cmocka_unit_test(lease_cannot_be_written_by_any_way),
        cmocka_unit_test(lease_of_another_build_is_refused),
        cmocka_unit_test(foreign_descriptors_are_refused),
        cmocka_unit_test(ledger_is_shared_and_bound_to_its_lease),
        cmocka_unit_test(no_descriptors_left_is_an_error_not_a_crash),
        cmocka_unit_test(pages_that_do_not_fit_are_errors),
    };
    return cmocka_run_group_tests_name("shm pages", tests, NULL, NULL);
}
