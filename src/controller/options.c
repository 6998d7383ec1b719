/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/argv.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "controller/dialect.h"
#include "controller/errors.h"

#define SPACE_FILE "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

const char sl_ctl_help[] =
    "Usage: sluice-controller [OPTION]...\n"
    "\n"
    "The cluster side of Sluice: an admission webhook that takes pods written for HAMi, Volcano\n"
    "vGPU, gpushare and KubeShare unchanged, and a scheduler extender that places shares of GPUs.\n"
    "\n"
    "  --admission MODE       dra (default): pods get ResourceClaims; extender: pods get slots of\n"
    "                         nvidia.com/gpu and are placed by the extender; off: no webhook\n"
    "  --extender MODE        off (default); choose: filter chooses and reserves; all: filter\n"
    "                         answers every node that fits and scores decide; prioritize: only\n"
    "                         scores, to pack pods that DRA places\n"
    "  --policy NAME          placement policy (default sluice); see sluice simulate\n"
    "  --scheduler NAME       scheduler for pods that name hami-scheduler, volcano, …\n"
    "                         (default default-scheduler; empty: the pods keep theirs)\n"
    "  --second-scheduler NAME\n"
    "                         scheduler for every pod that asks for a GPU and would go to\n"
    "                         default-scheduler, where that cannot be told of the extender\n"
    "                         (default: none)\n"
    "  --high-priority NAMES  namespaces whose pods may ask for priority high, with commas, or *\n"
    "                         (default: none; the nodes' configurations decide as well)\n"
    "  --resize WORD          how far a running pod may be resized by annotation: never, "
    "allocated\n"
    "                         (default: up to what it was allocated), free (while there is room)\n"
    "  --resize-free NAMES    namespaces whose pods may be resized as with free, with commas, or "
    "*\n"
    "  --keep-templates N     seconds an unused ResourceClaimTemplate stays (default 3600)\n"
    "  --slot-resource NAME   what the device plugin advertises (default nvidia.com/gpu)\n"
    "\n"
    "  --listen ADDR          webhook and extender, TLS (default :8443; off: none)\n"
    "  --extender-http ADDR   the extender without TLS, for a scheduler on the same host\n"
    "  --extender-client-ca FILE\n"
    "                         by TLS only clients with a certificate of these authorities may use\n"
    "                         the extender (default: every client may)\n"
    "  --extender-client NAME … and with this common name, e.g. system:kube-scheduler\n"
    "  --ui-token-file FILE   the page /ui on --listen, for clients that send the token in FILE\n"
    "                         (default: no page)\n"
    "  --ui-loopback ADDR     the page without TLS, for kubectl port-forward: 127.0.0.1:8090\n"
    "                         (default: none; without --ui-token-file it needs no token)\n"
    "  --metrics ADDR         /metrics, /healthz, /readyz, /leaderz (default :9402; off: none)\n"
    "  --cert-file, --key-file FILE\n"
    "                         TLS certificate, read again when it changes; without them a "
    "certificate\n"
    "                         is made and kept in a Secret, and put into the webhook's "
    "configuration\n"
    "  --secret NAME          (default sluice-controller-tls)\n"
    "  --service NAME         the certificate is for NAME.NAMESPACE.svc (default "
    "sluice-controller)\n"
    "  --webhook NAME         MutatingWebhookConfiguration (default sluice-controller)\n"
    "  --namespace NAME       namespace of the controller (default $POD_NAMESPACE)\n"
    "\n"
    "  --leader-election WORD on (default) or off: one replica places pods\n"
    "  --lease NAME           (default sluice-controller)\n"
    "  --identity NAME        (default $POD_NAME, or the host's name)\n"
    "  --lease-seconds N      seconds until another replica replaces a silent leader (default 15)\n"
    "\n"
    "  --kubeconfig FILE      (default: the pod's service account)\n"
    "  --server URL           the API server, instead of the kubeconfig's\n"
    "  --ca-file, --token-file FILE\n"
    "  --log LEVEL            error, warn, info (default), debug\n"
    "  --help, --version\n";

/* The place for an option's text. */
struct row {
    const char *name;
    const char **at;
};

static int one_of(const char *name, const char *value, const char *const *list, size_t count,
                  unsigned *ret, struct sl_err *err)
{
    char all[128] = "";
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(all);
        if (strcmp(value, list[i]) == 0) {
            *ret = (unsigned)i;
            return 0;
        }
        (void)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", list[i]);
    }
    return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_WORD, name, value, all);
}

static int modes(struct sl_controller_options *o, const char *admission, const char *extender,
                 const char *election, const char *resize, const char *policy, const char *log,
                 enum sl_log_level *ret_log, struct sl_err *err)
{
    static const char *const admissions[] = {"dra", "extender", "off"};
    static const char *const extenders[] = {"off", "choose", "all", "prioritize"};
    static const char *const words[] = {"off", "on"};
    static const char *const sizes[] = {"never", "allocated", "free"};
    static const char *const levels[] = {"off", "error", "warn", "info", "debug"};
    unsigned a = 0, e = 0, l = 0, level = 0, size = 0;
    int rc = one_of("log", log, levels, 5, &level, err);
    if (!rc)
        rc = one_of("admission", admission, admissions, 3, &a, err);
    if (!rc)
        rc = one_of("extender", extender, extenders, 4, &e, err);
    if (!rc)
        rc = one_of("leader-election", election, words, 2, &l, err);
    if (!rc)
        rc = one_of("resize", resize, sizes, 3, &size, err);
    if (!rc)
        rc = sl_place_policy_parse(policy, &o->policy, err);
    o->admission = a != 2;
    o->mutate.mode = a == 1 ? SL_MUTATE_EXTENDER : SL_MUTATE_DRA;
    o->extender = (enum sl_extender_mode)e;
    o->elect = l == 1;
    o->resize = (enum sl_resize_mode)size;
    *ret_log = sl_log_level_parse(levels[level], SL_LOG_INFO);
    return rc;
}

/* A name as Kubernetes takes it for a scheduler, and not that of the first one. */
static int second_sensible(const struct sl_controller_options *o, struct sl_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
    const char *name = o->mutate.second;
    if (!name || !name[0])
        return 0;
    if (strlen(name) > 63 || strspn(name, letters) != strlen(name) || strchr("-.", name[0]))
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_SECOND, name);
    if (strcmp(name, SL_MUTATE_FIRST_SCHEDULER) == 0)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_SECOND_FIRST, name);
    if (!o->admission)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_SECOND_OFF);
    return 0;
}

/* Refuses modes that do not go together, or that do nothing. */
static int sensible(const struct sl_controller_options *o, struct sl_err *err)
{
    bool places = o->extender == SL_EXTENDER_CHOOSE || o->extender == SL_EXTENDER_ALL;
    const char *slot = o->mutate.slot_resource, *slash = strchr(slot, '/');
    if (o->admission && o->mutate.mode == SL_MUTATE_EXTENDER && !places)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_NO_EXTENDER);
    if (!o->admission && o->extender == SL_EXTENDER_OFF)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_IDLE);
    if (o->admission && !o->listen)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_NO_LISTEN);
    if (o->extender != SL_EXTENDER_OFF && !o->listen && !o->extender_http)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_UNREACHABLE);
    if (o->client_name && !o->client_ca)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_CLIENT_CA);
    if (o->client_ca && (o->extender == SL_EXTENDER_OFF || !o->listen))
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_CLIENT_LISTEN);
    if (o->ui_token_file && !o->listen && !o->ui_loopback)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_UI_LISTEN);
    if (o->ui_loopback && strncmp(o->ui_loopback, "127.", 4) != 0 &&
        strncmp(o->ui_loopback, "[::1]:", 6) != 0)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_UI_LOOPBACK, o->ui_loopback);
    if (!slash || slash == slot || slot[strlen(slot) - 1] == '/')
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_SLOT, slot);
    return second_sensible(o, err);
}

static int times(struct sl_controller_options *o, const char *lease, const char *keep,
                 struct sl_err *err)
{
    uint64_t lease_s = 0, keep_s = 0;
    const char *lease_end = sl_number_read(lease, 3600, &lease_s);
    const char *keep_end = sl_number_read(keep, 31536000, &keep_s);
    if (!lease_end || *lease_end || lease_s < 3)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_LEASE);
    if (!keep_end || *keep_end || keep_s < 6)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_KEEP);
    o->lease_ns = lease_s * SL_NS_PER_S;
    o->renew_ns = o->lease_ns * 2 / 3;
    o->retry_ns = o->lease_ns * 2 / 15;
    o->template_keep_s = (long)keep_s;
    return 0;
}

/* The defaults for our own name and address. */
static int ourselves(struct sl_ctl_args *a, struct sl_err *err)
{
    struct sl_controller_options *o = &a->opt;
    if (!o->name_space)
        o->name_space = getenv("POD_NAMESPACE");
    o->pod = getenv("POD_NAME");
    if (!o->identity)
        o->identity = o->pod;
    if (!o->identity && gethostname(a->identity, sizeof(a->identity) - 1) == 0)
        o->identity = a->identity;
    FILE *f SL_CLEANUP(fclose) = o->name_space ? NULL : fopen(SPACE_FILE, "re");
    if (f && fgets(a->name_space, sizeof(a->name_space), f)) {
        a->name_space[strcspn(a->name_space, "\n")] = '\0';
        o->name_space = a->name_space;
    }
    bool need = o->elect || (o->listen && !o->cert_file);
    if (need && (!o->name_space || !o->name_space[0]))
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_NAMESPACE);
    if (!o->cert_file != !o->key_file)
        return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_CERT_KEY);
    return 0;
}

static void nothing_if_off(const char **at)
{
    if (*at && (strcmp(*at, "off") == 0 || !**at))
        *at = NULL;
}

static int read_all(int argc, char **argv, const struct row *rows, size_t count,
                    struct sl_ctl_args *ret, struct sl_err *err)
{
    for (int i = 1; i < argc; i++) {
        struct sl_option o;
        size_t r = 0;
        ret->help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        ret->version = strcmp(argv[i], "--version") == 0;
        if (ret->help || ret->version)
            return 0;
        if (!sl_option_split(argv[i], &o))
            return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_OPTION, argv[i]);
        while (r < count && strcmp(rows[r].name, o.name) != 0)
            r++;
        if (r == count)
            return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_OPTION, argv[i]);
        *rows[r].at = sl_option_value(&o, argc, argv, &i);
        if (!*rows[r].at)
            return sl_err_set(err, -EINVAL, SL_E_CONTROLLER_NEEDS_VALUE, o.name);
    }
    return 0;
}

int sl_ctl_args_parse(int argc, char **argv, struct sl_ctl_args *ret, struct sl_err *err)
{
    struct sl_controller_options *o = &ret->opt;
    const char *admission = "dra", *extender = "off", *election = "on", *policy = "sluice";
    const char *seconds = "15", *keep = "3600", *log = "info", *resize = "allocated";
    memset(ret, 0, sizeof(*ret));
    *o = (struct sl_controller_options){.listen = ":8443",
                                        .metrics = ":9402",
                                        .secret = "sluice-controller-tls",
                                        .service = "sluice-controller",
                                        .webhook = "sluice-controller",
                                        .lease = "sluice-controller"};
    o->mutate.scheduler = SL_MUTATE_FIRST_SCHEDULER;
    o->mutate.slot_resource = SL_DIALECT_WHOLE_RESOURCE;
    const struct row rows[] = {{"admission", &admission},
                               {"extender", &extender},
                               {"policy", &policy},
                               {"scheduler", &o->mutate.scheduler},
                               {"second-scheduler", &o->mutate.second},
                               {"slot-resource", &o->mutate.slot_resource},
                               {"listen", &o->listen},
                               {"extender-http", &o->extender_http},
                               {"extender-client-ca", &o->client_ca},
                               {"extender-client", &o->client_name},
                               {"ui-token-file", &o->ui_token_file},
                               {"ui-loopback", &o->ui_loopback},
                               {"metrics", &o->metrics},
                               {"cert-file", &o->cert_file},
                               {"key-file", &o->key_file},
                               {"secret", &o->secret},
                               {"service", &o->service},
                               {"webhook", &o->webhook},
                               {"namespace", &o->name_space},
                               {"high-priority", &o->high_priority},
                               {"resize", &resize},
                               {"resize-free", &o->resize_free},
                               {"leader-election", &election},
                               {"lease", &o->lease},
                               {"identity", &o->identity},
                               {"lease-seconds", &seconds},
                               {"keep-templates", &keep},
                               {"kubeconfig", &o->kube.kubeconfig},
                               {"server", &o->kube.server},
                               {"ca-file", &o->kube.ca_file},
                               {"token-file", &o->kube.token_file},
                               {"log", &log}};
    int rc = read_all(argc, argv, rows, SL_ARRAY_LEN(rows), ret, err);
    if (rc || ret->help || ret->version)
        return rc;
    nothing_if_off(&o->listen);
    nothing_if_off(&o->metrics);
    nothing_if_off(&o->extender_http);
    nothing_if_off(&o->ui_token_file);
    nothing_if_off(&o->ui_loopback);
    rc = modes(o, admission, extender, election, resize, policy, log, &ret->log, err);
    if (!rc)
        rc = sensible(o, err);
    if (!rc)
        rc = times(o, seconds, keep, err);
    return rc ? rc : ourselves(ret, err);
}
