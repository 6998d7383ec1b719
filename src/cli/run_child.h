/* SPDX-License-Identifier: Apache-2.0 */
/* Running one command as if the shell had run it: environment, signals, job control, its end. */
#ifndef SLUICE_CLI_RUN_CHILD_H
#define SLUICE_CLI_RUN_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* --- the environment of the command --- */

/* A growing copy of this process's environment. */
struct sl_env {
    char **list; /* NULL-terminated, strings and array owned */
    size_t count;
};

void sl_env_copy(struct sl_env *env);
void sl_env_set(struct sl_env *env, const char *name, const char *value);
/* Puts value before what the variable holds, `separator` between; a part that is there already is
 * moved, not doubled. */
void sl_env_prepend(struct sl_env *env, const char *name, const char *value, char separator);
/* Ours, changed for a tenant: where it attaches, which GPUs it has, libsluice before all else. */
void sl_env_tenant(struct sl_env *env, const char *attach, const char *visible,
                   const char *libsluice);
const char *sl_env_get(const struct sl_env *env, const char *name);
void sl_env_free(struct sl_env *env);

/* --- the process --- */

/* Looks a command up as execvp will. 0, or the exit code a shell would give (126, 127), with err. */
int sl_child_lookup(const char *command, struct sl_err *err) SL_MUST_CHECK;

struct sl_child {
    pid_t pid;
    int signals; /* signalfd of everything passed on, and of children ending */
    int watch;   /* readable: something the owner wants to know of; -1 none */
    /* Called when `watch` is readable or closed, and after any other child ended. May change
     * watch. Must not block for long: signals wait meanwhile. */
    void (*on_watch)(struct sl_child *child, pid_t ended, int status);
    void *arg;
};

/* Starts argv in our process group. 0, or 126/127/125 with err. */
int sl_child_start(struct sl_child *child, char *const *argv, char *const *envp,
                   struct sl_err *err) SL_MUST_CHECK;

/* Passes signals on until it ends; returns its wait status. */
int sl_child_wait(struct sl_child *child);

/* Ends this process as the child ended: same code, or the same signal. */
void sl_child_follow(int status) __attribute__((noreturn));

#endif
