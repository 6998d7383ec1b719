/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/status_view.h"
#include "cli/status_words.h"
#include "cli/table.h"
#include "cli/tenant_processes.h"
#include "cli/world.h"

/* Without --sim, names the simulated worlds that are alive: a user who forgot --sim would look in vain. */
static void mention_simulated(const struct sl_arbiter_dir *place, FILE *out)
{
    SL_CLEANUP(closedir) DIR *d = place->sim[0] ? NULL : opendir(place->dir);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        struct sl_arbiter_dir other;
        char dir[sizeof(other.dir)];
        if (strncmp(e->d_name, "sim-", 4) != 0 ||
            (size_t)snprintf(dir, sizeof(dir), "%s/%s", place->dir, e->d_name) >= sizeof(dir) ||
            sl_arbiter_dir_find(dir, NULL, &other, NULL) < 0)
            continue;
        SL_CLEANUP(close) int fd = sl_client_connect(&other, NULL);
        if (fd >= 0)
            (void)fprintf(out, "Tenants of simulated GPUs are shown by: sluice status --dir %s\n",
                          dir);
    }
}

/* What was asked for on the command line. */
struct request {
    struct sl_world world;
    const char *name; /* of one tenant; NULL: all */
    bool json, wide;
};

static int unknown_tenant(const struct sl_client_status *status, const char *name,
                          struct sl_err *err)
{
    const char *close = sl_status_closest(status, name);
    if (close)
        return sl_err_set(err, -ENOENT, SL_E_TENANT_UNKNOWN_NEAR, name, close);
    return sl_err_set(err, -ENOENT, SL_E_TENANT_UNKNOWN_HERE, name);
}

static int show_tenant(const struct request *q, const struct sl_status_view *view, int *fd,
                       bool colour, FILE *out, struct sl_err *err)
{
    struct sl_status_detail d = {.tenant = sl_status_tenant(view->status, q->name)};
    struct sl_msg_process *list = NULL;
    if (!d.tenant)
        return unknown_tenant(view->status, q->name, err);
    int rc = sl_tenant_processes(&q->world.place, fd, q->name, &list, &d.process_count, err);
    if (rc == -ENOENT) /* it ended after the status */
        return unknown_tenant(view->status, q->name, err);
    if (rc < 0 && rc != -EOPNOTSUPP)
        return rc;
    d.untold = rc < 0 ? err->msg : NULL;
    d.processes = list;
    if (q->json)
        sl_status_tenant_json(view, &d, out);
    else
        sl_status_tenant_text(view, &d, out, colour);
    free(list);
    return 0;
}

static void show_all(const struct request *q, const struct sl_status_view *view, bool colour,
                     FILE *out)
{
    if (q->json) {
        sl_status_json(view, out);
    } else if (view->running) {
        sl_status_text(view, out, colour, q->wide);
    } else if (q->world.place.system) {
        (void)fprintf(out,
                      "The system's arbiter (%s) does not run. `systemctl start sluice-arbiter` "
                      "starts it.\n",
                      q->world.place.dir);
    } else {
        (void)fprintf(out,
                      "No arbiter is running in %s, so there are no tenants. `sluice run` "
                      "starts the arbiter.\n",
                      q->world.place.dir);
        mention_simulated(&q->world.place, out);
    }
}

/* One look: 0, or a negative code with err. No arbiter is an answer to somebody who asks for all tenants. */
static int look(const struct request *q, bool colour, FILE *out, struct sl_err *err)
{
    struct sl_client_status status = {0};
    SL_CLEANUP(close) int fd = sl_client_connect(&q->world.place, err);
    int rc = fd < 0 ? fd : sl_client_status(fd, &status, err);
    bool running = rc != -ENOENT && rc != -ECONNRESET; /* reset: it left while we asked */
    if (rc < 0 && running)
        return rc;
    if (rc < 0 && q->name) {
        struct sl_err why = *err;
        return sl_err_set(err, rc, SL_E_TENANT_NO_ARBITER, why.msg, q->name);
    }
    struct sl_status_view view = {.dir = q->world.place.dir,
                                  .running = running,
                                  .arbiter_pid = running ? sl_client_peer_pid(fd) : 0,
                                  .status = &status};
    /* A directory that was named may be a simulated world without our having said so. */
    char cards[sizeof(q->world.place.sim)];
    (void)snprintf(cards, sizeof(cards), "%s", q->world.place.sim);
    if (!cards[0] && sl_world_arbiter_cards(view.arbiter_pid, cards, sizeof(cards)) < 0)
        cards[0] = '\0';
    view.sim = cards[0] ? cards : NULL;
    rc = 0;
    if (q->name)
        rc = show_tenant(q, &view, &fd, colour, out, err);
    else
        show_all(q, &view, colour, out);
    sl_client_status_free(&status);
    return rc;
}

static int watch(const struct request *q, struct sl_err *err)
{
    bool terminal = isatty(STDOUT_FILENO) == 1 && !q->json;
    for (;;) {
        /* Draw the whole text first, then show it at once: no flicker. */
        SL_CLEANUP(free) char *text = NULL;
        size_t size = 0;
        FILE *page = sl_xmemstream(&text, &size);
        int rc = look(q, sl_table_colour(stdout), page, err);
        sl_xmemstream_close(page);
        if (rc < 0)
            return rc;
        if (terminal)
            (void)fputs("\033[H\033[2J", stdout);
        (void)fwrite(text, 1, size, stdout);
        if (fflush(stdout) != 0)
            return sl_err_errno(err, errno, "cannot write the output");
        sl_sleep_ns(SL_NS_PER_S);
    }
}

int sl_cmd_status(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    struct request q = {.name = args->rest[0],
                        .json = sl_cli_value(args, "json"),
                        .wide = sl_cli_value(args, "wide")};
    if (args->rest_count > 1) {
        sl_cli_complain(SL_E_STATUS_TWO_NAMES);
        return SL_EXIT_USAGE;
    }
    int rc = sl_world_find(args, &q.world, &err);
    if (rc == 0 && sl_cli_value(args, "watch"))
        rc = watch(&q, &err);
    else if (rc == 0)
        rc = look(&q, sl_table_colour(stdout), stdout, &err);
    if (rc == 0)
        return sl_cli_finish(SL_EXIT_OK);
    if (rc != -EPIPE)
        sl_cli_complain("status: %s", err.msg);
    return SL_EXIT_FAILED;
}
