/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_podres.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "podresources.pb-c.h"
#include "rpc/pb.h"

/* A pod and a container a device: agents have to put up with a container listed in pieces too. */
struct entry {
    Podres__PodResources pod;
    Podres__ContainerResources container;
    Podres__ContainerDevices devices;
    Podres__ContainerResources *containers[1];
    Podres__ContainerDevices *device_list[1];
    char *ids[1];
};

static void on_list(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    (void)msg, (void)size;
    struct fake_podres *p = data;
    p->asked++;
    if (p->silent)
        return;
    size_t n = p->blank ? 0 : p->count;
    struct entry *entries = calloc(n + 1, sizeof(*entries));
    Podres__PodResources **pods = calloc(n + 1, sizeof(*pods));
    for (size_t i = 0; i < n; i++) {
        struct entry *e = &entries[i];
        struct fake_placed *at = &p->placed[i];
        podres__pod_resources__init(&e->pod);
        podres__container_resources__init(&e->container);
        podres__container_devices__init(&e->devices);
        e->ids[0] = at->id;
        e->devices.resource_name = at->resource;
        e->devices.device_ids = e->ids;
        e->device_list[0] = &e->devices;
        e->container.name = at->container;
        e->container.devices = e->device_list;
        e->containers[0] = &e->container;
        e->pod.name = at->pod;
        e->pod.namespace_ = at->space;
        e->pod.containers = e->containers;
        e->devices.n_device_ids = e->container.n_devices = e->pod.n_containers = 1;
        pods[i] = &e->pod;
    }
    Podres__ListPodResourcesResponse answer = PODRES__LIST_POD_RESOURCES_RESPONSE__INIT;
    answer.pod_resources = pods;
    answer.n_pod_resources = n;
    sl_rpc_pb_reply(call, &answer.base);
    free(entries);
    free(pods);
}

void fake_podres_start(struct fake_podres *p, struct sl_loop *loop, const char *path)
{
    struct sl_err err = SL_ERR_INIT;
    p->loop = loop;
    (void)snprintf(p->path, sizeof(p->path), "%s", path);
    assert_int_equal(sl_rpc_server_create(loop, NULL, &p->server, &err), 0);
    assert_int_equal(
        sl_rpc_server_handle(p->server, "/v1.PodResourcesLister/List", on_list, p, &err), 0);
    assert_int_equal(sl_rpc_server_listen(p->server, p->path, 0600, &err), 0);
}

void fake_podres_stop(struct fake_podres *p)
{
    sl_rpc_server_destroy(p->server);
    p->server = NULL;
}

void fake_podres_place(struct fake_podres *p, const char *space, const char *pod,
                       const char *container, const char *resource, const char *id)
{
    assert_true(p->count < FAKE_PLACED);
    struct fake_placed *at = &p->placed[p->count++];
    (void)snprintf(at->space, sizeof(at->space), "%s", space);
    (void)snprintf(at->pod, sizeof(at->pod), "%s", pod);
    (void)snprintf(at->container, sizeof(at->container), "%s", container);
    (void)snprintf(at->resource, sizeof(at->resource), "%s", resource);
    (void)snprintf(at->id, sizeof(at->id), "%s", id);
}

void fake_podres_remove(struct fake_podres *p, const char *space, const char *pod)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->placed[i].space, space) != 0 || strcmp(p->placed[i].pod, pod) != 0)
            p->placed[kept++] = p->placed[i];
    p->count = kept;
}
