/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the configuration: the file of the command line, or, in a directory of files, the file that the Node's label
 * names. A new configuration replaces the old one only when it fits this very node.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fsutil.h"
#include "base/log.h"

#define CONFIG_MAX_BYTES (1 << 20)
#define LABEL_WAIT_NS    (5 * SL_NS_PER_S)

static const char *named_file(const struct sl_agent *a)
{
    const char *value = NULL;
    for (size_t i = 0; i < a->opt.flags_count; i++)
        if (strcmp(a->opt.flags[i].flag, "config-file") == 0)
            value = a->opt.flags[i].value;
    return value ? value : sl_config_variable(a->environ_list, "CONFIG_FILE");
}

/* The file that the label names, else the option, else "default" where it exists. */
static const char *choice(const struct sl_agent *a, char *path, size_t size)
{
    const char *name = a->config_label[0] ? a->config_label : a->opt.default_config;
    if (!name || !*name) {
        (void)snprintf(path, size, "%s/default", a->opt.config_dir);
        return access(path, R_OK) == 0 ? "default" : NULL;
    }
    return name;
}

/* "": no file. */
static int choose(const struct sl_agent *a, char *path, size_t size, struct sl_err *err)
{
    path[0] = '\0';
    const char *file = named_file(a);
    if (!a->opt.config_dir || !*a->opt.config_dir) {
        (void)snprintf(path, size, "%s", file ? file : "");
        return 0;
    }
    const char *name = choice(a, path, size);
    path[0] = '\0';
    if (!name)
        return 0;
    if (strchr(name, '/') || name[0] == '.')
        return sl_err_set(err, -EINVAL, SL_E_CONFIG_LABEL, SL_NODE_CONFIG_LABEL, name,
                          a->opt.config_dir);
    if ((size_t)snprintf(path, size, "%s/%s", a->opt.config_dir, name) >= size)
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CONFIG_NAME_LONG, name);
    if (access(path, F_OK) != 0) {
        path[0] = '\0';
        return sl_err_set(err, -ENOENT, SL_E_CONFIG_NO_FILE_NAMED, name, a->opt.config_dir,
                          SL_NODE_CONFIG_LABEL);
    }
    return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_size, struct sl_err *err)
{
    *ret = NULL;
    *ret_size = 0;
    return path[0] ? sl_fs_read(AT_FDCWD, path, CONFIG_MAX_BYTES, ret, ret_size, err) : 0;
}

static int parse(const struct sl_agent *a, struct sl_config **ret, struct sl_err *err)
{
    return sl_config_parse(a->config_file, a->config_text, a->config_size, a->environ_list,
                           a->opt.flags, a->opt.flags_count, ret, err);
}

static int load(struct sl_agent *a, struct sl_err *err)
{
    free(a->config_text);
    a->config_text = NULL;
    int rc = choose(a, a->config_file, sizeof(a->config_file), err);
    if (rc == 0)
        rc = read_file(a->config_file, &a->config_text, &a->config_size, err);
    return rc < 0 ? rc : parse(a, &a->config, err);
}

/* --- the Node's label, remembered -----------------------------------------------------------------
 * An agent that starts while the API server is away must not fall back to the default: the node's capacity
 * would change under its pods.
 */

#define LABEL_FILE "config-label"

static bool by_label(const struct sl_agent *a)
{
    return a->opt.config_dir && *a->opt.config_dir && !a->opt.no_api;
}

static void recall_label(struct sl_agent *a)
{
    struct sl_err err = SL_ERR_INIT;
    char path[4200];
    SL_CLEANUP(free) char *text = NULL;
    (void)snprintf(path, sizeof(path), "%s/" LABEL_FILE, a->opt.state_dir);
    if (sl_fs_read(AT_FDCWD, path, sizeof(a->config_label) - 1, &text, NULL, &err) < 0)
        return; /* never written, or useless: the Node will tell */
    (void)snprintf(a->config_label, sizeof(a->config_label), "%s", text);
    a->label_known = true;
}

static void remember_label(const struct sl_agent *a)
{
    struct sl_err err = SL_ERR_INIT;
    char path[4200];
    (void)snprintf(path, sizeof(path), "%s/" LABEL_FILE, a->opt.state_dir);
    int rc = sl_fs_mkdirs(a->opt.state_dir, 0755, &err);
    if (rc == 0)
        rc = sl_fs_replace(AT_FDCWD, path, a->config_label, strlen(a->config_label), 0644, &err);
    if (rc < 0)
        sl_warn(SL_E_CONFIG_LABEL_UNSAVED_LOG, err.msg);
}

bool sl_agent_config_waits(const struct sl_agent *a)
{
    return by_label(a) && a->node && !a->label_known;
}

/* The API server has not answered: the agent goes on with the default. */
static void waited(struct sl_timer *timer)
{
    struct sl_agent *a = sl_container_of(timer, struct sl_agent, label_wait);
    if (a->label_known)
        return;
    sl_warn("label %s of the Node is not known yet: the agent continues without it",
            SL_NODE_CONFIG_LABEL);
    a->label_known = true;
    sl_agent_replan(a);
    sl_agent_vm_offer(a);
}

int sl_agent_config_first(struct sl_agent *a, struct sl_err *err)
{
    a->reload_time_s = (double)time(NULL);
    if (by_label(a))
        recall_label(a);
    int rc = load(a, err);
    if (rc < 0 && a->config_label[0]) {
        sl_warn("label \"%.60s\" of the Node cannot be used now: %s", a->config_label, err->msg);
        a->config_label[0] = '\0';
        rc = load(a, err);
    }
    a->label_wait.fire = waited;
    if (rc == 0 && by_label(a) && !a->label_known)
        sl_timer_set(a->loop, &a->label_wait, sl_loop_now(a->loop) + LABEL_WAIT_NS);
    return rc;
}

static void refuse(struct sl_agent *a, const struct sl_err *why)
{
    if (strcmp(a->reload_error, why->msg) == 0)
        return; /* this error is logged already */
    a->reloads_failed++;
    (void)snprintf(a->reload_error, sizeof(a->reload_error), "%s", why->msg);
    sl_agent_say(a, SL_EVENT_WARNING, "ConfigRefused", SL_E_CONFIG_KEPT_LOG, why->msg);
}

/* The refused file is gone, and the file in force is as it was. */
static void settle(struct sl_agent *a)
{
    if (a->reload_error[0])
        sl_agent_say(a, SL_EVENT_NORMAL, "ConfigAccepted",
                     "the configuration is the same as before");
    a->reload_error[0] = '\0';
}

static bool differs(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") != 0;
}

/* Settings that are read once, at the start. */
static void say_what_waits(const struct sl_config *old, const struct sl_config *config)
{
    const struct {
        const char *key;
        bool changed;
    } fixed[] = {
        {"nvidiaDriverRoot", differs(old->driver_root, config->driver_root)},
        {"nvidiaDevRoot", differs(old->dev_root, config->dev_root)},
        {"containerDriverRoot", differs(old->container_driver_root, config->container_driver_root)},
        {"mpsRoot", differs(old->mps_root, config->mps_root)},
        {"kubelet-socket", differs(old->kubelet_socket, config->kubelet_socket)},
        {"health checks on or off", old->health_checks != config->health_checks},
    };
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (fixed[i].changed)
            sl_warn(SL_E_CONFIG_RESTART_LOG, fixed[i].key);
}

static void accept_config(struct sl_agent *a, struct sl_config *config)
{
    struct sl_err err = SL_ERR_INIT;
    bool same = sl_config_equal(config, a->config);
    struct sl_config *old = a->config;
    a->config = config;
    if (same) {
        settle(a);
    } else {
        a->reloads_ok++;
        a->reload_time_s = (double)time(NULL);
        sl_agent_say(a, SL_EVENT_NORMAL, "ConfigAccepted", "new configuration from %s",
                     a->config_file[0] ? a->config_file : "the command line");
        say_what_waits(old, config);
        if (sl_agent_arbiter_open(a, &err) < 0)
            sl_agent_arbiter_away(a, err.msg);
        sl_health_reload(a->health, config->recover_ns, config->recover_reset_ns);
        sl_devices_refresh(a->devices); /* MIG is often changed together with its strategy */
        sl_plugins_set_policy(a->plugins, config->share_policy);
        sl_agent_replan(a);
        sl_agent_vm_reload(a);
        sl_agent_labels(a); /* useNodeFeatureAPI */
    }
    a->reload_error[0] = '\0';
    sl_config_free(old);
}

void sl_agent_config_changed(void *data)
{
    struct sl_agent *a = data;
    struct sl_err err = SL_ERR_INIT;
    char path[sizeof(a->config_file)];
    SL_CLEANUP(free) char *text = NULL;
    size_t size = 0;
    struct sl_config *config = NULL;
    struct sl_plan *plan = NULL;
    static const struct sl_inventory none;
    const struct sl_inventory *inv = sl_devices_inventory(a->devices);
    int rc = choose(a, path, sizeof(path), &err);
    if (rc == 0)
        rc = read_file(path, &text, &size, &err);
    if (rc < 0) {
        refuse(a, &err);
        return;
    }
    bool same_text =
        size == a->config_size && (size == 0 || memcmp(text, a->config_text, size) == 0);
    /* A refused text is tried again: the cards may have changed since. */
    if (same_text && !a->text_refused && strcmp(path, a->config_file) == 0) {
        settle(a); /* the missing file is back, or the label names this file again */
        return;
    }
    (void)snprintf(a->config_file, sizeof(a->config_file), "%s", path);
    sl_reload_watch(a->reload, path);
    free(a->config_text);
    a->config_text = sl_take_ptr(text);
    a->config_size = size;
    rc = parse(a, &config, &err);
    if (rc == 0) /* the configuration must fit this very node */
        rc = sl_plan_make(config, inv ? inv : &none, &plan, &err);
    sl_plan_free(plan);
    a->text_refused = rc < 0;
    if (rc < 0) {
        sl_config_free(config);
        refuse(a, &err);
        return;
    }
    accept_config(a, config);
}

void sl_agent_config_label(void *data, const char *value)
{
    struct sl_agent *a = data;
    bool first = !a->label_known, same = !differs(a->config_label, value);
    a->label_known = true;
    sl_agent_fraction_publish(a); /* the Node's annotations are known too */
    if (!by_label(a))
        return;
    (void)snprintf(a->config_label, sizeof(a->config_label), "%s", value ? value : "");
    if (first || !same)
        remember_label(a);
    if (!same)
        sl_agent_config_changed(a);
    if (first) { /* both waited for the label */
        sl_agent_replan(a);
        sl_agent_vm_offer(a);
    }
}
