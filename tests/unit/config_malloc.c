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
#include "support/nth_malloc.h"

#define CHECK NTH_CHECK

static const char text[] =
    "flags: {migStrategy: single, mpsRoot: /a, plugin: {deviceListStrategy: [envvar, cdi-cri]}}\n"
    "resources: {gpus: [{pattern: '*', name: big}], mig: [{pattern: x, name: y}]}\n"
    "sharing:\n"
    "  timeSlicing:\n"
    "    resources:\n"
    "    - {name: big, replicas: 3, devices: [0, GPU-12], rename: z}\n"
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
    CHECK(nth_malloc.live == 0);
    for (int mode = 0; mode < 2; mode++) {
        unsigned long n = 1;
        nth_malloc.persistent = mode == 1;
        for (;; n++, days++) {
            (void)nth_malloc_set(n);
            bool good = day();
            CHECK(nth_malloc.live == 0);
            CHECK(good == (nth_malloc.failures == 0));
            if (good)
                break;
        }
        CHECK(n > 20);
    }
    nth_malloc.fail_at = 0;
    printf("%lu days without memory, nothing lost\n", days);
    return 0;
}
