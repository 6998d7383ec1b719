/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the simulated libnvidia-ml. nvml_core.c owns handles and the entry check; nvml_state.c is
 * the only file that knows how the simulation's shared state is laid out; the rest is the API.
 */
#ifndef SLUICE_SIM_NVML_INTERNAL_H
#define SLUICE_SIM_NVML_INTERNAL_H

#include <stdbool.h>

#include "abi/nvml.h"
#include "sim/mig.h"
#include "sim/profiles.h"

#define NV_EXPORT __attribute__((visibility("default")))

/* ---- functions by number ---- */

enum nv_fn {
#define NVML_FN(name, since, params) FN_##name,
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
        FN_COUNT
};

/* What every entry point does first: an injected fault, a function the simulated driver is too old
 * for, or a library not initialised, in that order. */
nvmlReturn_t nv_enter(enum nv_fn fn);

#define ENTER(name)                                                                                \
    do {                                                                                           \
        nvmlReturn_t entered_ = nv_enter(FN_##name);                                               \
        if (entered_ != NVML_SUCCESS)                                                              \
            return entered_;                                                                       \
    } while (0)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
    } while (0)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        nvmlReturn_t tried_ = (call);                                                              \
        if (tried_ != NVML_SUCCESS)                                                                \
            return tried_;                                                                         \
    } while (0)

/* ---- handles ----
 *
 * A handle points into a static table, so any pointer a caller passes can be checked for being one
 * without being followed. */

/* A card, or with is_mig the compute instance on (gi, ci). */
struct nv_target {
    uint32_t index; /* of the card */
    bool is_mig;
    uint32_t gi, ci; /* slots */
};

/* Any device handle, card or MIG; lost cards answer GPU_IS_LOST. */
nvmlReturn_t nv_target(nvmlDevice_t handle, struct nv_target *ret);

/* A card only: a MIG handle is an invalid argument, as most calls have it. */
nvmlReturn_t nv_card(nvmlDevice_t handle, uint32_t *ret_index);
nvmlReturn_t nv_gi(nvmlGpuInstance_t handle, uint32_t *ret_index, uint32_t *ret_gi);
nvmlReturn_t nv_ci(nvmlComputeInstance_t handle, uint32_t *ret_index, uint32_t *ret_gi,
                   uint32_t *ret_ci);

nvmlDevice_t nv_card_handle(uint32_t index);
nvmlDevice_t nv_mig_handle(uint32_t index, uint32_t gi, uint32_t ci);
nvmlGpuInstance_t nv_gi_handle(uint32_t index, uint32_t gi);
nvmlComputeInstance_t nv_ci_handle(uint32_t index, uint32_t gi, uint32_t ci);

/* Copies text into a caller's buffer, INSUFFICIENT_SIZE when it does not fit with its NUL. */
nvmlReturn_t nv_copy_text(char *buf, unsigned int length, const char *text);

void nv_fill_pci(const struct sl_sim_device *dev, nvmlPciInfo_t *out);

static inline const struct sl_sim_profile *nv_profile(const struct sl_sim_device *dev)
{
    return sl_sim_profile_at(dev->profile);
}

/* ---- shared state (nvml_state.c) ---- */

struct nv_process {
    uint32_t pid;
    uint64_t used_bytes;
    uint32_t gpu_instance, compute_instance; /* ids, or NVML_NO_INSTANCE */
    bool mps;
};

/* How much of a period a process (pid 0: everybody) kept a card busy. */
struct nv_sample {
    uint32_t pid;
    uint64_t timestamp_us;
    uint32_t sm_percent, memory_percent;
};

struct nv_event {
    uint64_t type, data;
    uint32_t gpu_instance, compute_instance;
};

/* Finds the simulation (starting its state if nobody has) and keeps it until detach. */
nvmlReturn_t nv_state_attach(void);
void nv_state_detach(void);

const struct sl_sim_spec *nv_spec(void);

/* The cards this process sees, numbered as NVML numbers them for it; decided when it starts. */
uint32_t nv_seen_count(void);
uint32_t nv_seen(uint32_t position); /* a card's index */
bool nv_sees(uint32_t index);
uint32_t nv_position(uint32_t index); /* of a card it sees */
bool nv_sees_mig(uint32_t index, uint32_t gi_id, uint32_t ci_id);
bool nv_lost(uint32_t index);

/* Memory in use on a card by everybody. */
uint64_t nv_used_bytes(uint32_t index);

/* Fills up to room entries; returns how many there are. */
size_t nv_processes(uint32_t index, struct nv_process *out, size_t room);

/* The same inside one MIG instance, and whether anybody is in a compute instance. */
uint64_t nv_mig_used_bytes(uint32_t index, uint32_t gpu_instance);
bool nv_mig_in_use(uint32_t index, uint32_t gpu_instance, uint32_t compute_instance);

/* Errors injected so far: type 0 corrected, 1 uncorrected. */
uint64_t nv_ecc_errors(uint32_t index, uint32_t type);

/* Whether any process has a context on the card. */
bool nv_in_use(uint32_t index);

/* Share of the last second a card ran kernels, and samples of it. Memory traffic is not modelled:
 * memory_percent is 0. */
uint32_t nv_busy_percent(uint32_t index);
size_t nv_device_samples(uint32_t index, uint64_t since_us, struct nv_sample *out, size_t room);
size_t nv_process_samples(uint32_t index, uint64_t since_us, struct nv_sample *out, size_t room);

/* Modes shared by everybody: compute mode, persistence. */
uint32_t nv_compute_mode(uint32_t index);
void nv_set_compute_mode(uint32_t index, uint32_t mode);
uint32_t nv_persistence(uint32_t index);
void nv_set_persistence(uint32_t index, uint32_t mode);

/* A copy of a card's MIG state, or exclusive access to the state itself. */
struct sl_sim_mig_state nv_mig(uint32_t index);
struct sl_sim_mig_state *nv_mig_lock(uint32_t index);
void nv_mig_unlock(uint32_t index); /* and the capability files follow */

/* Events, card by card: a position in the stream, and what comes after one. */
uint64_t nv_event_position(uint32_t index);
bool nv_event_next(uint32_t index, uint64_t *position, struct nv_event *ret);

/* Take a ticket, look for events, and sleep: returns early when one came since the ticket (or when
 * it is time to look again). */
uint32_t nv_event_ticket(void);
void nv_event_sleep(uint32_t ticket, int64_t at_most_ms);
uint64_t nv_now_ms(void);

/* The injected result for this call of a function, or NVML_SUCCESS. */
nvmlReturn_t nv_fault(const char *function);

/* Driver branch to imitate ("abi=470"), or 0 for all functions. */
uint32_t nv_abi_branch(void);

#endif
