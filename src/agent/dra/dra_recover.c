/* SPDX-License-Identifier: Apache-2.0 */
/* After a restart: what the checkpoint has from before goes on, and what nobody knows of goes. */
#include "agent/dra/dra_op_internal.h"

#include <stdlib.h>
#include <string.h>

#include "agent/container/cdi.h"
#include "base/container.h"
#include "base/log.h"
#include "base/xalloc.h"

static void leftover_removed(void *data, int rc, const char *text, const struct sl_err *err)
{
    (void)data;
    (void)text;
    if (rc < 0)
        sl_warn("cannot remove a left-over tenant: %s", err->msg);
}

/* Tenants of claims that are not in the checkpoint. */
static void got_tenants(void *data, struct sl_client_status *status, const struct sl_err *err)
{
    struct sl_dra *dra = data;
    char claim[SL_UID_SIZE];
    if (!status) {
        sl_warn("cannot look for left-over tenants: %s", err->msg);
        return;
    }
    for (size_t i = 0; i < status->tenant_count; i++) {
        const struct sl_msg_tenant *t = &status->tenant[i];
        if ((t->flags & SL_LEASE_KEEP) && sl_client_about(t->about, "uid", claim, sizeof(claim)) &&
            !sl_checkpoint_find(&dra->checkpoint, claim))
            sl_leases_remove(dra->leases, t->name, leftover_removed, NULL);
    }
    sl_client_status_free(status);
}

static void remove_leftovers(struct sl_dra *dra)
{
    char **claims = NULL;
    size_t n = 0;
    struct sl_err err = SL_ERR_INIT;
    /* What a damaged checkpoint does not tell may be in use: only a good one is the whole truth. */
    if (dra->checkpoint.doubtful)
        return;
    if (sl_cdi_list_claims(dra->cdi_dir, &claims, &n, &err) < 0)
        sl_warn("cannot look for left-over CDI specs: %s", err.msg);
    for (size_t i = 0; i < n; i++)
        if (!sl_checkpoint_find(&dra->checkpoint, claims[i]) &&
            sl_cdi_remove_claim(dra->cdi_dir, claims[i], &err) < 0)
            sl_warn("cannot remove a left-over CDI spec: %s", err.msg);
    sl_cdi_free_claims(claims, n);
    sl_leases_status(dra->leases, got_tenants, dra);
}

static void recover_entries(struct sl_dra *dra, bool prepared_too)
{
    /* Operations change the list: by name, from a copy. */
    size_t n = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        n++;
    char(*uid)[SL_UID_SIZE] = sl_xcalloc(n, sizeof(*uid));
    size_t i = 0;
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        memcpy(uid[i++], p->uid, SL_UID_SIZE);
    for (i = 0; i < n; i++) {
        struct sl_prepared *p = sl_checkpoint_find(&dra->checkpoint, uid[i]);
        if (!p || (p->state == SL_PREPARED && !prepared_too))
            continue;
        bool busy = false;
        for (const struct op *o = dra->running; o; o = o->next)
            busy |= strcmp(o->uid, uid[i]) == 0;
        if (!busy)
            sl_dra_begin(dra, p->state == SL_PREPARED ? OP_PREPARE : OP_UNPREPARE, p->name_space,
                         p->name, uid[i], NULL, NULL);
    }
    free(uid);
}

void sl_dra_retry_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, retry);
    recover_entries(dra, false);
}

void sl_dra_recover(struct sl_dra *dra)
{
    if (dra->recovered)
        return;
    dra->recovered = true;
    recover_entries(dra, true);
    remove_leftovers(dra);
}
