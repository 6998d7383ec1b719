/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice status` shows, as text; and an arbiter that is too old for a question. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "cli/status_view.h"
#include "cli/status_words.h"
#include "cli/tenant_processes.h"
#include "shm/packet.h"

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

static struct sl_msg_gpu gpus[2];
static struct sl_msg_tenant tenants[3];
static struct sl_msg_audit finding;
static struct sl_msg_waiter waiters[3];
static struct sl_client_status status;
static const struct sl_status_view view = {
    .dir = "/d", .sim = "h200x2", .running = true, .arbiter_pid = 7, .status = &status};

static void put(char *field, size_t size, const char *text)
{
    assert_true((size_t)snprintf(field, size, "%s", text) < size);
}
#define PUT(field, text) put(field, sizeof(field), text)

static int a_world(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        gpus[i] = (struct sl_msg_gpu){.index = i, .total_bytes = 140 * GIB, .tenants = 1};
        (void)snprintf(gpus[i].uuid, sizeof(gpus[i].uuid), "GPU-%u", i);
        PUT(gpus[i].name, "NVIDIA H200");
    }
    gpus[0].used_bytes = 12 * GIB;
    gpus[0].promised_bytes = 30 * GIB;
    gpus[0].promised_permille = 425;
    for (uint32_t i = 0; i < 3; i++) {
        tenants[i] = (struct sl_msg_tenant){.processes = 1,
                                            .priority = SL_PRIORITY_NORMAL,
                                            .cores_request_permille = 300,
                                            .cores_limit_permille = 300,
                                            .share_1s_permille = 295,
                                            .share_60s_permille = 301,
                                            .gate = SL_GATE_METER,
                                            .creator_pid = 99,
                                            .age_ns = 90 * SL_NS_PER_S,
                                            .slice_us = 2000,
                                            .gpu_count = 1};
        PUT(tenants[i].gpu[0].uuid, "GPU-0");
        tenants[i].gpu[0].limit_bytes = 10 * GIB;
        tenants[i].gpu[0].used_bytes = 9 * GIB;
        tenants[i].gpu[0].overhead_bytes = 500 * MIB;
    }
    PUT(tenants[0].name, "train");
    PUT(tenants[1].name, "a-name-of-as-many-letters-as-are-allowed");
    tenants[1].cores_request_permille = 125;
    tenants[1].cores_limit_permille = 1000;
    tenants[1].gpu_count = 2;
    PUT(tenants[1].gpu[1].uuid, "GPU-1");
    tenants[1].gpu[1].limit_bytes = SL_NO_LIMIT;
    PUT(tenants[2].name, "4b1c7a52-7f0b-4a4e-9f3c-1f5f9a3c0d11-0");
    PUT(tenants[2].about,
        "namespace=team pod=fine-tuning-of-a-model-with-a-long-name-6d4cf56db6-abcde "
        "container=main");
    status = (struct sl_client_status){
        .gpu = gpus, .gpu_count = 2, .tenant = tenants, .tenant_count = 3};
    return 0;
}

static char *drawn(bool wide)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&text, &size);
    sl_status_text(&view, out, false, wide);
    sl_xmemstream_close(out);
    return text;
}

static char *drawn_tenant(const struct sl_status_detail *d)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&text, &size);
    sl_status_tenant_text(&view, d, out, false);
    sl_xmemstream_close(out);
    return text;
}

static size_t widest(const char *text)
{
    size_t most = 0;
    for (; *text; text += text[strcspn(text, "\n")] ? 1 : 0) {
        size_t n = strcspn(text, "\n");
        most = n > most ? n : most;
        text += n;
    }
    return most;
}

static void eighty_columns(void **state)
{
    (void)state;
    char *text = drawn(false);
    assert_string_equal(
        text, "Simulated GPUs (h200x2)\n"
              "  GPU  NAME          MEMORY      USED  PROMISED  CORES  TENANTS\n"
              "    0  NVIDIA H200  140 GiB  12.0 GiB  30.0 GiB  42.5%        1\n"
              "    1  NVIDIA H200  140 GiB         0         0     0%        1\n"
              "\n"
              "  TENANT               GPU     LIMIT     USED     CORES  GOT 1s  PRIORITY  PROCS\n"
              "  train                0    10.0 GiB  9.5 GiB        30   29.5%  normal        1\n"
              "  a-name-of-as-many-~  0    10.0 GiB  9.5 GiB  12.5:100   29.5%  normal        1\n"
              "                       1           -        0\n"
              "  4b1c7a52-7f0b-4a4e~  0    10.0 GiB  9.5 GiB        30   29.5%  normal        1\n"
              "    pod team/fine-tuning-of-a-model-with-a-long-name-6d4cf56db6-abcde/main\n"
              "\n"
              "~: the name is longer; `sluice status --wide` shows all of it.\n");
    free(text);
}

static void wide_shows_all(void **state)
{
    (void)state;
    char *text = drawn(true);
    assert_non_null(strstr(text, "  TENANTS  SHARED BY  UUID\n"));
    assert_non_null(strstr(text, "  a-name-of-as-many-letters-as-are-allowed  "));
    assert_non_null(strstr(
        text, "GOT 1s  GOT 1min  PRIORITY  PROCS  WAITED  LAUNCHES  REFUSED   SLICE  POD\n"));
    assert_non_null(
        strstr(text, "  team/fine-tuning-of-a-model-with-a-long-name-6d4cf56db6-abcde/main\n"));
    assert_null(strchr(text, '~'));
    free(text);
    status.tenant_count = 2; /* no pods: no column for them */
    text = drawn(true);
    assert_null(strstr(text, "POD"));
    free(text);
}

static void who_waits(void **state)
{
    (void)state;
    waiters[0] = (struct sl_msg_waiter){.place = 1,
                                        .state = SL_WAITER_WAITS,
                                        .pid = 4711,
                                        .priority = SL_PRIORITY_HIGH,
                                        .waited_ns = 90 * SL_NS_PER_S,
                                        .fields = SL_FIELD_MEMORY | SL_FIELD_CORES,
                                        .memory_bytes = 60 * GIB,
                                        .cores_request_permille = 300,
                                        .cores_limit_permille = 1000,
                                        .wanted = 2};
    PUT(waiters[0].name, "pair");
    PUT(waiters[0].why,
        "2 GPUs asked, 1 of 2 has room; 60.0 GiB asked, 40.4 GiB of GPU 0 are left");
    waiters[1] = (struct sl_msg_waiter){.place = 2,
                                        .state = SL_WAITER_WAITS,
                                        .pid = 12,
                                        .priority = SL_PRIORITY_NORMAL,
                                        .fields = SL_FIELD_MEMORY,
                                        .memory_percent = 50,
                                        .wanted = 1,
                                        .gpu_count = 2};
    PUT(waiters[1].gpu[0], "GPU-1");
    PUT(waiters[1].gpu[1], "GPU-0");
    PUT(waiters[1].why, "the commands before it go first");
    waiters[2] = (struct sl_msg_waiter){
        .place = 3, .state = SL_WAITER_ABSENT, .pid = 13, .priority = SL_PRIORITY_LOW};
    status.tenant_count = 0;
    status.waiter = waiters;
    status.waiter_count = 3;
    char *text = drawn(false);
    assert_string_equal(strstr(text, "No tenants"),
                        "No tenants.\n\n"
                        "  PLACE  WAITING   PID  GPU         MEMORY   CORES  PRIORITY     FOR\n"
                        "      1  pair     4711  any 2     60.0 GiB  30:100  high      90.0 s\n"
                        "         2 GPUs asked, 1 of 2 has room\n"
                        "         60.0 GiB asked, 40.4 GiB of GPU 0 are left\n"
                        "      2  -          12  1 of 1,0       50%       -  normal      0 ns\n"
                        "         the commands before it go first\n"
                        "      3  -          13  ?                ?       ?  low         0 ns\n");
    free(text);
}

/* Whatever is in the fields: not wider than 80 columns, nothing that a terminal obeys. */
static void the_worst_fits(void **state)
{
    (void)state;
    PUT(gpus[0].name, "NVIDIA \033[2J A CARD WITH A NAME OF SIXTY-THREE LETTERS, NO LESS");
    gpus[0].total_bytes = gpus[0].used_bytes = gpus[0].promised_bytes = 1023 * GIB;
    gpus[0].promised_permille = 999;
    gpus[0].compute = SL_COMPUTE_TURNS;
    PUT(gpus[0].compute_why,
        "the driver accepts time slices, and they have no effect at all (1 : 1.02), sorry");
    for (uint32_t i = 0; i < 3; i++) {
        tenants[i].cores_request_permille = tenants[i].cores_limit_permille = 999;
        tenants[i].share_1s_permille = 1000;
        tenants[i].cores_limit_permille = 998;
        tenants[i].gpu[0].limit_bytes = tenants[i].gpu[0].used_bytes = 1023 * GIB;
        tenants[i].processes = 65535;
        PUT(tenants[i].gpu[0].uuid,
            "MIG-4b1c7a52-7f0b-4a4e-9f3c-1f5f9a3c0d11"); /* not in the list now */
    }
    finding = (struct sl_msg_audit){.kind = SL_AUDIT_UNATTACHED, .pid = 4194304, .bytes = GIB};
    PUT(finding.command, "python\n3");
    PUT(finding.tenant, "a-name-of-as-many-letters-as-are-allowed");
    PUT(finding.uuid, "GPU-0");
    waiters[0] = (struct sl_msg_waiter){.place = 1024,
                                        .state = SL_WAITER_WAITS,
                                        .pid = 4194304,
                                        .priority = SL_PRIORITY_NORMAL,
                                        .waited_ns = 99 * 86400 * SL_NS_PER_S,
                                        .fields = SL_FIELD_MEMORY | SL_FIELD_CORES,
                                        .memory_bytes = 1023 * GIB,
                                        .cores_request_permille = 998,
                                        .cores_limit_permille = 999,
                                        .wanted = 15,
                                        .gpu_count = SL_MAX_GPUS};
    PUT(waiters[0].name, "a-name-of-as-many-letters-as-are-allowed");
    for (uint32_t i = 0; i < SL_MAX_GPUS; i++)
        PUT(waiters[0].gpu[i], "MIG-4b1c7a52-7f0b-4a4e-9f3c-1f5f9a3c0d11");
    PUT(waiters[0].why,
        "15 GPUs asked, 14 of 16 have room; 99.8 % of the time asked, \033[2J of GPU 15 "
        "are left; ; and more words than the arbiter has");
    status.waiter = waiters;
    status.waiter_count = 1;
    status.audit = &finding;
    status.audit_count = 1;
    char *text = drawn(false);
    if (widest(text) > 80)
        fail_msg("%zu columns:\n%s", widest(text), text);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "GPU 0 is shared by turns: the driver accepts"));
    assert_non_null(strstr(text, "Audit: process 4194304 (python?3) of tenant\n"));
    free(text);
    PUT(finding.tenant, "train");
    const struct sl_status_detail train = {.tenant = &tenants[0]}, other = {.tenant = &tenants[1]};
    text = drawn_tenant(&train);
    assert_non_null(
        strstr(text, "\nAudit: process 4194304 (python?3) of tenant train uses 1.0 GiB on GPU 0 "));
    assert_true(widest(text) <= 80);
    free(text);
    text = drawn_tenant(&other);
    assert_null(strstr(text, "Audit:"));
    free(text);
    text = drawn(true);
    assert_non_null(strstr(text, "at all (1 : 1.02), sorry\n"));
    free(text);
}

static void one_tenant(void **state)
{
    (void)state;
    struct sl_msg_process processes[2] = {
        {.pid = 4711,
         .gpu_count = 2,
         .launches = 12,
         .waited_ns = 1500000000,
         .gpu = {{.used_bytes = GIB, .overhead_bytes = 500 * MIB}}},
        {.pid = 12, .gpu_count = 2}};
    PUT(processes[0].command, "python3");
    PUT(processes[1].command, "loader");
    tenants[1].oom_count = 1;
    struct sl_status_detail d = {.tenant = &tenants[1], .processes = processes, .process_count = 2};
    char *text = drawn_tenant(&d);
    assert_string_equal(
        text, "Simulated GPUs (h200x2)\n"
              "Tenant a-name-of-as-many-letters-as-are-allowed\n"
              "  GPU 0:      NVIDIA H200: 9.5 GiB used (500 MiB of it for contexts and\n"
              "              modules), limit 10.0 GiB\n"
              "  GPU 1:      NVIDIA H200: 0 used, no limit but the card's\n"
              "  Cores:      12.5:100% asked for; got 29.5% in the last second, 30.1% in the\n"
              "              last minute\n"
              "  Priority:   normal\n"
              "  Shared by:  slices: the hardware runs it for 2.0 ms, then the next tenant\n"
              "  Now:        its work goes to the GPU at once, and counts against its cores\n"
              "  Waited:     0 ns in all, because of its cores or of other tenants\n"
              "  Launches:   0\n"
              "  Refused:    1 allocation, because of the memory limit\n"
              "  Started:    90.0 s ago, by process 99\n"
              "\n"
              "  PROCESS  PROGRAM  GPU     USED  CONTEXTS  WAITED  LAUNCHES\n"
              "     4711  python3  0    1.5 GiB   500 MiB   1.5 s        12\n"
              "                    1          0         0\n"
              "       12  loader   0          0         0    0 ns         0\n"
              "                    1          0         0\n");
    free(text);

    tenants[1].compute = gpus[1].compute = SL_COMPUTE_TURNS;
    tenants[1].gate = SL_GATE_CLOSED;
    PUT(gpus[1].compute_why, "a tenant asked for turns");
    d = (struct sl_status_detail){.tenant = &tenants[1]};
    text = drawn_tenant(&d);
    assert_non_null(
        strstr(text, "Shared by:  turns, one tenant at a time: a tenant asked for turns\n"));
    assert_non_null(strstr(text, "Now:        it waits for its turn\n"));
    assert_non_null(strstr(text, "No process of this tenant uses the GPU.\n"));
    free(text);
    tenants[1].flags = SL_LEASE_PAUSED;
    text = drawn_tenant(&d);
    assert_non_null(strstr(text, "Now:        paused; `sluice resume a-name-of-as"));
    free(text);
    text = drawn(false);
    assert_non_null(strstr(text, "12.5:100  paused  normal "));
    free(text);
    d.untold = "the arbiter is too old";
    text = drawn_tenant(&d);
    assert_non_null(strstr(text, "  Processes:  not known: the arbiter is too old\n"));
    free(text);
}

static void the_closest_name(void **state)
{
    (void)state;
    assert_string_equal(sl_status_closest(&status, "trian"), "train");
    assert_null(sl_status_closest(&status, "something-else"));
    assert_ptr_equal(sl_status_tenant(&status, "train"), &tenants[0]);
    assert_null(sl_status_tenant(&status, "trai"));
}

/* An old arbiter hangs up at a question that it does not know, and goes on serving. */
static void an_old_arbiter(void **state)
{
    (void)state;
    char dir[] = "/tmp/sl-old.XXXXXX";
    struct sl_arbiter_dir place;
    struct sl_err err = SL_ERR_INIT;
    struct sl_msg_process *list = NULL;
    size_t count = 0;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(sl_arbiter_dir_find(dir, NULL, &place, &err), 0);
    int listener = sl_packet_listen(place.socket, 4, &err);
    assert_true(listener >= 0);
    for (int lives = 1; lives >= 0; lives--) {
        int fd = sl_client_connect(&place, &err);
        assert_true(fd >= 0);
        int peer = accept(listener, NULL, NULL);
        assert_true(peer >= 0);
        assert_int_equal(close(peer), 0);
        if (!lives) /* it ended: that is something else */
            assert_int_equal(close(listener), 0);
        int rc = sl_tenant_processes(&place, &fd, "train", &list, &count, &err);
        assert_int_equal(rc, lives ? -EOPNOTSUPP : -ECONNRESET);
        assert_true(lives ? fd >= 0 : fd < 0);
        if (!lives)
            continue;
        char words[80];
        (void)snprintf(words, sizeof(words), "the arbiter (process %d) is too old", (int)getpid());
        assert_non_null(strstr(err.msg, words));
        assert_int_equal(close(fd), 0);
        peer = accept(listener, NULL, NULL);
        assert_true(peer >= 0);
        assert_int_equal(close(peer), 0);
    }
    assert_int_equal(unlink(place.socket), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(eighty_columns, a_world),
        cmocka_unit_test_setup(wide_shows_all, a_world),
        cmocka_unit_test_setup(who_waits, a_world),
        cmocka_unit_test_setup(the_worst_fits, a_world),
        cmocka_unit_test_setup(one_tenant, a_world),
        cmocka_unit_test_setup(the_closest_name, a_world),
        cmocka_unit_test(an_old_arbiter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
