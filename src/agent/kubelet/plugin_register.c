/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers with kubelet and stays registered. Four states (plugin_internal.h), one timer. The state changes with the
 * answer to Register, with streams that begin and end, and with events of kubelet_watch.
 */
#include "agent/kubelet/errors.h"
#include "agent/kubelet/plugin_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "deviceplugin.pb-c.h"
#include "rpc/pb.h"
#include "rpc/unix.h"

static const uint64_t FIRST_NS = 50 * SL_NS_PER_MS;
/* No answer: kubelet is starting, and should find us within a second after it is ready. */
static const uint64_t ABSENT_NS = 800 * SL_NS_PER_MS;
/* Kubelet refuses, or stops listening again and again. */
static const uint64_t REFUSED_NS = 5 * SL_NS_PER_S;
static const uint64_t REGISTER_NS = 10 * SL_NS_PER_S;
/* Kubelet asks for the list as soon as it has accepted the registration. Without a stream after a second, and longer
 * each time, the registration counts as failed. */
static const uint64_t STREAM_NS = SL_NS_PER_S;
/* A stream that lived this long counts as stable. */
static const uint64_t SETTLED_NS = 10 * SL_NS_PER_S;
/* A plugin that takes over removes our socket and then makes its own: in between there is no file. */
static const uint64_t GAP_NS = 250 * SL_NS_PER_MS;
static const uint64_t CONTESTED_FIRST_NS = SL_NS_PER_S;
static const uint64_t CONTESTED_NS = 30 * SL_NS_PER_S;

static void wait_more(struct plugin *p, uint64_t least_ns, uint64_t most_ns)
{
    uint64_t delay = p->delay_ns < most_ns ? p->delay_ns : most_ns;
    sl_timer_set(p->owner->loop, &p->timer, sl_loop_now(p->owner->loop) + least_ns + delay);
    p->delay_ns = delay * 2;
}

/* Logs a message once, until there is another message or all is well. */
static void complain(struct plugin *p, const char *what, const char *why)
{
    char text[sizeof(p->complaint)];
    (void)snprintf(text, sizeof(text), "%s: %s: %.300s", p->devices.res.name, what, why);
    if (strcmp(text, p->complaint) == 0)
        return;
    memcpy(p->complaint, text, sizeof(text));
    sl_warn("%s", text);
}

void sl_plugin_register_stop(struct plugin *p)
{
    struct sl_rpc_client *client = p->client;
    p->client = NULL; /* so `done` of the call ignores its answer */
    sl_rpc_client_destroy(client);
    sl_timer_stop(p->owner->loop, &p->timer);
}

/* --- the owner of the socket --------------------------------------------------------------------- */

enum file { FILE_OURS, FILE_GONE, FILE_DEAD, FILE_OTHERS };

/* ret_pid: 0 where the kernel does not tell, across PID namespaces. */
static enum file look_at_file(const struct plugin *p, pid_t *ret_pid)
{
    struct stat st;
    *ret_pid = 0;
    if (lstat(p->path, &st) != 0)
        return FILE_GONE;
    /* While our socket is open it holds the inode: no other file can have this number. */
    if (p->listening && st.st_dev == p->dev && st.st_ino == p->ino)
        return FILE_OURS;
    struct sl_err err = SL_ERR_INIT;
    SL_CLEANUP(close) int fd = sl_rpc_unix_connect(p->path, &err);
    if (fd < 0)
        return fd == -EAGAIN || fd == -EACCES ? FILE_OTHERS : FILE_DEAD;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        *ret_pid = peer.pid;
    return FILE_OTHERS;
}

static void describe(pid_t pid, char *out, size_t size)
{
    char path[64], name[32] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    SL_CLEANUP(fclose) FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    if (!f || !fgets(name, sizeof(name), f)) {
        (void)snprintf(out, size, "another process");
        return;
    }
    name[strcspn(name, "\n")] = '\0';
    (void)snprintf(out, size, "process %d (%s)", (int)pid, name);
}

/* If two plugins both insist, they take the resource from each other for ever, and its devices are unhealthy for a
 * moment each time. So the plugin that came first steps back. */
static void step_back(struct plugin *p, pid_t pid)
{
    char who[96];
    describe(pid, who, sizeof(who));
    sl_plugin_notice(p->owner, SL_E_TAKEN_OVER_LOG, p->devices.res.name, who, p->path);
    sl_plugin_register_stop(p);
    sl_plugin_unserve(p);
    p->state = PLUGIN_CONTESTED;
    p->delay_ns = CONTESTED_FIRST_NS;
    wait_more(p, 0, CONTESTED_NS);
}

/* There is no hurry: kubelet is connected and never dials twice. If another process is about to make its socket there,
 * we want to see it, not to race it. A new registration would only make kubelet drop the stream, and with it, for a
 * moment, the devices. */
static void make_again(struct plugin *p)
{
    struct sl_err err = SL_ERR_INIT;
    uint64_t now = sl_loop_now(p->owner->loop);
    if (p->missed_ns == 0)
        p->missed_ns = now;
    if (now - p->missed_ns < GAP_NS) {
        sl_timer_set(p->owner->loop, &p->gap, p->missed_ns + GAP_NS);
        return;
    }
    p->missed_ns = 0;
    if (sl_plugin_listen(p, &err) < 0)
        complain(p, "the socket was removed and cannot be made again", err.msg);
    else
        sl_info("%s: %s was removed; made again", p->devices.res.name, p->path);
}

static void gap_fires(struct sl_timer *timer)
{
    sl_plugin_check_file(sl_container_of(timer, struct plugin, gap));
}

void sl_plugin_check_file(struct plugin *p)
{
    pid_t pid;
    switch (look_at_file(p, &pid)) {
    case FILE_OURS:
        p->missed_ns = 0;
        break;
    case FILE_OTHERS:
        p->missed_ns = 0;
        if (p->state != PLUGIN_CONTESTED && p->dev)
            step_back(p, pid);
        break;
    case FILE_GONE:
    case FILE_DEAD:
        if (p->streams)
            make_again(p);
        else
            sl_plugin_register(p);
        break;
    }
}

/* Kubelet listens: nothing more to wait for. A plugin that vacates has done its work. */
static void listened_to(struct plugin *p)
{
    sl_timer_stop(p->owner->loop, &p->timer);
    if (p->vacate_ns) {
        p->vacated = true;
        sl_timer_set(p->owner->loop, &p->timer, sl_loop_now(p->owner->loop));
    }
}

/* --- Register ----------------------------------------------------------------------------------- */

static void registered(struct sl_rpc_call *call, enum sl_rpc_code code, const char *message,
                       void *data)
{
    (void)call;
    struct plugin *p = data;
    if (!p->client)
        return;
    sl_plugin_register_stop(p);
    if (code != SL_RPC_OK) {
        char why[360];
        p->owner->stats.registration_failures++;
        (void)snprintf(why, sizeof(why), "%s: %.300s", sl_rpc_code_name(code), message);
        complain(p, "kubelet refused the registration", why);
        p->state = PLUGIN_WAITING;
        wait_more(p, 0, code == SL_RPC_UNAVAILABLE ? ABSENT_NS : REFUSED_NS);
        return;
    }
    p->owner->stats.registrations++;
    p->counts.registrations++;
    p->state = PLUGIN_REGISTERED;
    p->complaint[0] = '\0';
    sl_info("%s: registered with kubelet: %zu devices, %zu healthy", p->devices.res.name,
            p->devices.res.device_count, p->devices.healthy_count);
    if (p->streams) {
        listened_to(p);
        return;
    }
    if (p->dropped) {
        sl_plugin_streams_ended(p);
        return;
    }
    wait_more(p, STREAM_NS, REFUSED_NS);
}

static int call_register(struct plugin *p, struct sl_err *err)
{
    static const struct sl_rpc_call_ops ops = {.done = registered, .unary = true};
    static char version[] = "v1beta1";
    int rc = sl_rpc_client_connect(p->owner->loop, p->owner->kubelet_socket, NULL, &p->client, err);
    if (rc < 0)
        return rc;
    char endpoint[sizeof(p->path)];
    (void)snprintf(endpoint, sizeof(endpoint), "%s", p->endpoint);
    Dp__DevicePluginOptions options;
    sl_plugin_options(p, &options);
    Dp__RegisterRequest request = DP__REGISTER_REQUEST__INIT;
    request.version = version;
    request.endpoint = endpoint;
    request.resource_name = p->devices.res.name;
    request.options = &options;
    struct sl_rpc_call *call;
    return sl_rpc_pb_call(p->client, "/v1beta1.Registration/Register", &request.base, REGISTER_NS,
                          &ops, p, &call, err);
}

void sl_plugin_register(struct plugin *p)
{
    struct sl_err err = SL_ERR_INIT;
    pid_t pid;
    char who[96];
    sl_plugin_register_stop(p);
    if (look_at_file(p, &pid) == FILE_OTHERS) {
        if (p->vacate_ns) { /* the name is not vacant yet */
            describe(pid, who, sizeof(who));
            sl_plugin_vacate_waits(p, who);
            wait_more(p, 0, REFUSED_NS);
            return;
        }
        if (p->dev) {
            if (p->state != PLUGIN_CONTESTED)
                step_back(p, pid);
            else
                wait_more(p, 0, CONTESTED_NS);
            return;
        }
        describe(pid, who, sizeof(who));
        sl_plugin_notice(p->owner, SL_E_TAKING_OVER_LOG, p->devices.res.name, who, p->path);
    }
    p->state = PLUGIN_WAITING;
    p->dropped = false;
    int rc = sl_plugin_serve(p, &err);
    if (rc < 0) {
        complain(p, "the resource cannot be served yet", err.msg);
        wait_more(p, 0, ABSENT_NS);
        return;
    }
    rc = call_register(p, &err);
    if (rc < 0) {
        sl_plugin_register_stop(p);
        complain(p, "waiting for kubelet", err.msg);
        wait_more(p, 0, ABSENT_NS);
        return;
    }
    p->state = PLUGIN_CALLING;
}

static void timer_fires(struct sl_timer *timer)
{
    struct plugin *p = sl_container_of(timer, struct plugin, timer);
    if (p->vacate_ns && sl_plugin_vacate_ends(p))
        return;
    if (p->state == PLUGIN_REGISTERED) /* and no stream came */
        complain(p, "kubelet accepted the registration",
                 "but does not listen; the agent registers "
                 "again");
    sl_plugin_register(p);
}

void sl_plugin_register_init(struct plugin *p)
{
    p->timer.fire = timer_fires;
    p->gap.fire = gap_fires;
    p->delay_ns = FIRST_NS;
}

void sl_plugin_kubelet_started(struct plugin *p)
{
    if (p->state != PLUGIN_CONTESTED)
        p->delay_ns = FIRST_NS;
    sl_plugin_register(p);
}

/* --- streams ------------------------------------------------------------------------------------ */

void sl_plugin_stream_began(struct plugin *p)
{
    p->listened_ns = sl_loop_now(p->owner->loop);
    if (p->state == PLUGIN_REGISTERED)
        listened_to(p);
}

void sl_plugin_streams_ended(struct plugin *p)
{
    p->dropped = true;
    if (p->retiring || p->state != PLUGIN_REGISTERED)
        return;
    sl_info("%s: kubelet no longer listens; the agent registers again", p->devices.res.name);
    if (sl_loop_now(p->owner->loop) - p->listened_ns >= SETTLED_NS)
        p->delay_ns = FIRST_NS;
    p->state = PLUGIN_WAITING;
    wait_more(p, 0, REFUSED_NS);
}
