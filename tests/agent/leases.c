/* SPDX-License-Identifier: Apache-2.0 */
/* The arbiter's client in the agent's loop: an arbiter that accepts nobody, and several questions in a row. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/tenant/leases.h"
#include "base/clock.h"
#include "shm/packet.h"

static struct sl_loop *loop;
static struct sl_leases *leases;
static char dir[] = "/tmp/sluice-leases-XXXXXX";
static unsigned answers;
static int last_rc;
static bool inside; /* a call that asks is under way */

static void done(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    assert_true(!inside || data);
    assert_true(status || err->msg[0]);
    answers++;
    last_rc = status ? 0 : err->code;
}

static void ask(void)
{
    inside = true;
    sl_leases_status(leases, false, done, NULL);
    inside = false;
}

static void step_until(unsigned count)
{
    uint64_t end = sl_now_ns() + 20 * SL_NS_PER_S;
    while (answers < count && sl_now_ns() < end)
        assert_int_equal(sl_loop_step(loop, 10, NULL), 0);
    assert_int_equal(answers, count);
}

static int setup(void **state)
{
    struct sl_err err = SL_ERR_INIT;
    (void)state;
    (void)alarm(60); /* a loop that waits for the arbiter waits for ever */
    answers = 0;
    return sl_loop_create(NULL, &loop, &err) |
           sl_leases_create(loop, dir, 300 * SL_NS_PER_MS, &leases, &err);
}

static int teardown(void **state)
{
    (void)state;
    sl_leases_destroy(leases);
    sl_loop_destroy(loop);
    return 0;
}

/* Stopped, with as many waiting to be accepted as may. */
static void an_arbiter_that_accepts_nobody(void **state)
{
    (void)state;
    char path[100];
    int waiting[64], count = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, SL_CONTROL_SOCKET);
    int listener = sl_packet_listen(path, 2, NULL);
    assert_true(listener >= 0);
    while (count < 64 && (waiting[count] = sl_packet_connect_now(path, NULL)) >= 0)
        count++;
    assert_in_range(count, 1, 63);
    assert_int_equal(waiting[count], -EAGAIN);
    ask();
    ask();
    assert_int_equal(answers, 0);
    step_until(2);
    assert_int_equal(last_rc, -ETIMEDOUT);
    for (int i = 0; i < count; i++)
        (void)close(waiting[i]);
    (void)close(listener);
    (void)unlink(path);
}

/* Whoever cannot wait is told at once, and is not told what it gave up on. */
static void no_arbiter_at_all(void **state)
{
    (void)state;
    static int impatient;
    inside = true;
    sl_leases_status(leases, true, done, &impatient);
    inside = false;
    assert_int_equal(answers, 1);
    assert_int_equal(last_rc, -ENOENT);
    sl_leases_status(leases, false, done, &impatient);
    ask();
    sl_leases_forget(leases, &impatient);
    step_until(2);
    assert_int_equal(last_rc, -ETIMEDOUT);
}

static char said[200];      /* what the arbiter was asked, in order */
static const char *refused; /* the question that it refuses, as `said` has it */
static int ends;

static void ended(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    assert_true(rc == 0 || err->msg[0]);
    ends++;
    last_rc = rc;
}

/* An arbiter that answers one question. */
static void answer(int fd)
{
    union sl_packet p, a = {0};
    char text[80];
    size_t n = strlen(said);
    if (sl_packet_recv(fd, &p, NULL, NULL) < 0)
        return;
    (void)snprintf(text, sizeof(text), "%s %s",
                   p.h.type == SL_MSG_CREATE ? "make"
                   : p.h.type == SL_MSG_SET  ? "set"
                                             : "remove",
                   p.lease.name);
    (void)snprintf(said + n, sizeof(said) - n, "%s%s", n ? ", " : "", text);
    enum sl_msg_type type = p.h.type == SL_MSG_CREATE ? SL_MSG_CREATED : SL_MSG_OK;
    if (refused && strcmp(refused, text) == 0) {
        type = SL_MSG_ERROR;
        a.text.code = -EBUSY;
        (void)snprintf(a.text.text, sizeof(a.text.text), "no");
    }
    sl_packet_init(&a.h, type, sl_packet_size(type));
    assert_int_equal(sl_packet_send(fd, &a.h, NULL, 0, NULL), 0);
}

/* Asked one after the other; the first that is refused is the last. */
static void several_in_a_row(void **state)
{
    (void)state;
    static const struct sl_msg_lease a = {.name = "a"}, b = {.name = "b"};
    static const struct sl_leases_item make[] = {
        {SL_MSG_CREATE, &a, NULL}, {SL_MSG_CREATE, &b, NULL}, {SL_MSG_SET, &b, NULL}};
    static const struct sl_leases_item drop[] = {{SL_MSG_REMOVE, &a, NULL},
                                                 {SL_MSG_REMOVE, &b, NULL}};
    static const struct {
        const struct sl_leases_item *items;
        size_t count;
        const char *refused, *said;
    } row[] = {
        {make, 3, NULL, "make a, make b, set b"},
        {make, 3, "make a", "make a"},
        {make, 3, "make b", "make a, make b"},
        {make, 3, "set b", "make a, make b, set b"},
        {drop, 2, NULL, "remove a, remove b"},
        {drop, 2, "remove a", "remove a"},
        {make, 0, NULL, ""},
    };
    char path[100];
    int fd = -1;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, SL_CONTROL_SOCKET);
    int listener = sl_packet_listen(path, 2, NULL);
    assert_true(listener >= 0);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        said[0] = '\0';
        ends = 0;
        refused = row[i].refused;
        sl_leases_ask(leases, row[i].items, row[i].count, ended, NULL);
        uint64_t end = sl_now_ns() + 20 * SL_NS_PER_S;
        while (!ends && sl_now_ns() < end) {
            if (fd < 0)
                fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0)
                answer(fd);
            assert_int_equal(sl_loop_step(loop, 10, NULL), 0);
        }
        assert_int_equal(ends, 1);
        assert_string_equal(said, row[i].said);
        assert_int_equal(last_rc, refused ? -EBUSY : 0);
    }
    (void)close(fd);
    (void)close(listener);
    (void)unlink(path);
}

/* Refusals stay refusals; the rest is asked again, fast at first. */
static void failures_that_may_pass(void **state)
{
    (void)state;
    static const int passing[] = {-ETIMEDOUT, -EAGAIN, -ENOSPC, -EMFILE, -EIO};
    static const int refusals[] = {0, -EINVAL, -ENOENT, -EPERM, -EFBIG, -ENOTSUP, -EEXIST};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        assert_true(sl_leases_may_pass(passing[i]));
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        assert_false(sl_leases_may_pass(refusals[i]));
    assert_int_equal(sl_leases_again_ns(1), SL_NS_PER_S);
    assert_int_equal(sl_leases_again_ns(SL_LEASES_TRIES - 1), SL_NS_PER_S);
    assert_int_equal(sl_leases_again_ns(SL_LEASES_TRIES), 10 * SL_NS_PER_S);
    assert_int_equal(sl_leases_again_ns(UINT32_MAX), 10 * SL_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_arbiter_that_accepts_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(no_arbiter_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(several_in_a_row, setup, teardown),
        cmocka_unit_test(failures_that_may_pass),
    };
    if (!mkdtemp(dir))
        return 1;
    int rc = cmocka_run_group_tests_name("leases", tests, NULL, NULL);
    (void)rmdir(dir);
    return rc;
}
