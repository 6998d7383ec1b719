/* SPDX-License-Identifier: Apache-2.0 */
/* What kubelet's PodResources API says of claims, one line each: namespace pod container claim device share. */
#include <stdio.h>

#include "agent/kubelet/podres.h"

static void print(void *data, const struct sl_podres_map *map, const struct sl_err *err)
{
    int *rc = data;
    *rc = err ? 1 : 0;
    if (err)
        (void)fprintf(stderr, "podres: %s\n", err->msg);
    for (size_t i = 0; !err && i < map->claim_count; i++) {
        const struct sl_podres_claim *c = &map->claim[i];
        printf("%s %s %s %s %s %s\n", c->pod_namespace, c->pod, c->container, c->claim, c->device,
               c->share_id[0] ? c->share_id : "-");
    }
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_loop *loop = NULL;
    int rc = -1;
    if (sl_loop_create(NULL, &loop, &err) < 0) {
        (void)fprintf(stderr, "podres: %s\n", err.msg);
        return 1;
    }
    struct sl_podres *podres = sl_podres_create(loop, argc > 1 ? argv[1] : NULL, 0);
    sl_podres_get(podres, print, &rc);
    while (rc < 0 && sl_loop_step(loop, 1000, &err) == 0)
        ;
    sl_podres_destroy(podres);
    sl_loop_destroy(loop);
    return rc == 0 ? 0 : 1;
}
