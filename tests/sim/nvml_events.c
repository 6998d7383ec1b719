/* SPDX-License-Identifier: Apache-2.0 */
/* Events, injected faults, and the tool that injects them. */
#include "nvml_test.h"

#include <pthread.h>

static int ctl(const char *args)
{
    char command[600];
    (void)snprintf(command, sizeof(command), "%s %s >/dev/null 2>&1", SIM_CTL, args);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static nvmlEventSet_t subscribed(void)
{
    nvmlEventSet_t set = NULL;
    assert_nv_ok(nv.nvmlEventSetCreate(&set));
    for (unsigned int i = 0; i < 2; i++)
        assert_nv_ok(nv.nvmlDeviceRegisterEvents(card(i), nvmlEventTypeXidCriticalError, set));
    return set;
}

static void test_timeout(void **state)
{
    (void)state;
    nvmlEventData_t data;
    nvmlEventSet_t empty = NULL, set = subscribed();
    assert_nv(NVML_ERROR_TIMEOUT, nv.nvmlEventSetWait_v2(set, &data, 0));
    assert_nv(NVML_ERROR_TIMEOUT, nv.nvmlEventSetWait_v2(set, &data, 30));
    assert_nv_ok(nv.nvmlEventSetFree(set));
    assert_nv_ok(nv.nvmlEventSetCreate(&empty));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlEventSetWait_v2(empty, &data, 0));
    assert_nv(NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceRegisterEvents(card(0), 1ULL << 60, empty));
    assert_nv_ok(nv.nvmlEventSetFree(empty));
    assert_nv(NVML_ERROR_INVALID_ARGUMENT, nv.nvmlEventSetFree(NULL));
}

struct waiter {
    nvmlEventSet_t set;
    nvmlReturn_t result;
    nvmlEventData_t data;
};

static void *wait_in_thread(void *arg)
{
    struct waiter *w = arg;
    w->result = nv.nvmlEventSetWait_v2(w->set, &w->data, 20000);
    return NULL;
}

/* A waiter far from its timeout is woken by an XID from another process. */
static void test_xid_wakes(void **state)
{
    (void)state;
    struct waiter w = {.set = subscribed(), .result = NVML_ERROR_UNKNOWN};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &w), 0);
    assert_int_equal(ctl("xid 1 31"), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_nv_ok(w.result);
    assert_ptr_equal(w.data.device, card(1));
    assert_int_equal(w.data.eventType, nvmlEventTypeXidCriticalError);
    assert_int_equal(w.data.eventData, 31);
    assert_int_equal(w.data.gpuInstanceId, NVML_NO_INSTANCE);
    assert_nv(NVML_ERROR_TIMEOUT, nv.nvmlEventSetWait_v2(w.set, &w.data, 0));
    assert_nv_ok(nv.nvmlEventSetFree(w.set));
}

/* Nothing is lost or told twice; what nobody asked for is not told; the past is not told. */
static void test_order(void **state)
{
    (void)state;
    assert_int_equal(ctl("xid 0 1"), 0);
    nvmlEventSet_t set = subscribed();
    assert_int_equal(ctl("xid 0 13"), 0);
    assert_int_equal(ctl("ecc 0 2"), 0);
    assert_int_equal(ctl("xid 0 43"), 0);
    nvmlEventData_v1_t old;
    nvmlEventData_t data;
    assert_nv_ok(nv.nvmlEventSetWait(set, &old, 1000));
    assert_int_equal(old.eventData, 13);
    assert_nv_ok(nv.nvmlEventSetWait_v2(set, &data, 1000));
    assert_int_equal(data.eventData, 43);
    assert_nv(NVML_ERROR_TIMEOUT, nv.nvmlEventSetWait_v2(set, &data, 0));
    unsigned long long errors = 0;
    assert_nv_ok(nv.nvmlDeviceGetTotalEccErrors(card(0), 1, 0, &errors));
    assert_int_equal(errors, 2);
    assert_nv_ok(nv.nvmlEventSetFree(set));
}

static void test_ctl(void **state)
{
    (void)state;
    nvmlMemory_t m;
    nvmlDevice_t d = card(0);
    nvmlEventSet_t set = subscribed();
    nvmlEventData_t data;
    assert_int_equal(ctl("lost 0"), 0);
    assert_nv(NVML_ERROR_GPU_IS_LOST, nv.nvmlDeviceGetMemoryInfo(d, &m));
    assert_nv_ok(nv.nvmlEventSetWait_v2(set, &data, 1000));
    assert_int_equal(data.eventData, 79);
    assert_int_equal(ctl("back 0"), 0);
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(d, &m));
    assert_nv_ok(nv.nvmlEventSetFree(set));
    assert_int_equal(ctl("foreign 0 10Gi"), 0);
    assert_nv_ok(nv.nvmlDeviceGetMemoryInfo(d, &m));
    assert_int_equal(m.used, 10ULL << 30);
    assert_int_equal(ctl("foreign 0 0"), 0);
    assert_int_equal(ctl("slow 0 2.5"), 0);
    assert_int_equal(sim->cards[0].slow_permille, 2500);
    assert_int_equal(ctl("slow 0 1"), 0);
    assert_int_equal(ctl("show"), 0);
    assert_int_equal(ctl("xid 7 31"), 2);
    assert_int_equal(ctl("xid 0 many"), 2);
    assert_int_equal(ctl("slow 0 -1"), 2);
    assert_int_equal(ctl("foreign 0 10GB"), 2);
    assert_int_equal(ctl("explode 0"), 2);
    assert_int_equal(ctl("lost"), 2);
}

/* SLUICE_SIM_FAULT is read once per process: each case is a child of its own. */
static void in_child(const char *fault, const char *number)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("SLUICE_SIM_FAULT", fault, 1);
        (void)execl("/proc/self/exe", "nvml_events", "child", number, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_faults(void **state)
{
    (void)state;
    in_child("nvmlInit_v2:1=9", "1");
    in_child("cuInit:1=3,nvmlDeviceGetCount_v2:0=999", "2");
    in_child("abi=11040", "3");
}

/* What a child checks; returns how many checks failed. */
static int child(int number)
{
    unsigned int n = 0, room = 4;
    nvmlDevice_t d;
    nvmlProcessInfo_t infos[4];
    int bad = 0;
    nvml_load();
    switch (number) {
    case 1:
        bad += nv.nvmlInit_v2() != NVML_ERROR_DRIVER_NOT_LOADED;
        bad += nv.nvmlInit_v2() != NVML_SUCCESS;
        break;
    case 2:
        bad += nv.nvmlInit_v2() != NVML_SUCCESS;
        for (int i = 0; i < 3; i++)
            bad += nv.nvmlDeviceGetCount_v2(&n) != NVML_ERROR_UNKNOWN;
        bad += nv.nvmlDeviceGetCount(&n) != NVML_SUCCESS;
        break;
    default: /* driver 470: running processes has _v2 but no _v3 */
        bad += nv.nvmlInit_v2() != NVML_SUCCESS;
        bad += nv.nvmlDeviceGetHandleByIndex_v2(0, &d) != NVML_SUCCESS;
        bad += nv.nvmlDeviceGetComputeRunningProcesses_v2(d, &room, infos) != NVML_SUCCESS;
        bad += nv.nvmlDeviceGetComputeRunningProcesses_v3(d, &room, infos) !=
               NVML_ERROR_FUNCTION_NOT_FOUND;
        break;
    }
    return bad;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child(atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout), cmocka_unit_test(test_xid_wakes),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_ctl),
        cmocka_unit_test(test_faults),
    };
    sim_start("h200x2");
    nvml_load();
    assert_nv_ok(nv.nvmlInit_v2());
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    sim_stop();
    return r;
}
