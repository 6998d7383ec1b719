/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes and removes vGPUs as the configuration says, one at a time: first the offer is without a vGPU that leaves, then
 * kubelet says who holds what, then one step is taken, then sysfs is read again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/agent_internal.h"
#include "agent/dra/device_name.h"
#include "agent/vm/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/xalloc.h"

/* What waits for a pod, for kubelet or for the driver is tried again. */
#define AGAIN_NS (5 * SL_NS_PER_S)

struct asking {
    struct sl_agent *a;
    const struct sl_podres_map *map;
};

static bool held(void *data, const char *id)
{
    const struct asking *q = data;
    for (size_t i = 0; i < q->map->device_count; i++)
        if (strcmp(q->map->device[i].id, id) == 0)
            return true;
    return q->a->dra && sl_dra_vm_held(q->a->dra, id);
}

/* A claim on a card for containers; the device of a virtual machine is none of them. */
static bool is_card_claim(const struct sl_podres_claim *c)
{
    struct sl_device_name name;
    bool ours = strcmp(c->driver, SL_DRA_DRIVER) == 0 || strcmp(c->driver, SL_NVIDIA_DRIVER) == 0;
    return ours && (sl_device_name_parse(c->device, &name, NULL) < 0 || name.kind != SL_DEVICE_VM);
}

static bool busy(void *data, const char *address)
{
    const struct asking *q = data;
    const struct sl_inventory *inv = sl_devices_inventory(q->a->devices);
    for (size_t i = 0; i < q->map->device_count; i++) {
        const char *uuid = sl_agent_gpu_of(inv, q->map->device[i].id);
        size_t g = uuid ? sl_inventory_find(inv, uuid) : SIZE_MAX;
        char card[SL_PCI_ADDRESS_SIZE];
        if (g != SIZE_MAX && sl_pci_address_from_nvml(inv->gpu[g].info.pci_bus_id, card) &&
            strcmp(card, address) == 0)
            return true;
    }
    /* A claim may be on any card: wait until there is none. */
    for (size_t i = 0; i < q->map->claim_count; i++)
        if (is_card_claim(&q->map->claim[i]))
            return true;
    return false;
}

static bool nobody(void *data, const char *what)
{
    (void)data;
    (void)what;
    return false;
}

void sl_agent_vgpu_input(const struct sl_agent *a, struct sl_vgpu_input *ret)
{
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    size_t types = 0;
    struct sl_vgpu_card *card = sl_xcalloc(inv ? inv->gpu_count + 1 : 1, sizeof(*card));
    *ret = (struct sl_vgpu_input){.wanted = &a->config->vm.vgpu,
                                  .tree = sl_vm_tree_last(a->vm),
                                  .types = sl_vm_types(a->vm, &types),
                                  .card = card,
                                  .made = a->vgpu_made.id,
                                  .made_count = a->vgpu_made.count,
                                  .held = nobody,
                                  .busy = nobody,
                                  .new_uuid = a->vgpu_uuid};
    ret->type_count = types;
    for (size_t g = 0; inv && g < inv->gpu_count; g++) {
        struct sl_vgpu_card *c = &card[ret->card_count];
        (void)snprintf(c->uuid, sizeof(c->uuid), "%s", inv->gpu[g].info.uuid);
        ret->card_count += sl_pci_address_from_nvml(inv->gpu[g].info.pci_bus_id, c->address);
    }
}

static void again(struct sl_agent *a)
{
    sl_timer_set(a->loop, &a->vgpu_again, sl_loop_now(a->loop) + AGAIN_NS);
}

static void say(struct sl_agent *a, const char *text)
{
    if (strcmp(a->vgpu_said, text) == 0)
        return;
    (void)snprintf(a->vgpu_said, sizeof(a->vgpu_said), "%s", text);
    if (*text)
        sl_agent_say(a, SL_EVENT_WARNING, "VGPUWaits", "%s", text);
}

static void done(void *data, const struct sl_vgpu_step *step, int result, const struct sl_err *err)
{
    struct sl_agent *a = data;
    bool make = step->kind == SL_VGPU_MAKE;
    a->vgpu_stepping = false;
    if (result < 0) {
        if (make)
            sl_vgpu_made_drop(&a->vgpu_made, step->id);
        say(a, err->msg);
        again(a);
        return;
    }
    if (!make)
        sl_vgpu_made_drop(&a->vgpu_made, step->id);
    sl_agent_say(a, SL_EVENT_NORMAL, make ? "VGPUMade" : "VGPURemoved", "vGPU %s %s on card %s: %s",
                 step->type, step->id, step->card, make ? "made" : "removed");
    a->vgpu_unseen = true;
    again(a); /* in case that sysfs shows no change */
    sl_vm_refresh(a->vm);
}

static int random_uuid(char ret[SL_MDEV_UUID_SIZE])
{
    unsigned char b[16];
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return -EIO;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    for (size_t i = 0, n = 0; i < sizeof(b); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            ret[n++] = '-';
        n += (size_t)snprintf(ret + n, 3, "%02x", b[i]);
    }
    return 0;
}

static void take_step(struct sl_agent *a, const struct sl_podres_map *map)
{
    struct asking q = {a, map};
    struct sl_vgpu_input in;
    struct sl_vgpu_step step;
    struct sl_err err = SL_ERR_INIT;
    if (random_uuid(a->vgpu_uuid) < 0) {
        again(a);
        return;
    }
    sl_agent_vgpu_input(a, &in);
    in.held = held;
    in.busy = busy;
    in.data = &q;
    sl_vgpu_next(&in, &step);
    free((void *)(uintptr_t)in.card);
    say(a, step.waits);
    if (step.kind == SL_VGPU_NOTHING) {
        if (step.waits[0])
            again(a);
        return;
    }
    /* On a virtual function, the number of the type is what is written. */
    unsigned long type = sl_pci_address_valid(step.id) ? strtoul(step.text, NULL, 10) : 0;
    if (step.kind == SL_VGPU_MAKE &&
        sl_vgpu_made_add(&a->vgpu_made, step.id, (unsigned)type, &err) < 0) {
        char text[600];
        (void)snprintf(text, sizeof(text), SL_E_VGPU_UNSAVED, err.msg);
        say(a, text);
        again(a);
        return;
    }
    /* kubelet lists a pod a moment after Allocate has answered: what was given away just now counts as held. */
    if (step.kind == SL_VGPU_REMOVE && sl_loop_now(a->loop) - a->vm_allocated_ns < AGAIN_NS) {
        again(a);
        return;
    }
    a->vgpu_stepping = true;
    sl_vm_apply(a->vm, &step, done);
}

static void answered(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    struct sl_agent *a = data;
    a->vgpu_asking = false;
    if (!map || err) {
        char text[600];
        (void)snprintf(text, sizeof(text), SL_E_VGPU_BLIND, err ? err->msg : "");
        say(a, text);
        again(a);
    } else if (a->vm && !a->vgpu_stepping) {
        take_step(a, map);
    }
}

void sl_agent_vgpu_look(struct sl_agent *a)
{
    if (!a->vm || !sl_vm_tree_last(a->vm) || a->vgpu_asking || a->vgpu_stepping ||
        (a->config->vm.vgpu.count == 0 && a->vgpu_made.count == 0))
        return;
    a->vgpu_asking = true;
    sl_timer_stop(a->loop, &a->vgpu_again);
    sl_podres_fresh(sl_agent_vm_podres(a), answered, a);
}

static void look_again(struct sl_timer *timer)
{
    sl_agent_vgpu_look(sl_container_of(timer, struct sl_agent, vgpu_again));
}

void sl_agent_vgpu_open(struct sl_agent *a)
{
    a->vgpu_again.fire = look_again;
    if (!a->vgpu_made.file[0])
        sl_vgpu_made_open(a->opt.state_dir, &a->vgpu_made);
}

void sl_agent_vgpu_close(struct sl_agent *a)
{
    sl_timer_stop(a->loop, &a->vgpu_again);
    sl_podres_destroy(a->vgpu_podres);
    sl_vgpu_made_clear(&a->vgpu_made);
}
