/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the simulated NVML: loads it, and makes processes that use the cards. */
#ifndef SLUICE_TESTS_NVML_TEST_H
#define SLUICE_TESTS_NVML_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "sim/engine.h"
#include "sim/nvml_shared.h"
#include "sim/state.h"

struct nvml_api {
#define NVML_FN(name, since, params) __typeof__(&(name)) name;
    NVML_FUNCTIONS(NVML_FN)
#undef NVML_FN
    __typeof__(&nvmlErrorString) nvmlErrorString;
};

static struct nvml_api nv;
static struct sl_sim_state *sim;
static char sim_dir[] = "/tmp/sluice-nvml-XXXXXX";

#define assert_nv(expected, call)                                                                  \
    do {                                                                                           \
        nvmlReturn_t got_ = (call);                                                                \
        if (got_ != (expected))                                                                    \
            fail_msg("%s: %d (%s), expected %d", #call, (int)got_, nv.nvmlErrorString(got_),       \
                     (int)(expected));                                                             \
    } while (0)
#define assert_nv_ok(call) assert_nv(NVML_SUCCESS, call)

/* Every name of the ABI table must be in the library. */
static inline void nvml_load(void)
{
    void *lib = dlopen(SIM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        fail_msg("%s", dlerror());
#define NVML_FN(name, since, params)                                                               \
    do {                                                                                           \
        void *symbol = dlsym(lib, #name);                                                          \
        if (!symbol)                                                                               \
            fail_msg("the library has no %s", #name);                                              \
        memcpy(&nv.name, &symbol, sizeof(symbol));                                                 \
    } while (0);
    NVML_FUNCTIONS(NVML_FN)
    NVML_FN(nvmlErrorString, 0, ())
#undef NVML_FN
}

/* A fresh machine of its own for this test program. */
static inline void sim_start(const char *spec)
{
    char path[64];
    struct sl_err err = SL_ERR_INIT;
    assert_non_null(mkdtemp(sim_dir));
    (void)snprintf(path, sizeof(path), "%s/state", sim_dir);
    (void)setenv("SLUICE_SIM", spec, 1);
    (void)setenv("SLUICE_SIM_STATE", path, 1);
    if (sl_sim_open(&sim, &err) != 0)
        fail_msg("%s", err.msg);
}

static inline void sim_stop(void)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/state", sim_dir);
    (void)unlink(path);
    (void)rmdir(sim_dir);
}

static inline nvmlDevice_t card(unsigned int i)
{
    nvmlDevice_t d = NULL;
    assert_nv_ok(nv.nvmlDeviceGetHandleByIndex_v2(i, &d));
    return d;
}

/* A process that has memory on a card until it is let go. */
struct user {
    pid_t pid;
    int go[2], ready[2];
};

static inline void user_body(uint32_t index, uint64_t bytes, uint32_t busy_percent, int ready,
                             int go)
{
    char c = 'r';
    sl_sim_lock(sim);
    int slot = sl_sim_register(sim);
    if (slot < 0)
        _exit(1);
    struct sl_sim_proc_card *pc = &sim->procs[slot].card[index];
    pc->contexts = 1;
    pc->memory_bytes = bytes;
    /* The past second, as if it had kept the card busy. */
    uint64_t now = sl_sim_now_ns() / SL_SIM_BUCKET_NS;
    for (uint64_t b = now - 12; busy_percent && b <= now + 2; b++) {
        struct sl_sim_usage *both[] = {&pc->usage, &sim->cards[index].usage};
        for (size_t i = 0; i < 2; i++) {
            both[i]->history[b % SL_SIM_HISTORY].bucket = b;
            both[i]->history[b % SL_SIM_HISTORY].busy_ns = SL_SIM_BUCKET_NS / 100 * busy_percent;
        }
    }
    sl_sim_unlock(sim);
    if (write(ready, &c, 1) != 1 || read(go, &c, 1) < 0)
        _exit(1);
    _exit(0);
}

static inline struct user user_start(uint32_t index, uint64_t bytes, uint32_t busy_percent)
{
    struct user u;
    char c;
    assert_int_equal(pipe(u.go), 0);
    assert_int_equal(pipe(u.ready), 0);
    u.pid = fork();
    assert_true(u.pid >= 0);
    if (u.pid == 0) {
        (void)close(u.go[1]);
        user_body(index, bytes, busy_percent, u.ready[1], u.go[0]);
    }
    (void)close(u.go[0]);
    (void)close(u.ready[1]);
    assert_int_equal(read(u.ready[0], &c, 1), 1);
    return u;
}

static inline void user_stop(struct user *u, int sig)
{
    /* A byte, not a close: users started later hold copies of this end. */
    if (sig)
        (void)kill(u->pid, sig);
    else
        assert_int_equal(write(u->go[1], "g", 1), 1);
    (void)close(u->go[1]);
    (void)close(u->ready[0]);
    assert_int_equal(waitpid(u->pid, NULL, 0), u->pid);
}

#endif
