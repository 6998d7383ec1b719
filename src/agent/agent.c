/* SPDX-License-Identifier: Apache-2.0 */
/* Start, stop, and the connections between the parts of the agent. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/version.h"
#include "base/xalloc.h"

#define ARBITER_LATE_NS (10 * SL_NS_PER_S)

void sl_agent_say(struct sl_agent *a, enum sl_event_type type, const char *reason, const char *fmt,
                  ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    sl_log(type == SL_EVENT_WARNING ? SL_LOG_WARN : SL_LOG_INFO, "%s", text);
    if (a->node)
        sl_node_event(a->node, type, reason, text);
}

static void stop_for(struct sl_agent *a, const struct sl_err *err)
{
    a->fatal = *err;
    a->stopping = true;
}

/* --- the cards ----------------------------------------------------------------------------------- */

static void polled(void *data, const struct sl_inventory *inv, uint64_t asked_ns)
{
    struct sl_agent *a = data;
    sl_health_polled(a->health, inv, asked_ns);
}

static void inventory(void *data, const struct sl_inventory *inv)
{
    struct sl_agent *a = data;
    sl_info("%zu GPUs, driver %s", inv->gpu_count, inv->driver_version);
    sl_agent_replan(a);
}

static void xid(void *data, const char *uuid, const struct sl_gpu_event *event)
{
    struct sl_agent *a = data;
    if (uuid)
        sl_agent_count_xid(a, uuid, event->xid);
    sl_health_xid(a->health, uuid, event);
}

static void no_driver(void *data, const struct sl_err *err, uint64_t retry_ns)
{
    struct sl_agent *a = data;
    if (retry_ns == 0) {
        struct sl_err words = SL_ERR_INIT;
        (void)sl_err_set(&words, err->code, SL_E_AGENT_NO_DRIVER, err->msg);
        stop_for(a, &words);
        return;
    }
    sl_agent_say(a, SL_EVENT_WARNING, "NoDriver", "%s", err->msg);
    if (sl_devices_inventory(a->devices))
        sl_health_no_driver(a->health, err);
    else if (a->dra)
        sl_dra_no_driver(a->dra);
}

static void trouble(void *data, const struct sl_err *err)
{
    sl_agent_say(data, SL_EVENT_WARNING, "NVMLTrouble", "%s", err->msg);
}

static void stalled(void *data, const char *what, uint64_t for_ns)
{
    sl_agent_say(data, SL_EVENT_WARNING, "NVMLStalled",
                 "NVML has not answered (%s) for %llu s: the agent keeps what it knows and "
                 "continues with the rest",
                 what, (unsigned long long)(for_ns / 1000000000U));
}

static void resumed(void *data, uint64_t after_ns)
{
    sl_agent_say(data, SL_EVENT_NORMAL, "NVMLResumed", "NVML answers again, after %llu s",
                 (unsigned long long)(after_ns / 1000000000U));
}

static bool xid_ignored(void *data, uint64_t number)
{
    const struct sl_agent *a = data;
    return sl_config_xid_ignored(a->config, number);
}

void sl_agent_refresh(void *data)
{
    struct sl_agent *a = data;
    if (a->devices)
        sl_devices_refresh(a->devices);
}

static int open_devices(struct sl_agent *a, struct sl_err *err)
{
    struct sl_driver_options driver = {0};
    sl_driver_options_set(&driver, a->config, NULL);
    const struct sl_health_options health = {.ignored = xid_ignored,
                                             .quiet_ns = a->config->recover_ns,
                                             .reset_quiet_ns = a->config->recover_reset_ns,
                                             .changed = sl_agent_health_changed,
                                             .refresh = sl_agent_refresh,
                                             .data = a};
    a->health = sl_health_create(a->loop, &health);
    /* With virtual machines on the node, they may have all the cards, and nobody needs the driver. */
    bool fail = a->config->fail_on_init_error && !a->config->vm.enabled;
    const struct sl_devices_options options = {.driver_root = driver.root,
                                               .fail_on_init_error = fail,
                                               .no_events = !a->config->health_checks};
    static const struct sl_devices_ops ops = {.polled = polled,
                                              .inventory = inventory,
                                              .xid = xid,
                                              .no_driver = no_driver,
                                              .trouble = trouble,
                                              .stalled = stalled,
                                              .resumed = resumed};
    return sl_devices_create(a->loop, &options, &ops, a, &a->devices, err);
}

/* --- kubelet and the API server ------------------------------------------------------------------ */

void sl_agent_notice(void *data, const char *text)
{
    struct sl_agent *a = data;
    if (a->node)
        sl_node_event(a->node, SL_EVENT_WARNING, "DevicePlugin", text);
}

static void kubelet_started(void *data)
{
    struct sl_agent *a = data;
    sl_info("a kubelet has started");
    sl_devices_refresh(a->devices);
}

static int open_plugins(struct sl_agent *a, struct sl_err *err)
{
    const struct sl_plugins_options options = {.kubelet_socket = a->config->kubelet_socket,
                                               .share_policy = a->config->share_policy,
                                               .allocate = sl_agent_allocate,
                                               .prestart = sl_agent_prestart,
                                               .kubelet_started = kubelet_started,
                                               .notice = sl_agent_notice,
                                               .data = a};
    return sl_plugins_create(a->loop, &options, &a->plugins, err);
}

static void arbiter_late(struct sl_timer *timer)
{
    struct sl_agent *a = sl_container_of(timer, struct sl_agent, arbiter_late);
    a->arbiter_said = true;
    sl_agent_say(a, SL_EVENT_WARNING, "ArbiterDown", SL_E_ARBITER_AWAY_LOG, a->arbiter_words,
                 a->opt.arbiter_dir);
}

void sl_agent_arbiter_away(struct sl_agent *a, const char *words)
{
    bool running = !a->arbiter_words[0];
    (void)snprintf(a->arbiter_words, sizeof(a->arbiter_words), "%s", words);
    /* While manifests change, the old agent may read a configuration that only the next one's pod can serve. */
    if (running)
        sl_timer_set(a->loop, &a->arbiter_late, sl_loop_now(a->loop) + ARBITER_LATE_NS);
}

static void arbiter_state(void *data, bool up, const char *words)
{
    struct sl_agent *a = data;
    if (!up) {
        sl_agent_arbiter_away(a, words);
        return;
    }
    sl_timer_stop(a->loop, &a->arbiter_late);
    if (a->arbiter_said)
        sl_agent_say(a, SL_EVENT_NORMAL, "ArbiterUp", "%s", words);
    a->arbiter_said = false;
    a->arbiter_words[0] = '\0';
}

/* Only where containers are limited to a share: other containers need no turns. */
int sl_agent_arbiter_open(struct sl_agent *a, struct sl_err *err)
{
    struct sl_driver_options driver = {0};
    struct sl_err ignored = SL_ERR_INIT;
    if (a->arbiter || (!a->opt.dra && !a->config->fractional.enabled))
        return 0;
    sl_driver_options_set(&driver, a->config, NULL);
    const char *root = driver.root ? driver.root : "/";
    if (sl_driver_locate(root, "libnvidia-ml.so.1", a->nvml_library, sizeof(a->nvml_library),
                         &ignored) < 0)
        a->nvml_library[0] = '\0';
    const struct sl_arbiter_child_options options = {
        .dir = a->opt.arbiter_dir,
        .nvml_library = a->nvml_library[0] ? a->nvml_library : NULL,
        .state = arbiter_state,
        .data = a};
    int rc = sl_arbiter_child_create(a->loop, &options, &a->arbiter, err);
    return rc < 0 ? rc : sl_agent_observe_arbiter(a, err);
}

/* --- life ---------------------------------------------------------------------------------------- */

static void signalled(struct sl_source *s, uint32_t events)
{
    (void)events;
    struct sl_agent *a = sl_container_of(s, struct sl_agent, signals);
    struct signalfd_siginfo info;
    while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) {
            sl_agent_config_changed(a);
            sl_devices_refresh(a->devices); /* cards and MIG devices may have changed too */
        } else
            a->stopping = true;
    }
}

static int open_signals(struct sl_agent *a, struct sl_err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return sl_err_errno(err, errno, "cannot block signals");
    a->signals = (struct sl_source){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                    .ready = signalled};
    if (a->signals.fd < 0)
        return sl_err_errno(err, errno, "cannot watch signals");
    return sl_loop_watch(a->loop, &a->signals, EPOLLIN, err);
}

static void name_node(struct sl_agent *a)
{
    (void)snprintf(a->node_name, sizeof(a->node_name), "%s",
                   a->opt.node_name ? a->opt.node_name : "");
    if (a->node_name[0] == '\0' && gethostname(a->node_name, sizeof(a->node_name) - 1) != 0)
        (void)snprintf(a->node_name, sizeof(a->node_name), "localhost");
}

static int open_reload(struct sl_agent *a, struct sl_err *err)
{
    int rc = sl_reload_create(a->loop, sl_agent_config_changed, a, &a->reload, err);
    if (rc == 0)
        sl_reload_watch(a->reload, a->config_file);
    return rc;
}

/* In this order. Signals first: threads that start later inherit the blocked signals. */
static int (*const openers[])(struct sl_agent *a, struct sl_err *err) = {
    open_signals,     sl_agent_config_first, open_reload,  sl_agent_arbiter_open,
    open_plugins,     sl_agent_node_open,    open_devices, sl_agent_dra_open,
    sl_agent_vm_open, sl_agent_observe_open,
};

static void close_all(struct sl_agent *a)
{
    /* Stop the clients before the servers: a client may still call a server while it closes. */
    sl_agent_observe_close(a);
    sl_dra_destroy(a->dra);
    sl_fraction_destroy(a->fraction);
    sl_agent_vm_close(a);
    sl_plugins_destroy(a->plugins);
    sl_devices_destroy(a->devices);
    sl_health_destroy(a->health);
    /* The MPS daemons go on serving their clients; the next agent adopts them. */
    sl_mps_destroy(a->mps);
    sl_labeler_destroy(a->labeler);
    sl_node_feature_destroy(a->feature);
    sl_node_destroy(a->node);
    sl_kube_destroy(a->kube);
    sl_arbiter_child_destroy(a->arbiter);
    sl_timer_stop(a->loop, &a->arbiter_late);
    sl_reload_destroy(a->reload);
    sl_timer_stop(a->loop, &a->label_wait);
    sl_timer_stop(a->loop, &a->files_retry);
    sl_plan_free(a->plan);
    sl_driver_free(a->driver);
    sl_config_free(a->config);
    free(a->config_text);
    if (a->signals.fd >= 0) {
        sl_loop_unwatch(a->loop, &a->signals);
        (void)close(a->signals.fd);
    }
}

int sl_agent_run(const struct sl_agent_options *opt, char *const *environ_list, struct sl_err *err)
{
    struct sl_agent *a = sl_xcalloc(1, sizeof(*a));
    a->opt = *opt;
    a->environ_list = environ_list;
    a->signals.fd = -1;
    a->files_retry.fire = sl_agent_retry_files;
    a->arbiter_late.fire = arbiter_late;
    a->start_time_s = (double)time(NULL);
    a->reload_time_s = NAN;
    name_node(a);
    int rc = sl_loop_create(NULL, &a->loop, err);
    if (rc == 0) {
        for (size_t i = 0; i < SL_ARRAY_LEN(openers) && rc == 0; i++)
            rc = openers[i](a, err);
        if (rc == 0)
            sl_info("sluiced %s on node %s", sl_version(), a->node_name);
        while (rc == 0 && !a->stopping)
            rc = sl_loop_step(a->loop, -1, err);
        if (rc == 0 && a->fatal.code < 0) {
            rc = a->fatal.code;
            if (err)
                *err = a->fatal;
        }
        close_all(a);
        sl_loop_destroy(a->loop);
    }
    free(a);
    return rc;
}
