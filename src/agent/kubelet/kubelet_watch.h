/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the directory where kubelet's registration socket lives and ours do: a kubelet that comes
 * back, files that vanish or are replaced, the directory itself going and coming. What inotify cannot
 * tell (its queue ran over, there is none to be had) is found by looking.
 */
#ifndef SLUICE_AGENT_KUBELET_KUBELET_WATCH_H
#define SLUICE_AGENT_KUBELET_KUBELET_WATCH_H

#include <stdbool.h>

#include "base/err.h"
#include "base/loop.h"

struct sl_kubelet_watch;

struct sl_kubelet_watch_ops {
    /* Kubelet's socket was made anew (also when there was one before): a kubelet has started. */
    void (*kubelet)(void *data);
    /* Another file of the directory was made, replaced or removed; NULL: any of them may have been. */
    void (*touched)(const char *name, void *data);
};

/* The directory need not exist. Nothing is called back before this returns; a kubelet that is there
 * already is not announced. ops must outlive the watch. */
int sl_kubelet_watch_create(struct sl_loop *loop, const char *kubelet_socket,
                            const struct sl_kubelet_watch_ops *ops, void *data,
                            struct sl_kubelet_watch **ret, struct sl_err *err) SL_MUST_CHECK;
/* Not from inside its callbacks. NULL is fine. */
void sl_kubelet_watch_destroy(struct sl_kubelet_watch *watch);

const char *sl_kubelet_watch_dir(const struct sl_kubelet_watch *watch);

#endif
