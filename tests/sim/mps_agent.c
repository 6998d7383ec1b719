/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's MPS part over the simulated driver: a daemon from a driver root, limits that hold for a
 * CUDA process, and a daemon that is killed. */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/mps/mps_internal.h"
#include "base/clock.h"
#include "common/tenant.h"

#define MIB      (1ULL << 20)
#define CARD_MIB 143771ULL

static char dir[] = "/tmp/sluice-mps-agent-XXXXXX";
static struct sl_loop *loop;
static enum sl_mps_state now_state;
static bool was_restarted;

static void on_state(void *data, const char *uuid, enum sl_mps_state state, bool restarted,
                     const char *reason)
{
    (void)data, (void)uuid;
    (void)printf("state %d: %s\n", (int)state, reason);
    now_state = state;
    was_restarted = restarted;
}

static void wait_state(enum sl_mps_state want)
{
    uint64_t until = sl_now_ns() + 20 * SL_NS_PER_S;
    while (now_state != want) {
        CHECK(sl_now_ns() < until);
        CHECK(sl_loop_step(loop, 50, NULL) >= 0);
    }
}

/* In a process of its own: a quarter of the second card, and no more. */
static int client(const char *uuid)
{
    struct sl_tenant t;
    char text[16];
    int count = 0, sms = 0;
    CUuuid id;
    CUdeviceptr p;
    sl_tenant_open(&t, 0);
    CU_OK(cuDeviceGetCount(&count));
    CHECK(count == 1);
    CU_OK(cuDeviceGetUuid_v2(&id, t.dev));
    (void)snprintf(text, sizeof(text), "GPU-%02x%02x", (unsigned int)(unsigned char)id.bytes[0],
                   (unsigned int)(unsigned char)id.bytes[1]);
    CHECK(strncmp(text, uuid, strlen(text)) == 0);
    CU_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, t.dev));
    CHECK(sms == 33);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, CARD_MIB / 4 * MIB));
    CU_OK(cuMemAlloc_v2(&p, (CARD_MIB / 4 - 600) * MIB));
    CU_OK(cuMemFree_v2(p));
    sl_tenant_close(&t);
    return 0;
}

static void run_client(const char *uuid)
{
    char pipe_dir[256];
    (void)snprintf(pipe_dir, sizeof(pipe_dir), "%s/mps/%s/pipe", dir, uuid);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        (void)setenv("CUDA_MPS_PIPE_DIRECTORY", pipe_dir, 1);
        (void)execl("/proc/self/exe", "mps_agent", "client", uuid, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void kill_daemon(const char *uuid)
{
    char path[320];
    int pid = 0;
    (void)snprintf(path, sizeof(path), "%s/mps/%s/pipe/nvidia-cuda-mps-control.pid", dir, uuid);
    FILE *f = fopen(path, "re");
    CHECK(f && fscanf(f, "%d", &pid) == 1 && pid > 1);
    (void)fclose(f);
    CHECK(kill(pid, SIGKILL) == 0);
}

static void second_uuid(char uuid[64])
{
    char command[256], line[256];
    (void)snprintf(command, sizeof(command), "'%s/root/bin/nvidia-smi' -L", dir);
    FILE *f = popen(command, "r");
    CHECK(f && fgets(line, sizeof(line), f) && fgets(line, sizeof(line), f));
    (void)pclose(f);
    CHECK(sscanf(strstr(line, "UUID: "), "UUID: %63[^)]", uuid) == 1);
}

int main(int argc, char **argv)
{
    char command[256], root[64], mps_root[64], state[96], uuid[64];
    struct sl_mps *mps = NULL;
    if (argc == 3)
        return client(argv[2]);
    CHECK(mkdtemp(dir));
    (void)snprintf(root, sizeof(root), "%s/root", dir);
    (void)snprintf(mps_root, sizeof(mps_root), "%s/mps", dir);
    (void)snprintf(state, sizeof(state), "%s/root/state/machine", dir);
    CHECK(setenv("SLUICE_SIM_STATE", state, 1) == 0);
    CHECK(mkdir(root, 0755) == 0);
    (void)snprintf(command, sizeof(command), "'" SIM_CTL "' make-root '%s' h200x2", root);
    CHECK(system(command) == 0);
    second_uuid(uuid);

    const struct sl_mps_options options = {.root = mps_root,
                                           .driver_root = root,
                                           .no_own_shm = true,
                                           .backoff_ns = 50 * SL_NS_PER_MS,
                                           .state = on_state};
    const struct sl_mps_gpu gpu = {
        .uuid = uuid, .index = 1, .memory_bytes = CARD_MIB * MIB, .replicas = 4};
    CHECK(sl_loop_create(sl_now_ns, &loop, NULL) == 0);
    CHECK(sl_mps_create(loop, &options, &mps, NULL) == 0);
    CHECK(sl_mps_apply(mps, &gpu, 1, NULL) == 0);
    wait_state(SL_MPS_READY);
    run_client(uuid);
    kill_daemon(uuid);
    wait_state(SL_MPS_FAILED);
    wait_state(SL_MPS_READY);
    CHECK(was_restarted);
    run_client(uuid);
    CHECK(sl_mps_apply(mps, NULL, 0, NULL) == 0);
    while (mps->daemons)
        CHECK(sl_loop_step(loop, 10, NULL) == 0);
    sl_mps_destroy(mps);
    sl_loop_destroy(loop);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    CHECK(system(command) == 0);
    return 0;
}
