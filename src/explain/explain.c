/* SPDX-License-Identifier: Apache-2.0 */
/* The causes, one function each (causes.def). A function answers whether it is this one, and then writes why. */
#include "explain/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "explain/facts.h"

struct pod {
    const struct sl_explain_facts *f;
    const char *name, *phase, *node;
    char unscheduled[768]; /* what the scheduler says; "": nothing yet */
    struct sl_pod_asks asks;
    const json_t *waiting, *ended; /* of the first container that waits, or has ended badly */
    const char *container;         /* its name */
    struct sl_explanation *ret;
};

static bool SL_PRINTF(2, 3) why(const struct pod *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->ret->why, sizeof(p->ret->why), fmt, ap);
    va_end(ap);
    return true;
}

static bool pending(const struct pod *p)
{
    return strcmp(p->phase, "Pending") == 0 && !*p->node;
}

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* ---- it has ended, or will ---- */

static bool deleted(const struct pod *p)
{
    const char *since = sl_facts_text(p->f->pod, "metadata.deletionTimestamp");
    return *since &&
           why(p, "It was deleted at %s, and its containers or finalizers have not ended.", since);
}

static bool refused_by_kubelet(const struct pod *p)
{
    return is(sl_facts_text(p->f->pod, "status.reason"), "UnexpectedAdmissionError") &&
           why(p, "Kubelet of %s refused it: %s.", p->node,
               sl_facts_text(p->f->pod, "status.message"));
}

static bool evicted(const struct pod *p)
{
    return is(sl_facts_text(p->f->pod, "status.reason"), "Evicted") &&
           why(p, "Kubelet of %s evicted it: %s", p->node,
               sl_facts_text(p->f->pod, "status.message"));
}

static bool succeeded(const struct pod *p)
{
    return is(p->phase, "Succeeded") && why(p, "All its containers ended without an error.");
}

/* ---- nobody has given it a node ---- */

static bool gated(const struct pod *p)
{
    const json_t *gates = sl_facts_at(p->f->pod, "spec.schedulingGates");
    return json_array_size(gates) > 0 &&
           why(p, "The scheduler does not look at it before its scheduling gate \"%s\" is removed.",
               sl_facts_text(json_array_get(gates, 0), "name"));
}

static bool no_claim(const struct pod *p)
{
    size_t i;
    const json_t *one;
    json_array_foreach(sl_facts_at(p->f->pod, "spec.resourceClaims"), i, one)
    {
        const char *name = sl_facts_text(one, "resourceClaimName");
        if (p->f->claims && pending(p) && *name && !sl_facts_named(p->f->claims, name))
            return why(
                p, "It names the ResourceClaim \"%s\", and its namespace has none of that name.",
                name);
    }
    return false;
}

static bool no_template(const struct pod *p)
{
    size_t i;
    const json_t *one;
    json_array_foreach(sl_facts_at(p->f->pod, "spec.resourceClaims"), i, one)
    {
        const char *name = sl_facts_text(one, "resourceClaimTemplateName");
        if (p->f->templates && pending(p) && *name && !sl_facts_named(p->f->templates, name))
            return why(p,
                       "It names the ResourceClaimTemplate \"%s\", and its namespace has none of "
                       "that name.",
                       name);
    }
    return false;
}

/* The claim that a pod's entry stands for; NULL: not made yet, or not to be read. */
static const json_t *claim_of(const struct pod *p, const json_t *entry)
{
    const char *name = sl_facts_text(entry, "resourceClaimName");
    size_t i;
    const json_t *status;
    json_array_foreach(sl_facts_at(p->f->pod, "status.resourceClaimStatuses"), i,
                       status) if (is(sl_facts_text(status, "name"), sl_facts_text(entry, "name")))
        name = sl_facts_text(status, "resourceClaimName");
    return *name ? sl_facts_named(p->f->claims, name) : NULL;
}

/* The i-th request of all claims of the pod; NULL: there are no more. */
static const json_t *request_at(const struct pod *p, size_t n)
{
    size_t i, k;
    const json_t *entry, *request;
    json_array_foreach(sl_facts_at(p->f->pod, "spec.resourceClaims"), i, entry)
    {
        json_array_foreach(sl_facts_at(claim_of(p, entry), "spec.devices.requests"), k,
                           request) if (n-- == 0) return sl_facts_at(request, "exactly")
            ? sl_facts_at(request, "exactly")
            : request;
    }
    return NULL;
}

static bool no_class(const struct pod *p)
{
    const json_t *request;
    for (size_t i = 0; p->f->classes && pending(p) && (request = request_at(p, i)); i++) {
        const char *name = sl_facts_text(request, "deviceClassName");
        if (*name && !sl_facts_named(p->f->classes, name))
            return why(
                p,
                "Its claim asks for the DeviceClass \"%s\", and the cluster has none of that name.",
                name);
    }
    return false;
}

static bool no_scheduler(const struct pod *p)
{
    const char *name = sl_facts_text(p->f->pod, "spec.schedulerName");
    return pending(p) && *name && !is(name, "default-scheduler") && !*p->unscheduled &&
           !sl_facts_event(p->f->events, "FailedScheduling") &&
           why(p,
               "It asks for the scheduler \"%s\", and no scheduler of that name has looked at it.",
               name);
}

/* ---- the nodes ---- */

struct sums {
    uint64_t nodes, with_gpus, away, tainted, unlabelled;
    uint64_t card_mib;
    const char *taint, *label, *away_name;
};

static struct sums look_at_nodes(const struct pod *p)
{
    struct sums s = {0};
    size_t i;
    const json_t *node;
    json_array_foreach(p->f->nodes, i, node)
    {
        struct sl_node_has has = sl_facts_node(node);
        const json_t *taint = sl_facts_taint(p->f->pod, node);
        const char *label = sl_facts_selector(p->f->pod, node);
        s.nodes++;
        if (has.cards == 0)
            continue;
        s.with_gpus++;
        s.card_mib = has.card_memory_mib > s.card_mib ? has.card_memory_mib : s.card_mib;
        if (!has.ready || has.cordoned) {
            s.away++;
            s.away_name = sl_facts_text(node, "metadata.name");
        } else if (label) {
            s.unlabelled++;
            s.label = label;
        } else if (taint) {
            s.tainted++;
            s.taint = sl_facts_text(taint, "key");
        }
    }
    return s;
}

static bool wants_devices(const struct pod *p)
{
    return pending(p) && p->f->nodes && p->asks.gpus > 0;
}

static bool too_large(const struct pod *p)
{
    struct sums s = look_at_nodes(p);
    return wants_devices(p) && s.card_mib && p->asks.memory_mib > s.card_mib &&
           why(p,
               "It asks for %llu MiB of one GPU, and the largest GPU of the cluster has %llu MiB.",
               (unsigned long long)p->asks.memory_mib, (unsigned long long)s.card_mib);
}

static bool no_gpu_node(const struct pod *p)
{
    struct sums s = look_at_nodes(p);
    return wants_devices(p) && s.with_gpus == 0 &&
           why(p, "It asks for %s, and no node offers any; the cluster has %llu node%s.",
               SL_GPU_RESOURCE, (unsigned long long)s.nodes, s.nodes == 1 ? "" : "s");
}

static bool wrong_selector(const struct pod *p)
{
    struct sums s = look_at_nodes(p);
    return wants_devices(p) && s.unlabelled && s.unlabelled == s.with_gpus - s.away &&
           why(p, "No node with GPUs has the label \"%s\" as its nodeSelector wants it.", s.label);
}

static bool tainted(const struct pod *p)
{
    struct sums s = look_at_nodes(p);
    return wants_devices(p) && s.tainted && s.tainted == s.with_gpus - s.away - s.unlabelled &&
           why(p,
               "Every node with GPUs that it could go to has the taint \"%s\", which it does not "
               "tolerate.",
               s.taint);
}

static bool nodes_away(const struct pod *p)
{
    struct sums s = look_at_nodes(p);
    return wants_devices(p) && s.away && s.away == s.with_gpus &&
           why(p, "Every node with GPUs is down or cordoned, for example %s.", s.away_name);
}

static bool says(const struct pod *p, const char *words)
{
    return pending(p) && strstr(p->unscheduled, words);
}

static bool gpus_full(const struct pod *p)
{
    size_t i;
    const json_t *one;
    char list[256] = "";
    unsigned count = 0;
    if (!says(p, "Insufficient " SL_GPU_RESOURCE) && !says(p, "no room for the request"))
        return false;
    json_array_foreach(p->f->pods, i, one)
    {
        size_t n = strlen(list);
        if (sl_facts_holds(one).devices == 0 || count++ >= 3)
            continue;
        (void)snprintf(list + n, sizeof(list) - n, "%s%s/%s", n ? ", " : "",
                       sl_facts_text(one, "metadata.namespace"),
                       sl_facts_text(one, "metadata.name"));
    }
    if (!count)
        return why(p, "No node has that much of its GPUs left: %s", p->unscheduled);
    return why(p, "No node has that much of its GPUs left; %u %s: %s%s.", count,
               count == 1 ? "pod that you may see has GPUs" : "pods that you may see have GPUs",
               list, count > 3 ? ", …" : "");
}

static bool cpu_or_memory(const struct pod *p)
{
    return (says(p, "Insufficient cpu") || says(p, "Insufficient memory")) &&
           why(p, "The scheduler says: %s", p->unscheduled);
}

static bool claim_does_not_fit(const struct pod *p)
{
    return p->asks.claims && (says(p, "cannot allocate all claims") || says(p, "resourceclaim")) &&
           why(p, "No node has devices for all its claims; the scheduler says: %s", p->unscheduled);
}

static bool not_scheduled(const struct pod *p)
{
    return pending(p) && *p->unscheduled && why(p, "The scheduler says: %s", p->unscheduled);
}

/* ---- it has a node ---- */

static bool event_says(const struct pod *p, const char *reason, const char *intro)
{
    const json_t *event = sl_facts_event(p->f->events, reason);
    return event && why(p, "%s: %s", intro, sl_facts_text(event, "message"));
}

static bool on_its_way(const struct pod *p)
{
    return *p->node && is(p->phase, "Pending");
}

static bool prepare_failed(const struct pod *p)
{
    return on_its_way(p) && event_says(p, "FailedPrepareDynamicResources",
                                       "The agent of its node could not prepare its claim");
}

static bool waits_for(const struct pod *p, const char *const *reasons)
{
    const char *reason = sl_facts_text(p->waiting, "reason");
    for (; *reasons; reasons++)
        if (is(reason, *reasons))
            return why(p, "Container %s: %s: %s", p->container, reason,
                       sl_facts_text(p->waiting, "message"));
    return false;
}

static bool image(const struct pod *p)
{
    static const char *const reasons[] = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
                                          "ErrImageNeverPull", NULL};
    return waits_for(p, reasons);
}

static bool not_created(const struct pod *p)
{
    static const char *const reasons[] = {"CreateContainerError", "CreateContainerConfigError",
                                          "RunContainerError", "PreStartHookError", NULL};
    return waits_for(p, reasons) ||
           (on_its_way(p) &&
            (event_says(p, "FailedCreatePodSandBox", "Its sandbox could not be made") ||
             event_says(p, "Failed", "Kubelet could not start a container")));
}

static bool volume(const struct pod *p)
{
    return on_its_way(p) && (event_says(p, "FailedMount", "A volume could not be mounted") ||
                             event_says(p, "FailedAttachVolume", "A volume could not be attached"));
}

static bool node_down(const struct pod *p)
{
    const json_t *node = sl_facts_named(p->f->nodes, p->node);
    return node && !sl_facts_ended(p->f->pod) && !sl_facts_node(node).ready &&
           why(p, "Its node %s is not ready: %s", p->node,
               sl_facts_text(sl_facts_condition(node, "Ready"), "message"));
}

static bool out_of_memory(const struct pod *p)
{
    return is(sl_facts_text(p->ended, "reason"), "OOMKilled") &&
           why(p, "The kernel killed container %s because it used more memory than its limit.",
               p->container);
}

static json_int_t exit_code(const struct pod *p)
{
    return json_integer_value(sl_facts_at(p->ended, "exitCode"));
}

static bool killed(const struct pod *p)
{
    return p->ended && exit_code(p) == 137 &&
           why(p, "Container %s was killed from outside (SIGKILL, exit code 137).", p->container);
}

static bool crashed(const struct pod *p)
{
    return p->ended && !is(p->phase, "Failed") &&
           why(p, "Container %s ended with exit code %lld, and kubelet starts it again and again.",
               p->container, (long long)exit_code(p));
}

static bool failed(const struct pod *p)
{
    const char *reason = sl_facts_text(p->f->pod, "status.reason");
    if (!is(p->phase, "Failed"))
        return false;
    if (p->ended)
        return why(p, "Container %s ended with exit code %lld.", p->container,
                   (long long)exit_code(p));
    return why(p, "Kubelet says: %s: %s", *reason ? reason : "Failed",
               sl_facts_text(p->f->pod, "status.message"));
}

static bool starting(const struct pod *p)
{
    if (pending(p))
        return why(p, "No scheduler has said anything of it yet.");
    return on_its_way(p) &&
           why(p, "Node %s is starting it, and nothing has failed so far.", p->node);
}

static bool runs(const struct pod *p)
{
    struct sl_pod_holds holds = sl_facts_holds(p->f->pod);
    if (!is(p->phase, "Running"))
        return false;
    if (holds.memory_mib)
        return why(p, "It has %llu MiB of GPU memory and %llu %% of GPU time on %s.",
                   (unsigned long long)holds.memory_mib, (unsigned long long)holds.cores, p->node);
    return why(p, "It runs on %s.", p->node);
}

static bool unknown(const struct pod *p)
{
    return why(p, "Its phase is \"%s\", and nothing that is known of it says more.", p->phase);
}

/* ---- */

/* The first container that waits for something, or whose last end was a bad one. */
static void find_container(struct pod *p)
{
    static const char *const lists[] = {"status.initContainerStatuses", "status.containerStatuses"};
    for (size_t l = 0; l < 2; l++) {
        size_t i;
        const json_t *one;
        json_array_foreach(sl_facts_at(p->f->pod, lists[l]), i, one)
        {
            const json_t *waiting = sl_facts_at(one, "state.waiting");
            const json_t *ended = sl_facts_at(one, "state.terminated");
            if (!ended && waiting)
                ended = sl_facts_at(one, "lastState.terminated");
            if (ended && json_integer_value(sl_facts_at(ended, "exitCode")) == 0)
                ended = NULL;
            bool idle = !waiting || is(sl_facts_text(waiting, "reason"), "ContainerCreating") ||
                        is(sl_facts_text(waiting, "reason"), "PodInitializing");
            if (idle && !ended)
                continue;
            p->waiting = waiting;
            p->ended = ended;
            p->container = sl_facts_text(one, "name");
            return;
        }
    }
}

/* Its first sentence: those after it are about preemption. */
static void hear_scheduler(struct pod *p)
{
    const char *text = sl_facts_text(sl_facts_condition(p->f->pod, "PodScheduled"), "message");
    if (!*text)
        text = sl_facts_text(sl_facts_event(p->f->events, "FailedScheduling"), "message");
    const char *end = strstr(text, ". ");
    (void)snprintf(p->unscheduled, sizeof(p->unscheduled), "%.*s",
                   end ? (int)(end - text) + 1 : (int)strlen(text), text);
}

static void say_what(const struct pod *p)
{
    static const struct {
        const char *phase, *words;
    } all[] = {{"Pending", "waits"},
               {"Running", "runs"},
               {"Succeeded", "has ended"},
               {"Failed", "has failed"}};
    const char *words = "is in a state that nobody knows";
    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        if (is(p->phase, all[i].phase))
            words = all[i].words;
    if (is(p->phase, "Running") && (p->waiting || p->ended))
        words = "does not run as it should";
    (void)snprintf(p->ret->what, sizeof(p->ret->what), "Pod %s %s%s%s.", p->name, words,
                   *p->node     ? " on node "
                   : pending(p) ? ": no node has been chosen"
                                : "",
                   p->node);
}

void sl_explain_pod(const struct sl_explain_facts *facts, struct sl_explanation *ret)
{
    static const struct {
        const char *code;
        bool (*is_it)(const struct pod *p);
        bool well;
        const char *cure;
    } causes[] = {
#define CAUSE(code, fn, well, cure) {code, fn, well, cure},
#include "explain/causes.def"
#undef CAUSE
    };
    struct pod p = {.f = facts,
                    .name = sl_facts_text(facts->pod, "metadata.name"),
                    .phase = sl_facts_text(facts->pod, "status.phase"),
                    .node = sl_facts_text(facts->pod, "spec.nodeName"),
                    .asks = sl_facts_asks(facts->pod),
                    .container = "",
                    .ret = ret};
    *ret = (struct sl_explanation){0};
    hear_scheduler(&p);
    find_container(&p);
    say_what(&p);
    for (size_t i = 0; i < SL_ARRAY_LEN(causes); i++) {
        if (!causes[i].is_it(&p))
            continue;
        ret->code = causes[i].code;
        ret->well = causes[i].well;
        ret->cure = causes[i].cure;
        return;
    }
}
