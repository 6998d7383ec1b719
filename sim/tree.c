/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tree.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define GI_IDS     15 /* as the real driver numbers them: 0 to 14 */
#define CI_IDS     8
#define FIRST_CAP  3
#define CAPS_A_GI  (1 + CI_IDS)
#define CAPS_A_GPU (GI_IDS * CAPS_A_GI)

/* ---- what this process sees ---- */

bool sl_sim_sees_node(const char *name)
{
    const char *dir = getenv("SLUICE_SIM_DEV");
    char path[PATH_MAX];
    if (!dir || !*dir)
        return true;
    int saved = errno;
    bool there = (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
                 access(path, F_OK) == 0;
    errno = saved;
    return there;
}

bool sl_sim_sees_card(uint32_t card)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "nvidia%u", card);
    return sl_sim_sees_node(name);
}

uint32_t sl_sim_cap_gi(uint32_t card, uint32_t gi_id)
{
    return FIRST_CAP + card * CAPS_A_GPU + gi_id * CAPS_A_GI;
}

uint32_t sl_sim_cap_ci(uint32_t card, uint32_t gi_id, uint32_t ci_id)
{
    return sl_sim_cap_gi(card, gi_id) + 1 + ci_id;
}

static bool sees_cap(uint32_t cap)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "nvidia-caps/nvidia-cap%u", cap);
    return sl_sim_sees_node(name);
}

bool sl_sim_sees_mig(uint32_t card, uint32_t gi_id, uint32_t ci_id)
{
    return sl_sim_sees_card(card) && sees_cap(sl_sim_cap_gi(card, gi_id)) &&
           sees_cap(sl_sim_cap_ci(card, gi_id, ci_id));
}

/* ---- the root we are in ---- */

static bool own_file(char path[PATH_MAX])
{
    Dl_info info;
    void *here;
    bool (*self)(char *) = own_file;
    memcpy(&here, &self, sizeof(here)); /* ISO C has no cast for it */
    if (dladdr(here, &info) && info.dli_fname && strchr(info.dli_fname, '/') &&
        realpath(info.dli_fname, path))
        return true;
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    return true;
}

static void read_mark(FILE *f, struct sl_sim_tree *t)
{
    char line[1024];
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "SLUICE_SIM=", 11) == 0)
            (void)snprintf(t->spec, sizeof(t->spec), "%.255s", line + 11);
        else if (strncmp(line, "SLUICE_SIM_STATE=/", 18) == 0)
            (void)snprintf(t->state, sizeof(t->state), "%.1000s", line + 17);
        else if (strncmp(line, "SLUICE_SIM_STATE=", 17) == 0)
            (void)snprintf(t->state, sizeof(t->state), "%s/%.500s", t->root, line + 17);
    }
}

bool sl_sim_tree_near(struct sl_sim_tree *ret)
{
    char path[PATH_MAX], mark[PATH_MAX + 16];
    memset(ret, 0, sizeof(*ret));
    if (!own_file(path))
        return false;
    for (int up = 0; up < 2; up++) { /* the file's name, then lib or bin */
        char *slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    if ((size_t)snprintf(ret->root, sizeof(ret->root), "%.511s", path) >= sizeof(ret->root))
        return false;
    (void)snprintf(mark, sizeof(mark), "%s/" SL_SIM_TREE_MARK, path);
    SL_CLEANUP(fclose) FILE *f = fopen(mark, "re");
    if (f)
        read_mark(f, ret);
    return f && ret->spec[0] && ret->state[0];
}

/* ---- capabilities ---- */

/* Readers see the whole text or none. No fsync: the kernel's own /proc does not outlive it
 * either. */
static void put(int root, const char *path, const char *text)
{
    char tmp[192];
    (void)snprintf(tmp, sizeof(tmp), "%s.%d", path, (int)getpid());
    SL_CLEANUP(close) int fd = openat(root, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
        renameat(root, tmp, root, path) != 0)
        (void)unlinkat(root, tmp, 0);
}

static void show_cap(int root, const char *dir, uint32_t cap)
{
    char path[160], text[96];
    (void)mkdirat(root, dir, 0755);
    (void)snprintf(path, sizeof(path), "dev/nvidia-caps/nvidia-cap%u", cap);
    SL_CLEANUP(close) int fd = openat(root, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    if (fd >= 0)
        (void)fchmod(fd, 0444); /* whatever the agent's umask: containers of any user open it */
    (void)snprintf(path, sizeof(path), "%s/access", dir);
    (void)snprintf(text, sizeof(text),
                   "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", cap);
    put(root, path, text);
}

static void hide_cap(int root, const char *dir, uint32_t cap)
{
    char path[168];
    if (faccessat(root, dir, F_OK, 0) != 0)
        return;
    (void)snprintf(path, sizeof(path), "dev/nvidia-caps/nvidia-cap%u", cap);
    (void)unlinkat(root, path, 0);
    (void)snprintf(path, sizeof(path), "%s/access", dir);
    (void)unlinkat(root, path, 0);
    (void)unlinkat(root, dir, AT_REMOVEDIR);
}

static const struct sl_sim_mig_gi *gi_by_id(const struct sl_sim_mig_state *s, uint32_t id)
{
    for (size_t g = 0; s->enabled && g < SL_SIM_MIG_MAX_GI; g++)
        if (s->gi[g].used && s->gi[g].id == id)
            return &s->gi[g];
    return NULL;
}

static bool has_ci(const struct sl_sim_mig_gi *gi, uint32_t id)
{
    for (size_t c = 0; gi && c < SL_SIM_MIG_MAX_CI; c++)
        if (gi->ci[c].used && gi->ci[c].id == id)
            return true;
    return false;
}

static int open_root(const struct sl_sim_state *st)
{
    const char *path = getenv("SLUICE_SIM_ROOT");
    if (!path || !*path)
        path = st->root;
    if (!*path)
        return -1;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && faccessat(fd, SL_SIM_TREE_MARK, F_OK, 0) != 0) {
        (void)close(fd); /* somebody else's directory by now */
        return -1;
    }
    return fd;
}

void sl_sim_tree_sync(const struct sl_sim_state *st, uint32_t card)
{
    const struct sl_sim_mig_state *mig = &st->cards[card].mig;
    char dir[128], sub[160];
    int saved = errno;
    SL_CLEANUP(close) int root = open_root(st);
    for (uint32_t g = 0; root >= 0 && g < GI_IDS; g++) {
        const struct sl_sim_mig_gi *gi = gi_by_id(mig, g);
        (void)snprintf(dir, sizeof(dir), "proc/driver/nvidia/capabilities/gpu%u/mig/gi%u", card, g);
        if (gi)
            show_cap(root, dir, sl_sim_cap_gi(card, g));
        else if (faccessat(root, dir, F_OK, 0) != 0)
            continue;
        for (uint32_t c = 0; c < CI_IDS; c++) {
            (void)snprintf(sub, sizeof(sub), "%s/ci%u", dir, c);
            if (has_ci(gi, c))
                show_cap(root, sub, sl_sim_cap_ci(card, g, c));
            else
                hide_cap(root, sub, sl_sim_cap_ci(card, g, c));
        }
        if (!gi)
            hide_cap(root, dir, sl_sim_cap_gi(card, g));
    }
    errno = saved;
}
