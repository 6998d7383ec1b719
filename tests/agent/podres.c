/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet's list of pods from a kubelet that counts, is slow, goes away and comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/kubelet/podres.h"
#include "base/clock.h"
#include "podresources.pb-c.h"
#include "rpc/pb.h"

static uint64_t now_ns = 1000 * SL_NS_PER_S;
static struct sl_loop *loop;
static struct sl_rpc_server *server;
static struct sl_podres *podres;
static char folder[64], path[96];
static unsigned asked;
static bool silent;

static uint64_t clock_ns(void)
{
    return now_ns;
}

/* gpu-0::0 and gpu-0::1 are in two pods; a pod that has ended still has gpu-0::1; one claim of two
 * devices. The CDI names add up from device to device, as kubelet's do. */
static void list(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg;
    (void)size;
    (void)data;
    asked++;
    if (silent)
        return;
    char id0[] = "gpu-0::0", id1[] = "gpu-0::1", res[] = "nvidia.com/gpu",
         other[] = "example.com/x";
    char a[] = "a", b[] = "b", old[] = "old", main_[] = "main", side[] = "side", ns[] = "team";
    char driver[] = "gpu.sluice.io", pool[] = "node-1", dev0[] = "gpu-0", dev1[] = "gpu-1";
    char share[] = "s1", claim[] = "half", cdi0[] = "k/c=gpu-0", cdi1[] = "k/c=gpu-1";
    char *ids_a[] = {id0}, *ids_b[] = {id1};
    Podres__ContainerDevices devs[4] = {
        PODRES__CONTAINER_DEVICES__INIT, PODRES__CONTAINER_DEVICES__INIT,
        PODRES__CONTAINER_DEVICES__INIT, PODRES__CONTAINER_DEVICES__INIT};
    devs[0].resource_name = devs[1].resource_name = devs[2].resource_name = res;
    devs[3].resource_name = other;
    devs[0].device_ids = ids_a;
    devs[1].device_ids = devs[2].device_ids = devs[3].device_ids = ids_b;
    devs[0].n_device_ids = devs[1].n_device_ids = devs[2].n_device_ids = devs[3].n_device_ids = 1;
    Podres__CDIDevice cdi[2] = {PODRES__CDIDEVICE__INIT, PODRES__CDIDEVICE__INIT};
    cdi[0].name = cdi0;
    cdi[1].name = cdi1;
    Podres__CDIDevice *cdis[] = {&cdi[0], &cdi[1]};
    Podres__ClaimResource claims[2] = {PODRES__CLAIM_RESOURCE__INIT, PODRES__CLAIM_RESOURCE__INIT};
    for (size_t i = 0; i < 2; i++) {
        claims[i].driver_name = driver;
        claims[i].pool_name = pool;
        claims[i].device_name = i ? dev1 : dev0;
        claims[i].cdi_devices = cdis;
        claims[i].n_cdi_devices = i + 1;
    }
    claims[1].share_id = share;
    Podres__ClaimResource *claim_list[] = {&claims[1], &claims[0]};
    Podres__DynamicResource dynamic = PODRES__DYNAMIC_RESOURCE__INIT;
    dynamic.claim_name = claim;
    dynamic.claim_namespace = ns;
    dynamic.claim_resources = claim_list;
    dynamic.n_claim_resources = 2;
    Podres__DynamicResource *dynamics[] = {&dynamic};
    Podres__ContainerDevices *list_a[] = {&devs[0]}, *list_b[] = {&devs[3], &devs[1]},
                             *list_old[] = {&devs[2]};
    Podres__ContainerResources c[3] = {PODRES__CONTAINER_RESOURCES__INIT,
                                       PODRES__CONTAINER_RESOURCES__INIT,
                                       PODRES__CONTAINER_RESOURCES__INIT};
    c[0].name = c[2].name = main_;
    c[1].name = side;
    c[0].devices = list_a;
    c[1].devices = list_b;
    c[2].devices = list_old;
    c[0].n_devices = c[2].n_devices = 1;
    c[1].n_devices = 2;
    c[1].dynamic_resources = dynamics;
    c[1].n_dynamic_resources = 1;
    Podres__ContainerResources *in_a[] = {&c[0]}, *in_b[] = {&c[1]}, *in_old[] = {&c[2]};
    Podres__PodResources pods[3] = {PODRES__POD_RESOURCES__INIT, PODRES__POD_RESOURCES__INIT,
                                    PODRES__POD_RESOURCES__INIT};
    pods[0].name = b;
    pods[1].name = a;
    pods[2].name = old;
    pods[0].namespace_ = pods[1].namespace_ = pods[2].namespace_ = ns;
    pods[0].containers = in_b;
    pods[1].containers = in_a;
    pods[2].containers = in_old;
    pods[0].n_containers = pods[1].n_containers = pods[2].n_containers = 1;
    Podres__PodResources *all[] = {&pods[0], &pods[1], &pods[2]};
    Podres__ListPodResourcesResponse answer = PODRES__LIST_POD_RESOURCES_RESPONSE__INIT;
    answer.pod_resources = all;
    answer.n_pod_resources = 3;
    sl_rpc_pb_reply(call, &answer.base);
}

static unsigned called;
static const struct sl_podres_map *map;
static struct sl_err failed;

static void done(void *data, const struct sl_podres_map *m, const struct sl_err *err)
{
    (void)data;
    called++;
    map = m;
    failed = err ? *err : (struct sl_err)SL_ERR_INIT;
}

static void settle(void)
{
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(sl_loop_step(loop, i < 20 ? 1 : 0, NULL), 0);
}

static void start_kubelet(void)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_rpc_server_create(loop, NULL, &server, &err), 0);
    assert_int_equal(sl_rpc_server_handle(server, "/v1.PodResourcesLister/List", list, NULL, &err),
                     0);
    assert_int_equal(sl_rpc_server_listen(server, path, 0600, &err), 0);
}

static int setup(void **state)
{
    (void)state;
    (void)strcpy(folder, "/tmp/sluice-podres-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/kubelet.sock", folder);
    assert_int_equal(sl_loop_create(clock_ns, &loop, NULL), 0);
    podres = sl_podres_create(loop, path, 0);
    asked = called = 0;
    map = NULL;
    silent = false;
    server = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_podres_destroy(podres);
    settle();
    sl_rpc_server_destroy(server);
    settle();
    sl_loop_destroy(loop);
    (void)unlink(path);
    (void)rmdir(folder);
    return 0;
}

static const struct sl_podres_claim *claim_of(const struct sl_podres_map *list, const char *device,
                                              const char *share_id)
{
    for (size_t i = 0; i < list->claim_count; i++)
        if (strcmp(list->claim[i].device, device) == 0 &&
            strcmp(list->claim[i].share_id, share_id) == 0)
            return &list->claim[i];
    return NULL;
}

static void finds_owners(void **state)
{
    (void)state;
    const struct sl_podres_device *d;
    start_kubelet();
    sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(called, 1);
    assert_int_equal(failed.code, 0);
    assert_int_equal(sl_podres_find(map, "nvidia.com/gpu", "gpu-0::0", &d), 1);
    assert_string_equal(d->pod, "a");
    assert_string_equal(d->container, "main");
    assert_string_equal(d->pod_namespace, "team");
    assert_int_equal(sl_podres_find(map, "nvidia.com/gpu", "gpu-0::1", &d), 2); /* b and old */
    assert_int_equal(sl_podres_find(map, "nvidia.com/gpu", "gpu-9", &d), 0);
    assert_null(d);
    assert_int_equal(sl_podres_in_use(map, "nvidia.com/gpu"), 2); /* different ones */
    assert_int_equal(sl_podres_in_use(map, "example.com/x"), 1);
    assert_int_equal(sl_podres_in_use(map, "nvidia.com/none"), 0);
    const struct sl_podres_claim *c = claim_of(map, "gpu-1", "s1");
    assert_string_equal(c->claim, "half");
    assert_string_equal(c->container, "side");
    assert_non_null(claim_of(map, "gpu-0", ""));
    assert_null(claim_of(map, "gpu-0", "s1"));
    assert_int_equal(sl_podres_find(NULL, "x", "y", &d), 0);
    assert_int_equal(sl_podres_in_use(NULL, "x"), 0);
}

static void asks_not_too_often(void **state)
{
    (void)state;
    start_kubelet();
    for (unsigned i = 0; i < 5; i++)
        sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(called, 5);
    assert_int_equal(asked, 1);
    sl_podres_get(podres, done, NULL);
    assert_int_equal(called, 6);
    now_ns += 6 * SL_NS_PER_S;
    sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(asked, 2);
}

static void kubelet_comes_and_goes(void **state)
{
    (void)state;
    sl_podres_get(podres, done, NULL); /* not there yet */
    assert_int_equal(called, 1);
    assert_null(map);
    assert_true(failed.code < 0);
    start_kubelet();
    now_ns += 2 * SL_NS_PER_S;
    sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(failed.code, 0);
    sl_rpc_server_destroy(server);
    (void)unlink(path);
    settle();
    server = NULL;
    now_ns += 6 * SL_NS_PER_S;
    sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(called, 3);
    assert_true(failed.code < 0);
    assert_non_null(map); /* the old one, and why it is old */
    start_kubelet();
    now_ns += 2 * SL_NS_PER_S;
    sl_podres_get(podres, done, NULL);
    settle();
    assert_int_equal(failed.code, 0);
    assert_int_equal(asked, 2);
}

static void kubelet_hangs(void **state)
{
    (void)state;
    int mine, other;
    start_kubelet();
    silent = true;
    sl_podres_get(podres, done, &mine);
    sl_podres_get(podres, done, &other);
    sl_podres_forget(podres, &mine);
    settle();
    assert_int_equal(called, 0);
    now_ns += 4 * SL_NS_PER_S;
    settle();
    assert_int_equal(called, 1);
    assert_true(failed.code < 0);
    sl_podres_get(podres, done, &mine); /* still too soon to ask again */
    assert_int_equal(called, 2);
    assert_int_equal(asked, 1);
    now_ns += 2 * SL_NS_PER_S;
    sl_podres_get(podres, done, &mine); /* destroyed while waiting */
    settle();
}

/* Fresh is what was asked for after the question came. */
static void fresh_means_after(void **state)
{
    (void)state;
    int mine, other;
    start_kubelet();
    sl_podres_fresh(podres, done, &mine);
    sl_podres_fresh(podres, done, &other); /* kubelet may have been asked already */
    sl_podres_fresh(podres, done, &other);
    settle();
    assert_int_equal(called, 3);
    assert_int_equal(asked, 2);
    assert_non_null(map);
    sl_podres_get(podres, done, NULL); /* young enough */
    assert_int_equal(called, 4);
    sl_podres_fresh(podres, done, &mine);
    settle();
    assert_int_equal(called, 5);
    assert_int_equal(asked, 3);
    /* Those who wait for the next question are forgotten and destroyed like the others. */
    silent = true;
    sl_podres_fresh(podres, done, &mine);
    sl_podres_fresh(podres, done, &mine);
    sl_podres_fresh(podres, done, &other);
    sl_podres_forget(podres, &mine);
    settle();
    assert_int_equal(called, 5);
    now_ns += 4 * SL_NS_PER_S; /* nobody waits for that one any more */
    settle();
    assert_int_equal(called, 5);
    now_ns += 4 * SL_NS_PER_S;
    settle();
    assert_int_equal(called, 6);
    assert_true(failed.code < 0);
    sl_podres_fresh(podres, done, &mine);
    sl_podres_fresh(podres, done, &other);
    settle();
}

static void fresh_of_nobody(void **state)
{
    (void)state;
    sl_podres_fresh(podres, done, NULL);
    assert_int_equal(called, 1);
    assert_true(failed.code < 0);
    sl_podres_fresh(podres, done, NULL); /* asked again, however soon */
    assert_int_equal(called, 2);
    start_kubelet();
    sl_podres_fresh(podres, done, NULL);
    settle();
    assert_int_equal(called, 3);
    assert_int_equal(failed.code, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finds_owners),  TEST(asks_not_too_often), TEST(kubelet_comes_and_goes),
        TEST(kubelet_hangs), TEST(fresh_means_after),  TEST(fresh_of_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
