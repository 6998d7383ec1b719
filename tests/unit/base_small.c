/* SPDX-License-Identifier: Apache-2.0 */
/* The small parts of base: errors, log, json, files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fsutil.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "base/utf8.h"
#include "base/words.h"

static void errors_carry_code_and_text(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_err_set(&err, -ENOENT, "no %s", "card"), -ENOENT);
    assert_int_equal(err.code, -ENOENT);
    assert_string_equal(err.msg, "no card");
    assert_int_equal(sl_err_wrap(&err, "tenant %d", 3), -ENOENT);
    assert_string_equal(err.msg, "tenant 3: no card");
    assert_int_equal(sl_err_errno(&err, EACCES, "opening %s", "x"), -EACCES);
    assert_string_equal(err.msg, "opening x: Permission denied");
    assert_int_equal(err.code, -EACCES);
}

static void errors_accept_null(void **state)
{
    (void)state;
    assert_int_equal(sl_err_set(NULL, -EINVAL, "x"), -EINVAL);
    assert_int_equal(sl_err_errno(NULL, EPERM, "x"), -EPERM);
    assert_int_equal(sl_err_wrap(NULL, "x"), -EIO);
    struct sl_err empty = SL_ERR_INIT;
    assert_int_equal(sl_err_wrap(&empty, "x"), -EIO); /* never 0: a wrapped error is an error */
}

static void long_errors_are_cut_not_overrun(void **state)
{
    (void)state;
    struct {
        struct sl_err err;
        char guard[8];
    } s = {.guard = "guarded"};
    char big[2000];
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    (void)sl_err_set(&s.err, -EINVAL, "%s", big);
    assert_int_equal(strlen(s.err.msg), sizeof(s.err.msg) - 1);
    (void)sl_err_wrap(&s.err, "%s", big);
    (void)sl_err_errno(&s.err, ENOENT, "%s", big);
    assert_int_equal(strlen(s.err.msg), sizeof(s.err.msg) - 1);
    assert_string_equal(s.guard, "guarded");
}

/* Messages quote what others wrote and cut it; what is left goes into JSON and protobuf. */
static void errors_never_hold_half_a_character(void **state)
{
    (void)state;
    char text[700];
    for (size_t lead = 0; lead < 4; lead++) {
        struct sl_err err = SL_ERR_INIT;
        memset(text, 'a', lead);
        for (size_t i = lead; i + 5 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x92\xa7", 5);
        (void)sl_err_set(&err, -EINVAL, "%s", text);
        assert_true(sl_utf8_valid(err.msg));
        assert_in_range(strlen(err.msg), sizeof(err.msg) - 4, sizeof(err.msg) - 1);
        assert_null(strchr(err.msg, '?')); /* a character that did not fit is left out */
        (void)sl_err_set(&err, -EINVAL, "\"%.41s\" is wrong", text);
        assert_true(sl_utf8_valid(err.msg));
        assert_non_null(strstr(err.msg, "\" is wrong"));
        (void)sl_err_wrap(&err, "%.380s", text);
        assert_true(sl_utf8_valid(err.msg));
        (void)sl_err_errno(&err, ENOENT, "%.7s", text);
        assert_true(sl_utf8_valid(err.msg));
    }
}

static void utf8_is_mended_and_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
    } rows[] = {{"", ""},
                {"a", "a"},
                {"\xc3\xa9", "\xc3\xa9"},
                {"a\xc3", "a"},
                {"a\xf0\x9f\x92", "a"},
                {"\xc3z", "?z"},
                {"\xf0\x9f\x92z", "???z"},
                {"\xa9", "?"},
                {"\xc0\x80", "??"},
                {"\xed\xa0\x80", "???"},
                {"\xf5\x80\x80\x80", "????"}};
    char buf[8];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)snprintf(buf, sizeof(buf), "%s", rows[i].from);
        assert_int_equal(sl_utf8_valid(buf), strcmp(rows[i].from, rows[i].to) == 0);
        sl_utf8_mend(buf);
        assert_string_equal(buf, rows[i].to);
        assert_true(sl_utf8_valid(buf));
    }
    sl_utf8_copy(buf, 4, "ab\xc3\xa9");
    assert_string_equal(buf, "ab");
    sl_utf8_copy(buf, 5, "ab\xc3\xa9");
    assert_string_equal(buf, "ab\xc3\xa9");
}

static void log_levels(void **state)
{
    (void)state;
    assert_int_equal(sl_log_level_parse("debug", SL_LOG_OFF), SL_LOG_DEBUG);
    assert_int_equal(sl_log_level_parse("off", SL_LOG_INFO), SL_LOG_OFF);
    assert_int_equal(sl_log_level_parse("loud", SL_LOG_WARN), SL_LOG_WARN);
    assert_int_equal(sl_log_level_parse(NULL, SL_LOG_WARN), SL_LOG_WARN);

    int p[2];
    assert_int_equal(pipe2(p, O_NONBLOCK), 0);
    sl_log_open(SL_LOG_WARN, p[1]);
    errno = 77;
    sl_info("not %s", "this");
    sl_warn("disk %d %% full", 93);
    assert_int_equal(errno, 77);
    char buf[2000];
    ssize_t n = read(p[0], buf, sizeof(buf) - 1);
    assert_true(n > 0);
    buf[n] = '\0';
    assert_non_null(strstr(buf, " warn disk 93 % full\n"));
    assert_null(strstr(buf, "not this"));
    assert_int_equal(buf[4], '-');

    char big[3000];
    memset(big, 'b', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    sl_error("%s", big);
    n = read(p[0], buf, sizeof(buf));
    assert_true(n > 0 && n <= 700);
    assert_int_equal(buf[n - 1], '\n');
    sl_log_open(SL_LOG_DEBUG, -1);
    sl_error("nowhere");
    sl_log_open(SL_LOG_OFF, -1);
    assert_int_equal(read(p[0], buf, sizeof(buf)), -1);
    (void)close(p[0]);
    (void)close(p[1]);
}

/* The number of our descriptor may be somebody else's file by now. */
static void a_log_keeps_to_its_file(void **state)
{
    (void)state;
    char log[] = "/tmp/sluice-log-XXXXXX", other[] = "/tmp/sluice-other-XXXXXX", buf[500];
    struct stat st;
    int fd = mkstemp(log), theirs = mkstemp(other);
    assert_true(fd >= 0 && theirs >= 0);
    sl_log_open_file(SL_LOG_INFO, fd, log);
    sl_info("first");
    assert_int_equal(dup2(theirs, fd), fd);
    errno = 77;
    sl_info("second");
    (void)close(fd);
    sl_info("third");
    assert_int_equal(errno, 77);
    assert_int_equal(fstat(theirs, &st), 0);
    assert_int_equal(st.st_size, 0);
    int in = open(log, O_RDONLY);
    ssize_t n = read(in, buf, sizeof(buf) - 1);
    assert_true(n > 0);
    buf[n] = '\0';
    char *second = strstr(buf, "first\n"), *third = second ? strstr(second, "second\n") : NULL;
    assert_true(third && strstr(third, "third\n"));
    (void)unlink(log);
    sl_info("nowhere"); /* and it is not made again */
    assert_int_equal(access(log, F_OK), -1);
    sl_log_open_file(SL_LOG_INFO, -1, "/nonexistent/log");
    sl_info("nowhere");
    sl_log_open(SL_LOG_OFF, -1);
    (void)close(in);
    (void)close(theirs);
    (void)unlink(other);
}

static void json_writes_commas_quotes_and_indents(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    struct sl_json j;
    sl_json_init(&j, f);
    sl_json_begin(&j, NULL, '{');
    sl_json_string(&j, "na\"me", "a\\b\n\x01\xc3\xa9");
    sl_json_string(&j, "none", NULL);
    sl_json_begin(&j, "list", '[');
    sl_json_uint(&j, NULL, UINT64_MAX);
    sl_json_int(&j, NULL, INT64_MIN);
    sl_json_double(&j, NULL, 0.5);
    sl_json_double(&j, NULL, NAN);
    sl_json_double(&j, NULL, INFINITY);
    sl_json_bool(&j, NULL, true);
    sl_json_bool(&j, NULL, false);
    sl_json_end(&j, ']');
    sl_json_begin(&j, "empty", '[');
    sl_json_end(&j, ']');
    sl_json_end(&j, '}');
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, "{\n"
                              "  \"na\\\"me\": \"a\\\\b\\u000a\\u0001\xc3\xa9\",\n"
                              "  \"none\": null,\n"
                              "  \"list\": [\n"
                              "    18446744073709551615,\n"
                              "    -9223372036854775808,\n"
                              "    0.5,\n"
                              "    null,\n"
                              "    null,\n"
                              "    true,\n"
                              "    false\n"
                              "  ],\n"
                              "  \"empty\": []\n"
                              "}\n");
    free(text);
}

static void json_is_utf8_whatever_it_is_given(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } table[] = {
        {"\xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf",
         "\xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"},
        {"\xff", "\\ufffd"},                                  /* no such byte */
        {"a\x80z", "a\\ufffdz"},                              /* the middle of nothing */
        {"\xc3", "\\ufffd"},                                  /* cut short by the end */
        {"\xe2\x82\"", "\\ufffd\\ufffd\\\""},                 /* cut short by another */
        {"\xc0\xaf", "\\ufffd\\ufffd"},                       /* longer than it need be */
        {"\xe0\x9f\xbf", "\\ufffd\\ufffd\\ufffd"},            /* the same in three */
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},            /* half of a pair */
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, /* beyond the last */
        {"\x1b[31m\x7f", "\\u001b[31m\\u007f"},               /* not for a terminal to obey */
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(table); i++) {
        char *text = NULL, want[64];
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        struct sl_json j;
        sl_json_init(&j, f);
        sl_json_string(&j, NULL, table[i].in);
        (void)fclose(f);
        (void)snprintf(want, sizeof(want), "\"%s\"", table[i].out);
        assert_string_equal(text, want);
        free(text);
    }
}

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "base_small.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    char cmd[128];
    (void)snprintf(cmd, sizeof(cmd), "rm -rf -- '%s'", dir);
    return system(cmd); /* NOLINT: a test cleaning its own fixed directory */
}

static const char *in_dir(const char *name)
{
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void mkdirs_makes_and_checks(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    struct stat st;
    assert_int_equal(sl_fs_mkdirs(in_dir("a/b/c"), 0700, &err), 0);
    assert_int_equal(stat(in_dir("a/b/c"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(sl_fs_mkdirs(in_dir("a/b/c"), 0700, &err), 0); /* again */
    assert_int_equal(err.code, 0);

    int fd = open(in_dir("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(sl_fs_mkdirs(in_dir("file"), 0700, &err), -ENOTDIR);
    assert_non_null(strstr(err.msg, "not a directory"));
    assert_int_equal(sl_fs_mkdirs(in_dir("file/below"), 0700, &err), -ENOTDIR);
    assert_int_equal(sl_fs_mkdirs("", 0700, &err), -ENAMETOOLONG);
    char *endless = malloc(PATH_MAX + 1);
    assert_non_null(endless);
    memset(endless, 'x', PATH_MAX);
    endless[PATH_MAX] = '\0';
    assert_int_equal(sl_fs_mkdirs(endless, 0700, &err), -ENAMETOOLONG);
    free(endless);
    if (geteuid() != 0)
        assert_int_equal(sl_fs_mkdirs("/proc", 0700, &err), -EPERM);
    assert_true(sl_fs_mkdirs("/proc/sluice-cannot", 0700, &err) < 0);
}

static void read_and_replace(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    SL_CLEANUP(close) int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    struct stat st;
    assert_true(d >= 0);
    assert_int_equal(sl_fs_read(d, "none", 10, &text, &size, &err), -ENOENT);
    assert_null(text);
    assert_int_equal(sl_fs_replace(d, "f", "hello", 5, 0600, &err), 0);
    assert_int_equal(sl_fs_replace(d, "f", "world!", 6, 0600, &err), 0);
    assert_int_equal(fstatat(d, "f.new", &st, 0), -1);
    assert_int_equal(sl_fs_read(d, "f", 5, &text, &size, &err), -EFBIG);
    assert_null(text);
    assert_int_equal(sl_fs_read(d, "f", 6, &text, &size, &err), 0);
    assert_int_equal(size, 6);
    assert_string_equal(text, "world!");
    free(sl_take_ptr(text));
    assert_int_equal(sl_fs_read(d, "f", 100, &text, NULL, &err), 0);
    assert_int_equal(sl_fs_read(d, ".", 10, &text, &size, &err), -EISDIR);

    char name[NAME_MAX];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(sl_fs_replace(d, name, "x", 1, 0600, &err), -ENAMETOOLONG);
    assert_int_equal(mkdirat(d, "taken", 0700), 0);
    assert_int_equal(sl_fs_replace(d, "taken", "x", 1, 0600, &err), -EISDIR);
    assert_int_equal(fstatat(d, "taken.new", &st, 0), -1); /* nothing left behind */
    assert_int_equal(sl_fs_replace(d, "no/such", "x", 1, 0600, &err), -ENOENT);
}

static void replace_reports_a_full_disk(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    SL_CLEANUP(close) int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* /dev/full takes the place of the temporary file: every write to it finds the disk full. */
    if (symlinkat("/dev/full", d, "f.new") != 0 || access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(sl_fs_replace(d, "f", "x", 1, 0600, &err), -ENOSPC);
    assert_non_null(strstr(err.msg, "No space left"));
    struct stat st;
    assert_int_equal(fstatat(d, "f.new", &st, AT_SYMLINK_NOFOLLOW), -1);
}

static void clock_moves_and_sleep_keeps_errno(void **state)
{
    (void)state;
    uint64_t before = sl_now_ns();
    errno = 5;
    sl_sleep_ns(2 * SL_NS_PER_MS);
    assert_int_equal(errno, 5);
    assert_true(sl_now_ns() - before >= 2 * SL_NS_PER_MS);
}

static void hashes_and_random_numbers_are_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t seed = 1;
    assert_true(sl_hash_text("") == SL_HASH_START);
    assert_true(sl_hash_text("a") ==
                0xaf63dc4c8601ec8cULL); /* published values of FNV-1a and splitmix64 */
    assert_true(sl_hash_text("foobar") == 0x85944171f73967e8ULL);
    assert_true(sl_random(&seed) == 0x910a2dec89025cc1ULL);
}

static void maps_find_what_they_keep(void **state)
{
    (void)state;
    struct thing {
        struct sl_map_item item;
        char key[16];
    } thing[200];
    struct sl_map map = {0};
    for (size_t i = 0; i < SL_ARRAY_LEN(thing); i++) {
        (void)snprintf(thing[i].key, sizeof(thing[i].key), "thing-%zu", i);
        thing[i].item.key = thing[i].key;
        sl_map_add(&map, &thing[i].item);
    }
    assert_ptr_equal(sl_map_find(&map, "thing-7", 7), &thing[7]);
    assert_ptr_equal(sl_map_find(&map, "thing-77 and more", 8), &thing[77]);
    assert_null(sl_map_find(&map, "thing-", 6));
    assert_null(sl_map_find(&map, "thing-200", 9));
    struct sl_map_walk walk = {0};
    size_t seen = 0;
    for (struct thing *t; (t = sl_map_next(&map, &walk)); seen++)
        if ((t - thing) % 2)
            sl_map_drop(&map, &t->item);
    assert_int_equal(seen, 200);
    assert_int_equal(map.count, 100);
    assert_null(sl_map_find(&map, "thing-7", 7));
    assert_ptr_equal(sl_map_find(&map, "thing-8", 7), &thing[8]);
    sl_map_free(&map, NULL);
    assert_null(sl_map_find(&map, "thing-8", 7));
}

static void the_closest_word(void **state)
{
    (void)state;
    static const char *const words[] = {"timeSlicing", "mps", "fractional", NULL};
    assert_string_equal(sl_word_closest("time_slicing", words), "timeSlicing");
    assert_string_equal(sl_word_closest("fractoinal", words),
                        "fractional"); /* neighbours swapped */
    assert_string_equal(sl_word_closest("mp", words), "mps");
    assert_null(sl_word_closest("exclusive", words));
    assert_null(sl_word_closest("", (const char *const[]){"mps", NULL}));
    assert_int_equal(sl_word_distance("mps", "mps"), 0);
    assert_int_equal(sl_word_distance("a word that is longer than all that are known", "mps"),
                     SL_WORD_FAR);
}

#define D(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_carry_code_and_text),
        cmocka_unit_test(errors_accept_null),
        cmocka_unit_test(long_errors_are_cut_not_overrun),
        cmocka_unit_test(errors_never_hold_half_a_character),
        cmocka_unit_test(utf8_is_mended_and_cut_between_characters),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(a_log_keeps_to_its_file),
        cmocka_unit_test(json_writes_commas_quotes_and_indents),
        cmocka_unit_test(json_is_utf8_whatever_it_is_given),
        D(mkdirs_makes_and_checks),
        D(read_and_replace),
        D(replace_reports_a_full_disk),
        cmocka_unit_test(clock_moves_and_sleep_keeps_errno),
        cmocka_unit_test(hashes_and_random_numbers_are_the_same_everywhere),
        cmocka_unit_test(maps_find_what_they_keep),
        cmocka_unit_test(the_closest_word),
    };
    return cmocka_run_group_tests_name("base small", tests, NULL, NULL);
}
