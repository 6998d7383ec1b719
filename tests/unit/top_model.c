/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice top` shows and what its keys do, as text and without a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "cli/top_model.h"

#define GIB (1ULL << 30)

static struct sl_msg_gpu gpus[20];
static struct sl_msg_tenant tenants[64];

static void put_gpu(uint32_t i, uint64_t used)
{
    gpus[i] = (struct sl_msg_gpu){.index = i, .total_bytes = 100 * GIB, .used_bytes = used};
    (void)snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "GPU-%u", i);
    (void)snprintf(gpus[i].name, sizeof(gpus[i].name), "NVIDIA H200");
}

static struct sl_msg_tenant *put_tenant(uint32_t i, const char *name, uint32_t cores, uint32_t got,
                                        uint64_t used)
{
    struct sl_msg_tenant *m = &tenants[i];
    *m = (struct sl_msg_tenant){.processes = 1,
                                .priority = SL_PRIORITY_NORMAL,
                                .cores_request_permille = cores,
                                .cores_limit_permille = cores,
                                .share_1s_permille = got,
                                .slice_us = 2000,
                                .gpu_count = 1};
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
    (void)snprintf(m->gpu[0].uuid, sizeof(m->gpu[0].uuid), "GPU-0");
    m->gpu[0].limit_bytes = 10 * GIB;
    m->gpu[0].used_bytes = used;
    return m;
}

static void take(struct sl_top *t, size_t gpu_count, size_t tenant_count, uint64_t at_s)
{
    struct sl_client_status s = {
        .gpu = gpus, .gpu_count = gpu_count, .tenant = tenants, .tenant_count = tenant_count};
    char users[64][SL_TOP_USER] = {"alice", "bob"};
    sl_top_take(t, &s, (const char(*)[SL_TOP_USER])users, at_s * SL_NS_PER_S);
}

/* The page, as --once prints it. */
static char *page(const struct sl_top *t, int rows, int cols, bool once)
{
    struct sl_screen s;
    char *text = NULL;
    size_t size = 0;
    sl_screen_init(&s, rows, cols, false);
    sl_top_draw(t, &s, "12:00:00", once);
    FILE *out = sl_xmemstream(&text, &size);
    sl_screen_print(&s, out, false);
    sl_xmemstream_close(out);
    sl_screen_free(&s);
    return text;
}

static void shows(const struct sl_top *t, int rows, int cols, const char *words, bool expected)
{
    char *text = page(t, rows, cols, false);
    if (!strstr(text, words) == expected)
        fail_msg("%s \"%s\" in:\n%s", expected ? "no" : "there is", words, text);
    free(text);
}

static void press(struct sl_top *t, const char *keys)
{
    for (; *keys; keys++)
        (void)sl_top_press(t, *keys);
}

static void test_page(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, 50 * GIB);
    (void)put_tenant(0, "train", 300, 295, 9 * GIB);
    (void)put_tenant(1, "serve", 500, 500, 2 * GIB);
    tenants[1].cores_limit_permille = 1000;
    take(&t, 1, 2, 1);
    tenants[0].waited_ns = SL_NS_PER_S / 4;
    take(&t, 1, 2, 2);
    char *text = page(&t, 24, 80, true);
    assert_string_equal(
        text, "sluice top  1 GPU, 2 tenants                                            12:00:00\n"
              "\n"
              "GPU 0  NVIDIA H200                   0 tenants, shared by slices\n"
              "  memory  [||||||||||||            ] 50.0 GiB of 100 GiB                       -\n"
              "  time    [|||||||||||||||||||     ] 79.5 %, promised 0 %                      +\n"
              "\n"
              "  TENANT             USER     GPU                MEMORY   CORES    GOT WAIT PROC\n"
              "  serve              bob      0     2.0 GiB of 10.0 GiB  50:100  50.0%   0%    1\n"
              "  train              alice    0     9.0 GiB of 10.0 GiB      30  29.5%  25%    1\n");
    free(text);
    shows(&t, 30, 110, "PRIORITY     SLICE", true);
    shows(&t, 24, 80, "PRIORITY", false);
    sl_top_free(&t);
}

/* Nothing is wider than the page, whatever is in the names. */
static void test_hostile_names(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, GIB);
    (void)put_tenant(0, "\033[2J\xff-a-name-that-is-much-longer-than-its-column", 1, 1, GIB);
    tenants[0].gpu_count = SL_MAX_GPUS;
    for (uint32_t i = 0; i < SL_MAX_GPUS; i++)
        (void)snprintf(tenants[0].gpu[i].uuid, SL_UUID_MAX, "GPU-0");
    take(&t, 1, 1, 1);
    for (int cols = 1; cols < 200; cols += 7)
        for (int rows = 1; rows < 40; rows += 3) {
            char *text = page(&t, rows, cols, false);
            int lines = 0;
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
                assert_true(strlen(line) <= (size_t)cols);
                for (char *p = line; *p; p++)
                    assert_in_range(*p, ' ', '~');
            }
            assert_true(lines <= rows);
            free(text);
        }
    sl_top_free(&t);
}

static void test_sort_and_filter(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, GIB);
    (void)put_tenant(0, "a", 100, 100, 3 * GIB);
    (void)put_tenant(1, "b", 100, 300, GIB);
    (void)put_tenant(2, "c", 100, 200, 2 * GIB);
    take(&t, 1, 3, 1);
    assert_string_equal(t.tenants[0].m.name, "a");
    press(&t, "s");
    assert_string_equal(t.tenants[0].m.name, "b"); /* GPU time */
    press(&t, "s");
    assert_string_equal(t.tenants[0].m.name, "a"); /* memory */
    assert_string_equal(t.tenants[1].m.name, "c");
    press(&t, "/bo");
    shows(&t, 24, 80, "filter: bo_", true);
    assert_int_equal(sl_top_press(&t, SL_KEY_ENTER).action, SL_TOP_REFRESH);
    take(&t, 1, 3, 2);
    assert_int_equal(t.tenant_count, 1); /* by its user */
    assert_string_equal(t.selected, "b");
    press(&t, "/zzz");
    (void)sl_top_press(&t, SL_KEY_ENTER);
    take(&t, 1, 3, 3);
    shows(&t, 24, 80, "No tenant matches the filter \"bozzz\"", true);
    (void)sl_top_press(&t, SL_KEY_ESCAPE);
    take(&t, 1, 3, 4);
    assert_int_equal(t.tenant_count, 3);
    sl_top_free(&t);
}

static void test_selection_stays(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, GIB);
    for (uint32_t i = 0; i < 50; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "t%02u", i);
        (void)put_tenant(i, name, 10, 10, GIB);
    }
    take(&t, 1, 50, 1);
    (void)sl_top_press(&t, SL_KEY_END);
    assert_string_equal(t.selected, "t49");
    shows(&t, 24, 80, "  t49 ", true); /* the list moved along */
    shows(&t, 24, 80, "  t00 ", false);
    (void)sl_top_press(&t, SL_KEY_UP);
    take(&t, 1, 50, 2);
    assert_string_equal(t.selected, "t48");
    take(&t, 1, 40, 3); /* it is gone: the last one that is left */
    assert_string_equal(t.selected, "t39");
    take(&t, 1, 0, 4);
    assert_string_equal(t.selected, "");
    shows(&t, 24, 80, "No tenants. `sluice run` starts one.", true);
    press(&t, "cmpx jk"); /* nothing to do it to */
    assert_int_equal(t.mode, SL_TOP_LIST);
    sl_top_free(&t);
}

static void test_wishes(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, GIB);
    (void)put_tenant(0, "train", 300, 295, GIB);
    take(&t, 1, 1, 1);
    press(&t, "c4q0");
    (void)sl_top_press(&t, SL_KEY_BACKSPACE);
    shows(&t, 24, 80, "cores of train, now 30: 4q_", true); /* a letter is no command */
    struct sl_top_wish w = sl_top_press(&t, SL_KEY_ENTER);
    assert_int_equal(w.action, SL_TOP_SET);
    assert_string_equal(w.name, "train");
    assert_string_equal(w.option, "cores");
    assert_string_equal(w.text, "4q");
    press(&t, "m");
    shows(&t, 24, 80, "memory of train, now 10.0 GiB: _", true);
    (void)sl_top_press(&t, SL_KEY_ESCAPE);
    press(&t, "p");
    shows(&t, 24, 80, "priority of train, now normal: _", true);
    (void)sl_top_press(&t, SL_KEY_ESCAPE);
    assert_int_equal(sl_top_press(&t, SL_KEY_ENTER).action, SL_TOP_REFRESH); /* its processes */
    struct sl_msg_process *one = sl_xcalloc(1, sizeof(*one));
    one->pid = 4711;
    one->gpu_count = 1;
    one->gpu[0].used_bytes = GIB;
    (void)snprintf(one->command, sizeof(one->command), "python3");
    sl_top_take_processes(&t, one, 1, "");
    shows(&t, 24, 80, "process 4711     python3", true);
    sl_top_take_processes(&t, NULL, 0, "the arbiter is too old");
    shows(&t, 24, 80, "4711", false);
    shows(&t, 24, 80, "    the arbiter is too old", true); /* said, not left empty */
    assert_int_equal(sl_top_press(&t, ' ').action, SL_TOP_REFRESH);
    shows(&t, 24, 80, "too old", false);
    press(&t, "x");
    shows(&t, 24, 80, "end train (1 process)? y or n", true);
    assert_int_equal(sl_top_press(&t, 'n').action, SL_TOP_NOTHING);
    press(&t, "x");
    assert_int_equal(sl_top_press(&t, 'y').action, SL_TOP_END);
    struct sl_top_wish pause = sl_top_press(&t, 'z');
    assert_int_equal(pause.action, SL_TOP_PAUSE);
    assert_string_equal(pause.name, "train");
    shows(&t, 24, 80, "paused", false);
    t.tenants[0].m.flags |= SL_LEASE_PAUSED;
    shows(&t, 24, 80, "paused", true);
    press(&t, "?");
    shows(&t, 24, 80, "change cores, memory, priority", true);
    assert_int_equal(sl_top_press(&t, 'z').action, SL_TOP_NOTHING);
    assert_int_equal(sl_top_press(&t, 'q').action, SL_TOP_QUIT);
    press(&t, "/x");
    assert_int_equal(sl_top_press(&t, SL_KEY_INTERRUPT).action, SL_TOP_QUIT);
    sl_top_free(&t);
}

/* What to do stands at the end of a message, and the keys below it stay. */
static void test_long_messages(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, GIB);
    (void)put_tenant(0, "train", 300, 295, GIB);
    take(&t, 1, 1, 1);
    (void)snprintf(
        t.message, sizeof(t.message),
        "cores \"130\" is not a share: write a percentage of one GPU from 0.1 to 100, for "
        "example 30, or 30:100 to use idle time as well");
    shows(&t, 24, 80,
          "cores \"130\" is not a share: write a percentage of one GPU from 0.1 to 100, for\n"
          "example 30, or 30:100 to use idle time as well\n"
          "q quit  ? help",
          true);
    for (int i = 0; i < 399; i++)
        t.message[i] = 'm';
    for (int cols = 1; cols < 100;
         cols += 9) /* a word longer than a row, more rows than there are */
        for (int rows = 1; rows < 12; rows++)
            free(page(&t, rows, cols, false));
    (void)snprintf(
        t.trouble, sizeof(t.trouble),
        "no arbiter is running in /run/user/1000/sluice-with-a-long-name: `sluice run` starts "
        "one, and so does `sluice lease create`");
    shows(&t, 24, 80, "does `sluice lease create`\n", true);
    sl_top_free(&t);
}

static struct sl_msg_waiter waiters[8];

/* Who waits in line stands below the tenants, with the reason. */
static void test_line(void **state)
{
    (void)state;
    struct sl_top t = {0};
    char users[64][SL_TOP_USER] = {"alice", "bob", "carol"};
    put_gpu(0, GIB);
    (void)put_tenant(0, "train", 300, 295, GIB);
    waiters[0] = (struct sl_msg_waiter){.place = 1,
                                        .state = SL_WAITER_WAITS,
                                        .priority = SL_PRIORITY_HIGH,
                                        .waited_ns = 12 * SL_NS_PER_S,
                                        .fields = SL_FIELD_MEMORY | SL_FIELD_CORES,
                                        .memory_bytes = 60 * GIB,
                                        .cores_request_permille = 500,
                                        .cores_limit_permille = 1000,
                                        .wanted = 1};
    (void)snprintf(waiters[0].name, SL_NAME_MAX, "next");
    (void)snprintf(waiters[0].why, sizeof(waiters[0].why), "GPU 0 has 40.0 GiB left");
    for (uint32_t i = 1; i < 8; i++)
        waiters[i] = (struct sl_msg_waiter){
            .place = i + 1, .state = SL_WAITER_ABSENT, .wanted = 1, .priority = SL_PRIORITY_NORMAL};
    struct sl_client_status s = {.gpu = gpus,
                                 .gpu_count = 1,
                                 .tenant = tenants,
                                 .tenant_count = 1,
                                 .waiter = waiters,
                                 .waiter_count = 2};
    sl_top_take(&t, &s, (const char(*)[SL_TOP_USER])users, SL_NS_PER_S);
    shows(&t, 24, 80, "  WAITING IN LINE (2)\n", true);
    shows(&t, 24, 80,
          "  1  next            bob      any              60.0 GiB  50:100       for 12.0 s\n"
          "     GPU 0 has 40.0 GiB left\n"
          "  2  (no name yet)   carol    ?                       ?       ?",
          true);
    shows(&t, 24, 110, "for 12.0 s  high", true);
    s.waiter_count = 8;
    sl_top_take(&t, &s, (const char(*)[SL_TOP_USER])users, 2 * SL_NS_PER_S);
    shows(&t, 16, 80, "  train ", true); /* a long line leaves room for tenants */
    shows(&t, 16, 80, "  1  next", true);
    for (int rows = 1; rows < 24; rows++)
        free(page(&t, rows, 80, false));
    char *text = page(&t, 40, 80, true);
    assert_non_null(strstr(text, "  8  (no name yet)"));
    free(text);
    s.waiter_count = 0;
    sl_top_take(&t, &s, (const char(*)[SL_TOP_USER])users, 3 * SL_NS_PER_S);
    shows(&t, 24, 80, "WAITING", false);
    sl_top_free(&t);
}

static void test_many_gpus(void **state)
{
    (void)state;
    struct sl_top t = {0};
    for (uint32_t i = 0; i < 20; i++)
        put_gpu(i, i * GIB);
    (void)put_tenant(0, "train", 300, 295, GIB);
    take(&t, 20, 1, 1);
    shows(&t, 24, 80, "GPU 12 mem [|           ] 12.0 GiB of 100 GiB", true);
    shows(&t, 24, 80, "and 7 more GPUs", true);
    shows(&t, 24, 80, "  train ", true); /* tenants always have room */
    shows(&t, 60, 80, "GPU 19", true);
    shows(&t, 60, 80, "more GPUs", false);
    sl_top_free(&t);
}

/* A minute of it, and not more. */
static void test_history(void **state)
{
    (void)state;
    struct sl_top t = {0};
    put_gpu(0, 0);
    for (uint32_t i = 0; i < 200; i++) {
        gpus[0].used_bytes = i < 140 ? 100 * GIB : 0;
        take(&t, 1, 0, i + 1);
    }
    char *text = page(&t, 24, 124, true);
    char *line = strstr(text, "  memory");
    assert_non_null(line);
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(strlen(line), 124);
    for (int i = 124 - SL_TOP_HISTORY; i < 124; i++)
        assert_int_equal(line[i], '_'); /* what was before the last minute is forgotten */
    free(text);
    sl_top_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_sort_and_filter),
        cmocka_unit_test(test_selection_stays),
        cmocka_unit_test(test_wishes),
        cmocka_unit_test(test_long_messages),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_many_gpus),
        cmocka_unit_test(test_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
