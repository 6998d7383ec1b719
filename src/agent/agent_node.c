/* SPDX-License-Identifier: Apache-2.0 */
/* The API server's part in the agent: our Node, and the ways that labels take to it. */
#include <errno.h>
#include <math.h>

#include "agent/agent_internal.h"
#include "agent/errors.h"
#include "base/log.h"

static bool by_feature(const struct sl_agent *a)
{
    return a->feature && a->config->use_node_feature_api;
}

/*
 * Two writers of one label would fight, so there is one: Node Feature Discovery where it takes our object, otherwise
 * this agent. Until that is known, the Node stays as it is.
 */
void sl_agent_labels(void *data)
{
    struct sl_agent *a = data;
    const struct sl_labels *labels = sl_labeler_last(a->labeler);
    if (!labels || !a->node)
        return;
    if (by_feature(a))
        sl_node_feature_labels(a->feature, labels);
    else if (a->feature)
        sl_node_feature_withdraw(a->feature);
    enum sl_node_feature_state state =
        by_feature(a) ? sl_node_feature_stats(a->feature).state : SL_FEATURE_REFUSED;
    if (a->opt.labels && state == SL_FEATURE_REFUSED)
        sl_node_labels(a->node, labels);
    else if (a->opt.labels && state == SL_FEATURE_TAKEN)
        sl_node_disown(a->node);
}

static void feature_changed(void *data, const char *why)
{
    struct sl_agent *a = data;
    if (why)
        sl_agent_say(
            a, SL_EVENT_WARNING, "NodeFeatureRefused",
            "the API server refused the NodeFeature object with the labels of this node: %s; "
            "until it accepts the object, %s",
            why,
            a->opt.labels ? "the labels are written to the Node" : "the labels are not published");
    else
        sl_info("labels are in a NodeFeature object: Node Feature Discovery puts them on the Node");
    sl_agent_labels(a);
}

static const char *node_uid(void *data)
{
    const struct sl_agent *a = data;
    return sl_node_uid(a->node);
}

static int open_feature(struct sl_agent *a, struct sl_err *err)
{
    if (!a->opt.node_feature)
        return 0;
    const struct sl_node_feature_options options = {.node = a->node_name,
                                                    .name_space = a->opt.pod_namespace,
                                                    .api = sl_node_api_kube(a->kube),
                                                    .node_uid = node_uid,
                                                    .changed = feature_changed,
                                                    .data = a};
    return sl_node_feature_create(a->loop, &options, &a->feature, err);
}

int sl_agent_node_open(struct sl_agent *a, struct sl_err *err)
{
    const struct sl_labeler_options labeler = {
        .changed = sl_agent_labels, .data = a, .write_file = a->opt.nfd};
    a->labeler = sl_labeler_create(a->loop, &labeler);
    if (a->opt.no_api && a->opt.node_feature)
        return sl_err_set(err, -EINVAL, SL_E_AGENT_FEATURE_API);
    if (a->opt.no_api)
        return 0;
    const struct sl_kube_options kube = {.kubeconfig = a->opt.kubeconfig};
    int rc = sl_kube_create(a->loop, &kube, &a->kube, err);
    if (rc < 0)
        return sl_err_wrap(err, "cannot reach the API server (--no-api to do without it)");
    const struct sl_node_options options = {.name = a->node_name,
                                            .api = sl_node_api_kube(a->kube),
                                            .config_label = sl_agent_config_label,
                                            .seen = sl_agent_fraction_seen,
                                            .data = a};
    rc = sl_node_create(a->loop, &options, &a->node, err);
    return rc < 0 ? rc : open_feature(a, err);
}

void sl_agent_node_fill(const struct sl_agent *a, struct sl_metrics_agent *m)
{
    m->labels_current = NAN;
    if (!a->node)
        return;
    struct sl_node_stats n = sl_node_stats(a->node);
    m->events_sent = n.events_sent;
    m->events_dropped = n.events_dropped;
    m->label_writes = n.label_writes;
    m->label_failures = n.label_failures;
    if (a->opt.labels)
        m->labels_current = n.labels_current;
    if (!a->feature)
        return;
    struct sl_node_feature_stats f = sl_node_feature_stats(a->feature);
    m->label_writes += f.writes;
    m->label_failures += f.failures;
    if (by_feature(a) && (f.state != SL_FEATURE_REFUSED || !a->opt.labels))
        m->labels_current = f.current;
}
