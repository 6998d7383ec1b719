/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/fraction/fraction.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/cdi.h"
#include "agent/fraction/errors.h"
#include "agent/fraction/fraction_internal.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xalloc.h"

#define LEASE_NS (5 * SL_NS_PER_S) /* how long the arbiter may take */

void sl_fraction_say(struct sl_fraction *f, const char *what, const struct sl_err *err)
{
    char text[sizeof(f->said)];
    (void)snprintf(text, sizeof(text), "%s: %.300s", what, err->msg);
    if (strcmp(text, f->said) == 0)
        return;
    memcpy(f->said, text, sizeof(text));
    sl_warn("fractions: %s", text);
}

struct sl_fraction_slot *sl_fraction_find(const struct sl_fraction *f, const char *tenant)
{
    for (struct sl_fraction_slot *s = f->slots; s; s = s->next)
        if (strcmp(s->tenant, tenant) == 0)
            return s;
    return NULL;
}

void sl_fraction_slot_free(struct sl_fraction_slot *slot)
{
    sl_kube_cancel(slot->asking);
    sl_kube_cancel(slot->looking);
    free(slot);
}

bool sl_fraction_owner(const struct sl_fraction *f, const char *tenant,
                       struct sl_fraction_owner *ret)
{
    const struct sl_fraction_slot *s = sl_fraction_find(f, tenant);
    if (s)
        *ret = (struct sl_fraction_owner){s->space, s->pod, s->container};
    return s;
}

size_t sl_fraction_count(const struct sl_fraction *f)
{
    size_t n = 0;
    for (const struct sl_fraction_slot *s = f->slots; s; s = s->next)
        n++;
    return n;
}

/* --- the edits of a container ------------------------------------------------------------------------ */

int sl_fraction_allocate(const struct sl_config *config, const char *const *ids, size_t n,
                         struct sl_edits *edits, struct sl_err *err)
{
    char token[SL_DEVICE_ID_SIZE], name[SL_CDI_NAME_SIZE], key[128];
    unsigned how = config->list_strategy;
    int rc = sl_fraction_token(ids, n, token, err);
    if (rc == 0)
        rc = sl_cdi_name(SL_CDI_SLOT, token, "", name, sizeof(name), err);
    if (rc < 0)
        return rc;
    if (!(how & SL_LIST_CDI_ANNOTATIONS) || (how & SL_LIST_CDI_CRI)) {
        sl_edits_cdi(edits, name);
        return 0;
    }
    /* Annotations of a pod's containers are merged: each slot has its own key. */
    const char *prefix = config->cdi_annotation_prefix;
    (void)snprintf(key, sizeof(key), "%.80ssluice-slot_%016llx", prefix ? prefix : "cdi.k8s.io/",
                   (unsigned long long)sl_hash_text(token));
    sl_edits_annotation(edits, key, name);
    return 0;
}

/* --- life ---------------------------------------------------------------------------------------- */

int sl_fraction_create(struct sl_loop *loop, const struct sl_fraction_options *opt,
                       struct sl_kube *kube, struct sl_fraction **ret, struct sl_err *err)
{
    struct sl_fraction *f = sl_xcalloc(1, sizeof(*f));
    f->loop = loop;
    f->kube = kube;
    f->opt = *opt;
    f->podres = sl_podres_create(loop, f->opt.podres_socket, 0);
    int rc = sl_leases_create(loop, f->opt.arbiter_dir, LEASE_NS, &f->leases, err);
    if (rc < 0) {
        sl_fraction_destroy(f);
        return rc;
    }
    sl_fraction_sweep_timer(f);
    sl_fraction_load(f);
    *ret = f;
    return 0;
}

void sl_fraction_destroy(struct sl_fraction *f)
{
    if (!f)
        return;
    sl_podres_destroy(f->podres);
    sl_leases_destroy(f->leases);
    sl_timer_stop(f->loop, &f->timer);
    sl_timer_stop(f->loop, &f->look);
    sl_fraction_starts_end(f);
    while (f->slots) {
        struct sl_fraction_slot *s = f->slots;
        f->slots = s->next;
        sl_fraction_slot_free(s);
    }
    free(f);
}
