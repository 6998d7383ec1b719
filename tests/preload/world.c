/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_process world_process = {.mode = SL_MODE_TENANT, .doorbell_fd = -1};
struct sl_lease_page world_lease;
struct sl_ledger_page world_ledger;

static char state_file[64];

static const struct {
    const char *name;
    enum sl_library library;
} symbols[SL_SYMBOL_COUNT] = {
#define SL_HOOK(symbol, lib) [SL_SYMBOL_##symbol] = {#symbol, SL_LIBRARY_##lib},
#include "preload/hooks.def"
#define SL_USE(symbol, lib) [SL_SYMBOL_##symbol] = {#symbol, SL_LIBRARY_##lib},
#include "preload/hooks.def"
};

const char *world_name(enum sl_symbol symbol)
{
    return symbols[symbol].name;
}

static void format_uuid(const CUuuid *u, char *text)
{
    text += sprintf(text, "GPU-");
    for (size_t i = 0; i < sizeof(u->bytes); i++)
        text += sprintf(text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                        (unsigned char)u->bytes[i]);
}

void world_open(const char *spec, uint64_t limit_bytes)
{
    CUuuid uuid;
    (void)snprintf(state_file, sizeof(state_file), "/tmp/sluice-preload-%d.state", (int)getpid());
    (void)setenv("SLUICE_SIM", spec, 1);
    (void)setenv("SLUICE_SIM_STATE", state_file, 1);
    world_lease.magic = SL_LEASE_MAGIC;
    world_lease.gpu_count = 1;
    atomic_store(&world_lease.window_ns, 4000000);
    atomic_store(&world_lease.priority, SL_PRIORITY_NORMAL);
    world_limit(limit_bytes);
    struct stat st;
    world_process.doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(fstat(world_process.doorbell_fd, &st), 0);
    world_process.doorbell_device = st.st_dev;
    world_process.doorbell_inode = st.st_ino;
    atomic_store(&world_process.lease, &world_lease);
    atomic_store(&world_process.ledger, &world_ledger);
    atomic_store(&world_process.slot, 7);
    atomic_store(&sl_process_current, &world_process);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
    format_uuid(&uuid, world_lease.gpu[0].uuid);
    world_restore();
}

void world_close(void)
{
    (void)unlink(state_file);
    (void)close(world_process.doorbell_fd);
}

void world_limit(uint64_t bytes)
{
    atomic_store(&world_lease.gpu[0].memory_limit_bytes, bytes);
}

void world_gate(uint32_t turn, enum sl_gate state)
{
    atomic_store(&world_lease.gate, SL_GATE_WORD(turn, state));
}

uint64_t world_used_bytes(void)
{
    return sl_charge_budget(&world_process, 0).used_bytes;
}

static int fails(void)
{
    return 999; /* CUDA_ERROR_UNKNOWN, and NVML's */
}

void world_answer(enum sl_symbol symbol, void *function)
{
    atomic_store(&sl_real_cache[symbol], function);
}

void world_missing(enum sl_symbol symbol)
{
    world_answer(symbol, SL_REAL_MISSING);
}

void world_failing(enum sl_symbol symbol)
{
    world_answer(symbol, (void *)(uintptr_t)fails);
}

void world_restore(void)
{
    for (int i = 0; i < SL_SYMBOL_COUNT; i++)
        world_answer((enum sl_symbol)i, NULL); /* looked up anew when it is called */
}
