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
#include "cli/table.h"
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

/* One look: 0, or a negative code with err. "No arbiter runs" is an answer, not an error. */
static int look(const struct sl_world *world, bool json, bool colour, FILE *out, struct sl_err *err)
{
    struct sl_client_status status = {0};
    SL_CLEANUP(close) int fd = sl_client_connect(&world->place, err);
    int rc = fd < 0 ? fd : sl_client_status(fd, &status, err);
    bool running = rc != -ENOENT && rc != -ECONNRESET; /* reset: the arbiter left while we asked */
    if (rc < 0 && running)
        return rc;
    struct sl_status_view view = {.dir = world->place.dir,
                                  .running = running,
                                  .arbiter_pid = running ? sl_client_peer_pid(fd) : 0,
                                  .status = &status};
    /* A directory that --dir names may be a simulated world, also without --sim. */
    char cards[sizeof(world->place.sim)];
    (void)snprintf(cards, sizeof(cards), "%s", world->place.sim);
    if (!cards[0] && sl_world_arbiter_cards(view.arbiter_pid, cards, sizeof(cards)) < 0)
        cards[0] = '\0';
    view.sim = cards[0] ? cards : NULL;
    if (json) {
        sl_status_json(&view, out);
    } else if (running) {
        sl_status_text(&view, out, colour);
    } else {
        (void)fprintf(out,
                      "No arbiter is running in %s, so there are no tenants. `sluice run` "
                      "starts the arbiter.\n",
                      world->place.dir);
        mention_simulated(&world->place, out);
    }
    sl_client_status_free(&status);
    return 0;
}

static int watch(const struct sl_world *world, bool json, struct sl_err *err)
{
    bool terminal = isatty(STDOUT_FILENO) == 1 && !json;
    for (;;) {
        /* Draw the whole text first, then show it at once: no flicker. */
        SL_CLEANUP(free) char *text = NULL;
        size_t size = 0;
        FILE *page = sl_xmemstream(&text, &size);
        int rc = look(world, json, sl_table_colour(stdout), page, err);
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
    struct sl_world world;
    bool json = sl_cli_value(args, "json");
    int rc = sl_world_find(args, &world, &err);
    if (rc == 0 && sl_cli_value(args, "watch"))
        rc = watch(&world, json, &err);
    else if (rc == 0)
        rc = look(&world, json, sl_table_colour(stdout), stdout, &err);
    if (rc == 0)
        return sl_cli_finish(SL_EXIT_OK);
    if (rc != -EPIPE)
        sl_cli_complain("status: %s", err.msg);
    return SL_EXIT_FAILED;
}
