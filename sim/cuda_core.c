/* SPDX-License-Identifier: Apache-2.0 */
/* Start, the process lock, and faults on demand (SLUICE_SIM_FAULT). */
#include "sim/cuda_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/tree.h"

#define MAX_FAULTS 32

struct sim_process sim_p;
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool initialised;
static _Atomic bool have_faults;
static size_t fault_count;
static struct {
    char name[64]; /* "any" counts every call */
    unsigned long nth;
    int result;
    _Atomic unsigned long calls;
} faults[MAX_FAULTS];

/* Whoever keeps the lock while it waits: under process_lock. */
static _Thread_local char me;
static const char *keeper;
static pthread_cond_t kept_no_more = PTHREAD_COND_INITIALIZER;

void sim_lock(void)
{
    (void)pthread_mutex_lock(&process_lock);
    while (keeper && keeper != &me)
        (void)pthread_cond_wait(&kept_no_more, &process_lock);
}

void sim_keep_lock(bool keep)
{
    if (!sim_p.waits_locked)
        return;
    keeper = keep ? &me : NULL;
    (void)pthread_cond_broadcast(&kept_no_more);
}

void sim_unlock(void)
{
    (void)pthread_mutex_unlock(&process_lock);
}

uint64_t sim_next_id(void)
{
    return ++sim_p.next_id;
}

static void in_child(void)
{
    /* As with the real driver, a context does not survive fork: the child must say so, not wait on
     * locks that another thread of its parent held. */
    sim_p.forked = true;
    if (sim_p.mps.on)
        (void)close(sim_p.mps.fd); /* or the server would take us for our parent */
}

/* groups=refused[:slice|:disable][@N] | groups=inert[:slice][@N]: this process's controls on channel groups. */
static bool groups_fault_parse(const char *text)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } known[] = {{"refused", SL_SIM_GROUPS_REFUSE},
                 {"refused:slice", SL_SIM_GROUPS_REFUSE_SLICE},
                 {"refused:disable", SL_SIM_GROUPS_REFUSE_DISABLE},
                 {"inert", SL_SIM_GROUPS_INERT},
                 {"inert:slice", SL_SIM_GROUPS_INERT_SLICE}};
    size_t n = strcspn(text, "@");
    unsigned long from = 1;
    int end = 0;
    if (text[n] == '@' && (sscanf(text + n, "@%lu%n", &from, &end) != 1 || text[n + (size_t)end]))
        return false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i].name) == n && strncmp(known[i].name, text, n) == 0) {
            sim_rm_fault(known[i].bits, from);
            return true;
        }
    return false;
}

/* name:N=CUresult | lost:DEV@SECONDSs | slow:DEV=FACTORx | abi=VERSION | groups=
 * | copies=empty | waits=locked. Unknown ones are
 * refused by doing nothing loudly: a test that misspells its fault must notice. */
static bool fault_parse(char *text)
{
    unsigned int dev, version;
    double x;
    unsigned long nth;
    int result, n = -1;
    char name[64];
    struct sl_sim_state *st = sim_p.st;
    if (sscanf(text, "abi=%u%n", &version, &n) == 1 && n > 0 && text[n] == '\0') {
        sim_p.version = (int)version;
    } else if (sscanf(text, "lost:%u@%lfs", &dev, &x) == 2 && dev < st->card_count) {
        st->cards[dev].lost_at_ns = sl_sim_now_ns() + (uint64_t)(x * 1e9);
    } else if (sscanf(text, "slow:%u=%lfx", &dev, &x) == 2 && dev < st->card_count) {
        st->cards[dev].slow_permille = (uint32_t)(x * 1000);
    } else if (strncmp(text, "groups=", 7) == 0 && groups_fault_parse(text + 7)) {
        return true;
    } else if (strcmp(text, "copies=empty") == 0) {
        sim_p.copies_empty = true;
    } else if (strcmp(text, "waits=locked") == 0) {
        sim_p.waits_locked = true;
    } else if (sscanf(text, "%63[a-zA-Z0-9_]:%lu=%d", name, &nth, &result) == 3 &&
               fault_count < MAX_FAULTS) {
        memcpy(faults[fault_count].name, name, sizeof(name));
        faults[fault_count].nth = nth;
        faults[fault_count].result = result;
        fault_count++;
        atomic_store(&have_faults, true);
    } else {
        (void)fprintf(stderr, "SLUICE_SIM_FAULT: \"%s\" is not a fault\n", text);
        return false;
    }
    return true;
}

static bool faults_init(void)
{
    const char *env = getenv("SLUICE_SIM_FAULT");
    if (!env || !*env)
        return true;
    char *copy = strdup(env), *save = NULL;
    bool ok = copy != NULL;
    for (char *t = copy ? strtok_r(copy, ",", &save) : NULL; t && ok;
         t = strtok_r(NULL, ",", &save))
        ok = fault_parse(t);
    free(copy);
    return ok;
}

static CUresult fault_check(const char *name)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < fault_count; i++) {
        if (strcmp(faults[i].name, "any") != 0 && strcmp(faults[i].name, name) != 0)
            continue;
        if (atomic_fetch_add(&faults[i].calls, 1) + 1 == faults[i].nth)
            result = (CUresult)faults[i].result;
    }
    return result;
}

CUresult sim_enter(const char *name, bool need_init)
{
    if (need_init && (!atomic_load_explicit(&initialised, memory_order_acquire) || sim_p.forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (need_init && sim_mps_gone())
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (atomic_load_explicit(&have_faults, memory_order_relaxed))
        return fault_check(name);
    return CUDA_SUCCESS;
}

static CUresult init_locked(void)
{
    struct sl_err err = SL_ERR_INIT;
    if (!sl_sim_sees_node("nvidiactl"))
        return CUDA_ERROR_NO_DEVICE;
    if (!sl_sim_sees_node("nvidia-uvm"))
        return CUDA_ERROR_UNKNOWN; /* what the real one says, too */
    if (sl_sim_open(&sim_p.st, &err) < 0) {
        (void)fprintf(stderr, "simulated libcuda: %s\n", err.msg);
        return CUDA_ERROR_NO_DEVICE;
    }
    CUresult joined = sim_mps_join();
    if (joined != CUDA_SUCCESS)
        return joined;
    sl_sim_lock(sim_p.st);
    int slot = sl_sim_register(sim_p.st);
    sim_p.version = (int)(sim_p.st->driver_version_override ? sim_p.st->driver_version_override
                                                            : sim_p.st->spec_parsed.cuda_version);
    bool ok = slot >= 0 && faults_init();
    sl_sim_unlock(sim_p.st);
    if (!ok) {
        sim_mps_leave();
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    sim_p.slot = (uint32_t)slot;
    sim_choose_devices();
    if (sim_p.count == 0) {
        sim_mps_leave();
        return CUDA_ERROR_NO_DEVICE;
    }
    (void)pthread_atfork(NULL, NULL, in_child);
    atomic_store_explicit(&initialised, true, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult sim_init(void)
{
    if (sim_p.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    (void)pthread_mutex_lock(&init_lock);
    CUresult r = atomic_load(&initialised) ? CUDA_SUCCESS : init_locked();
    (void)pthread_mutex_unlock(&init_lock);
    return r;
}

CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = sim_init();
    return r != CUDA_SUCCESS ? r : sim_enter(__func__, false);
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SL_CUDA_ABI_VERSION;
    if (atomic_load(&initialised)) {
        *version = sim_p.version;
        return CUDA_SUCCESS;
    }
    /* Answered before cuInit, as the real one does: only the environment can change it. */
    const char *env = getenv("SLUICE_SIM_FAULT");
    const char *abi = env ? strstr(env, "abi=") : NULL;
    if (abi)
        *version = atoi(abi + 4);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = NULL;
    switch (error) {
#define SIM_CASE(name, value, text)                                                                \
    case name:                                                                                     \
        *pStr = #name;                                                                             \
        return CUDA_SUCCESS;
        SL_CUDA_RESULTS(SIM_CASE)
#undef SIM_CASE
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    *pStr = NULL;
    switch (error) {
#define SIM_CASE(name, value, text)                                                                \
    case name:                                                                                     \
        *pStr = text;                                                                              \
        return CUDA_SUCCESS;
        SL_CUDA_RESULTS(SIM_CASE)
#undef SIM_CASE
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerStart(void)
{
    ENTER();
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    ENTER();
    return CUDA_SUCCESS;
}
