/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/dra.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "container/cdi.h"
#include "agent/dra/dra_internal.h"
#include "agent/dra/errors.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

#define STANDBY_NS (100 * SL_NS_PER_MS)
#define FORMER_NS  (500 * SL_NS_PER_MS)

struct card *sl_dra_card(struct sl_dra *dra, const char *uuid)
{
    for (size_t i = 0; i < dra->card_count; i++)
        if (strcmp(dra->card[i].uuid, uuid) == 0)
            return &dra->card[i];
    return NULL;
}

uint64_t sl_dra_card_bytes(const struct sl_dra *dra, const char *uuid)
{
    size_t i = sl_inventory_find(dra->inv, uuid);
    return i == SIZE_MAX ? 0 : dra->inv->gpu[i].info.memory_total_bytes;
}

const char *sl_dra_card_trouble(const struct card *c)
{
    if (c->lost)
        return "the card fell off the bus";
    return c->unhealthy ? c->reason : NULL;
}

void sl_dra_tell(struct sl_dra *dra, const struct sl_prepared *p, bool warning, const char *reason,
                 const char *message)
{
    struct sl_dra_event e = {.warning = warning,
                             .name_space = p->name_space,
                             .pod = p->pod,
                             .pod_uid = p->pod_uid,
                             .claim = p->name,
                             .claim_uid = p->uid,
                             .reason = reason,
                             .message = message};
    if (dra->ops.event) /* the callback logs it, too */
        dra->ops.event(dra->data, &e);
    else if (warning)
        sl_warn("claim %s/%s: %s", p->name_space, p->name, message);
}

/* --- slices --- */

struct owner {
    struct sl_dra *dra;
    const char *uuid;
};

static bool ours(void *data, uint32_t gpu_instance)
{
    const struct owner *o = data;
    for (const struct sl_prepared *p = o->dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++)
            if (p->device[i].mig == SL_MIG_MADE && p->device[i].mig_gpu_instance == gpu_instance &&
                strcmp(p->device[i].share.gpu, o->uuid) == 0)
                return true;
    return false;
}

void sl_dra_republish(struct sl_dra *dra)
{
    bool known = dra->inv || (dra->vm && dra->alone);
    if (!known || dra->awaits_vm || !dra->publisher || dra->owed)
        return;
    size_t n = dra->card_count;
    struct sl_slice_gpu *gpu = sl_xcalloc(n, sizeof(*gpu));
    struct owner *owner = sl_xcalloc(n, sizeof(*owner));
    for (size_t i = 0; i < n; i++) {
        struct card *c = &dra->card[i];
        owner[i] = (struct owner){.dra = dra, .uuid = c->uuid};
        gpu[i] = (struct sl_slice_gpu){.profile = c->profile,
                                       .profile_count = c->profile_count,
                                       .pcie_root = c->pcie_root,
                                       .unhealthy = c->unhealthy ? c->reason : NULL,
                                       .taken = sl_dra_vm_takes(dra, i),
                                       .ours = ours,
                                       .data = &owner[i]};
    }
    struct sl_slices_options opt = {.names = dra->opt.names,
                                    .node_name = dra->opt.node_name,
                                    .node_uid = dra->node_uid,
                                    .inv = dra->inv,
                                    .gpu = gpu,
                                    .vm = dra->vm,
                                    .fractional = dra->config ? &dra->config->fractional : NULL};
    sl_slices_publish_want(dra->publisher, sl_slices_make(&opt));
    free(gpu);
    free(owner);
}

/* The Node owns its slices: they are deleted with it. Without the right to read the Node they stay behind. */
static void got_node(void *data, int status, json_t *body, const struct sl_err *err)
{
    struct sl_dra *dra = data;
    const char *uid = sl_kube_meta(body, "uid");
    dra->node_call = NULL;
    dra->owed--;
    if (status == 200 && uid[0])
        (void)snprintf(dra->node_uid, sizeof(dra->node_uid), "%s", uid);
    else
        sl_warn("ResourceSlices have no owner: %s", err->msg);
    sl_dra_republish(dra);
}

static void ask_node(struct sl_dra *dra)
{
    char path[300];
    struct sl_err err = SL_ERR_INIT;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%.253s", dra->opt.node_name);
    if (sl_kube_request(dra->kube, "GET", path, NULL, NULL, got_node, dra, &dra->node_call, &err) ==
        0)
        dra->owed++;
    else
        sl_warn("ResourceSlices have no owner: %s", err.msg);
}

/* --- the cards --- */

/* "…/devices/pci0000:15/0000:15:01.0/…": the first directory below devices is the root. */
static void read_pcie_root(const char *nvml_bus_id, char *buf, size_t size)
{
    char path[512], real[PATH_MAX], id[32];
    sl_slices_bus_id(nvml_bus_id, id, sizeof(id));
    buf[0] = '\0';
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", id);
    const char *at = id[0] && realpath(path, real) ? strstr(real, "/devices/pci") : NULL;
    if (at)
        (void)snprintf(buf, size, "%.*s", (int)strcspn(at + 9, "/"), at + 9);
}

/* Known cards keep their data; new cards are examined. */
static void take_cards(struct sl_dra *dra, const struct sl_inventory *inv)
{
    struct card *fresh = sl_xcalloc(inv->gpu_count, sizeof(*fresh));
    for (size_t i = 0; i < inv->gpu_count; i++) {
        const struct sl_gpu_info *info = &inv->gpu[i].info;
        struct card *old = sl_dra_card(dra, info->uuid);
        if (old && info->uuid[0]) {
            fresh[i] = *old;
            old->profile = NULL;
            fresh[i].lost = inv->gpu[i].lost;
            fresh[i].lost_untold = fresh[i].lost != old->lost;
            continue;
        }
        fresh[i].lost = fresh[i].lost_untold = inv->gpu[i].lost;
        (void)snprintf(fresh[i].uuid, sizeof(fresh[i].uuid), "%s", info->uuid);
        read_pcie_root(info->pci_bus_id, fresh[i].pcie_root, sizeof(fresh[i].pcie_root));
    }
    for (size_t i = 0; i < dra->card_count; i++)
        free(dra->card[i].profile);
    free(dra->card);
    dra->card = fresh;
    dra->card_count = inv->gpu_count;
}

static void tell_health(struct sl_dra *dra, const struct card *c)
{
    sl_dra_health_send(dra);
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count; i++)
            if (strcmp(p->device[i].share.gpu, c->uuid) == 0) {
                sl_dra_status_write(dra, p, NULL, true, "");
                break;
            }
}

/* The work that can begin once the cards are known. */
static void work(struct sl_dra *dra)
{
    sl_dra_ask_profiles(dra);
    sl_dra_republish(dra);
    sl_dra_recover(dra);
}

void sl_dra_update(struct sl_dra *dra, const struct sl_inventory *inv,
                   const struct sl_config *config, const struct sl_driver *driver)
{
    take_cards(dra, inv);
    dra->inv = inv;
    dra->config = config;
    dra->driver = driver;
    for (size_t i = 0; i < dra->card_count; i++)
        if (dra->card[i].lost_untold)
            tell_health(dra, &dra->card[i]);
    if (!dra->standby.set)
        work(dra);
}

void sl_dra_vm(struct sl_dra *dra, const struct sl_vm_offer *offer, const struct sl_config *config)
{
    dra->vm = offer;
    dra->awaits_vm = false;
    dra->config = config;
    sl_dra_vm_told(dra);
    if (!dra->standby.set)
        work(dra);
}

void sl_dra_await_vm(struct sl_dra *dra, bool await)
{
    dra->awaits_vm = await;
    if (!dra->standby.set)
        sl_dra_republish(dra);
}

void sl_dra_no_driver(struct sl_dra *dra)
{
    dra->alone = true;
    if (!dra->standby.set)
        work(dra);
}

void sl_dra_health(struct sl_dra *dra, const char *uuid, bool healthy, const char *reason)
{
    struct card *c = sl_dra_card(dra, uuid);
    /* In slices, a MIG device has the health of its card. */
    for (size_t i = 0; !c && dra->inv && i < dra->inv->gpu_count; i++)
        for (size_t k = 0; k < dra->inv->gpu[i].mig_count; k++)
            if (strcmp(dra->inv->gpu[i].mig[k].info.uuid, uuid) == 0)
                c = &dra->card[i];
    if (!c || (c->unhealthy == !healthy && strcmp(c->reason, reason ? reason : "") == 0))
        return;
    c->unhealthy = !healthy;
    (void)snprintf(c->reason, sizeof(c->reason), "%s", reason ? reason : "");
    sl_dra_republish(dra);
    tell_health(dra, c);
}

/* --- life --- */

static int take_options(struct sl_dra *dra, const struct sl_dra_options *options,
                        struct sl_err *err)
{
    struct sl_dra_options *o = &dra->opt;
    *o = *options;
    if (!o->node_name || !o->node_name[0] || !o->arbiter_dir)
        return sl_err_set(err, -EINVAL, SL_E_DRA_NODE_NAME);
    if (!o->plugin_dir)
        o->plugin_dir = "/var/lib/kubelet/plugins/" SL_DRA_DRIVER;
    if (!o->registry_dir)
        o->registry_dir = "/var/lib/kubelet/plugins_registry";
    if (!o->state_dir)
        o->state_dir = o->plugin_dir;
    if (!o->state_dir_host)
        o->state_dir_host = o->state_dir;
    const char *dash = o->instance && o->instance[0] ? "-" : "";
    const char *instance = dash[0] ? o->instance : "";
    int a = snprintf(dra->dra_socket, sizeof(dra->dra_socket), "%s/dra%s%s.sock", o->plugin_dir,
                     dash, instance);
    int b = snprintf(dra->reg_socket, sizeof(dra->reg_socket), "%s/" SL_DRA_DRIVER "%s%s-reg.sock",
                     o->registry_dir, dash, instance);
    if (a >= (int)sizeof(dra->dra_socket) || b >= (int)sizeof(dra->reg_socket))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_DRA_SOCKET_LONG, o->plugin_dir, o->registry_dir);
    return 0;
}

static int open_lock(struct sl_dra *dra, struct sl_err *err)
{
    char path[PATH_MAX];
    int rc = sl_fs_mkdirs(dra->opt.plugin_dir, 0750, err);
    if (rc == 0)
        rc = sl_fs_mkdirs(dra->opt.state_dir, 0750, err);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%s/dra.lock", dra->opt.state_dir);
    dra->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (dra->lock_fd < 0)
        return sl_err_errno(err, errno, "cannot open %s", path);
    return 0;
}

static void former_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, former_timer);
    if (!sl_slices_publish_current(dra->former)) {
        sl_timer_set(dra->loop, t, sl_loop_now(dra->loop) + FORMER_NS);
        return;
    }
    sl_slices_publish_destroy(dra->former);
    dra->former = NULL;
}

/* Slices under the name that an earlier agent had would offer the same devices once more. */
static int end_former(struct sl_dra *dra, struct sl_err *err)
{
    struct sl_dra_names other = {.nvidia = !dra->opt.names.nvidia};
    int rc = sl_slices_publish_create(dra->loop, dra->kube, sl_dra_driver(&other),
                                      dra->opt.node_name, true, &dra->former, err);
    if (rc < 0)
        return rc;
    sl_slices_publish_want(dra->former, json_array());
    sl_timer_set(dra->loop, &dra->former_timer, sl_loop_now(dra->loop) + FORMER_NS);
    return 0;
}

/* We have the lock: from here on this is the node's driver. */
static int take_over(struct sl_dra *dra, struct sl_err *err)
{
    int rc = sl_checkpoint_load(dra->opt.state_dir, &dra->checkpoint, err);
    if (rc == 0 && dra->kube)
        rc = end_former(dra, err);
    if (rc == 0 && dra->kube)
        rc = sl_slices_publish_create(dra->loop, dra->kube, sl_dra_driver(&dra->opt.names),
                                      dra->opt.node_name, false, &dra->publisher, err);
    if (rc == 0 && dra->kube)
        ask_node(dra);
    return rc < 0 ? rc : sl_dra_serve(dra, err);
}

/* Does something answer at this socket? */
static bool answers(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path) >= sizeof(to.sun_path))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0;
    if (fd >= 0)
        (void)close(fd);
    return yes;
}

/* NVIDIA's driver on this node, by the socket that it registers with. Two drivers would give out each GPU twice. */
static bool name_taken(struct sl_dra *dra)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    bool taken = false;
    if (!dra->opt.names.nvidia)
        return false;
    (void)snprintf(pattern, sizeof(pattern), "%s/" SL_NVIDIA_DRIVER "*.sock",
                   dra->opt.registry_dir);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            taken |= answers(found.gl_pathv[i]);
    globfree(&found);
    if (taken && !dra->taken_told) {
        struct sl_err err = SL_ERR_INIT;
        (void)sl_err_set(&err, -EBUSY, SL_E_DRA_NAME_TAKEN);
        if (dra->ops.name_taken)
            dra->ops.name_taken(dra->data, err.msg);
    }
    dra->taken_told = taken;
    return taken;
}

static void standby_fired(struct sl_timer *t)
{
    struct sl_dra *dra = sl_container_of(t, struct sl_dra, standby);
    struct sl_err err = SL_ERR_INIT;
    if (flock(dra->lock_fd, LOCK_EX | LOCK_NB) != 0 || name_taken(dra)) {
        sl_timer_set(dra->loop, t, sl_loop_now(dra->loop) + STANDBY_NS);
        return;
    }
    sl_info("the earlier agent has ended: this agent takes over");
    if (take_over(dra, &err) < 0) {
        sl_error("cannot start the DRA driver: %s", err.msg);
        return;
    }
    if (dra->inv || dra->vm)
        work(dra);
    if (dra->ops.took_over)
        dra->ops.took_over(dra->data);
}

/* 0 with the timer set: another agent still runs. */
static int begin(struct sl_dra *dra, struct sl_err *err)
{
    int rc = open_lock(dra, err);
    if (rc < 0)
        return rc;
    bool locked = flock(dra->lock_fd, LOCK_EX | LOCK_NB) == 0;
    if (locked && !name_taken(dra))
        return take_over(dra, err);
    if (!locked && errno != EWOULDBLOCK)
        return sl_err_errno(err, errno, "cannot lock %s/dra.lock", dra->opt.state_dir);
    if (!locked)
        sl_info("another agent serves this node: this agent waits until it ends");
    sl_timer_set(dra->loop, &dra->standby, sl_loop_now(dra->loop) + STANDBY_NS);
    return 0;
}

int sl_dra_create(struct sl_loop *loop, const struct sl_dra_options *options, struct sl_kube *kube,
                  const struct sl_dra_ops *ops, void *data, struct sl_dra **ret, struct sl_err *err)
{
    struct sl_dra *dra = sl_xcalloc(1, sizeof(*dra));
    dra->loop = loop;
    dra->kube = kube;
    dra->ops = *ops;
    dra->link = sl_xcalloc(1, sizeof(*dra->link));
    *dra->link = (struct dra_link){.dra = dra, .refs = 1};
    dra->data = data;
    dra->lock_fd = -1;
    dra->standby.fire = standby_fired;
    dra->former_timer.fire = former_fired;
    sl_dra_prepare_init(dra);
    int rc = take_options(dra, options, err);
    if (rc == 0)
        rc = sl_leases_create(loop, dra->opt.arbiter_dir, SL_DRA_ARBITER_NS, &dra->leases, err);
    if (rc == 0)
        rc = begin(dra, err);
    if (rc < 0) {
        sl_dra_destroy(dra);
        return rc;
    }
    *ret = dra;
    return 0;
}

void sl_dra_destroy(struct sl_dra *dra)
{
    if (!dra)
        return;
    dra->link->dra = NULL;
    sl_dra_link_put(dra->link);
    sl_kube_cancel(dra->node_call);
    sl_timer_stop(dra->loop, &dra->standby);
    sl_dra_serve_end(dra);
    sl_leases_destroy(dra->leases);
    sl_dra_status_end(dra);
    sl_dra_resize_end(dra);
    sl_dra_forget_ops(dra);
    sl_slices_publish_destroy(dra->publisher);
    sl_slices_publish_destroy(dra->former);
    sl_timer_stop(dra->loop, &dra->former_timer);
    sl_checkpoint_clear(&dra->checkpoint);
    if (dra->lock_fd >= 0)
        (void)close(dra->lock_fd);
    for (size_t i = 0; i < dra->card_count; i++)
        free(dra->card[i].profile);
    free(dra->card);
    free(dra);
}

struct sl_dra_stats sl_dra_stats(const struct sl_dra *dra)
{
    struct sl_dra_stats s = dra->stats;
    s.standby = dra->standby.set;
    s.slices_current = dra->publisher && sl_slices_publish_current(dra->publisher);
    return s;
}

void sl_dra_each_lease(const struct sl_dra *dra,
                       void (*each)(void *data, const struct sl_dra_lease *lease), void *data)
{
    for (const struct sl_prepared *p = dra->checkpoint.claims; p; p = p->next)
        for (size_t i = 0; i < p->device_count && p->state == SL_PREPARED; i++)
            each(data, &(struct sl_dra_lease){.tenant = p->device[i].tenant,
                                              .name_space = p->name_space,
                                              .pod = p->pod,
                                              .share_id = p->device[i].share_id});
}
