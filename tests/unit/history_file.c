/* SPDX-License-Identifier: Apache-2.0 */
/* The file of ended tenants: its bounds, and what damage, a full disk and strange files do to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbiter/history_file.h"
#include "arbiter/peer.h"

static char dir_name[] = "/tmp/sl-history.XXXXXX";
static int dir_fd = -1;
static struct sl_history_store s;

static int setup(void **state)
{
    (void)state;
    memcpy(strrchr(dir_name, '.'), ".XXXXXX", 8);
    if (!mkdtemp(dir_name))
        return -1;
    dir_fd = open(dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s = (struct sl_history_store){.written = -1};
    return dir_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_history_free(&s);
    (void)unlinkat(dir_fd, SL_HISTORY_FILE, 0);
    (void)unlinkat(dir_fd, SL_HISTORY_FILE ".new", 0);
    (void)close(dir_fd);
    return rmdir(dir_name);
}

static void add(uint64_t id, uint32_t uid)
{
    struct sl_history_entry e = {.id = id, .uid = uid, .gpu_count = 1};
    (void)snprintf(e.name, sizeof(e.name), "t%u", (unsigned)id);
    (void)snprintf(e.gpu[0].uuid, sizeof(e.gpu[0].uuid), "GPU-1");
    sl_history_add(&s, dir_fd, &e);
}

/* As the next arbiter does. */
static int again(void)
{
    sl_history_free(&s);
    return sl_history_load(&s, dir_fd, NULL);
}

static off_t file_size(void)
{
    struct stat st;
    assert_int_equal(fstatat(dir_fd, SL_HISTORY_FILE, &st, 0), 0);
    return st.st_size;
}

/* What is in memory is in the file, and nothing else. */
static void assert_saved(uint32_t count, uint64_t oldest, uint64_t newest)
{
    assert_int_equal(again(), 0);
    assert_int_equal(s.count, count);
    assert_int_equal(s.damaged, 0);
    assert_int_equal(s.oldest->id, oldest);
    assert_int_equal(s.newest->id, newest);
}

static void put_into_file(const void *text, size_t size, int flags)
{
    int fd = openat(dir_fd, SL_HISTORY_FILE, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    (void)close(fd);
}

static void lines_come_back(void **state)
{
    (void)state;
    assert_int_equal(sl_history_load(&s, dir_fd, NULL), -ENOENT);
    for (uint64_t id = 1; id <= 3; id++)
        add(id, 1000);
    assert_true(sl_history_has(&s, 2));
    assert_false(sl_history_has(&s, 4));
    assert_saved(3, 1, 3);
    struct stat st;
    assert_int_equal(fstatat(dir_fd, SL_HISTORY_FILE, &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    add(4, 1000);
    assert_saved(4, 1, 4);
}

static void old_lines_go(void **state)
{
    (void)state;
    uint64_t last = 6 * SL_HISTORY_ENTRIES;
    for (uint64_t id = 1; id <= last; id++) {
        add(id, 1000);
        assert_true(s.count <= SL_HISTORY_ENTRIES && s.bytes <= SL_HISTORY_BYTES);
    }
    assert_int_equal(s.count, SL_HISTORY_ENTRIES);
    assert_true(file_size() <= (off_t)(2 * SL_HISTORY_BYTES));
    assert_saved(SL_HISTORY_ENTRIES, last - SL_HISTORY_ENTRIES + 1, last);
}

static void long_lines_are_bounded_by_their_bytes(void **state)
{
    (void)state;
    struct sl_history_entry e = {.gpu_count = SL_HISTORY_GPUS, .name = "long"};
    for (int i = 0; i < SL_HISTORY_GPUS; i++)
        memset(e.gpu[i].uuid, 'u', sizeof(e.gpu[i].uuid) - 1);
    for (e.id = 1; e.id <= 1000; e.id++) {
        sl_history_add(&s, dir_fd, &e);
        assert_true(s.bytes <= SL_HISTORY_BYTES);
    }
    assert_true(s.count > 50 && s.count < SL_HISTORY_ENTRIES);
    uint32_t count = s.count;
    assert_saved(count, 1001 - count, 1000);
}

/* One user's flood does not push out the entries of another. */
static void a_flood_of_one_user(void **state)
{
    (void)state;
    for (uint64_t id = 1; id <= 10; id++)
        add(id, 7);
    for (uint64_t id = 100; id < 100 + 3 * SL_HISTORY_ENTRIES; id++)
        add(id, 1000);
    assert_int_equal(s.count, SL_HISTORY_ENTRIES);
    for (uint64_t id = 1; id <= 10; id++)
        assert_true(sl_history_has(&s, id));
}

static void a_line_that_was_cut_off(void **state)
{
    (void)state;
    for (uint64_t id = 1; id <= 3; id++)
        add(id, 1000);
    off_t whole = file_size();
    /* The writer was killed anywhere within the last line. */
    for (off_t size = whole - 1; size > whole - (off_t)s.newest->size - 1; size--) {
        assert_int_equal(again(), 0);
        assert_int_equal(s.count, 3);
        char path[64];
        (void)snprintf(path, sizeof(path), "%s/" SL_HISTORY_FILE, dir_name);
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(again(), 0);
        bool complete = size == whole - 1; /* only its line feed is missing */
        assert_int_equal(s.count, complete ? 3 : 2);
        assert_int_equal(s.damaged, complete ? 0 : 1);
        if (!complete)
            add(3, 1000); /* begins a line of its own */
        else
            add(9, 1000);
        assert_saved(complete ? 4 : 3, 1, complete ? 9 : 3);
        if (complete) {
            assert_int_equal(unlinkat(dir_fd, SL_HISTORY_FILE, 0), 0);
            assert_int_equal(again(), -ENOENT);
            for (uint64_t id = 1; id <= 3; id++)
                add(id, 1000);
        }
    }
}

static void damaged_lines_are_skipped(void **state)
{
    (void)state;
    static const char junk[] = "\n\nnonsense\n\0\0\0\n\xff\xfe\nt1 name=x sum=00000000\n";
    add(1, 1000);
    put_into_file(junk, sizeof(junk) - 1, O_APPEND);
    assert_int_equal(again(), 0);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.damaged, 4);
    add(2, 1000);
    assert_int_equal(again(), 0);
    assert_int_equal(s.count, 2);
    assert_true(sl_history_has(&s, 1) && sl_history_has(&s, 2));
}

/* Somebody else changed the file while the arbiter ran: it is written anew. */
static void a_file_that_changed(void **state)
{
    (void)state;
    add(1, 1000);
    add(2, 1000);
    put_into_file("", 0, O_TRUNC);
    add(3, 1000);
    assert_saved(3, 1, 3);
    assert_int_equal(unlinkat(dir_fd, SL_HISTORY_FILE, 0), 0);
    add(4, 1000);
    assert_saved(4, 1, 4);
    put_into_file("x\n", 2, O_APPEND);
    add(5, 1000);
    assert_saved(5, 1, 5);
}

static void a_file_that_is_far_too_long(void **state)
{
    (void)state;
    size_t size = 8 * SL_HISTORY_BYTES;
    char *junk = malloc(size);
    assert_non_null(junk);
    memset(junk, 'x', size);
    add(1, 1000);
    put_into_file(junk, size, O_APPEND);
    put_into_file("\n", 1, O_APPEND);
    sl_history_free(&s);
    add(2, 1000); /* an arbiter that could not read it */
    assert_saved(1, 2, 2);
    put_into_file(junk, size, O_APPEND);
    assert_int_equal(again(), 0); /* only its end is read */
    assert_int_equal(s.count, 0);
    assert_int_equal(s.damaged, 1);
    add(3, 1000);
    assert_saved(1, 3, 3);
    assert_true(file_size() < 1000);
    free(junk);
}

/* Neither blocks: the test would not end. */
static void something_else_in_its_place(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(mkfifoat(dir_fd, SL_HISTORY_FILE, 0600), 0);
    assert_int_equal(sl_history_load(&s, dir_fd, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "is not a file"));
    add(1, 1000); /* it is replaced */
    assert_saved(1, 1, 1);
    assert_int_equal(unlinkat(dir_fd, SL_HISTORY_FILE, 0), 0);
    assert_int_equal(symlinkat("/dev/zero", dir_fd, SL_HISTORY_FILE), 0);
    assert_int_equal(again(), -ELOOP);
    add(2, 1000);
    assert_saved(1, 2, 2);
    assert_int_equal(unlinkat(dir_fd, SL_HISTORY_FILE, 0), 0);
    assert_int_equal(mkdirat(dir_fd, SL_HISTORY_FILE, 0700), 0);
    assert_int_equal(again(), -EINVAL);
    add(3, 1000); /* kept in memory */
    assert_int_equal(s.count, 1);
    assert_int_equal(unlinkat(dir_fd, SL_HISTORY_FILE, AT_REMOVEDIR), 0);
    add(4, 1000);
    assert_saved(2, 3, 4);
}

/* A file that may not grow is a full disk, seen from here. */
static void a_full_disk(void **state)
{
    (void)state;
    struct rlimit old, small;
    for (uint64_t id = 1; id <= 3; id++)
        add(id, 1000);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = (rlim_t)file_size() + 10, .rlim_max = old.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct sl_history_store one = s;
    for (uint64_t id = 4; id <= 6; id++)
        add(id, 1000);
    assert_int_equal(s.count, 6); /* nothing is lost while it lives */
    assert_true(s.failing);
    /* An arbiter that starts now finds the old entries whole. */
    assert_int_equal(sl_history_load(&one, dir_fd, NULL), 0);
    assert_int_equal(one.count, 3);
    assert_int_equal(one.damaged, 0);
    sl_history_free(&one);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    add(7, 1000);
    assert_false(s.failing);
    assert_saved(7, 1, 7);
}

static void who_may_see_an_entry(void **state)
{
    (void)state;
    uid_t us = geteuid();
    assert_true(sl_peer_may_see(1000, 1000));
    assert_true(sl_peer_may_see(0, 1000));
    assert_true(sl_peer_may_see(us, 1000));
    assert_false(sl_peer_may_see(us + 1001, us + 1002));
    assert_false(sl_peer_may_see(us + 1001, us));
    assert_false(sl_peer_may_see(us + 1001, 0));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(lines_come_back),
        T(old_lines_go),
        T(long_lines_are_bounded_by_their_bytes),
        T(a_flood_of_one_user),
        T(a_line_that_was_cut_off),
        T(damaged_lines_are_skipped),
        T(a_file_that_changed),
        T(a_file_that_is_far_too_long),
        T(something_else_in_its_place),
        T(a_full_disk),
        cmocka_unit_test(who_may_see_an_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
