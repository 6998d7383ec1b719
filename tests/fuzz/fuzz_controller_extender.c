/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what kube-scheduler asks, and as pods and nodes of the API server: always an answer that is JSON, and
 * books that agree. */
#include <string.h>

#include "controller/extender.h"
#include "controller/names.h"
#include "fuzz.h"
#include "../support/cluster_audit.h"

static const struct sl_claims no_claims;
static const char node[] = "{\"metadata\":{\"name\":\"n1\",\"annotations\":{\"sluice.io/"
                           "gpus\":\"[{\\\"uuid\\\":\\\"GPU-1\\\",\\\"memoryMiB\\\":1000,"
                           "\\\"model\\\":\\\"H100\\\"},{\\\"uuid\\\":\\\"GPU-2\\\","
                           "\\\"memoryMiB\\\":1000,\\\"model\\\":\\\"H100\\\"}]\"}}}";

static void answered(char *text)
{
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    FUZZ_CHECK(j);
    json_decref(j);
    free(text);
}

/* What is read without a parser is what a parser reads. */
static void names_agree(const char *data, size_t size)
{
    struct sl_names n;
    if (!sl_names_scan(data, size, &n))
        return;
    json_t *whole = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    json_t *rest = json_loads(n.rest, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_CHECK(!whole == !rest);
    const json_t *list = json_object_get(whole, "NodeNames"),
                 *lower = json_object_get(whole, "nodenames");
    if (list && lower) { /* the first of them counts; a parser does not tell which that was */
        json_decref(whole);
        whole = NULL;
    }
    list = list ? list : lower;
    FUZZ_CHECK(!whole || json_array_size(list) == n.count);
    for (size_t i = 0; whole && i < n.count; i++)
        FUZZ_CHECK(strcmp(json_string_value(json_array_get(list, i)), n.name[i]) == 0);
    json_decref(whole);
    json_decref(rest);
    sl_names_free(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_cluster_options opt = {.policy = SL_PLACE_BEST_FIT, .seed = 1};
    struct sl_cluster *c = NULL;
    struct sl_extender_bind bind = {.uid = ""};
    struct sl_promise promise;
    struct sl_err err = SL_ERR_INIT;
    names_agree((const char *)data, size);
    FUZZ_CHECK(sl_cluster_create(&opt, &c, NULL) == 0);
    struct sl_extender e = {.cluster = c, .slot_resource = "nvidia.com/gpu", .claims = &no_claims};
    json_t *j = json_loads(node, 0, NULL);
    FUZZ_CHECK(sl_cluster_node_set(c, j, NULL) == 0);
    json_decref(j);
    answered(sl_extender_filter(&e, (const char *)data, size, 1));
    answered(sl_extender_prioritize(&e, (const char *)data, size));
    e.all = true;
    answered(sl_extender_filter(&e, (const char *)data, size, 1));
    if (sl_extender_bind_parse((const char *)data, size, &bind, &err) == 0 &&
        sl_cluster_bind_begin(c, bind.uid, bind.node, 1, &promise, &err) == 0)
        sl_cluster_bind_end(c, bind.uid, SL_CLUSTER_UNKNOWN, "", 1);
    j = json_loadb((const char *)data, size, 0, NULL);
    const json_t *pod = json_object_get(j, "Pod");
    if (json_is_object(pod))
        (void)!sl_cluster_pod_set(c, pod, 2, NULL);
    if (json_is_object(pod))
        (void)!sl_cluster_node_set(c, pod, NULL);
    json_decref(j);
    if (cluster_audit(c, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    sl_cluster_expire(c, UINT64_MAX);
    sl_cluster_destroy(c);
    return 0;
}
