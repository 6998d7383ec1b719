/* SPDX-License-Identifier: Apache-2.0 */
/* What the DRA driver remembers of cards from one reading to the next: by UUID, for places change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/dra/dra_internal.h"

static struct sl_inv_gpu card(const char *uuid, bool lost)
{
    struct sl_inv_gpu g = {.lost = lost};
    (void)snprintf(g.info.uuid, sizeof(g.info.uuid), "%s", uuid);
    return g;
}

static void update(struct sl_dra *dra, struct sl_inventory *inv, const struct sl_config *config)
{
    sl_dra_update(dra, inv, config, NULL);
}

static void health_follows_the_card(void **state)
{
    (void)state;
    char dir[] = "/tmp/sluice-cards-XXXXXX", registry[64], command[128];
    struct sl_loop *loop = NULL;
    struct sl_dra *dra = NULL;
    struct sl_config *config = NULL;
    struct sl_err err = SL_ERR_INIT;
    static const struct sl_dra_ops ops = {.submit = NULL};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(registry, sizeof(registry), "%s/registry", dir);
    (void)snprintf(command, sizeof(command), "mkdir %s", registry);
    assert_int_equal(system(command), 0);
    struct sl_dra_options opt = {.node_name = "n",
                                 .plugin_dir = dir,
                                 .registry_dir = registry,
                                 .cdi_dir = dir,
                                 .arbiter_dir = dir};
    assert_int_equal(sl_loop_create(NULL, &loop, &err), 0);
    assert_int_equal(sl_config_load(NULL, NULL, NULL, 0, &config, &err), 0);
    if (sl_dra_create(loop, &opt, NULL, &ops, NULL, &dra, &err) < 0)
        fail_msg("%s", err.msg);
    struct sl_inv_gpu first[] = {card("GPU-a", false), card("GPU-b", true)};
    struct sl_inventory one = {.gpu = first, .gpu_count = 2};
    update(dra, &one, config);
    assert_false(dra->card[0].lost_untold);
    assert_true(dra->card[1].lost_untold);
    sl_dra_health(dra, "GPU-a", false, "Xid 79");
    /* The same state in another order, and a card more: nothing has happened to any of them. */
    struct sl_inv_gpu second[] = {card("GPU-c", false), card("GPU-b", true), card("GPU-a", false)};
    struct sl_inventory two = {.gpu = second, .gpu_count = 3};
    update(dra, &two, config);
    for (size_t i = 0; i < 3; i++) {
        assert_false(dra->card[i].lost_untold);
        assert_int_equal(dra->card[i].unhealthy, i == 2);
    }
    /* One comes back while places change again. */
    struct sl_inv_gpu third[] = {card("GPU-b", false), card("GPU-a", false)};
    struct sl_inventory three = {.gpu = third, .gpu_count = 2};
    update(dra, &three, config);
    assert_true(dra->card[0].lost_untold && !dra->card[0].unhealthy);
    assert_true(!dra->card[1].lost_untold && dra->card[1].unhealthy);
    sl_dra_destroy(dra);
    sl_config_free(config);
    sl_loop_destroy(loop);
    (void)snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(health_follows_the_card)};
    return cmocka_run_group_tests_name("dra_cards", tests, NULL, NULL);
}
