/* SPDX-License-Identifier: Apache-2.0 */
/* The node's two halves: labels (node.c) and events (node_events.c). */
#ifndef SLUICE_AGENT_NODE_NODE_INTERNAL_H
#define SLUICE_AGENT_NODE_NODE_INTERNAL_H

#include "agent/node/node.h"

enum { NODE_EVENTS = 64 };

/* One thing that happened, once or often. */
struct node_event {
    char *event_namespace, *kind, *object, *uid; /* uid NULL: not known */
    enum sl_event_type type;
    char *reason, *message;
    uint64_t first_ns, last_ns; /* wall time of the first and the last time */
    uint64_t count, sent;       /* how often it happened; how often the server knows of */
    uint64_t at_ns, sent_at_ns; /* loop time of the last time, and of the last request */
    char *name;                 /* of the Event object; NULL: not made yet */
};

struct node_events {
    struct node_event *event[NODE_EVENTS];
    size_t count;
    struct node_event *sending; /* NULL with a call under way: the event gave way meanwhile */
    uint64_t sending_count;
    bool sending_new;
    struct sl_kube_call *call;
    struct sl_timer timer;
    uint64_t delay_ns, not_before_ns; /* after a failure */
    double tokens;
    uint64_t tokens_at_ns;
    uint64_t serial, sent, dropped;
};

/* A label of ours that somebody else sets otherwise. */
struct node_rival {
    char *key;
    unsigned count;
    uint64_t since_ns, until_ns; /* until_ns 0: not given up */
};

struct sl_node {
    struct sl_loop *loop;
    struct sl_node_options opt;
    char *name, *uid;
    struct sl_kube_watch *watch;
    bool present;
    uint64_t version;    /* the newest resourceVersion of our own writing; 0: not a number */
    uint64_t written_ns; /* when that was */
    struct sl_labels seen, owned, wanted; /* owned: keys, with empty values */
    bool wanted_set;
    bool leave; /* labels that are ours no more stay: somebody else keeps them now */
    struct sl_labels notes, notes_seen; /* annotations: wanted, and of those what is there */
    struct node_rival *rival;
    size_t rival_count;
    struct sl_kube_call *call;
    struct sl_timer retry;
    uint64_t delay_ns;
    char *config;
    bool config_told;
    char said[512]; /* the last trouble that was logged */
    uint64_t writes, failures;
    struct node_events events;
};

/* The next delay of a series that doubles from 1 s to 30 s, each a little random (by the node's name and the
 * salt): a thousand agents must not come back at once. */
uint64_t sl_node_backoff(const char *name, uint64_t salt, uint64_t *delay_ns);
void sl_node_say(struct sl_node *node, const char *what, int status, const struct sl_err *err);
bool sl_node_is_name(const char *text); /* what may stand in a path */
/* 2xx */
static inline bool node_went_well(int status)
{
    return status >= 200 && status < 300;
}
/* Trying again may help: no answer, too many requests, or the server's own trouble. */
static inline bool node_try_again(int status)
{
    return status < 400 || status == 408 || status == 409 || status == 429 || status >= 500;
}

void sl_node_events_start(struct sl_node *node);
void sl_node_events_stop(struct sl_node *node);
void sl_node_events_wake(struct sl_node *node); /* the server is back */

#endif
