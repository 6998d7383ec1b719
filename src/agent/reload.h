/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells when a file may have changed: written in place, replaced, or swapped the way kubelet swaps a mounted
 * ConfigMap (a link of the directory). Where inotify cannot be had, or misses something, a slow look finds it.
 */
#ifndef SLUICE_AGENT_RELOAD_H
#define SLUICE_AGENT_RELOAD_H

#include "base/err.h"
#include "base/loop.h"

struct sl_reload;

/* `changed` comes some 100 ms after the last of several changes, and now and then without any: compare. */
int sl_reload_create(struct sl_loop *loop, void (*changed)(void *data), void *data,
                     struct sl_reload **ret, struct sl_err *err) SL_MUST_CHECK;
void sl_reload_destroy(struct sl_reload *reload); /* NULL is fine */

/* The file to watch from now on; NULL or "": none. It need not exist. */
void sl_reload_watch(struct sl_reload *reload, const char *path);

#endif
