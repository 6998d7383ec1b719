/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_wait.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "cli/errors.h"

/* Arbiters in a row that ended, or did not start, before they told us our place. */
#define ATTEMPTS  5
/* An arbiter that dies again and again is not restarted faster than this. */
#define PAUSE_NS  (500 * SL_NS_PER_MS)
/* A new reason at the same place is not worth a line more often than this. */
#define REMARK_NS (10 * SL_NS_PER_S)

struct wait {
    struct sl_msg_waiting last;
    uint32_t printed_place;
    uint64_t printed_ns;
    bool told; /* by the present arbiter */
};

int sl_run_wait_check(const char *wait, struct sl_err *err)
{
    uint64_t ignored;
    return wait && wait[0] ? sl_parse_duration(wait, &ignored, err) : 0;
}

static void notice(void *arg, const struct sl_msg_waiting *now)
{
    struct wait *w = arg;
    bool news = now->place != w->printed_place || sl_now_ns() - w->printed_ns >= REMARK_NS;
    w->told = true;
    w->last = *now;
    if (now->turn || !news)
        return;
    w->printed_place = now->place;
    w->printed_ns = sl_now_ns();
    sl_cli_complain(SL_E_RUN_WAITING, now->place, now->count, now->why);
}

static uint64_t deadline_of(const char *wait)
{
    uint64_t ns = 0;
    return wait[0] && sl_parse_duration(wait, &ns, NULL) == 0 ? sl_now_ns() + ns : UINT64_MAX;
}

int sl_run_wait(const struct sl_world *world, const struct sl_msg_lease *lease, const char *wait,
                struct sl_msg_created *ret, struct sl_err *err)
{
    struct wait state = {.told = false};
    struct sl_client_wait how = {.deadline_ns = deadline_of(wait), .notice = notice, .arg = &state};
    uint64_t began_ns = 0;
    int rc = -ECONNRESET;
    for (int failed = 0; failed < ATTEMPTS; failed = state.told ? 0 : failed + 1) {
        if (began_ns && sl_now_ns() - began_ns < PAUSE_NS)
            sl_sleep_ns(PAUSE_NS);
        began_ns = sl_now_ns();
        state.told = false;
        int fd = sl_world_start(world, err);
        rc = fd < 0 ? fd : sl_client_create_waiting(fd, lease, &how, ret, err);
        if (rc == 0)
            return fd;
        if (fd >= 0)
            (void)close(fd);
        bool stood = state.last.count > 0; /* then a start that fails is tried again */
        if (rc != -ECONNRESET && !(fd < 0 && stood))
            break;
    }
    if (rc == -ETIME) {
        struct sl_err over = *err;
        return sl_err_set(err, rc, SL_E_RUN_WAIT_OVER, over.msg, wait, state.last.place,
                          state.last.count, state.last.why);
    }
    return rc;
}
