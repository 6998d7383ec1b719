/* SPDX-License-Identifier: Apache-2.0 */
/* Event sets: subscribe to cards, sleep until one of them has something to say. */
#include "sim/nvml_internal.h"

#include <stdlib.h>

#include "base/cleanup.h"

#define EVENT_SET_MAGIC 0x534c4556u
#define EVENT_TYPES                                                                                \
    (nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | nvmlEventTypePState |       \
     nvmlEventTypeXidCriticalError | nvmlEventTypeClock | nvmlEventMigConfigChange)

struct nvmlEventSet_st {
    uint32_t magic;
    uint32_t next; /* card to look at first: no card can drown the others */
    uint64_t types[SL_SIM_MAX_DEVICES];
    uint64_t position[SL_SIM_MAX_DEVICES];
};

NV_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                        unsigned long long *types)
{
    ENTER(nvmlDeviceGetSupportedEventTypes);
    uint32_t i;
    REQUIRE(types);
    TRY(nv_card(device, &i));
    *types = EVENT_TYPES;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    ENTER(nvmlEventSetCreate);
    REQUIRE(set);
    struct nvmlEventSet_st *s = calloc(1, sizeof(*s));
    if (!s)
        return NVML_ERROR_MEMORY;
    s->magic = EVENT_SET_MAGIC;
    *set = s;
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    ENTER(nvmlEventSetFree);
    REQUIRE(set && set->magic == EVENT_SET_MAGIC);
    set->magic = 0;
    free(set);
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                                nvmlEventSet_t set)
{
    ENTER(nvmlDeviceRegisterEvents);
    uint32_t i;
    REQUIRE(set && set->magic == EVENT_SET_MAGIC);
    TRY(nv_card(device, &i));
    if (types & ~EVENT_TYPES)
        return NVML_ERROR_NOT_SUPPORTED;
    if (set->types[i] == 0)
        set->position[i] = nv_event_position(i); /* what happened before is not told */
    set->types[i] |= types;
    return NVML_SUCCESS;
}

static bool next_event(struct nvmlEventSet_st *set, nvmlEventData_t *data)
{
    uint32_t count = (uint32_t)nv_spec()->count;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = (set->next + k) % count;
        struct nv_event e;
        while (set->types[i] && nv_event_next(i, &set->position[i], &e)) {
            if (!(e.type & set->types[i]))
                continue;
            *data = (nvmlEventData_t){nv_card_handle(i), e.type, e.data, e.gpu_instance,
                                      e.compute_instance};
            set->next = (i + 1) % count;
            return true;
        }
    }
    return false;
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    REQUIRE(set && set->magic == EVENT_SET_MAGIC && data);
    bool any = false;
    for (size_t i = 0; i < SL_SIM_MAX_DEVICES; i++)
        any |= set->types[i] != 0;
    if (!any)
        return NVML_ERROR_INVALID_ARGUMENT; /* nothing registered: it would never wake */
    uint64_t end_ms = nv_now_ms() + timeout_ms;
    for (;;) {
        uint32_t ticket = nv_event_ticket();
        if (next_event(set, data))
            return NVML_SUCCESS;
        uint64_t now_ms = nv_now_ms();
        if (now_ms >= end_ms)
            return NVML_ERROR_TIMEOUT;
        nv_event_sleep(ticket, (int64_t)(end_ms - now_ms));
    }
}

NV_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data,
                                        unsigned int timeout_ms)
{
    ENTER(nvmlEventSetWait);
    nvmlEventData_t full;
    REQUIRE(data);
    TRY(wait_event(set, &full, timeout_ms));
    *data = (nvmlEventData_v1_t){full.device, full.eventType, full.eventData};
    return NVML_SUCCESS;
}

NV_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                           unsigned int timeout_ms)
{
    ENTER(nvmlEventSetWait_v2);
    return wait_event(set, data, timeout_ms);
}
