/* SPDX-License-Identifier: Apache-2.0 */
/* The edits that a container needs for simulated GPUs besides the two libraries: the machine's state and the place of
 * its nodes. The root's file `sluice-sim` describes the simulation. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/driver_internal.h"
#include "container/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"

#define MARK_MAX_BYTES  65536
#define STATE_CONTAINER "/run/sluice-sim/state"

void sl_driver_sim_variable(struct sl_edits *edits, const char *name, const char *value)
{
    if (strcmp(name, "SLUICE_SIM_STATE") == 0) {
        sl_edits_mount(edits, value, STATE_CONTAINER, false);
        value = STATE_CONTAINER;
    }
    /* A path to a file of cards makes sense only on the node; the state has the cards already. */
    if (strcmp(name, "SLUICE_SIM") != 0 || !strchr(value, '/'))
        sl_edits_env(edits, name, value);
}

/* The path of the state is the host's; a relative path is inside the root. */
static int add_state(struct sl_driver *d, const char *value, struct sl_err *err)
{
    char host[PATH_MAX];
    int rc = value[0] == '/' ? sl_driver_join(host, "/", value, err)
                             : sl_driver_join(host, d->root_host, value, err);
    if (rc < 0)
        return rc;
    sl_driver_sim_variable(&d->files, "SLUICE_SIM_STATE", host);
    return 0;
}

static int add_line(struct sl_driver *d, char *line, struct sl_err *err)
{
    char *value = strchr(line, '=');
    if (line[0] == '#' || line[0] == '\0')
        return 0;
    if (!value || strncmp(line, "SLUICE_SIM", strlen("SLUICE_SIM")) != 0)
        return sl_err_set(err, -EINVAL, SL_E_SIM_ROOT_LINE, d->root, line);
    *value++ = '\0';
    if (strcmp(line, "SLUICE_SIM_STATE") == 0)
        return add_state(d, value, err);
    sl_driver_sim_variable(&d->files, line, value);
    return 0;
}

int sl_driver_find_simulation(struct sl_driver *d, struct sl_err *err)
{
    char path[PATH_MAX];
    SL_CLEANUP(free) char *text = NULL;
    int rc = sl_driver_join(path, d->root, "sluice-sim", err);
    if (rc == 0)
        rc = sl_fs_read(AT_FDCWD, path, MARK_MAX_BYTES, &text, NULL, err);
    if (rc < 0)
        return rc;
    char *rest = text;
    for (char *line; rc == 0 && (line = strsep(&rest, "\n"));)
        rc = add_line(d, line, err);
    if (rc == 0)
        sl_edits_env(&d->files, "SLUICE_SIM_DEV", "/dev");
    return rc;
}
