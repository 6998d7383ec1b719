/* SPDX-License-Identifier: Apache-2.0 */
/* Devices over cards that misbehave. The loop's clock is the test's, so stalls and polls happen
 * when the test says; the threads are real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/cards/devices.h"
#include "base/clock.h"

#include "cards.h"

#define S SL_NS_PER_S

static uint64_t now_ns;
static uint64_t virtual_now(void)
{
    return now_ns;
}

struct world {
    struct sl_loop *loop;
    struct cards *cards; /* a thread left behind may outlive the test */
    struct sl_devices *devices;
    unsigned inventories, polls, stalls, resumes, troubles, xids, no_drivers;
    uint64_t retry_ns;
    char xid_uuid[SL_GPU_UUID_SIZE];
    uint64_t xid;
    char text[400];
    const struct sl_inventory *inv;
};

static void on_inventory(void *data, const struct sl_inventory *inv)
{
    struct world *w = data;
    w->inventories++;
    w->inv = inv;
}
static void on_polled(void *data, const struct sl_inventory *inv, uint64_t asked_ns)
{
    (void)inv;
    assert_true(asked_ns <= now_ns);
    ((struct world *)data)->polls++;
}
static void on_xid(void *data, const char *uuid, const struct sl_gpu_event *event)
{
    struct world *w = data;
    w->xids++;
    w->xid = event->xid;
    (void)snprintf(w->xid_uuid, sizeof(w->xid_uuid), "%s", uuid ? uuid : "none");
}
static void on_no_driver(void *data, const struct sl_err *err, uint64_t retry_ns)
{
    struct world *w = data;
    w->no_drivers++;
    w->retry_ns = retry_ns;
    (void)snprintf(w->text, sizeof(w->text), "%s", err->msg);
}
static void on_trouble(void *data, const struct sl_err *err)
{
    struct world *w = data;
    w->troubles++;
    (void)snprintf(w->text, sizeof(w->text), "%s", err->msg);
}
static void on_stalled(void *data, const char *what, uint64_t for_ns)
{
    struct world *w = data;
    w->stalls++;
    assert_true(for_ns >= 10 * S);
    (void)snprintf(w->text, sizeof(w->text), "%s", what);
}
static void on_resumed(void *data, uint64_t after_ns)
{
    (void)after_ns;
    ((struct world *)data)->resumes++;
}

static const struct sl_devices_ops ops = {
    .inventory = on_inventory,
    .polled = on_polled,
    .xid = on_xid,
    .no_driver = on_no_driver,
    .trouble = on_trouble,
    .stalled = on_stalled,
    .resumed = on_resumed,
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    now_ns = 1000 * S;
    assert_int_equal(sl_loop_create(virtual_now, &w->loop, NULL), 0);
    w->cards = malloc(sizeof(*w->cards));
    cards_init(w->cards, 2);
    *state = w;
    return 0;
}

static void begin(struct world *w, struct sl_devices_options options)
{
    options.open = cards_open;
    options.open_data = w->cards;
    options.event_wait_ms = 20;
    if (!options.stop_wait_ns)
        options.stop_wait_ns = 20 * S;
    assert_int_equal(sl_devices_create(w->loop, &options, &ops, w, &w->devices, NULL), 0);
}

static int teardown(void **state)
{
    struct world *w = *state;
    sl_devices_destroy(w->devices);
    sl_loop_destroy(w->loop);
    assert_int_equal(w->cards->opens >= w->cards->closes, 1);
    free(w->cards);
    free(w);
    return 0;
}

/* Runs the loop until it is true; the test's own time limit is what ends a failure. */
#define until(w, condition)                                                                        \
    while (!(condition))                                                                           \
    assert_int_equal(sl_loop_step((w)->loop, 100, NULL), 0)

static void pass(struct world *w, uint64_t ns)
{
    now_ns += ns;
    assert_int_equal(sl_loop_step(w->loop, 0, NULL), 0);
}

static void test_snapshots(void **state)
{
    struct world *w = *state;
    begin(w, (struct sl_devices_options){0});
    assert_null(sl_devices_inventory(w->devices));
    until(w, w->inventories == 1);
    assert_int_equal(w->inv->gpu_count, 2);
    assert_ptr_equal(w->inv, sl_devices_inventory(w->devices));
    pass(w, 29 * S);
    assert_int_equal(w->polls, 1);
    pass(w, 1 * S);
    until(w, w->polls == 2);
    assert_int_equal(w->inventories, 1); /* nothing changed, nothing said */
    pthread_mutex_lock(&w->cards->lock);
    cards_add_mig(w->cards, 1, "MIG-a", 1, 0);
    pthread_mutex_unlock(&w->cards->lock);
    sl_devices_refresh(w->devices);
    sl_devices_refresh(w->devices);
    until(w, w->inventories == 2);
    assert_int_equal(w->inv->gpu[1].mig_count, 1);
    until(w, w->polls == 4); /* the second refresh came while the first was read: once more */
    assert_int_equal(cards_get(w->cards, opens), 1);
}

static void test_hang(void **state)
{
    struct world *w = *state;
    begin(w, (struct sl_devices_options){0});
    until(w, w->polls == 1);
    cards_set(w->cards, hang, true);
    sl_devices_refresh(w->devices);
    while (cards_get(w->cards, hanging) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
    for (int i = 0; i < 9; i++)
        pass(w, S);
    assert_int_equal(w->stalls, 0);
    for (int i = 0; i < 30; i++)
        pass(w, S);
    assert_int_equal(w->stalls, 1); /* said once */
    assert_string_equal(w->text, "reading the cards");
    assert_int_equal(w->inventories, 1);
    assert_int_equal(sl_devices_inventory(w->devices)->gpu_count, 2);
    assert_false(sl_devices_inventory(w->devices)->gpu[0].lost);
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_devices_submit(w->devices, NULL, NULL, NULL, &err), -ETIMEDOUT);
    cards_set(w->cards, hang, false);
    until(w, w->resumes == 1);
    until(w, w->polls >= 2);
    assert_int_equal(w->inventories, 1);
}

struct job {
    struct world *w;
    int result, ran;
    bool done;
    char text[200];
};

static int job_run(struct sl_gpu *gpu, void *arg, struct sl_err *err)
{
    struct job *j = arg;
    size_t i = 9;
    j->ran++;
    if (sl_devices_find(gpu, "GPU-9", &i, err) != -ENOENT)
        return -EPROTO;
    return sl_devices_find(gpu, "GPU-1", &i, err) == 0 ? (int)i + 100 : -EIO;
}

static void job_done(void *arg, int result, const struct sl_err *err)
{
    struct job *j = arg;
    assert_false(j->done);
    j->done = true;
    j->result = result;
    (void)snprintf(j->text, sizeof(j->text), "%.199s", err->msg);
}

static void test_jobs(void **state)
{
    struct world *w = *state;
    struct job a = {.w = w}, b = {.w = w};
    begin(w, (struct sl_devices_options){0});
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &a, NULL), -ENODEV);
    until(w, w->polls == 1);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &a, NULL), 0);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &b, NULL), 0);
    assert_false(a.done); /* never inside the call */
    until(w, b.done);
    assert_true(a.done);
    assert_int_equal(a.result, 101);
}

/* Jobs behind a call that hangs are answered; the one inside it when it returns. */
static void test_jobs_behind_a_hang(void **state)
{
    struct world *w = *state;
    struct job a = {.w = w}, b = {.w = w};
    begin(w, (struct sl_devices_options){0});
    until(w, w->polls == 1);
    cards_set(w->cards, hang, true);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &a, NULL), 0);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &b, NULL), 0);
    while (cards_get(w->cards, hanging) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
    for (int i = 0; i < 20; i++)
        pass(w, S);
    assert_int_equal(w->stalls, 1);
    assert_true(b.done);
    assert_int_equal(b.result, -ETIMEDOUT);
    assert_int_equal(b.ran, 0);
    assert_false(a.done);
    cards_set(w->cards, hang, false);
    until(w, a.done);
    assert_int_equal(a.result, 101);
}

static struct cards *left_behind;

static void test_leave_a_hanging_thread(void **state)
{
    struct world *w = *state;
    struct job a = {.w = w}, b = {.w = w};
    begin(w, (struct sl_devices_options){.stop_wait_ns = SL_NS_PER_MS});
    until(w, w->polls == 1);
    cards_set(w->cards, hang, true);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &a, NULL), 0);
    assert_int_equal(sl_devices_submit(w->devices, job_run, job_done, &b, NULL), 0);
    while (cards_get(w->cards, hanging) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
    sl_devices_destroy(w->devices);
    w->devices = NULL;
    assert_true(b.done);
    assert_int_equal(b.result, -ECANCELED);
    assert_int_equal(cards_get(w->cards, closes), 0);
    cards_set(w->cards, hang, false); /* it returns, finds nobody, and cleans up */
    while (cards_get(w->cards, closes) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
    assert_false(a.done);
    left_behind = w->cards; /* the thread may still be on its way out of them */
    w->cards = malloc(sizeof(*w->cards));
    cards_init(w->cards, 0);
}

static void test_no_nvml_fails(void **state)
{
    struct world *w = *state;
    w->cards->open_result = -ENODEV;
    begin(w, (struct sl_devices_options){.fail_on_init_error = true});
    until(w, w->no_drivers == 1);
    assert_int_equal(w->retry_ns, 0);
    assert_string_equal(w->text, "no NVIDIA driver on this machine");
    sl_devices_refresh(w->devices);
    pass(w, 3600 * S);
    assert_int_equal(cards_get(w->cards, opens), 1);
}

static void test_empty_driver_root(void **state)
{
    struct world *w = *state;
    struct sl_devices_options options = {.driver_root = "/nowhere", .fail_on_init_error = true};
    assert_int_equal(sl_devices_create(w->loop, &options, &ops, w, &w->devices, NULL), 0);
    until(w, w->no_drivers == 1);
    assert_non_null(strstr(w->text, "no libnvidia-ml.so.1 under the driver root /nowhere"));
}

static void test_no_nvml_tries_on(void **state)
{
    struct world *w = *state;
    w->cards->open_result = -ENODEV;
    begin(w, (struct sl_devices_options){0});
    uint64_t expected = S;
    for (unsigned i = 1; i <= 9; i++) {
        until(w, w->no_drivers == i);
        assert_int_equal(w->retry_ns, expected);
        expected = expected * 2 > 60 * S ? 60 * S : expected * 2;
        pass(w, w->retry_ns - 1);
        assert_int_equal(cards_get(w->cards, opens), i);
        if (i == 9)
            cards_set(w->cards, open_result, 0);
        pass(w, 1);
    }
    until(w, w->inventories == 1);
}

/* A card that is lost keeps its name, its place and its MIG devices, and is asked for through a
 * fresh NVML, which sees it when it is back. */
static void test_lost_card(void **state)
{
    struct world *w = *state;
    cards_add_mig(w->cards, 0, "MIG-a", 1, 0);
    begin(w, (struct sl_devices_options){0});
    until(w, w->inventories == 1);
    cards_set(w->cards, card[0].lost, true);
    sl_devices_refresh(w->devices);
    until(w, w->inventories == 2);
    assert_int_equal(w->inv->gpu_count, 2);
    assert_true(w->inv->gpu[0].lost);
    assert_string_equal(w->inv->gpu[0].info.uuid, "GPU-0");
    assert_int_equal(w->inv->gpu[0].mig_count, 1);
    assert_false(w->inv->gpu[1].lost);
    assert_int_equal(cards_get(w->cards, opens), 1);
    cards_set(w->cards, card[0].lost, false);
    pass(w, 30 * S);
    until(w, w->inventories == 3);
    assert_false(w->inv->gpu[0].lost);
    assert_int_equal(cards_get(w->cards, opens), 2);
    assert_int_equal(cards_get(w->cards, closes), 1);
}

/* The driver lists one card less, and the others move up. */
static void test_vanished_card(void **state)
{
    struct world *w = *state;
    begin(w, (struct sl_devices_options){0});
    until(w, w->inventories == 1);
    pthread_mutex_lock(&w->cards->lock);
    w->cards->count = 1;
    strcpy(w->cards->card[0].uuid, "GPU-1");
    pthread_mutex_unlock(&w->cards->lock);
    sl_devices_refresh(w->devices);
    until(w, w->inventories == 2);
    assert_int_equal(w->inv->gpu_count, 2);
    assert_string_equal(w->inv->gpu[0].info.uuid, "GPU-0");
    assert_true(w->inv->gpu[0].lost);
    assert_string_equal(w->inv->gpu[1].info.uuid, "GPU-1");
    assert_false(w->inv->gpu[1].lost);
    cards_raise(w->cards, 0, 48, SL_GPU_NO_INSTANCE, SL_GPU_NO_INSTANCE);
    until(w, w->xids == 1);
    assert_string_equal(w->xid_uuid, "GPU-1"); /* number 0 is another card now */
}

static void test_never_seen_card(void **state)
{
    struct world *w = *state;
    w->cards->card[1].lost = true;
    begin(w, (struct sl_devices_options){0});
    until(w, w->inventories == 1);
    assert_int_equal(w->inv->gpu_count, 1);
    assert_int_equal(w->troubles, 1);
    assert_non_null(strstr(w->text, "1 GPUs do not answer"));
    pass(w, 30 * S);
    until(w, w->polls == 2);
    assert_int_equal(w->troubles, 1); /* once */
    cards_set(w->cards, card[1].lost, false);
    pass(w, 30 * S);
    until(w, w->inventories == 2);
    assert_int_equal(w->inv->gpu_count, 2);
}

/* The others keep the driver's numbers, whatever their place. */
static void test_never_seen_first_card(void **state)
{
    struct world *w = *state;
    w->cards->card[0].lost = true;
    begin(w, (struct sl_devices_options){0});
    until(w, w->inventories == 1);
    assert_int_equal(w->inv->gpu_count, 1);
    assert_string_equal(w->inv->gpu[0].info.uuid, "GPU-1");
    assert_int_equal(w->inv->gpu[0].index, 1);
}

static void test_read_fails(void **state)
{
    struct world *w = *state;
    begin(w, (struct sl_devices_options){0});
    until(w, w->inventories == 1);
    cards_set(w->cards, count_result, -EIO);
    sl_devices_refresh(w->devices);
    until(w, w->troubles == 1);
    assert_int_equal(sl_devices_inventory(w->devices)->gpu_count, 2);
    unsigned opens = cards_get(w->cards, opens);
    pass(w, 1 * S);
    while (cards_get(w->cards, opens) == opens) /* through a fresh NVML */
        assert_int_equal(sl_loop_step(w->loop, 10, NULL), 0);
    cards_set(w->cards, count_result, 0);
    cards_set(w->cards, open_result, -ENODEV);
    for (int i = 0; i < 8 && w->no_drivers == 0; i++) {
        sl_sleep_ns(20 * SL_NS_PER_MS);
        pass(w, 2 * S);
    }
    until(w, w->no_drivers == 1);
    assert_true(w->retry_ns > 0);
    cards_set(w->cards, open_result, 0);
    unsigned polls = w->polls;
    pass(w, 60 * S);
    until(w, w->polls > polls);
    assert_int_equal(w->inventories, 1); /* the same cards as before */
}

static void test_xids(void **state)
{
    struct world *w = *state;
    begin(w, (struct sl_devices_options){0});
    cards_raise(w->cards, 1, 79, SL_GPU_NO_INSTANCE, SL_GPU_NO_INSTANCE);
    until(w, w->xids == 1); /* also one from before the first snapshot has its card's name */
    assert_int_equal(w->inventories, 1);
    assert_string_equal(w->xid_uuid, "GPU-1");
    assert_int_equal(w->xid, 79);
    unsigned polls = w->polls;
    cards_raise(w->cards, 99, 79, SL_GPU_NO_INSTANCE, SL_GPU_NO_INSTANCE);
    until(w, w->xids == 2);
    assert_string_equal(w->xid_uuid, "none");
    until(w, w->polls > polls); /* which one? */
}

static void test_no_events(void **state)
{
    struct world *w = *state;
    w->cards->events_result = -EOPNOTSUPP;
    begin(w, (struct sl_devices_options){0});
    until(w, w->troubles == 1);
    assert_non_null(strstr(w->text, "XIDs cannot be read"));
    assert_non_null(strstr(w->text, "no events here"));
    assert_int_equal(w->inventories, 1);
    until(w, w->polls == 2); /* a card that is gone shows that way: it looked */
    for (int i = 0; i < 5; i++)
        assert_int_equal(sl_loop_step(w->loop, 10, NULL), 0);
    assert_int_equal(w->troubles, 1);
}

/* The event thread hangs: polls go on, also where a card is lost and NVML should be opened anew. */
static void test_events_hang(void **state)
{
    struct world *w = *state;
    w->cards->events_hang = true;
    begin(w, (struct sl_devices_options){0});
    until(w, w->polls == 1);
    while (cards_get(w->cards, hanging) == 0)
        sl_sleep_ns(SL_NS_PER_MS);
    cards_set(w->cards, card[0].lost, true);
    sl_devices_refresh(w->devices);
    until(w, w->inventories == 2);
    sl_devices_refresh(w->devices);
    until(w, w->polls == 3);
    assert_int_equal(cards_get(w->cards, closes), 0);
    cards_set(w->cards, events_hang, false);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_snapshots),
        CASE(test_hang),
        CASE(test_jobs),
        CASE(test_jobs_behind_a_hang),
        CASE(test_leave_a_hanging_thread),
        CASE(test_no_nvml_fails),
        CASE(test_empty_driver_root),
        CASE(test_no_nvml_tries_on),
        CASE(test_lost_card),
        CASE(test_vanished_card),
        CASE(test_never_seen_card),
        CASE(test_never_seen_first_card),
        CASE(test_read_fails),
        CASE(test_xids),
        CASE(test_no_events),
        CASE(test_events_hang),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return left_behind ? failed : 1;
}
