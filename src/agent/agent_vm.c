/* SPDX-License-Identifier: Apache-2.0 */
/* Devices for virtual machines: from sysfs to device plugins of their own, and away from containers. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/log.h"

/* --- which cards containers may have -------------------------------------------------------------- */

/* The card of a UUID, also of a MIG device's; NULL: none. */
static const struct sl_inv_gpu *card_of(const struct sl_inventory *inv, const char *uuid)
{
    for (size_t g = 0; inv && g < inv->gpu_count; g++) {
        if (strcmp(inv->gpu[g].info.uuid, uuid) == 0)
            return &inv->gpu[g];
        for (size_t m = 0; m < inv->gpu[g].mig_count; m++)
            if (strcmp(inv->gpu[g].mig[m].info.uuid, uuid) == 0)
                return &inv->gpu[g];
    }
    return NULL;
}

bool sl_agent_vm_takes(const struct sl_agent *a, const char *uuid)
{
    const struct sl_inv_gpu *card = card_of(sl_devices_inventory(a->devices), uuid);
    char address[SL_PCI_ADDRESS_SIZE];
    if (!card || !sl_pci_address_from_nvml(card->info.pci_bus_id, address))
        return false;
    /* While an offer replaces another, a card of either is not for containers. */
    return sl_vm_offer_takes(a->vm_offer, address) || sl_vm_offer_takes(a->vm_next, address);
}

bool sl_agent_card_ok(const struct sl_agent *a, const char *uuid)
{
    return sl_health_ok(a->health, uuid) && !a->vm_waits && !sl_agent_vm_takes(a, uuid);
}

/* --- the offer ------------------------------------------------------------------------------------ */

static const struct sl_vm_device *find(const struct sl_vm_offer *offer,
                                       const struct sl_vm_device *d)
{
    for (size_t i = 0; offer && i < offer->device_count; i++)
        if (strcmp(offer->device[i].id, d->id) == 0 &&
            strcmp(offer->device[i].resource, d->resource) == 0)
            return &offer->device[i];
    return NULL;
}

static void say_devices(struct sl_agent *a, const struct sl_vm_offer *old,
                        const struct sl_vm_offer *now)
{
    for (size_t i = 0; old && i < old->device_count; i++)
        if (!find(now, &old->device[i]))
            sl_info("%s is no longer offered to virtual machines as %s", old->device[i].id,
                    old->device[i].resource);
    for (size_t i = 0; i < now->device_count; i++) {
        const struct sl_vm_device *d = &now->device[i], *before = find(old, d);
        if (!d->healthy && (!before || strcmp(before->why, d->why) != 0))
            sl_agent_say(a, SL_EVENT_WARNING, "VMDeviceUnhealthy", "%s", d->why);
        else if (d->healthy && (!before || !before->healthy))
            sl_info("%s is offered to virtual machines as %s", d->id, d->resource);
    }
}

static void say_warnings(struct sl_agent *a, const struct sl_vm_offer *old,
                         const struct sl_vm_offer *now)
{
    for (size_t i = 0; i < now->plan.warning_count; i++) {
        bool known = false;
        for (size_t k = 0; old && k < old->plan.warning_count; k++)
            known |= strcmp(old->plan.warning[k], now->plan.warning[i]) == 0;
        if (!known)
            sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", "%s", now->plan.warning[i]);
    }
}

/* The old offer ends before containers get a card, and containers lose a card before the new offer begins. */
static void replace(struct sl_agent *a, struct sl_vm_offer *next)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_vm_offer *old = a->vm_offer;
    a->vm_next = next;
    a->vm_waits = false;
    sl_agent_publish_cards(a);
    if (sl_plugins_apply(a->vm_plugins, &next->plan, &next->inv, &err) < 0)
        sl_agent_say(a, SL_EVENT_WARNING, "DevicePluginFailed", "%s", err.msg);
    if (a->dra)
        sl_dra_vm(a->dra, next, a->config);
    say_devices(a, old, next);
    say_warnings(a, old, next);
    a->vm_offer = next;
    a->vm_next = NULL;
    sl_vm_offer_free(old);
    sl_agent_publish_cards(a);
}

void sl_agent_vm_again(struct sl_agent *a)
{
    size_t types = 0;
    const struct sl_vm_tree *tree = a->vm ? sl_vm_tree_last(a->vm) : NULL;
    if (!tree || sl_agent_config_waits(a))
        return;
    struct sl_vgpu_input vgpu;
    const struct sl_vgpu_type *type = sl_vm_types(a->vm, &types);
    if (!a->vgpu_stepping && !a->vgpu_unseen) /* a vGPU that is being made is not there yet */
        sl_vgpu_made_prune(&a->vgpu_made, tree);
    sl_agent_vgpu_input(a, &vgpu);
    struct sl_vm_offer *next = sl_vm_offer_make(&a->config->vm, tree, type, types, &vgpu);
    free((void *)(uintptr_t)vgpu.card);
    sl_agent_vm_way_set(a, next);
    replace(a, next);
    sl_agent_vm_way_look(a);
    sl_agent_vgpu_look(a);
}

/* The cards that the driver for containers has now. */
static uint64_t driver_cards(const struct sl_vm_tree *tree)
{
    uint64_t hash = 1469598103934665603ULL;
    for (size_t i = 0; i < tree->function_count; i++) {
        const struct sl_vm_function *f = &tree->function[i];
        if (!sl_vm_is_card(f) || f->parent[0] || strcmp(f->driver, "nvidia") != 0)
            continue;
        for (const char *c = f->address; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
    }
    return hash;
}

static void changed(void *data, const struct sl_vm_tree *tree)
{
    struct sl_agent *a = data;
    uint64_t cards = driver_cards(tree);
    a->vgpu_unseen = false; /* the thread that reads takes the steps: the tree is younger */
    sl_agent_vm_again(a);
    /* A card has come to the driver, or has left it: NVML does not notice while it is open. */
    if (a->vm_driver_cards && a->vm_driver_cards != cards && a->devices)
        sl_devices_rescan(a->devices);
    a->vm_driver_cards = cards;
}

/* Where there is no sysfs to read, no virtual machine has a card by us. */
static void trouble(void *data, const struct sl_err *err)
{
    struct sl_agent *a = data;
    sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", "%s", err->msg);
    if (!a->vm_waits)
        return;
    a->vm_waits = false;
    if (a->dra)
        sl_dra_await_vm(a->dra, false);
    sl_agent_publish_cards(a);
}

static void stalled(void *data, uint64_t for_ns)
{
    sl_agent_say(data, SL_EVENT_WARNING, "SysfsStalled",
                 "sysfs has not answered for %llu s: the agent keeps what it knows of devices for "
                 "virtual machines",
                 (unsigned long long)(for_ns / 1000000000U));
}

static void resumed(void *data, uint64_t after_ns)
{
    sl_agent_say(data, SL_EVENT_NORMAL, "SysfsResumed", "sysfs answers again, after %llu s",
                 (unsigned long long)(after_ns / 1000000000U));
}

static int allocate(void *data, const struct sl_plan_resource *res, const char *const *ids,
                    size_t n, struct sl_edits *edits, struct sl_err *err)
{
    struct sl_agent *a = data;
    a->vm_allocated_ns = sl_loop_now(a->loop);
    return sl_vm_allocate(a->vm_offer, res->name, ids, n, edits, err);
}

/* --- start and end -------------------------------------------------------------------------------- */

static int open_plugins(struct sl_agent *a, struct sl_err *err)
{
    const struct sl_plugins_options options = {.kubelet_socket = a->config->kubelet_socket,
                                               .share_policy = SL_POLICY_PACKED,
                                               .allocate = allocate,
                                               .notice = sl_agent_notice,
                                               .data = a};
    return a->vm_plugins ? 0 : sl_plugins_create(a->loop, &options, &a->vm_plugins, err);
}

int sl_agent_vm_open(struct sl_agent *a, struct sl_err *err)
{
    static const struct sl_vm_ops ops = {
        .changed = changed, .trouble = trouble, .stalled = stalled, .resumed = resumed};
    const struct sl_vm_options options = {.root = a->opt.vm_root, .state_dir = a->opt.state_dir};
    if (!a->config->vm.enabled)
        return 0;
    int rc = open_plugins(a, err);
    if (rc == 0)
        rc = sl_vm_create(a->loop, &options, &ops, a, &a->vm, err);
    if (rc < 0)
        return rc;
    /* Until sysfs is read, a card of the driver may be one that has vGPUs. */
    a->vm_waits = !a->vm_offer;
    if (a->dra && a->vm_waits)
        sl_dra_await_vm(a->dra, true);
    sl_agent_vgpu_open(a);
    sl_agent_vm_way_check(a);
    sl_vm_pci_ids(a->vm, a->config->vm.pci_ids);
    return 0;
}

void sl_agent_vm_reload(struct sl_agent *a)
{
    struct sl_err err = SL_ERR_INIT;
    static const struct sl_config_vm off;
    static const struct sl_vm_tree nothing;
    if (a->vm && !a->config->vm.enabled) {
        sl_timer_stop(a->loop, &a->vm_again);
        sl_vm_destroy(a->vm);
        a->vm = NULL;
        a->vm_driver_cards = 0;
        a->vgpu_stepping = false; /* nobody reports the step now */
        replace(a, sl_vm_offer_make(&off, &nothing, NULL, 0, NULL));
    } else if (!a->vm) {
        if (sl_agent_vm_open(a, &err) < 0)
            sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", "%s", err.msg);
    } else {
        sl_vm_pci_ids(a->vm, a->config->vm.pci_ids);
        sl_agent_vm_way_check(a);
        sl_agent_vm_again(a);
    }
}

void sl_agent_vm_offer(struct sl_agent *a)
{
    if (a->vm && !a->vm_offer)
        sl_agent_vm_again(a);
}

void sl_agent_vm_close(struct sl_agent *a)
{
    sl_timer_stop(a->loop, &a->vm_again);
    sl_agent_vgpu_close(a);
    sl_vm_destroy(a->vm);
    sl_plugins_destroy(a->vm_plugins);
    sl_vm_offer_free(a->vm_offer);
}

bool sl_agent_vm_ready(const struct sl_agent *a)
{
    return !a->vm || (a->vm_offer && sl_plugins_ready(a->vm_plugins));
}
