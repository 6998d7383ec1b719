/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which configuration: the file of the command line, or of a directory of files the one that the Node's label
 * names. A new one takes the place of the old one only when it is good for this very node.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent_internal.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/log.h"

#define CONFIG_MAX_BYTES (1 << 20)

static const char *flag_value(const struct sl_agent *a, const char *flag)
{
    const char *value = NULL;
    for (size_t i = 0; i < a->opt.flags_count; i++)
        if (strcmp(a->opt.flags[i].flag, flag) == 0)
            value = a->opt.flags[i].value;
    for (char *const *e = a->environ_list; !value && e && *e; e++)
        if (strncmp(*e, "CONFIG_FILE=", strlen("CONFIG_FILE=")) == 0)
            value = *e + strlen("CONFIG_FILE=");
    return value;
}

/* "default" where there is one of that name and nothing else says which. */
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
    const char *file = flag_value(a, "config-file");
    if (!a->opt.config_dir || !*a->opt.config_dir) {
        (void)snprintf(path, size, "%s", file ? file : "");
        return 0;
    }
    const char *name = choice(a, path, size);
    path[0] = '\0';
    if (!name)
        return 0;
    if (strchr(name, '/') || name[0] == '.')
        return sl_err_set(err, -EINVAL,
                          "the Node's label %s is \"%.60s\", which names no file of %s",
                          SL_NODE_CONFIG_LABEL, name, a->opt.config_dir);
    if ((size_t)snprintf(path, size, "%s/%s", a->opt.config_dir, name) >= size)
        return sl_err_set(err, -ENAMETOOLONG, "the name \"%.60s\" of a config is too long", name);
    if (access(path, F_OK) != 0) {
        path[0] = '\0';
        return sl_err_set(
            err, -ENOENT,
            "no config \"%.60s\" in %s: add it to the ConfigMap, or change the Node's label %s",
            name, a->opt.config_dir, SL_NODE_CONFIG_LABEL);
    }
    return 0;
}

static int read_file(const char *path, char **ret, struct sl_err *err)
{
    *ret = NULL;
    return path[0] ? sl_fs_read(AT_FDCWD, path, CONFIG_MAX_BYTES, ret, NULL, err) : 0;
}

static int parse(const struct sl_agent *a, const char *path, const char *text,
                 struct sl_config **ret, struct sl_err *err)
{
    return sl_config_parse(path, text, text ? strlen(text) : 0, a->environ_list, a->opt.flags,
                           a->opt.flags_count, ret, err);
}

int sl_agent_config_first(struct sl_agent *a, struct sl_err *err)
{
    a->reload_time_s = (double)time(NULL);
    int rc = choose(a, a->config_file, sizeof(a->config_file), err);
    if (rc == 0)
        rc = read_file(a->config_file, &a->config_text, err);
    if (rc == 0)
        rc = parse(a, a->config_file, a->config_text, &a->config, err);
    return rc;
}

static void refuse(struct sl_agent *a, const struct sl_err *why)
{
    if (strcmp(a->reload_error, why->msg) == 0)
        return; /* said already */
    a->reloads_failed++;
    (void)snprintf(a->reload_error, sizeof(a->reload_error), "%s", why->msg);
    sl_agent_say(a, SL_EVENT_WARNING, "ConfigRefused", "the old configuration stays: %s", why->msg);
}

static bool differs(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") != 0;
}

/* What is opened once, at the start. */
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
            sl_warn("%s has changed: that takes effect when the agent is restarted", fixed[i].key);
}

static void accept_config(struct sl_agent *a, struct sl_config *config)
{
    struct sl_err err = SL_ERR_INIT;
    bool same = sl_config_equal(config, a->config);
    struct sl_config *old = a->config;
    a->config = config;
    if (same) {
        if (a->reload_error[0])
            sl_agent_say(a, SL_EVENT_NORMAL, "ConfigAccepted",
                         "the configuration is as it was before");
    } else {
        a->reloads_ok++;
        a->reload_time_s = (double)time(NULL);
        sl_agent_say(a, SL_EVENT_NORMAL, "ConfigAccepted", "new configuration from %s",
                     a->config_file[0] ? a->config_file : "the command line");
        say_what_waits(old, config);
        if (sl_agent_arbiter_open(a, &err) < 0)
            sl_agent_say(a, SL_EVENT_WARNING, "ArbiterDown", "%s", err.msg);
        sl_health_reload(a->health);
        sl_plugins_set_policy(a->plugins, config->share_policy);
        sl_agent_replan(a);
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
    struct sl_config *config = NULL;
    struct sl_plan *plan = NULL;
    int rc = choose(a, path, sizeof(path), &err);
    if (rc == 0)
        rc = read_file(path, &text, &err);
    if (rc < 0) {
        refuse(a, &err);
        return;
    }
    bool same_text = strcmp(text ? text : "", a->config_text ? a->config_text : "") == 0;
    if (same_text && strcmp(path, a->config_file) == 0)
        return;
    (void)snprintf(a->config_file, sizeof(a->config_file), "%s", path);
    sl_reload_watch(a->reload, path);
    free(a->config_text);
    a->config_text = text ? strdup(text) : NULL;
    rc = parse(a, path, text, &config, &err);
    if (rc == 0)
        rc = sl_agent_plan_check(a, config, &plan, &err);
    sl_plan_free(plan);
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
    a->label_known = true;
    if (strcmp(a->config_label, value ? value : "") == 0)
        return;
    (void)snprintf(a->config_label, sizeof(a->config_label), "%s", value ? value : "");
    if (a->opt.config_dir && *a->opt.config_dir)
        sl_agent_config_changed(a);
}
