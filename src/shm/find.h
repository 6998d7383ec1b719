/* SPDX-License-Identifier: Apache-2.0 */
/* Has the node's agent mounted a tenant's socket here (SL_ATTACH_DEFAULT)? */
#ifndef SLUICE_SHM_FIND_H
#define SLUICE_SHM_FIND_H

enum sl_attach_found {
    SL_ATTACH_NONE,    /* no */
    SL_ATTACH_FOREIGN, /* no: another user's arbiter has the directory, closed to us */
    SL_ATTACH_MOUNTED, /* yes */
    SL_ATTACH_GONE, /* its directory is mounted, and the socket is not in it: the tenant is over */
    SL_ATTACH_HIDDEN, /* not known; to be on the safe side: yes. errno says why */
};

enum sl_attach_found sl_attach_find(void);

#endif
