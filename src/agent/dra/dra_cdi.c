/* SPDX-License-Identifier: Apache-2.0 */
/* The edits for the containers of a prepared claim. */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "container/cdi.h"
#include "agent/dra/errors.h"
#include "base/xalloc.h"

static void device_word(const struct sl_prepared_device *d, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s-%s", d->request, d->device);
}

void sl_dra_cdi_name(const struct sl_prepared *p, const struct sl_prepared_device *d, char *buf,
                     size_t size)
{
    char word[140];
    device_word(d, word, sizeof(word));
    if (sl_cdi_name(SL_CDI_CLAIM, p->uid, word, buf, size, NULL) < 0)
        buf[0] = '\0';
}

/* A new MIG device is in no inventory yet: make a small inventory for it. */
static int mig_edits(struct sl_dra *dra, size_t gpu, const struct sl_prepared_device *d,
                     struct sl_edits *e, struct sl_err *err)
{
    struct sl_inv_mig mig = {.info = {.gpu_instance = d->mig_gpu_instance,
                                      .compute_instance = d->mig_compute_instance,
                                      .placement_start = d->mig_start,
                                      .placement_size = d->mig_size}};
    memcpy(mig.info.uuid, d->mig_uuid, sizeof(mig.info.uuid));
    (void)snprintf(mig.info.profile, sizeof(mig.info.profile), "%s", d->mig_profile);
    struct sl_inv_gpu card = dra->inv->gpu[gpu];
    card.mig = &mig;
    card.mig_count = 1;
    card.info.mig_enabled = true;
    struct sl_inventory one = *dra->inv;
    one.gpu = &card;
    one.gpu_count = 1;
    one.nvlinks = NULL;
    return sl_cdi_device_edits(dra->driver, &one, 0, 0, e, err);
}

static int mps_edits(struct sl_dra *dra, const struct sl_prepared_device *d, struct sl_edits *e,
                     struct sl_err *err)
{
    struct sl_share now = sl_prepared_share(d);
    char text[64];
    if (!dra->ops.mps)
        return sl_err_set(err, -EOPNOTSUPP, SL_E_CLAIM_NO_MPS, d->request);
    int rc = dra->ops.mps(dra->data, d->share.gpu, e, err);
    if (rc < 0)
        return rc;
    /* The daemon knows an upper bound only. */
    (void)snprintf(text, sizeof(text), "%u", (now.limit_permille + 9) / 10);
    if (now.limit_permille) /* of a whole card, where its claim names it */
        sl_edits_env(e, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", text);
    (void)snprintf(text, sizeof(text), "0=%lluM", (unsigned long long)(now.memory_bytes >> 20));
    if (now.memory_bytes)
        sl_edits_env(e, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", text);
    return 0;
}

static int device_edits(struct sl_dra *dra, const struct sl_prepared *p, size_t i,
                        struct sl_edits *e, struct sl_err *err)
{
    const struct sl_prepared_device *d = &p->device[i];
    char attach[512];
    if (sl_dra_is_vm(d))
        return sl_dra_vm_edits(dra, p, i, e, err);
    size_t gpu = sl_inventory_find(dra->inv, d->share.gpu);
    if (gpu == SIZE_MAX)
        return sl_err_set(err, -ENOENT, SL_E_CLAIM_GPU_GONE, d->share.gpu);
    if (d->mig != SL_MIG_NO)
        return mig_edits(dra, gpu, d, e, err);
    int rc = sl_cdi_device_edits(dra->driver, dra->inv, gpu, SL_NO_MIG, e, err);
    if (rc == 0 && !d->admin && d->share.strategy == SL_SHARE_MPS)
        rc = mps_edits(dra, d, e, err);
    /* The request's other devices come with this one; its tenant is mounted once. */
    if (rc == 0 && sl_dra_first_of_tenant(p, i)) {
        (void)snprintf(attach, sizeof(attach), "%s/k/%s", dra->opt.arbiter_dir_host, d->tenant);
        rc = sl_cdi_sluice_edits(dra->opt.sluice_dir_host, attach, e, err);
    }
    return rc;
}

int sl_dra_write_spec(void *data, struct sl_err *err)
{
    struct op *op = data;
    struct sl_dra *dra = op->dra;
    const struct sl_prepared *p = sl_dra_op_entry(op);
    size_t n = p->device_count;
    struct sl_cdi_device *devices = sl_xcalloc(n, sizeof(*devices));
    struct sl_edits common = {0};
    int rc = 0;
    bool driver = false;
    for (size_t i = 0; i < n; i++)
        driver |= !sl_dra_is_vm(&p->device[i]);
    if (driver)
        sl_cdi_common_edits(dra->driver, &common);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = device_edits(dra, p, i, &devices[i].edits, err);
        device_word(&p->device[i], devices[i].name, sizeof(devices[i].name));
    }
    if (rc == 0)
        rc = sl_cdi_write(dra->opt.cdi_dir, SL_CDI_CLAIM, p->uid, devices, n, &common, err);
    for (size_t i = 0; i < n; i++)
        sl_edits_clear(&devices[i].edits);
    sl_edits_clear(&common);
    free(devices);
    return rc;
}
