/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that survives the arbiter: one small text file per tenant with its lease. Usage is not in it: the tenant's
 * processes still map the ledger and bring it back when they attach again (member.c).
 */
#include "arbiter/arbiter_internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arbiter/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

#define STATE_MAX 8192

uint64_t sl_arb_process_stat(pid_t pid, int number)
{
    char path[64], buf[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    SL_CLEANUP(fclose) FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(buf, 1, sizeof(buf) - 1, f);
    buf[n] = '\0';
    /* The command may contain spaces and parentheses; fields are counted after the last ')'. */
    const char *p = strrchr(buf, ')');
    for (int field = 2; p && field < number; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

uint64_t sl_arb_process_start(pid_t pid)
{
    return sl_arb_process_stat(pid, 22);
}

int sl_arb_state_save(struct arbiter *a, const struct tenant *t, const struct terms *terms,
                      struct sl_err *err)
{
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    char file[SL_NAME_MAX + 16];
    FILE *f = sl_xmemstream(&text, &size);
    (void)fprintf(f, "sluice-lease 1\ncookie ");
    for (size_t i = 0; i < sizeof(t->cookie); i++)
        (void)fprintf(f, "%02x", t->cookie[i]);
    /* The owner stands behind what Sluice 0.1 reads of its line: it knows no line "owner", and gives up at one. */
    (void)fprintf(f, "\ncreator %d %" PRIu64 " owner %u\ncores %u %u\npriority %u\n",
                  t->creator_pid, t->creator_start, (unsigned)t->owner,
                  terms->cores_request_permille, terms->cores_limit_permille, terms->priority);
    for (uint32_t i = 0; i < t->gpu_count; i++)
        (void)fprintf(f, "gpu %s %" PRIu64 " %" PRIu64 "\n", t->lease.page->gpu[i].uuid,
                      terms->memory_bytes[i], t->share_bytes[i]);
    const struct asked *k = &t->asked;
    if (t->kept)
        (void)fprintf(f, "keep %u %u %" PRIu64 " %u %u %u\n", k->fields, k->memory_percent,
                      k->memory_bytes, k->cores_request_permille, k->cores_limit_permille,
                      k->priority);
    for (uint32_t i = 0; t->kept && i < t->gpu_count; i++)
        if (k->gpu_memory_bytes[i])
            (void)fprintf(f, "keep-gpu %u %" PRIu64 "\n", i, k->gpu_memory_bytes[i]);
    if (t->compute != SL_COMPUTE_AUTO)
        (void)fprintf(f, "compute %u\n", t->compute);
    if (terms->paused)
        (void)fprintf(f, "paused\n");
    if (t->about[0])
        (void)fprintf(f, "about %s\n", t->about);
    (void)fprintf(f, "end\n");
    sl_xmemstream_close(f);
    (void)snprintf(file, sizeof(file), "%s.lease", t->name);
    return sl_fs_replace(a->tenants_fd, file, text, size, 0600, err);
}

struct saved {
    uint8_t cookie[16];
    unsigned owner; /* files of earlier builds do not say: then our own user */
    int creator;
    uint64_t creator_start;
    unsigned request, limit, priority, compute;
    uint32_t gpu_count;
    char uuid[SL_MAX_GPUS][SL_UUID_MAX];
    uint64_t bytes[SL_MAX_GPUS], share[SL_MAX_GPUS];
    bool kept, paused;
    struct asked asked;
    char about[SL_ABOUT_MAX];
    bool whole; /* the end line is present */
};

static bool parse_cookie(const char *hex, uint8_t cookie[16])
{
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * (size_t)i, "%2x", &byte) != 1)
            return false;
        cookie[i] = (uint8_t)byte;
    }
    return true;
}

/* A line of a newer version, which was replaced by this one: what it says is not known here, and the rest holds. */
static bool is_unknown(const char *line)
{
    static const char *const known[] = {"sluice-lease", "end",      "paused", "cookie",   "owner",
                                        "creator",      "cores",    "gpu",    "priority", "compute",
                                        "about",        "keep-gpu", "keep"};
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz-");
    if (n == 0 || (line[n] != ' ' && line[n] != '\0'))
        return false;
    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++)
        if (strlen(known[i]) == n && strncmp(line, known[i], n) == 0)
            return false;
    return true;
}

static bool parse_line(const char *line, struct saved *s)
{
    char hex[40];
    if (strcmp(line, "sluice-lease 1") == 0)
        return true;
    if (strcmp(line, "end") == 0)
        return s->whole = true;
    if (strcmp(line, "paused") == 0)
        return s->paused = true;
    if (sscanf(line, "cookie %39s", hex) == 1)
        return strlen(hex) == 32 && parse_cookie(hex, s->cookie);
    if (sscanf(line, "owner %u", &s->owner) == 1) /* of builds between 0.1 and 0.2 */
        return true;
    if (sscanf(line, "creator %d %" SCNu64 " owner %u", &s->creator, &s->creator_start,
               &s->owner) >= 2)
        return true;
    if (sscanf(line, "cores %u %u", &s->request, &s->limit) == 2)
        return s->request <= 1000 && s->limit <= 1000;
    if (sscanf(line, "priority %u", &s->priority) == 1)
        return s->priority <= SL_PRIORITY_HIGH;
    if (sscanf(line, "compute %u", &s->compute) == 1)
        return s->compute == SL_COMPUTE_SLICES || s->compute == SL_COMPUTE_TURNS;
    if (strncmp(line, "about ", 6) == 0)
        return (size_t)snprintf(s->about, sizeof(s->about), "%s", line + 6) < sizeof(s->about);
    struct asked *k = &s->asked;
    if (sscanf(line, "keep %u %u %" SCNu64 " %u %u %u", &k->fields, &k->memory_percent,
               &k->memory_bytes, &k->cores_request_permille, &k->cores_limit_permille,
               &k->priority) == 6)
        return s->kept = true;
    unsigned at;
    uint64_t own;
    if (sscanf(line, "keep-gpu %u %" SCNu64, &at, &own) == 2 && at < SL_MAX_GPUS) {
        k->gpu_memory_bytes[at] = own;
        return true;
    }
    /* Earlier builds wrote two fields, and read two of three. */
    uint32_t n = s->gpu_count;
    if (n >= SL_MAX_GPUS)
        return false;
    s->share[n] = SL_NO_LIMIT;
    if (sscanf(line, "gpu %63s %" SCNu64 " %" SCNu64, s->uuid[n], &s->bytes[n], &s->share[n]) < 2)
        return is_unknown(line);
    s->gpu_count++;
    return true;
}

static int parse_state(char *text, struct saved *ret)
{
    char *save = NULL;
    int lines = 0;
    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), lines++)
        if ((lines == 0) != (strncmp(line, "sluice-lease", 12) == 0) || !parse_line(line, ret))
            return -EPROTO;
    return ret->whole && ret->gpu_count ? 0 : -EPROTO;
}

/* Restores a saved lease. Its GPUs must still be here. The memory left is not checked: the lease was granted before and
 * stays valid. */
static int revive(struct arbiter *a, const char *name, const struct saved *s, struct sl_err *err)
{
    struct tenant *t = sl_arb_tenant_alloc();
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    memcpy(t->cookie, s->cookie, sizeof(t->cookie));
    memcpy(t->about, s->about, sizeof(t->about));
    t->owner = s->owner;
    t->kept = s->kept;
    t->untold = true;
    t->asked = s->asked;
    t->compute = s->compute;
    t->created_ns = a->now_ns;
    t->recover_until_ns = a->now_ns + SL_ARB_RECOVER_NS;
    t->creator_pid = s->creator;
    t->creator_start = s->creator_start;
    if (sl_arb_process_start(s->creator) != s->creator_start)
        t->creator_pid = 0; /* pidfd_open(0) fails: no creator holds the empty tenant */
    int rc = sl_lease_create(t->cookie, &t->lease, err);
    for (uint32_t i = 0; rc == 0 && i < s->gpu_count; i++) {
        uint32_t g = 0;
        while (g < a->gpu_count && strcmp(a->gpu[g].uuid, s->uuid[i]) != 0)
            g++;
        if (g == a->gpu_count) {
            rc = sl_err_set(err, -ENODEV, SL_E_LEASE_GPU_GONE, s->uuid[i]);
            break;
        }
        struct sl_lease_gpu *lg = &t->lease.page->gpu[i];
        t->gpu[t->gpu_count++] = g;
        memcpy(lg->uuid, a->gpu[g].uuid, sizeof(lg->uuid));
        lg->card_bytes = a->gpu[g].total_bytes;
        t->terms.memory_bytes[i] = s->bytes[i];
        t->share_bytes[i] = s->share[i];
    }
    if (rc == 0) {
        struct sl_lease_page *p = t->lease.page;
        (void)snprintf(p->name, sizeof(p->name), "%s", name);
        p->gpu_count = t->gpu_count;
        t->terms.cores_request_permille = s->request;
        t->terms.cores_limit_permille = s->limit;
        t->terms.priority = s->priority;
        t->terms.paused = s->paused;
        sl_arb_tenant_terms(t);
        sl_arb_overheads_load(a, t);
        sl_arb_use_load(a, t);
        rc = sl_arb_tenant_open(a, t, err);
    }
    if (rc < 0)
        sl_arb_tenant_drop(a, t);
    return rc;
}

static void load_one(struct arbiter *a, const char *file)
{
    struct sl_err err = SL_ERR_INIT;
    struct saved s = {.owner = geteuid()};
    char name[SL_NAME_MAX];
    SL_CLEANUP(free) char *text = NULL;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(".lease")), file);
    int rc = sl_fs_read(a->tenants_fd, file, STATE_MAX, &text, NULL, &err);
    if (rc == 0 && parse_state(text, &s) < 0)
        rc = sl_err_set(&err, -EPROTO, SL_E_LEASE_DAMAGED);
    if (rc == 0)
        rc = revive(a, name, &s, &err);
    if (rc < 0) {
        char aside[NAME_MAX + 1];
        (void)snprintf(aside, sizeof(aside), "%s.bad", name);
        sl_warn(SL_E_LEASE_REFUSED_LOG, name, err.msg, aside);
        (void)renameat(a->tenants_fd, file, a->tenants_fd, aside);
    } else {
        sl_info("tenant %s is taken over from an earlier arbiter", name);
    }
}

void sl_arb_state_load(struct arbiter *a)
{
    int fd = dup(a->tenants_fd);
    SL_CLEANUP(closedir) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return;
    rewinddir(dir);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        size_t n = strlen(d->d_name);
        if (n > 6 && n - 6 < SL_NAME_MAX && strcmp(d->d_name + n - 6, ".lease") == 0)
            load_one(a, d->d_name);
    }
}
