/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/world.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/units.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "gpu/gpu.h"
#include "share/lease.h"
#include "sim/profiles.h"

/* An arbiter without tenants and clients stays this long: a loop of short runs reuses it. */
#define IDLE_EXIT_S 2
/* libsluice is far smaller, however it was built. */
#define LIBRARY_MAX (256U << 20)
#define GPU_AUTO    "auto" /* the arbiter chooses */

static int find_program(char *buf, size_t size, struct sl_err *err)
{
    ssize_t n = readlink("/proc/self/exe", buf, size);
    if (n < 0 || (size_t)n >= size)
        return sl_err_errno(err, n < 0 ? errno : ENAMETOOLONG,
                            "cannot find this program's own file through /proc/self/exe");
    buf[n] = '\0';
    return 0;
}

/* The first of the folders (relative to the binary's) that has the file. */
static int find_beside(const char *program, const char *const *folders, const char *file, char *buf,
                       size_t size)
{
    const char *slash = strrchr(program, '/');
    int dir_len = slash ? (int)(slash - program) : 0;
    for (; *folders; folders++) {
        char raw[PATH_MAX];
        if ((size_t)snprintf(raw, sizeof(raw), "%.*s/%s/%s", dir_len, program, *folders, file) >=
            sizeof(raw))
            continue;
        SL_CLEANUP(free) char *real = access(raw, R_OK) == 0 ? realpath(raw, NULL) : NULL;
        /* Return the path of the file, not of a link's target: the target may have a versioned name. */
        if (real && (size_t)snprintf(buf, size, "%s", raw) < size)
            return 0;
    }
    return -ENOENT;
}

/* Removes "/bin/.." so that messages and the child's environment read well. */
static void tidy(char *path)
{
    char *up = strstr(path, "/../");
    if (!up)
        return;
    char *start = up;
    while (start > path && start[-1] != '/')
        start--;
    if (start > path)
        memmove(start - 1, up + 3, strlen(up + 3) + 1);
}

static int find_sim_lib(struct sl_world *w, struct sl_err *err)
{
    static const char *const folders[] = {"../sim", "../lib/sluice/sim",
                                          "../" SLUICE_LIBDIR "/sluice/sim", NULL};
    char file[PATH_MAX];
    if (find_beside(w->program, folders, "libcuda.so.1", file, sizeof(file)) < 0 ||
        find_beside(w->program, folders, "libnvidia-ml.so.1", file, sizeof(file)) < 0)
        return sl_err_set(err, -ENOENT, SL_E_SIM_MISSING, w->program);
    tidy(file);
    *strrchr(file, '/') = '\0';
    if (strchr(file, ':'))
        return sl_err_set(err, -EINVAL, SL_E_SIM_PATH_CHARS, file);
    memcpy(w->sim_lib, file, sizeof(w->sim_lib));
    return 0;
}

int sl_world_find(const struct sl_cli_args *args, struct sl_world *ret, struct sl_err *err)
{
    struct sl_world w = {.program = ""};
    const char *sim = sl_cli_value(args, "sim");
    if (!sim)
        sim = getenv(SL_SIM_ENV);
    if (sim && !sim[0] && !sl_cli_value(args, "sim"))
        sim = NULL;
    int rc = find_program(w.program, sizeof(w.program), err);
    if (rc == 0)
        rc = sl_arbiter_dir_find(args->dir, sim, &w.place, err);
    if (rc == 0 && sim) {
        struct sl_sim_spec *spec = sl_xmalloc(sizeof(*spec));
        rc = sl_sim_spec_parse(w.place.sim, spec, err);
        free(spec);
        if (rc == 0)
            rc = find_sim_lib(&w, err);
    }
    if (rc == 0)
        *ret = w;
    return rc;
}

int sl_world_gpus(const struct sl_world *world, struct sl_gpu **ret, struct sl_err *err)
{
    char path[PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", world->sim_lib);
    return sl_gpu_open(world->sim_lib[0] ? path : NULL, ret, err);
}

int sl_world_libsluice(const struct sl_world *world, const char *named, char *buf, size_t size,
                       struct sl_err *err)
{
    static const char *const folders[] = {"../lib/sluice", "../" SLUICE_LIBDIR "/sluice", "../lib",
                                          NULL};
    if (named) {
        SL_CLEANUP(free) char *real = realpath(named, NULL);
        if (!real)
            return sl_err_errno(err, errno, "--libsluice %s", named);
        if ((size_t)snprintf(buf, size, "%s", real) >= size)
            return sl_err_set(err, -ENAMETOOLONG, SL_E_LIBSLUICE_PATH_LONG, named);
    } else if (find_beside(world->program, folders, "libsluice.so", buf, size) < 0) {
        return sl_err_set(err, -ENOENT, SL_E_LIBSLUICE_MISSING, world->program);
    }
    tidy(buf);
    if (strpbrk(buf, ": \t"))
        return sl_err_set(err, -EINVAL, SL_E_LIBSLUICE_PATH_CHARS, buf);
    return 0;
}

int sl_world_libsluice_check(const char *path, struct sl_err *err)
{
    static const unsigned char magic[] = {0x7f, 'E', 'L', 'F', sizeof(void *) == 8 ? 2 : 1};
    SL_CLEANUP(free) char *image = NULL;
    ElfW(Ehdr) head = {.e_type = ET_NONE};
    size_t n = 0;
    int rc = sl_fs_read(AT_FDCWD, path, LIBRARY_MAX, &image, &n, err);
    if (rc < 0)
        return rc;
    if (n >= sizeof(head))
        memcpy(&head, image, sizeof(head));
    if (memcmp(head.e_ident, magic, sizeof(magic)) == 0 && head.e_type == ET_DYN &&
        memmem(image, n, SL_ATTACH_ENV, strlen(SL_ATTACH_ENV)))
        return 0;
    return sl_err_set(err, -ENOEXEC, SL_E_LIBSLUICE_WRONG, path);
}

int sl_world_arbiter_cards(int pid, char *buf, size_t size)
{
    char path[64];
    SL_CLEANUP(free) char *words = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    if (pid <= 0 || sl_fs_read(AT_FDCWD, path, 65536, &words, &n, NULL) < 0)
        return -ENOENT;
    const char *end = words + n, *p = words;
    bool arbiter = false;
    buf[0] = '\0';
    while (p < end) {
        const char *next = p + strlen(p) + 1;
        arbiter = arbiter || strcmp(p, "arbiter") == 0;
        if (strcmp(p, "--sim") == 0 && next < end)
            (void)snprintf(buf, size, "%s", next);
        p = next;
    }
    return arbiter ? 0 : -ENOENT;
}

/* With --dir, an arbiter of other GPUs may run in the directory already. */
static int check_same_world(const struct sl_world *w, int fd, struct sl_err *err)
{
    char cards[sizeof(w->place.sim)];
    if (sl_world_arbiter_cards(sl_client_peer_pid(fd), cards, sizeof(cards)) < 0 ||
        strcmp(cards, w->place.sim) == 0)
        return 0;
    if (!w->place.sim[0])
        return sl_err_set(err, -EBUSY, SL_E_ARBITER_IS_SIMULATED, w->place.dir, cards);
    if (!cards[0])
        return sl_err_set(err, -EBUSY, SL_E_ARBITER_REAL_GPUS, w->place.dir, w->place.sim);
    return sl_err_set(err, -EBUSY, SL_E_ARBITER_OTHER_GPUS, w->place.dir, cards, w->place.sim);
}

int sl_world_start(const struct sl_world *world, struct sl_err *err)
{
    struct sl_client_start how = {.program = world->program, .idle_exit_s = IDLE_EXIT_S};
    int fd = sl_client_start(&world->place, &how, err);
    if (fd < 0)
        return fd;
    int rc = check_same_world(world, fd, err);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    return fd;
}

static int parse_compute(const char *text, struct sl_msg_lease *lease, struct sl_err *err)
{
    int i = sl_word_find(sl_compute_words, text);
    if (i < 0)
        return sl_err_set(err, -EINVAL, SL_E_COMPUTE_UNKNOWN, text);
    sl_lease_compute(lease, (enum sl_compute)i);
    return 0;
}

static int parse_gpus(const char *text, struct sl_msg_lease *lease, struct sl_err *err)
{
    if (strcmp(text, GPU_AUTO) == 0)
        return 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 0)
            return sl_err_set(err, -EINVAL, SL_E_GPU_LIST_EMPTY_NAME, text);
        if (n == strlen(GPU_AUTO) && memcmp(p, GPU_AUTO, n) == 0)
            return sl_err_set(err, -EINVAL, SL_E_GPU_AUTO_BESIDE, text);
        if (n >= SL_UUID_MAX)
            return sl_err_set(err, -EINVAL, SL_E_GPU_NAME_LONG, p);
        if (lease->gpu_count == SL_MAX_GPUS)
            return sl_err_set(err, -E2BIG, SL_E_GPU_LIST_LONG, SL_MAX_GPUS);
        for (uint32_t i = 0; i < lease->gpu_count; i++)
            if (strlen(lease->gpu[i]) == n && memcmp(lease->gpu[i], p, n) == 0)
                return sl_err_set(err, -EINVAL, SL_E_GPU_NAMED_TWICE, lease->gpu[i]);
        memcpy(lease->gpu[lease->gpu_count++], p, n);
        p += n;
        if (*p == '\0')
            return 0;
    }
}

/* Of the GPUs that are named, or else of those that may be chosen. */
static int parse_count(const char *text, struct sl_msg_lease *lease, struct sl_err *err)
{
    char *end;
    unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (n == 0 || n > SL_MAX_GPUS || *end)
        return sl_err_set(err, -EINVAL, SL_E_GPUS_COUNT, text, SL_MAX_GPUS);
    if (lease->gpu_count == 0)
        lease->flags |= (uint32_t)(n - 1) << SL_LEASE_MORE_SHIFT;
    else if (lease->gpu_count != n)
        return sl_err_set(err, -EINVAL, SL_E_GPUS_CONTRADICT, n, lease->gpu_count);
    return 0;
}

char *sl_world_visible_text(const struct sl_msg_created *tenant, char buf[SL_VISIBLE_MAX])
{
    size_t n = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < tenant->gpu_count; i++)
        n += (size_t)snprintf(buf + n, SL_VISIBLE_MAX - n, "%s%s", i ? "," : "", tenant->gpu[i]);
    return buf;
}

static int parse_name(const char *text, struct sl_msg_lease *lease, struct sl_err *err)
{
    if (text[0] == '\0')
        return sl_err_set(err, -EINVAL, SL_E_NAME_EMPTY);
    if (strlen(text) >= sizeof(lease->name))
        return sl_err_set(err, -EINVAL, SL_E_NAME_LONG, text);
    memcpy(lease->name, text, strlen(text) + 1);
    return 0;
}

int sl_world_lease(const struct sl_cli_args *args, struct sl_msg_lease *ret, struct sl_err *err)
{
    struct sl_msg_lease lease = {.priority = SL_PRIORITY_NORMAL};
    const char *memory = sl_cli_value(args, "memory"), *cores = sl_cli_value(args, "cores");
    const char *priority = sl_cli_value(args, "priority"), *name = sl_cli_value(args, "name");
    const char *gpus = sl_cli_value(args, "gpu"), *count = sl_cli_value(args, "gpus"),
               *compute = sl_cli_value(args, "compute");
    int rc = 0;
    if (memory) {
        struct sl_memory_amount amount = {0};
        rc = sl_parse_memory(memory, &amount, err);
        if (rc == 0 && !amount.percent && amount.bytes < SL_UNIT_BYTES)
            rc = sl_err_set(err, -EINVAL, SL_E_MEMORY_BELOW_UNIT, memory,
                            (unsigned long long)SL_UNIT_BYTES);
        lease.fields |= SL_FIELD_MEMORY;
        lease.memory_bytes = amount.bytes;
        lease.memory_percent = amount.percent;
    }
    if (rc == 0 && cores) {
        rc = sl_parse_cores(cores, &lease.cores_request_permille, &lease.cores_limit_permille, err);
        lease.fields |= SL_FIELD_CORES;
    }
    if (rc == 0 && priority) {
        enum sl_priority level = SL_PRIORITY_NORMAL;
        rc = sl_priority_parse(priority, &level, err);
        lease.priority = level;
        lease.fields |= SL_FIELD_PRIORITY;
    }
    if (rc == 0 && compute)
        rc = parse_compute(compute, &lease, err);
    if (rc == 0 && name)
        rc = parse_name(name, &lease, err);
    if (rc == 0 && gpus)
        rc = parse_gpus(gpus, &lease, err);
    if (rc == 0 && count)
        rc = parse_count(count, &lease, err);
    if (rc == 0)
        *ret = lease;
    return rc;
}
