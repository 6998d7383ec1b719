/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what kube-scheduler asks, and as pods and nodes of the API server: always an answer that is JSON, and
 * books that agree. */
#include <string.h>

#include "controller/extender.h"
#include "fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_cluster_options opt = {.policy = SL_PLACE_BEST_FIT, .seed = 1};
    struct sl_cluster *c = NULL;
    struct sl_extender_bind bind = {.uid = ""};
    struct sl_promise promise;
    struct sl_err err = SL_ERR_INIT;
    FUZZ_CHECK(sl_cluster_create(&opt, &c, NULL) == 0);
    struct sl_extender e = {.cluster = c};
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
    if (sl_cluster_audit(c, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    (void)sl_cluster_expire(c, UINT64_MAX);
    sl_cluster_destroy(c);
    return 0;
}
