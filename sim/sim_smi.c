/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvidia-smi of simulated GPUs: the table of cards and processes, and single fields. Every figure comes from NVML, as any
 * program loads it, so that a container with a share of a card sees its share here too. The first line says that the cards
 * are simulated.
 */
#include "sim/sim_ctl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/nvml.h"
#include "base/cleanup.h"

#define MIB       (1ULL << 20)
#define WIDTH     78
#define PROCESSES 128
#define FIELDS    16

static void *nvml;

static void *lookup(const char *name)
{
    void *f = dlsym(nvml, name);
    if (!f) {
        (void)fprintf(stderr, "nvidia-smi (simulated): NVML has no %s\n", name);
        exit(1);
    }
    return f;
}

#define NVML(name, ...) ((__typeof__(&name))lookup(#name))(__VA_ARGS__)

/* That of the driver root or the build that this program lies in; else the one that the loader finds, as in a container. */
static void *open_nvml(void)
{
    static const char *const places[] = {"../lib/", ""};
    char exe[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *slash = n > 0 ? (exe[n] = '\0', strrchr(exe, '/')) : NULL;
    void *lib = NULL;
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; slash && !lib && i < SL_ARRAY_LEN(places); i++) {
        (void)snprintf(path, sizeof(path), "%s%slibnvidia-ml.so.1", exe, places[i]);
        lib = dlopen(path, RTLD_NOW);
    }
    return lib ? lib : dlopen("libnvidia-ml.so.1", RTLD_NOW);
}

/* ---- one card ---- */

struct card {
    unsigned int index;
    nvmlDevice_t handle;
    char name[96], uuid[96];
    nvmlPciInfo_t pci;
    nvmlMemory_t memory;
    nvmlUtilization_t busy;
    unsigned int celsius, milliwatts, milliwatts_max, mig;
};

/* False: the card does not answer. What it does not know stays 0. */
static bool read_card(unsigned int index, struct card *c)
{
    unsigned int pending = 0;
    memset(c, 0, sizeof(*c));
    c->index = index;
    if (NVML(nvmlDeviceGetHandleByIndex_v2, index, &c->handle) != NVML_SUCCESS ||
        NVML(nvmlDeviceGetName, c->handle, c->name, (unsigned int)sizeof(c->name)) !=
            NVML_SUCCESS ||
        NVML(nvmlDeviceGetUUID, c->handle, c->uuid, (unsigned int)sizeof(c->uuid)) !=
            NVML_SUCCESS ||
        NVML(nvmlDeviceGetMemoryInfo, c->handle, &c->memory) != NVML_SUCCESS)
        return false;
    (void)NVML(nvmlDeviceGetPciInfo_v3, c->handle, &c->pci);
    (void)NVML(nvmlDeviceGetUtilizationRates, c->handle, &c->busy);
    (void)NVML(nvmlDeviceGetTemperature, c->handle, NVML_TEMPERATURE_GPU, &c->celsius);
    (void)NVML(nvmlDeviceGetPowerUsage, c->handle, &c->milliwatts);
    (void)NVML(nvmlDeviceGetEnforcedPowerLimit, c->handle, &c->milliwatts_max);
    if (NVML(nvmlDeviceGetMigMode, c->handle, &c->mig, &pending) != NVML_SUCCESS)
        c->mig = 0;
    return true;
}

/* ---- the table ---- */

static void rule(char fill)
{
    char line[WIDTH + 1];
    memset(line, fill, WIDTH);
    line[0] = line[WIDTH - 1] = '+';
    line[WIDTH] = '\0';
    (void)puts(line);
}

static void row(const char *text)
{
    (void)printf("| %-*.*s |\n", WIDTH - 4, WIDTH - 4, text);
}

static void print_card(const struct card *c)
{
    char line[256];
    (void)snprintf(line, sizeof(line), "%3u  %-36.36s %-16.16s  MIG %s", c->index, c->name,
                   c->pci.busId, c->mig ? "on" : "off");
    row(line);
    (void)snprintf(line, sizeof(line),
                   "     %3u C  %4u W / %4u W    %7llu MiB / %7llu MiB    %3u %%", c->celsius,
                   c->milliwatts / 1000, c->milliwatts_max / 1000, c->memory.used / MIB,
                   c->memory.total / MIB, c->busy.gpu);
    row(line);
    rule('-');
}

static void print_mig(const struct card *c)
{
    unsigned int max = 0;
    if (!c->mig || NVML(nvmlDeviceGetMaxMigDeviceCount, c->handle, &max) != NVML_SUCCESS)
        return;
    for (unsigned int i = 0; i < max; i++) {
        nvmlDevice_t device;
        nvmlMemory_t memory = {0};
        char line[256], name[96] = "";
        if (NVML(nvmlDeviceGetMigDeviceHandleByIndex, c->handle, i, &device) != NVML_SUCCESS ||
            NVML(nvmlDeviceGetMemoryInfo, device, &memory) != NVML_SUCCESS)
            continue;
        (void)NVML(nvmlDeviceGetName, device, name, (unsigned int)sizeof(name));
        (void)snprintf(line, sizeof(line), "%3u  MIG device %2u  %-24.24s %7llu MiB / %7llu MiB",
                       c->index, i, name, memory.used / MIB, memory.total / MIB);
        row(line);
    }
}

/* argv[0] of a process that this one can see, and its PID otherwise. */
static void process_name(unsigned int pid, char *buf, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    (void)snprintf(buf, size, "-");
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    size_t n = f ? fread(buf, 1, size - 1, f) : 0;
    if (n)
        buf[n] = '\0';
}

static unsigned int print_processes(const struct card *c)
{
    nvmlProcessInfo_t list[PROCESSES];
    unsigned int count = PROCESSES;
    if (NVML(nvmlDeviceGetComputeRunningProcesses_v3, c->handle, &count, list) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < count; i++) {
        char line[256], name[128];
        process_name(list[i].pid, name, sizeof(name));
        (void)snprintf(line, sizeof(line), "%3u  %10u  C  %-40.40s %7llu MiB", c->index,
                       list[i].pid, name, list[i].usedGpuMemory / MIB);
        row(line);
    }
    return count;
}

static int table(unsigned int count)
{
    char line[256], driver[96] = "";
    int cuda = 0;
    unsigned int processes = 0;
    struct card c;
    (void)NVML(nvmlSystemGetDriverVersion, driver, (unsigned int)sizeof(driver));
    (void)NVML(nvmlSystemGetCudaDriverVersion_v2, &cuda);
    (void)puts(
        "SIMULATED GPUs: there are no cards, and every figure is that of a simulation (Sluice)");
    rule('-');
    (void)snprintf(line, sizeof(line),
                   "NVIDIA-SMI (simulated)    Driver Version: %s    CUDA Version: %d.%d", driver,
                   cuda / 1000, cuda % 1000 / 10);
    row(line);
    rule('-');
    row("GPU  Name                                 Bus-Id");
    row("     Temp   Power: use / limit    Memory: used / total      GPU-Util");
    rule('=');
    for (unsigned int i = 0; i < count; i++) {
        if (read_card(i, &c)) {
            print_card(&c);
        } else {
            (void)snprintf(line, sizeof(line), "%3u  ERR! the card does not answer", i);
            row(line);
            rule('-');
        }
    }
    for (unsigned int i = 0; i < count; i++)
        if (read_card(i, &c))
            print_mig(&c);
    row("Processes:");
    row("GPU         PID  Type  Process name                            GPU Memory");
    rule('=');
    for (unsigned int i = 0; i < count; i++)
        if (read_card(i, &c))
            processes += print_processes(&c);
    if (!processes)
        row("No running processes found");
    rule('-');
    return 0;
}

/* ---- --query-gpu ---- */

/* Every field: its name, its unit, and how it is made. */
static const struct field {
    const char *name, *unit;
} fields[] = {
    {"index", ""},
    {"name", ""},
    {"uuid", ""},
    {"gpu_uuid", ""},
    {"gpu_name", ""},
    {"pci.bus_id", ""},
    {"driver_version", ""},
    {"memory.total", " MiB"},
    {"memory.used", " MiB"},
    {"memory.free", " MiB"},
    {"utilization.gpu", " %"},
    {"temperature.gpu", ""},
    {"power.draw", " W"},
    {"power.limit", " W"},
    {"mig.mode.current", ""},
    {"count", ""},
};

static void value(const char *name, const struct card *c, unsigned int count, char *buf,
                  size_t size)
{
    if (strcmp(name, "index") == 0)
        (void)snprintf(buf, size, "%u", c->index);
    else if (strcmp(name, "count") == 0)
        (void)snprintf(buf, size, "%u", count);
    else if (strstr(name, "uuid"))
        (void)snprintf(buf, size, "%s", c->uuid);
    else if (strcmp(name, "name") == 0 || strcmp(name, "gpu_name") == 0)
        (void)snprintf(buf, size, "%s", c->name);
    else if (strcmp(name, "pci.bus_id") == 0)
        (void)snprintf(buf, size, "%s", c->pci.busId);
    else if (strcmp(name, "driver_version") == 0)
        (void)NVML(nvmlSystemGetDriverVersion, buf, (unsigned int)size);
    else if (strcmp(name, "memory.total") == 0)
        (void)snprintf(buf, size, "%llu", c->memory.total / MIB);
    else if (strcmp(name, "memory.used") == 0)
        (void)snprintf(buf, size, "%llu", c->memory.used / MIB);
    else if (strcmp(name, "memory.free") == 0)
        (void)snprintf(buf, size, "%llu", c->memory.free / MIB);
    else if (strcmp(name, "utilization.gpu") == 0)
        (void)snprintf(buf, size, "%u", c->busy.gpu);
    else if (strcmp(name, "temperature.gpu") == 0)
        (void)snprintf(buf, size, "%u", c->celsius);
    else if (strcmp(name, "mig.mode.current") == 0)
        (void)snprintf(buf, size, "%s", c->mig ? "Enabled" : "Disabled");
    else
        (void)snprintf(buf, size, "%.2f",
                       (strcmp(name, "power.draw") == 0 ? c->milliwatts : c->milliwatts_max) /
                           1000.0);
}

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static int query(char *list, const char *format, unsigned int count)
{
    const struct field *chosen[FIELDS];
    size_t n = 0;
    bool header = !strstr(format, "noheader"), units = !strstr(format, "nounits");
    for (char *rest = list, *name = strsep(&rest, ","); name; name = strsep(&rest, ",")) {
        name += strspn(name, " ");
        if (n == FIELDS || !(chosen[n++] = find_field(name))) {
            (void)fprintf(
                stderr,
                "nvidia-smi (simulated): field \"%.40s\" is not known, or one too many; known are:",
                name);
            for (size_t i = 0; i < SL_ARRAY_LEN(fields); i++)
                (void)fprintf(stderr, " %s", fields[i].name);
            (void)fputc('\n', stderr);
            return 2;
        }
    }
    for (size_t i = 0; header && i < n; i++) {
        const char *unit = units && chosen[i]->unit[0] ? chosen[i]->unit + 1 : "";
        (void)printf("%s%s%s%s%s", i ? ", " : "", chosen[i]->name, *unit ? " [" : "", unit,
                     *unit ? "]" : "");
    }
    if (header)
        (void)puts("");
    for (unsigned int card = 0; card < count; card++) {
        struct card c;
        if (!read_card(card, &c))
            continue;
        for (size_t i = 0; i < n; i++) {
            char text[128] = "";
            value(chosen[i]->name, &c, count, text, sizeof(text));
            (void)printf("%s%s%s", i ? ", " : "", text, units ? chosen[i]->unit : "");
        }
        (void)puts("");
    }
    return 0;
}

int sl_sim_smi(int argc, char **argv)
{
    static const char ask[] = "--query-gpu=", form[] = "--format=";
    char *fields_wanted = NULL;
    const char *format = "";
    unsigned int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], ask, strlen(ask)) == 0) {
            fields_wanted = argv[i] + strlen(ask);
        } else if (strncmp(argv[i], form, strlen(form)) == 0 && strstr(argv[i], "csv")) {
            format = argv[i] + strlen(form);
        } else {
            (void)fputs("nvidia-smi (simulated): this program belongs to simulated GPUs. It knows: "
                        "no word (the table), -L, "
                        "--query-gpu=FIELDS --format=csv[,noheader][,nounits]\n",
                        stderr);
            return 2;
        }
    }
    if (!fields_wanted != !format[0]) {
        (void)fputs("nvidia-smi (simulated): --query-gpu and --format=csv belong together\n",
                    stderr);
        return 2;
    }
    nvml = open_nvml();
    if (!nvml || NVML(nvmlInit_v2) != NVML_SUCCESS ||
        NVML(nvmlDeviceGetCount_v2, &count) != NVML_SUCCESS) {
        (void)puts("NVIDIA-SMI has failed: no simulated driver here");
        return 9;
    }
    if (fields_wanted)
        return query(fields_wanted, format, count);
    if (count == 0) {
        (void)puts("No devices were found");
        return 6;
    }
    return table(count);
}
