/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/errors.h"
#include "agent/metrics/metrics.h"
#include "base/argv.h"
#include "base/log.h"
#include "base/xalloc.h"

/* An empty TEXT counts as not given. */
enum kind { TEXT, TEXT_OR_NOTHING, YES_NO };

/* One row for each option of the agent itself: help, environment and field follow from it. */
static const struct option_row {
    const char *flag, *env, *value, *help;
    enum kind kind;
    size_t field;
    const char *fallback; /* NULL: none, or false */
} rows[] = {
#define FIELD(f) offsetof(struct sl_agent_options, f)
    {"node-name", "NODE_NAME", "NAME", "name of this node (default: the name of the host)", TEXT,
     FIELD(node_name), NULL},
    {"kubeconfig", "KUBECONFIG", "FILE", "kubeconfig to reach the API server (default: as a pod)",
     TEXT, FIELD(kubeconfig), NULL},
    {"no-api", "SLUICE_NO_API", NULL, "do without the API server: no labels, no events", YES_NO,
     FIELD(no_api), NULL},
    {"dra", "SLUICE_DRA", NULL,
     "serve resource claims (Kubernetes 1.36.3 and later) instead\nof device plugins", YES_NO,
     FIELD(dra), NULL},
    {"dra-driver", "SLUICE_DRA_DRIVER", "NAME",
     "name of the driver of resource claims: gpu.sluice.io, or\ngpu.nvidia.com for the manifests "
     "of "
     "NVIDIA's DRA driver",
     TEXT, FIELD(dra_driver), SL_DRA_DRIVER},
    {"consumable-shares", "CONSUMABLE_SHARES", "WORD",
     "what a claim of class gpu.nvidia.com gets: disabled (a whole\nGPU), memory (what it names), "
     "unlimited, or a number of\nequal shares",
     TEXT, FIELD(consumable), "disabled"},
    {"config-dir", "CONFIG_FILE_SRCDIR", "DIR",
     "files that the Node's label nvidia.com/device-plugin.config\nchooses from", TEXT,
     FIELD(config_dir), NULL},
    {"default-config", "DEFAULT_CONFIG", "NAME", "the file of --config-dir without that label",
     TEXT, FIELD(default_config), NULL},
    {"metrics-address", "METRICS_ADDRESS", "ADDRESS",
     "address of /metrics, /healthz and /readyz; empty: none", TEXT_OR_NOTHING,
     FIELD(metrics_address), ":9400"},
    {"metrics-names", "METRICS_NAMES", "LIST",
     "under whose names metrics are: sluice, hami, dcgm, or several\nwith commas", TEXT,
     FIELD(metrics_names), "sluice"},
    {"labels", "SLUICE_LABELS", NULL, "write GPU labels to the Node", YES_NO, FIELD(labels),
     "true"},
    {"nfd", "SLUICE_NFD", NULL, "write the labels to a file for Node Feature Discovery, too",
     YES_NO, FIELD(nfd), NULL},
    {"node-feature", "SLUICE_NODE_FEATURE", NULL,
     "write the labels to a NodeFeature object for Node Feature\nDiscovery instead; to the Node "
     "where that is not possible",
     YES_NO, FIELD(node_feature), NULL},
    {"pod-namespace", "POD_NAMESPACE", "NAME", "namespace of that object", TEXT,
     FIELD(pod_namespace), "sluice-system"},
    {"cdi-dir", "CDI_DIR", "DIR", "directory for CDI specs", TEXT, FIELD(cdi_dir), "/var/run/cdi"},
    {"state-dir", "SLUICE_STATE_DIR", "DIR",
     "directory for what must survive a restart, and for the\nlibsluice.so of pods", TEXT,
     FIELD(state_dir), "/var/lib/sluice"},
    {"state-dir-host", "SLUICE_STATE_DIR_HOST", "DIR", "the same directory as the host sees it",
     TEXT, FIELD(state_dir_host), NULL},
    {"arbiter-dir", "SLUICE_DIR", "DIR", "directory of the arbiter", TEXT, FIELD(arbiter_dir),
     "/run/sluice"},
    {"arbiter-dir-host", "SLUICE_DIR_HOST", "DIR", "the same directory as the host sees it", TEXT,
     FIELD(arbiter_dir_host), NULL},
    {"libsluice", "SLUICE_LIBSLUICE", "FILE",
     "the libsluice.so for pods (default: the one installed with\nthis program)", TEXT,
     FIELD(libsluice), NULL},
    {"pod-uid", "POD_UID", "UID",
     "uid of the agent's own pod, so that two agents may overlap\nin an upgrade", TEXT,
     FIELD(instance), NULL},
    {"pod-resources-socket", "POD_RESOURCES_SOCKET", "FILE", "kubelet's PodResources API", TEXT,
     FIELD(podres_socket), "/var/lib/kubelet/pod-resources/kubelet.sock"},
    {"kubelet-plugin-dir", "KUBELET_PLUGIN_DIR", "DIR", "directory for the DRA socket", TEXT,
     FIELD(plugin_dir), NULL},
    {"kubelet-registry-dir", "KUBELET_REGISTRY_DIR", "DIR",
     "directory in which kubelet looks for "
     "DRA drivers",
     TEXT, FIELD(registry_dir), NULL},
    {"vm-root", "SLUICE_VM_ROOT", "DIR",
     "where /sys and /dev of the machine are, for devices of\nvirtual machines", TEXT,
     FIELD(vm_root), "/"},
    {"supervise", "SLUICE_SUPERVISE", NULL,
     "a parent process restarts the agent when a signal ended it,\nso that the container lives on",
     YES_NO, FIELD(supervise), NULL},
    {"cleanup", NULL, "DIR",
     "be no agent: take away what agents left on this node, whose\nroot is DIR, and on its Node; "
     "then end",
     TEXT, FIELD(cleanup), NULL},
    {"cleanup-stay", NULL, NULL, "after --cleanup, wait for SIGTERM", YES_NO, FIELD(cleanup_stay),
     NULL},
    {"log-level", "SLUICE_LOG", "LEVEL", "off, error, warn, info or debug", TEXT, FIELD(log_level),
     "info"},
    {"help", NULL, NULL, "show this help", YES_NO, FIELD(help), NULL},
    {"version", NULL, NULL, "show the version", YES_NO, FIELD(version), NULL},
#undef FIELD
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* How wide the help is, and where its right column begins. */
#define HELP_WIDTH  96
#define HELP_INDENT 33

static int set(struct sl_agent_options *opt, const struct option_row *row, const char *value,
               struct sl_err *err)
{
    char *at = (char *)opt + row->field;
    if (row->kind != YES_NO) {
        if (!*value && row->kind == TEXT)
            return sl_err_set(err, -EINVAL, SL_E_AGENT_NEEDS_VALUE, row->flag);
        *(const char **)(void *)at = value;
        return 0;
    }
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (!yes && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_BOOL, row->flag, value);
    *(bool *)(void *)at = yes;
    return 0;
}

static const struct option_row *find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].flag, name) == 0)
            return &rows[i];
    return NULL;
}

static int defaults(struct sl_agent_options *opt, char *const *environ_list, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < ROWS && rc == 0; i++) {
        const char *value = rows[i].env ? sl_config_variable(environ_list, rows[i].env) : NULL;
        if (!value || (*value == '\0' && rows[i].kind != TEXT_OR_NOTHING))
            value = rows[i].fallback;
        rc = value ? set(opt, &rows[i], value, err) : 0;
    }
    return rc;
}

/* A flag of the configuration: its name is copied, since argv has "name=value" in one piece. */
static void pass_on(struct sl_agent_options *opt, const char *name, const char *value)
{
    opt->flags = sl_xreallocarray(opt->flags, opt->flags_count + 1, sizeof(*opt->flags));
    opt->flags[opt->flags_count++] = (struct sl_config_override){sl_xstrdup(name), value};
}

static int unknown(const char *name, struct sl_err *err)
{
    const char *ours[ROWS + 1] = {NULL};
    char best[64];
    for (size_t i = 0; i < ROWS; i++)
        ours[i] = rows[i].flag;
    if (sl_config_closest_flag(name, ours, best, sizeof(best)))
        return sl_err_set(err, -EINVAL, SL_E_AGENT_OPTION_NEAR, name, best);
    return sl_err_set(err, -EINVAL, SL_E_AGENT_OPTION_UNKNOWN, name);
}

static int one(struct sl_agent_options *opt, char **argv, int argc, int *i, struct sl_err *err)
{
    struct sl_option o;
    if (!sl_option_split(argv[*i], &o))
        return sl_err_set(err, -EINVAL, SL_E_AGENT_OPTION, argv[*i]);
    const struct option_row *row = find(o.name);
    bool takes_value = row && row->kind != YES_NO;
    if (!row && !sl_config_is_flag(o.name, &takes_value))
        return unknown(o.name, err);
    if (!takes_value && !o.value)
        o.value = "true";
    const char *value = sl_option_value(&o, argc, argv, i);
    if (!value)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_NEEDS_VALUE, o.name);
    if (row)
        return set(opt, row, value, err);
    pass_on(opt, o.name, value);
    return 0;
}

static int read_names(struct sl_agent_options *opt, struct sl_err *err)
{
    struct sl_dra_names *names = &opt->dra_names;
    names->nvidia = strcmp(opt->dra_driver, SL_NVIDIA_DRIVER) == 0;
    if (!names->nvidia && strcmp(opt->dra_driver, SL_DRA_DRIVER) != 0)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_DRA_DRIVER, opt->dra_driver);
    if (names->nvidia && !opt->dra)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_DRA_DRIVER_ALONE);
    int rc = sl_dra_consumable_parse(opt->consumable, names, err);
    if (rc == 0 && names->consumable != SL_CONSUMABLE_DISABLED && !names->nvidia)
        rc = sl_err_set(err, -EINVAL, SL_E_AGENT_CONSUMABLE);
    return rc;
}

int sl_agent_options_parse(struct sl_agent_options *opt, int argc, char **argv,
                           char *const *environ_list, struct sl_err *err)
{
    *opt = (struct sl_agent_options){0};
    int rc = defaults(opt, environ_list, err);
    for (int i = 1; i < argc && rc == 0; i++)
        rc = one(opt, argv, argc, &i, err);
    if (rc == 0 && sl_log_level_parse(opt->log_level, SL_LOG_OFF) == SL_LOG_OFF &&
        strcmp(opt->log_level, "off") != 0)
        rc = sl_err_set(err, -EINVAL, SL_E_AGENT_LOG_LEVEL, opt->log_level);
    if (rc == 0 && sl_metrics_names_parse(opt->metrics_names, &opt->names) < 0)
        rc = sl_err_set(err, -EINVAL, SL_E_METRICS_NAMES, opt->metrics_names);
    if (rc == 0)
        rc = read_names(opt, err);
    if (rc < 0) {
        sl_agent_options_clear(opt);
        return rc;
    }
    if (!opt->state_dir_host)
        opt->state_dir_host = opt->state_dir;
    if (!opt->arbiter_dir_host)
        opt->arbiter_dir_host = opt->arbiter_dir;
    return 0;
}

void sl_agent_options_clear(struct sl_agent_options *opt)
{
    for (size_t i = 0; i < opt->flags_count; i++)
        free((char *)(uintptr_t)opt->flags[i].flag);
    free(opt->flags);
    opt->flags = NULL;
    opt->flags_count = 0;
}

/* An option, its help, then its default and variable, on a separate line if necessary. */
static void print_row(FILE *out, const char *left, const char *help, const char *fallback,
                      const char *env)
{
    char tail[160] = "";
    int used = 0, n = 0;
    if (fallback)
        used = snprintf(tail, sizeof(tail), " [%s]", fallback);
    if (env)
        used += snprintf(tail + used, sizeof(tail) - (size_t)used, " ($%s)", env);
    for (const char *text = help; text; left = "") {
        const char *end = strchr(text, '\n');
        n = end ? (int)(end - text) : (int)strlen(text);
        (void)fprintf(out, "  %-30s %.*s%s", left, n, text, end ? "\n" : "");
        text = end ? end + 1 : NULL;
    }
    if (HELP_INDENT + n + used > HELP_WIDTH)
        (void)fprintf(out, "\n%*s%s\n", HELP_INDENT, "", tail + 1);
    else
        (void)fprintf(out, "%s\n", tail);
}

void sl_agent_options_help(FILE *out)
{
    (void)fputs("Usage: sluiced [OPTION...]\nThe agent of Sluice on a node with "
                "GPUs.\n\nOptions:\n",
                out);
    for (size_t i = 0; i < ROWS; i++) {
        char left[64];
        (void)snprintf(left, sizeof(left), "--%s%s%s", rows[i].flag, rows[i].value ? " " : "",
                       rows[i].value ? rows[i].value : "");
        print_row(out, left, rows[i].help, rows[i].fallback, rows[i].env);
    }
    (void)fputs("\nOptions and variables of NVIDIA's device plugin have the same meaning here; "
                "the most\nused are\n",
                out);
    print_row(out, "--config-file FILE", "the node's configuration; `sluice config check` tries it",
              NULL, "CONFIG_FILE");
    print_row(out, "--driver-root DIR", "where the files of the driver are on the host", "/",
              "NVIDIA_DRIVER_ROOT");
    print_row(out, "--mig-strategy WORD", "none, single or mixed", "none", "MIG_STRATEGY");
    (void)fputs("The others are in docs/config.md.\n", out);
}
