/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration read, planned and freed while the n-th allocation of ours fails, for every n, once
 * alone and once with all that follow: refused for want of memory or right, and nothing is left.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/plan.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *ptr, size_t count, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *ptr);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *ptr, size_t count, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap);
int __real_vasprintf(char **ret, const char *fmt, va_list ap);
void __wrap_free(void *ptr);

static unsigned long allocations, fail_at, failures;
static long live;
static bool persistent;

static bool fails(void)
{
    allocations++;
    bool now = fail_at && (persistent ? allocations >= fail_at : allocations == fail_at);
    failures += now;
    return now;
}

static void *count(void *p)
{
    live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : count(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_reallocarray(void *ptr, size_t n, size_t size)
{
    void *p = fails() ? NULL : __real_reallocarray(ptr, n, size);
    live += p && !ptr;
    return p;
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : count(__real_strdup(text));
}

int __wrap_vasprintf(char **ret, const char *fmt, va_list ap)
{
    int n = fails() ? -1 : __real_vasprintf(ret, fmt, ap);
    live += n >= 0;
    return n;
}

void __wrap_free(void *ptr)
{
    live -= ptr != NULL;
    __real_free(ptr);
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: allocation %lu%s: not true: %s\n", __FILE__, __LINE__,         \
                    fail_at, persistent ? " and all after" : "", #cond);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char text[] =
    "flags: {migStrategy: single, mpsRoot: /a, plugin: {deviceListStrategy: [envvar, cdi-cri]}}\n"
    "resources: {gpus: [{pattern: '*', name: big}], mig: [{pattern: x, name: y}]}\n"
    "sharing:\n"
    "  timeSlicing:\n"
    "    resources:\n"
    "    - {name: big, replicas: 3, devices: [0, GPU-0123abcd-0123-89ab-cdef-0123456789ab], rename: z}\n"
    "    - {name: other, replicas: 2}\n"
    "health: {ignoreXIDs: [1, 2], watchXIDs: [3]}\n";

static bool day(void)
{
    char variable[] = "NVIDIA_DRIVER_ROOT=/r";
    char *env[] = {variable, NULL};
    struct sl_config_override flag = {"device-list-strategy", "cdi-cri,envvar"};
    struct sl_inv_gpu gpu[2] = {{.info = {.uuid = "GPU-0", .name = "H200"}},
                                {.info = {.uuid = "GPU-1", .name = "H200", .mig_enabled = true}}};
    struct sl_inventory inv = {.gpu = gpu, .gpu_count = 2};
    struct sl_config *c = NULL;
    struct sl_plan *plan = NULL;
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_config_parse("f", text, strlen(text), env, &flag, 1, &c, &err);
    if (rc == 0)
        rc = sl_plan_make(c, &inv, &plan, &err);
    CHECK(rc == 0 || rc == -ENOMEM);
    CHECK(rc == 0 || (err.msg[0] && !plan));
    if (rc == 0)
        CHECK(plan->resource_count == 1 && plan->warning_count == 3);
    sl_plan_free(plan);
    sl_config_free(c);
    return rc == 0;
}

int main(void)
{
    unsigned long days = 0;
    CHECK(day()); /* in good health */
    CHECK(live == 0);
    for (int mode = 0; mode < 2; mode++) {
        persistent = mode == 1;
        for (fail_at = 1;; fail_at++, days++) {
            allocations = failures = 0;
            bool good = day();
            CHECK(live == 0);
            CHECK(good == (failures == 0));
            if (good)
                break;
        }
        CHECK(fail_at > 20);
    }
    fail_at = 0;
    printf("%lu days without memory, nothing lost\n", days);
    return 0;
}
