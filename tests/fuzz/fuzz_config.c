/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's configuration: any file is either refused with a message, or read to a value that is
 * printed and read back the same, as YAML and as JSON; and a plan made of it keeps its promises.
 */
#include <string.h>

#include "config/plan.h"
#include "fuzz.h"

static struct sl_config *parse(const char *text, size_t size)
{
    struct sl_config *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_config_parse("f", text, size, NULL, NULL, 0, &c, &err) < 0) {
        FUZZ_CHECK(err.code < 0 && err.msg[0] != '\0' && !c);
        for (const char *p = err.msg; *p; p++)
            FUZZ_CHECK(*p >= ' ' && *p <= '~');
        return NULL;
    }
    FUZZ_CHECK(err.code == 0 && c);
    return c;
}

static void round_trip(const struct sl_config *c, bool json)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    FUZZ_CHECK(f);
    struct sl_json j;
    sl_json_init(&j, f);
    if (json)
        sl_config_json(c, NULL, &j);
    else
        sl_config_print(c, f);
    FUZZ_CHECK(fclose(f) == 0);
    struct sl_config *again = parse(text, size);
    FUZZ_CHECK(again && sl_config_equal(c, again));
    sl_config_free(again);
    free(text);
}

/* Two cards, one of them in MIG mode with three kinds of device. */
static void plan(const struct sl_config *c)
{
    struct sl_inv_mig mig[3] = {{.info = {.uuid = "MIG-0", .profile = "1g.18gb"}},
                                {.info = {.uuid = "MIG-1", .profile = "3g.71gb"}},
                                {.info = {.uuid = "MIG-2", .profile = "1c.3g.71gb"}}};
    struct sl_inv_gpu gpu[2] = {
        {.info = {.uuid = "GPU-0", .name = "NVIDIA H200", .numa_node = -1}},
        {.info = {.uuid = "GPU-1", .name = "NVIDIA H200", .numa_node = 0, .mig_enabled = true},
         .mig = mig,
         .mig_count = 3}};
    struct sl_inventory inv = {.gpu = gpu, .gpu_count = 2, .cuda_version = 13010};
    struct sl_plan *p = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_plan_make(c, &inv, &p, &err) < 0) {
        FUZZ_CHECK(err.msg[0] != '\0' && !p);
        return;
    }
    for (size_t i = 0; i < p->resource_count; i++) {
        const struct sl_plan_resource *r = &p->resource[i];
        FUZZ_CHECK(r->device_count > 0 && strlen(r->name) <= 63);
        for (size_t k = 0; k < i; k++)
            FUZZ_CHECK(strcmp(p->resource[k].name, r->name) != 0);
        for (size_t d = 0; d < r->device_count; d++)
            FUZZ_CHECK(r->device[d].id[0] && r->device[d].gpu < 2 &&
                       (r->device[d].mig == SL_NO_MIG ||
                        (r->device[d].mig < 3 && r->device[d].sharing != SL_SHARING_MPS)));
    }
    sl_plan_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_config *c = parse((const char *)data, size);
    if (!c)
        return 0;
    round_trip(c, false);
    round_trip(c, true);
    plan(c);
    sl_config_free(c);
    return 0;
}
