/* SPDX-License-Identifier: Apache-2.0 */
/* The node's two halves: labels (node.c) and events (node_events.c). */
#ifndef SLUICE_AGENT_NODE_NODE_INTERNAL_H
#define SLUICE_AGENT_NODE_NODE_INTERNAL_H

#include "agent/node/node.h"

enum { NODE_EVENTS = 64 };

/* An event that happened, once or often. */
struct node_event {
    char *event_namespace, *kind, *object, *uid; /* uid NULL: not known */
    enum sl_event_type type;
    char *reason, *message;
    uint64_t first_ns, last_ns; /* wall time of the first and the last occurrence */
    uint64_t count, sent;       /* occurrences; occurrences that the server knows of */
    uint64_t at_ns, sent_at_ns; /* loop time of the last occurrence, and of the last request */
    char *name;                 /* of the Event object; NULL: not made yet */
};

struct node_events {
    struct node_event *event[NODE_EVENTS];
    size_t count;
    struct node_event *sending; /* NULL with a call under way: the event was dropped meanwhile */
    uint64_t sending_count;
    bool sending_new;
    struct sl_kube_call *call;
    struct sl_timer timer;
    uint64_t delay_ns, not_before_ns; /* after a failure */
    double tokens;
    uint64_t tokens_at_ns;
    uint64_t serial, sent, dropped;
};

/* A label of ours that another writer changes. */
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
    uint64_t version;    /* the newest resourceVersion that we wrote; 0: not a number */
    uint64_t written_ns; /* when we wrote it */
    struct sl_labels seen, owned, wanted; /* owned: keys, with empty values */
    bool wanted_set;
    uint64_t since;                     /* our SL_NODE_SINCE_ANNOTATION */
    uint64_t by;                        /* the present one; 0: none, or of an earlier version */
    bool leave;                         /* old labels of ours stay: another writer keeps them now */
    struct sl_labels notes, notes_seen; /* annotations: wanted, and their present values */
    struct node_rival *rival;
    size_t rival_count;
    struct sl_kube_call *call;
    struct sl_timer retry;
    uint64_t delay_ns;
    char *config;
    bool config_told;
    char said[512]; /* the last error that was logged */
    uint64_t writes, failures;
    struct node_events events;
};

/* The next delay of a series that doubles from 1 s to 30 s. Each is a little random (by the node's name and the salt):
 * a thousand agents must not come back at once. */
uint64_t sl_node_backoff(const char *name, uint64_t salt, uint64_t *delay_ns);
void sl_node_say(struct sl_node *node, const char *what, int status, const struct sl_err *err);
uint64_t sl_node_wall_ns(const struct sl_node *node);
bool sl_node_is_name(const char *text); /* may the text be part of a path? */
/* 2xx */
static inline bool node_went_well(int status)
{
    return status >= 200 && status < 300;
}
/* May another attempt help? No answer, too many requests, or an error of the server. */
static inline bool node_try_again(int status)
{
    return status < 400 || status == 408 || status == 409 || status == 429 || status >= 500;
}

void sl_node_events_start(struct sl_node *node);
void sl_node_events_stop(struct sl_node *node);
void sl_node_events_wake(struct sl_node *node); /* the server is back */

#endif
