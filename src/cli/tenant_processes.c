/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tenant_processes.h"

#include <errno.h>

#include "base/cleanup.h"
#include "cli/errors.h"

int sl_tenant_processes(const struct sl_arbiter_dir *place, int *fd, const char *name,
                        struct sl_msg_process **ret, size_t *ret_count, struct sl_err *err)
{
    int pid = sl_client_peer_pid(*fd);
    int rc = sl_client_processes(*fd, name, ret, ret_count, err);
    if (rc != -ECONNRESET)
        return rc;
    sl_cleanup_close(fd);
    *fd = sl_client_connect(place, NULL);
    /* The same process still serves: it did not end, it did not know the question. */
    if (*fd >= 0 && pid > 0 && sl_client_peer_pid(*fd) == pid)
        return sl_err_set(err, -EOPNOTSUPP, SL_E_PROCESSES_UNTOLD, pid);
    return rc;
}
