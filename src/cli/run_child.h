/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one command as a shell would run it: environment, signals, job control, exit status. */
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
/* Puts value in front of the variable's old value, with `separator` between. A part that is already there is moved, not
 * doubled. */
void sl_env_prepend(struct sl_env *env, const char *name, const char *value, char separator);
/* The environment of this process, changed for a tenant: its socket, its GPUs, libsluice before all other libraries. */
void sl_env_tenant(struct sl_env *env, const char *attach, const char *visible,
                   const char *libsluice);
const char *sl_env_get(const struct sl_env *env, const char *name);
void sl_env_free(struct sl_env *env);

/* --- the process --- */

/* Looks a command up as execvp will. 0, or the exit code a shell would give (126, 127), with err. */
int sl_child_lookup(const char *command, struct sl_err *err) SL_MUST_CHECK;

struct sl_child {
    pid_t pid;
    int signals; /* signalfd of the signals that are passed on, and of SIGCHLD */
    int watch;   /* a descriptor that the owner watches; -1: none */
    /* Called when `watch` is readable or closed, and after another child ended. May change watch. Must not block for
     * long: signals wait meanwhile. */
    void (*on_watch)(struct sl_child *child, pid_t ended, int status);
    void *arg;
};

/* Starts argv in our process group. 0, or 126/127/125 with err. */
int sl_child_start(struct sl_child *child, char *const *argv, char *const *envp,
                   struct sl_err *err) SL_MUST_CHECK;

/* Passes signals on until the child ends; returns its wait status. */
int sl_child_wait(struct sl_child *child);

/* Ends this process as the child ended: same code, or the same signal. */
void sl_child_follow(int status) __attribute__((noreturn));

#endif
