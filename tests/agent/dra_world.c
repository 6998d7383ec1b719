/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a node that the DRA driver's tests put together, each a process to be killed:
 *
 *   dra_world arbiter DIR ROOT                    an arbiter in DIR over the simulated NVML of ROOT
 *   dra_world node DIR ROOT SERVER ARBITER CDI [I]   the driver, its files in DIR; I: an instance's name
 *   dra_world kubelet SOCKET VERB VERSION NS/NAME/UID…   prepare or unprepare, the answer as JSON
 *   dra_world register SOCKET                     what kubelet does with a registration socket
 *   dra_world health SOCKET N                     N messages of the health stream, as JSON
 *   dra_world bench SOCKET N                      N claims default/claim-<i>/<uid i>, one call each, at
 *                                                 once: times in microseconds, sorted
 *   dra_world api PORT                            a quick API server: every claim default/claim-<i> is
 *                                                 there, with a share of 1Gi and 1 %; watches are silent
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cards/devices.h"
#include "container/driver.h"
#include "agent/dra/dra.h"
#include "arbiter/arbiter.h"
#include "base/clock.h"
#include "base/log.h"
#include "dra.pb-c.h"
#include "drahealth.pb-c.h"
#include "http/server.h"
#include "pluginregistration.pb-c.h"
#include "rpc/pb.h"

static struct sl_loop *loop;
static volatile sig_atomic_t stopping;

static void die(const char *what, const struct sl_err *err)
{
    (void)fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(2);
}

static void step(void)
{
    struct sl_err err = SL_ERR_INIT;
    if (sl_loop_step(loop, 200, &err) < 0)
        die("loop", &err);
}

/* --- arbiter --- */

static int arbiter(const char *dir, const char *root)
{
    char library[512];
    struct sl_err err = SL_ERR_INIT;
    if (sl_driver_locate(root, "libnvidia-ml.so.1", library, sizeof(library), &err) < 0)
        die("arbiter", &err);
    struct sl_arbiter_options o = {.dir = dir, .nvml_library = library, .ready_fd = dup(1)};
    if (sl_arbiter_serve(&o, &err) < 0)
        die("arbiter", &err);
    return 0;
}

/* --- node --- */

static struct sl_devices *devices;
static struct sl_dra *dra;
static struct sl_driver *driver;
static struct sl_config *config;
static const char *root;

static void inventory(void *data, const struct sl_inventory *inv)
{
    (void)data;
    struct sl_err err = SL_ERR_INIT;
    struct sl_driver_options o = {.root = root, .version = inv->driver_version};
    if (!driver && sl_driver_find(&o, &driver, &err) < 0)
        die("driver", &err);
    sl_dra_update(dra, inv, config, driver);
}

static void xid(void *data, const char *uuid, const struct sl_gpu_event *event)
{
    (void)data;
    char reason[64];
    (void)snprintf(reason, sizeof(reason), "XID %llu", (unsigned long long)event->xid);
    if (uuid)
        sl_dra_health(dra, uuid, false, reason);
}

static int submit(void *data, sl_devices_job_fn *fn, sl_devices_done_fn *done, void *arg,
                  struct sl_err *err)
{
    (void)data;
    return sl_devices_submit(devices, fn, done, arg, err);
}

static void refresh(void *data)
{
    (void)data;
    sl_devices_refresh(devices);
}

static void event(void *data, const struct sl_dra_event *e)
{
    (void)data;
    (void)printf("EVENT %s %s/%s %s\n", e->reason, e->name_space, e->pod, e->message);
    (void)fflush(stdout);
}

static void on_term(int sig)
{
    (void)sig;
    stopping = 1;
}

static int node(char **a, int n)
{
    char dirs[3][300];
    static const char *const names[] = {"plugin", "registry", "state"};
    struct sl_err err = SL_ERR_INIT;
    for (int i = 0; i < 3; i++)
        (void)snprintf(dirs[i], sizeof(dirs[i]), "%s/%s", a[0], names[i]);
    root = a[1];
    struct sl_kube_options ko = {
        .server = a[2], .ca_file = getenv("DRA_CA"), .token_file = getenv("DRA_TOKEN")};
    struct sl_kube *kube = NULL;
    if (sl_kube_create(loop, &ko, &kube, &err) < 0)
        die("kube", &err);
    if (sl_config_load(getenv("DRA_CONFIG"), NULL, NULL, 0, &config, &err) < 0)
        die("config", &err);
    static const struct sl_dra_ops ops = {.submit = submit, .refresh = refresh, .event = event};
    struct sl_dra_options o = {.node_name = "node-1",
                               .plugin_dir = dirs[0],
                               .registry_dir = dirs[1],
                               .cdi_dir = a[4],
                               .state_dir = dirs[2],
                               .arbiter_dir = a[3],
                               .arbiter_dir_host = "/host/sluice",
                               .sluice_dir_host = "/host/lib",
                               .instance = n > 5 ? a[5] : NULL};
    if (sl_dra_create(loop, &o, kube, &ops, NULL, &dra, &err) < 0)
        die("dra", &err);
    static const struct sl_devices_ops dops = {.inventory = inventory, .xid = xid};
    struct sl_devices_options dopt = {.driver_root = root, .event_wait_ms = 50};
    if (sl_devices_create(loop, &dopt, &dops, NULL, &devices, &err) < 0)
        die("devices", &err);
    (void)signal(SIGTERM, on_term);
    bool said = false;
    while (!stopping) {
        step();
        if (!said && sl_dra_stats(dra).slices_current) {
            said = true;
            (void)printf("READY\n");
            (void)fflush(stdout);
        }
    }
    sl_devices_destroy(devices);
    sl_dra_destroy(dra);
    sl_kube_destroy(kube);
    sl_driver_free(driver);
    sl_config_free(config);
    return 0;
}

/* --- kubelet --- */

struct answer {
    bool done, prepare;
    enum sl_rpc_code code;
    uint64_t at_ns;
    size_t count;
    json_t *json;
};

static json_t *device_json(const Dra__Device *d)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "request", d->request_names[0], "pool", d->pool_name,
                     "device", d->device_name, "cdi", d->cdi_device_ids[0], "shareID", d->share_id);
}

static void message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct answer *a = data;
    ProtobufCMessage *m = NULL;
    struct sl_err err = SL_ERR_INIT;
    (void)call;
    a->json = json_object();
    const ProtobufCMessageDescriptor *type =
        a->prepare ? &dra__node_prepare_resources_response__descriptor
                   : &dra__node_unprepare_resources_response__descriptor;
    if (sl_rpc_pb_unpack(type, msg, size, &m, &err) < 0)
        die("answer", &err);
    if (a->prepare) {
        const Dra__NodePrepareResourcesResponse *r = (const void *)m;
        for (size_t i = 0; i < r->n_claims; i++) {
            json_t *list = json_array();
            for (size_t k = 0; k < r->claims[i]->value->n_devices; k++)
                (void)json_array_append_new(list, device_json(r->claims[i]->value->devices[k]));
            (void)json_object_set_new(
                a->json, r->claims[i]->key,
                json_pack("{s:s,s:o}", "error", r->claims[i]->value->error, "devices", list));
        }
    } else {
        const Dra__NodeUnprepareResourcesResponse *r = (const void *)m;
        for (size_t i = 0; i < r->n_claims; i++)
            (void)json_object_set_new(a->json, r->claims[i]->key,
                                      json_pack("{s:s}", "error", r->claims[i]->value->error));
    }
    sl_rpc_pb_free(m);
}

static void done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text, void *data)
{
    struct answer *a = data;
    (void)call;
    a->done = true;
    a->code = code;
    a->at_ns = sl_now_ns();
    if (code != SL_RPC_OK)
        (void)fprintf(stderr, "status %d: %s\n", (int)code, text);
}

static const struct sl_rpc_call_ops unary = {.message = message, .done = done, .unary = true};

static struct sl_rpc_client *dial(const char *socket)
{
    struct sl_rpc_client *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_rpc_client_connect(loop, socket, NULL, &c, &err) < 0)
        die("connect", &err);
    return c;
}

static void ask(struct sl_rpc_client *c, const char *version, struct answer *a, Dra__Claim **claims,
                size_t n)
{
    char path[128];
    struct sl_err err = SL_ERR_INIT;
    struct sl_rpc_call *call;
    Dra__NodePrepareResourcesRequest p = DRA__NODE_PREPARE_RESOURCES_REQUEST__INIT;
    Dra__NodeUnprepareResourcesRequest u = DRA__NODE_UNPREPARE_RESOURCES_REQUEST__INIT;
    p.claims = u.claims = claims;
    p.n_claims = u.n_claims = n;
    (void)snprintf(path, sizeof(path), "/k8s.io.kubelet.pkg.apis.dra.%s.DRAPlugin/Node%sResources",
                   version, a->prepare ? "Prepare" : "Unprepare");
    if (sl_rpc_pb_call(c, path, a->prepare ? &p.base : &u.base, 45 * SL_NS_PER_S, &unary, a, &call,
                       &err) < 0)
        die("call", &err);
}

static int kubelet(char **a, int n)
{
    struct sl_rpc_client *c = dial(a[0]);
    struct answer answer = {.prepare = strcmp(a[1], "prepare") == 0};
    Dra__Claim claim[64], *list[64];
    size_t count = 0;
    for (int i = 3; i < n && count < 64; i++, count++) {
        dra__claim__init(&claim[count]);
        claim[count].namespace_ = strtok(a[i], "/");
        claim[count].name = strtok(NULL, "/");
        claim[count].uid = strtok(NULL, "/");
        list[count] = &claim[count];
    }
    ask(c, a[2], &answer, list, count);
    while (!answer.done)
        step();
    if (answer.json)
        (void)json_dumpf(answer.json, stdout, JSON_INDENT(1) | JSON_SORT_KEYS);
    (void)printf("\n");
    json_decref(answer.json);
    sl_rpc_client_destroy(c);
    return answer.code == SL_RPC_OK ? 0 : 1;
}

static int by_time(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

static int bench(const char *socket, unsigned n)
{
    enum { MOST = 256 };
    static struct answer answer[MOST];
    static uint64_t took[MOST];
    static char name[MOST][32], uid[MOST][40];
    if (n > MOST)
        return 2;
    struct sl_rpc_client *c = dial(socket);
    for (int round = 0; round < 2; round++) {
        uint64_t begun = sl_now_ns();
        for (unsigned i = 0; i < n; i++) {
            Dra__Claim claim, *list[1] = {&claim};
            static char space[] = "default";
            dra__claim__init(&claim);
            (void)snprintf(name[i], sizeof(name[i]), "claim-%u", i);
            (void)snprintf(uid[i], sizeof(uid[i]), "00000000-0000-4000-8000-%012u", i);
            claim.namespace_ = space;
            claim.name = name[i];
            claim.uid = uid[i];
            answer[i] = (struct answer){.prepare = round == 0};
            ask(c, "v1", &answer[i], list, 1);
        }
        for (unsigned i = 0; i < n; i++) {
            while (!answer[i].done)
                step();
            took[i] = (answer[i].at_ns - begun) / 1000;
            const char *error = json_string_value(
                json_object_get(json_object_get(answer[i].json, uid[i]), "error"));
            if (answer[i].code != SL_RPC_OK || !error || error[0]) {
                (void)fprintf(stderr, "%s: %s\n", name[i], error ? error : "no answer");
                return 1;
            }
            json_decref(answer[i].json);
        }
        qsort(took, n, sizeof(took[0]), by_time);
        (void)printf("%s: %u claims at once, p50 %llu us, p99 %llu us, last %llu us\n",
                     round ? "unprepare" : "prepare", n, (unsigned long long)took[n / 2],
                     (unsigned long long)took[(n * 99 + 99) / 100 - 1],
                     (unsigned long long)took[n - 1]);
    }
    sl_rpc_client_destroy(c);
    return 0;
}

/* --- registration and health --- */

struct raw {
    int messages, wanted;
    bool done;
    const ProtobufCMessageDescriptor *type;
};

static void raw_message(struct sl_rpc_call *call, const uint8_t *msg, size_t size, void *data)
{
    struct raw *r = data;
    ProtobufCMessage *m = NULL;
    struct sl_err err = SL_ERR_INIT;
    (void)call;
    if (sl_rpc_pb_unpack(r->type, msg, size, &m, &err) < 0)
        die("answer", &err);
    if (r->type == &reg__plugin_info__descriptor) {
        const Reg__PluginInfo *i = (const void *)m;
        (void)printf("{\"type\":\"%s\",\"name\":\"%s\",\"endpoint\":\"%s\",\"versions\":[", i->type,
                     i->name, i->endpoint);
        for (size_t k = 0; k < i->n_supported_versions; k++)
            (void)printf("%s\"%s\"", k ? "," : "", i->supported_versions[k]);
        (void)printf("]}\n");
    } else if (r->type == &drahealth__node_watch_resources_response__descriptor) {
        const Drahealth__NodeWatchResourcesResponse *h = (const void *)m;
        (void)printf("[");
        for (size_t k = 0; k < h->n_devices; k++)
            (void)printf("%s{\"device\":\"%s\",\"health\":%d,\"message\":\"%s\"}", k ? "," : "",
                         h->devices[k]->device->device_name, (int)h->devices[k]->health,
                         h->devices[k]->message);
        (void)printf("]\n");
    }
    (void)fflush(stdout);
    r->messages++;
    sl_rpc_pb_free(m);
}

static void raw_done(struct sl_rpc_call *call, enum sl_rpc_code code, const char *text, void *data)
{
    struct raw *r = data;
    (void)call;
    if (code != SL_RPC_OK)
        (void)fprintf(stderr, "status %d: %s\n", (int)code, text);
    r->done = true;
}

static const struct sl_rpc_call_ops raw_ops = {.message = raw_message, .done = raw_done};

static int raw_call(struct sl_rpc_client *c, const char *path, const ProtobufCMessage *m,
                    const ProtobufCMessageDescriptor *type, int wanted)
{
    struct raw r = {.wanted = wanted, .type = type};
    struct sl_rpc_call *call;
    struct sl_err err = SL_ERR_INIT;
    if (sl_rpc_pb_call(c, path, m, 600 * SL_NS_PER_S, &raw_ops, &r, &call, &err) < 0)
        die("call", &err);
    while (!r.done && r.messages < r.wanted)
        step();
    if (!r.done)
        sl_rpc_call_cancel(call);
    return r.messages >= r.wanted ? 0 : 1;
}

static int registration(const char *socket)
{
    struct sl_rpc_client *c = dial(socket);
    Reg__InfoRequest info = REG__INFO_REQUEST__INIT;
    Reg__RegistrationStatus status = REG__REGISTRATION_STATUS__INIT;
    status.plugin_registered = 1;
    int rc = raw_call(c, "/pluginregistration.Registration/GetInfo", &info.base,
                      &reg__plugin_info__descriptor, 1);
    if (rc == 0)
        rc = raw_call(c, "/pluginregistration.Registration/NotifyRegistrationStatus", &status.base,
                      &reg__registration_status_response__descriptor, 1);
    sl_rpc_client_destroy(c);
    return rc;
}

static int health(const char *socket, int n)
{
    struct sl_rpc_client *c = dial(socket);
    Drahealth__NodeWatchResourcesRequest r = DRAHEALTH__NODE_WATCH_RESOURCES_REQUEST__INIT;
    int rc = raw_call(c, "/v1alpha1.DRAResourceHealth/NodeWatchResources", &r.base,
                      &drahealth__node_watch_resources_response__descriptor, n);
    sl_rpc_client_destroy(c);
    return rc;
}

/* --- an API server that costs little --- */

static void api_handle(void *data, struct sl_http_call *call, const struct sl_http_request *r)
{
    char text[1024];
    unsigned i = 0;
    const char *name = strrchr(r->path, '/');
    (void)data;
    if (strstr(r->query, "watch="))
        return; /* nothing ever happens */
    if (strcmp(r->method, "GET") != 0) {
        sl_http_answer(call, 200, "application/json", r->body_size ? r->body : "{}",
                       r->body_size ? r->body_size : 2);
        return;
    }
    int n = snprintf(text, sizeof(text),
                     "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}");
    if (name && sscanf(name, "/claim-%u", &i) == 1)
        n = snprintf(text, sizeof(text),
                     "{\"metadata\":{\"name\":\"claim-%u\",\"namespace\":\"default\",\"uid\":"
                     "\"00000000-0000-4000-8000-%012u\"},\"status\":{\"allocation\":{\"devices\":{"
                     "\"results\":[{\"request\":\"gpu\",\"driver\":\"gpu.sluice.io\",\"pool\":"
                     "\"node-1\",\"device\":\"gpu-0-share\",\"shareID\":\"s-%u\","
                     "\"consumedCapacity\":{\"memory\":\"1Gi\",\"cores\":\"1\"}}]}}}}",
                     i, i, i);
    sl_http_answer(call, 200, "application/json", text, (size_t)n);
}

static int api(const char *port)
{
    struct sl_err err = SL_ERR_INIT;
    char address[32];
    struct sl_http_server *server = NULL;
    (void)snprintf(address, sizeof(address), "127.0.0.1:%s", port);
    struct sl_http_server_options o = {
        .address = address, .handle = api_handle, .connections_max = 1024, .idle_timeout_s = 600};
    if (sl_http_server_create(loop, &o, &server, &err) < 0)
        die("api", &err);
    (void)printf("%u\n", sl_http_server_port(server));
    (void)fflush(stdout);
    (void)signal(SIGTERM, on_term);
    while (!stopping)
        step();
    sl_http_server_destroy(server);
    return 0;
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    int rc = 2;
    sl_log_open(sl_log_level_parse(getenv("SLUICE_TEST_LOG"), SL_LOG_WARN), STDERR_FILENO);
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "arbiter") == 0)
        return arbiter(argv[2], argv[3]);
    if (sl_loop_create(NULL, &loop, &err) < 0)
        die("loop", &err);
    if (strcmp(argv[1], "node") == 0)
        rc = node(argv + 2, argc - 2);
    else if (strcmp(argv[1], "kubelet") == 0)
        rc = kubelet(argv + 2, argc - 2);
    else if (strcmp(argv[1], "register") == 0)
        rc = registration(argv[2]);
    else if (strcmp(argv[1], "health") == 0)
        rc = health(argv[2], atoi(argv[3]));
    else if (strcmp(argv[1], "api") == 0)
        rc = api(argv[2]);
    else if (strcmp(argv[1], "bench") == 0)
        rc = bench(argv[2], (unsigned)atoi(argv[3]));
    sl_loop_destroy(loop);
    return rc;
}
