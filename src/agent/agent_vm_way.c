/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices for virtual machines go to pods by device plugins or by claims, all of a node one way. A pod that has a device
 * by the other way (the configuration changed, or the agent's options) keeps it, and nobody else gets it until that pod
 * has ended.
 */
#include <stdio.h>
#include <string.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/clock.h"
#include "base/container.h"

#define AGAIN_NS (5 * SL_NS_PER_S)

enum sl_vm_way sl_agent_vm_way(const struct sl_agent *a)
{
    enum sl_vm_by by = a->config->vm.by;
    bool claims = by == SL_VM_CLAIMS || (by == SL_VM_AUTO && a->opt.dra);
    /* Under NVIDIA's name the driver has the devices of NVIDIA's driver. */
    return claims && !a->opt.dra_names.nvidia ? SL_VM_BY_CLAIMS : SL_VM_BY_PLUGINS;
}

struct sl_podres *sl_agent_vm_podres(struct sl_agent *a)
{
    if (!a->vgpu_podres)
        a->vgpu_podres = sl_podres_create(a->loop, a->opt.podres_socket, 0);
    return a->vgpu_podres;
}

static const char *has_claim(void *data, const struct sl_vm_device *d)
{
    struct sl_agent *a = data;
    if (!a->dra || !sl_dra_vm_held(a->dra, d->id))
        return NULL;
    (void)snprintf(a->vm_text, sizeof(a->vm_text), SL_E_VM_HAS_CLAIM, d->id);
    return a->vm_text;
}

/* Only kubelet knows what it gave away by a plugin, maybe of an earlier agent. */
static const char *has_plugin(void *data, const struct sl_vm_device *d)
{
    struct sl_agent *a = data;
    const struct sl_vm_device *before = sl_vm_offer_find(a->vm_offer, d->id);
    if (before && a->vm_offer->way == SL_VM_BY_CLAIMS && !before->elsewhere)
        return NULL; /* asked about before, and no plugin has offered it since */
    if (!a->vm_map)
        return "";
    size_t i = 0;
    while (i < a->vm_map->device_count && strcmp(a->vm_map->device[i].id, d->id) != 0)
        i++;
    if (i == a->vm_map->device_count)
        return NULL;
    (void)snprintf(a->vm_text, sizeof(a->vm_text), SL_E_VM_HAS_PLUGIN, d->id);
    return a->vm_text;
}

void sl_agent_vm_way_set(struct sl_agent *a, struct sl_vm_offer *next)
{
    enum sl_vm_way way = sl_agent_vm_way(a);
    sl_vm_offer_by(next, way, way == SL_VM_BY_CLAIMS ? has_plugin : has_claim, a);
}

static void again(struct sl_agent *a)
{
    sl_timer_set(a->loop, &a->vm_again, sl_loop_now(a->loop) + AGAIN_NS);
}

static void answered(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    struct sl_agent *a = data;
    a->vm_asking = false;
    if (!a->vm)
        return;
    if (!map || err) {
        if (!a->vm_blind)
            sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", SL_E_VM_BLIND, err ? err->msg : "");
        a->vm_blind = true;
        again(a);
        return;
    }
    a->vm_blind = false;
    /* kubelet lists a pod a moment after Allocate has answered. */
    if (a->vm_allocated_ns && sl_loop_now(a->loop) - a->vm_allocated_ns < AGAIN_NS) {
        again(a);
        return;
    }
    a->vm_map = map;
    sl_agent_vm_again(a);
    a->vm_map = NULL;
}

static void look(struct sl_timer *timer)
{
    struct sl_agent *a = sl_container_of(timer, struct sl_agent, vm_again);
    if (sl_agent_vm_way(a) != SL_VM_BY_CLAIMS)
        sl_agent_vm_again(a);
    else if (!a->vm_asking) {
        a->vm_asking = true;
        sl_podres_fresh(sl_agent_vm_podres(a), answered, a);
    }
}

void sl_agent_vm_way_look(struct sl_agent *a)
{
    bool waits = false;
    for (size_t i = 0; i < a->vm_offer->device_count; i++)
        waits |= a->vm_offer->device[i].elsewhere;
    a->vm_again.fire = look;
    if (!waits)
        sl_timer_stop(a->loop, &a->vm_again);
    else if (a->vm_map || a->vm_offer->way == SL_VM_BY_PLUGINS)
        again(a); /* this was an answer: a pod has it */
    else
        sl_timer_set(a->loop, &a->vm_again, sl_loop_now(a->loop));
}

void sl_agent_vm_way_check(struct sl_agent *a)
{
    if (a->config->vm.enabled && a->config->vm.by == SL_VM_CLAIMS && a->opt.dra_names.nvidia)
        sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", "%s", SL_E_VM_NVIDIA_NAME);
    if (a->config->vm.enabled && a->config->vm.by == SL_VM_CLAIMS && !a->opt.dra)
        sl_agent_say(a, SL_EVENT_WARNING, "VMDevices", "%s", SL_E_VM_NO_DRA);
}
