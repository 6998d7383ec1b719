/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the driver, writing the specs and answering Allocate while the n-th allocation fails, for every
 * n, in our code, jansson and libc alike. Either all of it is as without the fault, or the answer is
 * -ENOMEM and no spec is there; never a spec or an answer with less in it. Nothing is left allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/container/cdi.h"
#include "agent/kubelet/allocate.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "driver_world.h"

void *__libc_malloc(size_t size);           /* NOLINT(bugprone-reserved-identifier): glibc's own */
void *__libc_calloc(size_t n, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *p, size_t size); /* NOLINT(bugprone-reserved-identifier) */
void __libc_free(void *p);                  /* NOLINT(bugprone-reserved-identifier) */

/* volatile: to the compiler, malloc() and free() change no variable of ours. */
static volatile unsigned long allocations, fail_at;
static volatile long live;
static volatile bool counting;

#define OURS __attribute__((visibility("default"))) /* libc's and jansson's calls come here too */

static bool fails(void)
{
    if (!counting || ++allocations != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

OURS void *malloc(size_t size)
{
    void *p = fails() ? NULL : __libc_malloc(size);
    live += p != NULL;
    return p;
}

OURS void *calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __libc_calloc(n, size);
    live += p != NULL;
    return p;
}

OURS void *realloc(void *old, size_t size)
{
    void *p = fails() ? NULL : __libc_realloc(old, size);
    live += p && !old;
    return p;
}

OURS void free(void *p)
{
    live -= p != NULL;
    __libc_free(p);
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            counting = false;                                                                      \
            (void)fprintf(stderr, "allocation %lu: line %d: %s\n", fail_at, __LINE__, #cond);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CLAIM "2d5d1c52-claim"

static const char *const files[] = {"k8s.device-plugin.nvidia.com-gpu.json",
                                    "k8s.gpu.sluice.io-claim_" CLAIM ".json"};

/* The whole day of an agent; the number of edits it answered an Allocate with goes to *ret_edits. */
static int day(const struct driver_world *w, const struct sl_inventory *inv, size_t *ret_edits)
{
    static struct sl_plan_device device = {.id = "MIG-x", .gpu = 1, .mig = 0};
    static const struct sl_plan_resource resource = {
        .name = "nvidia.com/gpu", .device = &device, .device_count = 1};
    static const struct sl_config config = {
        .list_strategy = SL_LIST_ENVVAR | SL_LIST_CDI_ANNOTATIONS | SL_LIST_CDI_CRI,
        .pass_device_specs = true,
        .imex_channel0 = true};
    struct sl_driver_options o = {.root = w->root, .proc = w->proc};
    struct sl_driver *d = NULL;
    struct sl_edits common = {0}, edits = {0}, answer = {0};
    const char *const ids[] = {"MIG-x"};
    const struct sl_cdi_device claim = {"gpu", &edits};
    struct sl_err err = SL_ERR_INIT;

    int rc = sl_driver_find(&o, &d, &err);
    if (rc == 0)
        rc = sl_cdi_write_node(w->cdi, d, inv, NULL, &err);
    if (rc == 0)
        rc = sl_cdi_common_edits(d, &common, &err);
    if (rc == 0)
        rc = sl_cdi_device_edits(d, inv, 1, 1, &edits, &err);
    if (rc == 0)
        rc = sl_cdi_write_claim(w->cdi, CLAIM, &claim, 1, &common, &err);
    if (rc == 0)
        rc = sl_allocate_edits(&config, inv, d, &resource, ids, 1, NULL, &answer, &err);
    *ret_edits = answer.env_count + answer.node_count + answer.annotation_count + answer.cdi_count;
    CHECK(rc == 0 || strcmp(err.msg, "") != 0);
    sl_edits_clear(&common);
    sl_edits_clear(&edits);
    sl_edits_clear(&answer);
    sl_driver_free(d);
    return rc;
}

static char *spec(const struct driver_world *w, const char *file)
{
    char path[PATH_MAX], *text = NULL;
    (void)snprintf(path, sizeof(path), "%s/%s", w->cdi, file);
    return sl_fs_read(AT_FDCWD, path, 1u << 20, &text, NULL, NULL) == 0 ? text : NULL;
}

static void forget(const struct driver_world *w)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < SL_ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", w->cdi, files[i]);
        (void)unlink(path);
    }
}

int main(void)
{
    void *state = NULL;
    size_t edits, want_edits;
    if (driver_world_make(&state) != 0)
        return 1;
    struct driver_world *w = state;
    world_debian(w);
    struct sl_inventory *inv = world_inventory();
    char *want[SL_ARRAY_LEN(files)];
    CHECK(day(w, inv, &want_edits) == 0);
    for (size_t i = 0; i < SL_ARRAY_LEN(files); i++)
        CHECK((want[i] = spec(w, files[i])));
    int rc;
    unsigned long failed = 0;
    do {
        forget(w);
        allocations = 0;
        fail_at++;
        long before = live;
        counting = true;
        rc = day(w, inv, &edits);
        counting = false;
        CHECK(live == before);
        CHECK(rc == 0 || rc == -ENOMEM);
        CHECK(rc < 0 || edits == want_edits);
        failed += rc < 0;
        for (size_t i = 0; i < SL_ARRAY_LEN(files); i++) {
            char *got = spec(w, files[i]);
            CHECK(got ? strcmp(got, want[i]) == 0 : rc < 0);
            free(got);
        }
    } while (allocations >= fail_at);
    CHECK(rc == 0 && failed > 100);
    (void)printf("%lu allocations, %lu of them fatal to the day\n", fail_at - 1, failed);
    for (size_t i = 0; i < SL_ARRAY_LEN(files); i++)
        free(want[i]);
    world_free_inventory(inv);
    return driver_world_remove(&state);
}
