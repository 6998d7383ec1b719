/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of mps: processes, control commands, logs, and the life of one daemon. */
#ifndef SLUICE_AGENT_MPS_MPS_INTERNAL_H
#define SLUICE_AGENT_MPS_MPS_INTERNAL_H

#include <sys/types.h>

#include "agent/mps/mps.h"
#include "gpu/gpu.h"

#define MPS_PATH_SIZE   512
#define MPS_SERVERS_MAX 16

/* ---- mps_process.c ---- */

struct mps_spawn {
    const char *path;
    char *const *argv, *const *envp;
    int in_fd, out_fd;   /* -1: /dev/null; out is stderr too */
    const char *own_shm; /* the process sees this directory as /dev/shm; NULL: no change */
};

/* Starts a program in a session of its own, so that it can be ended with all its children. A failure after the fork is
 * written to out_fd, and the exit status is 126 or 127. */
int sl_mps_spawn(const struct mps_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct sl_err *err);

/* Finds a process that has `name=value` in its environment; a PID alone is not enough, PIDs are reused. Sets a pidfd,
 * or returns -ESRCH. */
int sl_mps_process_find(pid_t pid, const char *variable, int *ret_pidfd);
void sl_mps_process_kill(int pidfd, int signal);

/* The machine's environment with some variables set: a list of "NAME=value" ended by NULL. Free it with
 * sl_mps_env_free. */
char **sl_mps_env(char *const *base, const char *const *set, size_t set_count);
void sl_mps_env_free(char **env);

/* ---- mps_command.c ---- */

/*
 * One run of the control program with commands on its stdin. done is called once, on the loop: result 0 with the
 * output, -ETIMEDOUT, or -EIO for another exit status. A run that does not die when killed has no owner any more, but
 * is still reaped.
 */
struct mps_command;
typedef void mps_command_done(void *data, int result, const char *output);

/* all: the list of all living runs. */
int sl_mps_command(struct mps_command **all, struct sl_loop *loop, const char *path,
                   char *const *envp, const char *text, uint64_t timeout_ns, mps_command_done *done,
                   void *data, struct mps_command **ret, struct sl_err *err);
void sl_mps_command_cancel(struct mps_command *command); /* done is not called; NULL is fine */
void sl_mps_commands_end(struct mps_command **all);

/* ---- mps_log.c ---- */

/* Follows the log files of a directory; reports lines about a fault. */
struct mps_log;
int sl_mps_log_create(struct sl_loop *loop, const char *dir,
                      void (*fault)(void *data, const char *line), void *data, struct mps_log **ret,
                      struct sl_err *err);
void sl_mps_log_destroy(struct mps_log *log); /* NULL is fine */
/* "fatal", "fault", … but not "default". */
bool sl_mps_speaks_of_fault(const char *text);
/* The last line with a text, without its time stamp; "" when there is none. */
void sl_mps_log_last(const char *dir, char *buf, size_t size);

/* ---- mps_daemon.c, mps_start.c ---- */

enum daemon_phase {
    PHASE_IDLE,     /* waits for its next start */
    PHASE_STARTING, /* the process exists, but has not answered yet */
    PHASE_LIMITS,   /* it answers; limits are being set */
    PHASE_READY,
    PHASE_FAULTED,
    PHASE_ENDING, /* it is being ended, to start again or for good */
};

enum daemon_step {
    STEP_NONE,
    STEP_PROBE,         /* does it answer? */
    STEP_LIMIT_SERVERS, /* which servers need the new limits too? */
    STEP_LIMITS,
    STEP_VERIFY,
    STEP_SERVERS, /* the watch: which servers … */
    STEP_STATUS,  /* … and how are they? */
    STEP_QUIT,
};

struct daemon {
    struct daemon *next;
    struct sl_mps *mps;
    char uuid[SL_GPU_UUID_SIZE];
    char dir[MPS_PATH_SIZE], pipe[MPS_PATH_SIZE], log_dir[MPS_PATH_SIZE], shm[MPS_PATH_SIZE];
    char variable[MPS_PATH_SIZE + 32]; /* in its processes' environment: names the pipe directory */
    char **env;
    unsigned index;
    uint64_t limit_mib;
    unsigned percent;

    enum daemon_phase phase;
    enum sl_mps_state state; /* as reported */
    char reason[400];
    bool told;    /* a state has been reported */
    bool was_bad; /* not ready since the last report: the next ready is a restart */
    bool relimit; /* the limits changed while they were being set */
    bool suspect; /* the log speaks of a fault: check */
    bool removed; /* ends for good */
    bool adopted; /* an earlier agent started it */
    unsigned variant, misses;

    pid_t pid;             /* 0: none */
    bool child;            /* a child of this process: reap it */
    struct sl_source exit; /* its pidfd */
    struct sl_timer timer;
    uint64_t deadline_ns, backoff_ns, ready_ns, faulted_ns;
    struct mps_command *command;
    enum daemon_step step;
    struct mps_log *log;
    pid_t servers[MPS_SERVERS_MAX];
    size_t server_count;
};

struct sl_mps {
    struct sl_loop *loop;
    struct sl_mps_options options; /* except these strings */
    char *root, *control, *driver_root;
    char **env;
    struct daemon *daemons;
    struct mps_command *commands;
};

/* mps_daemon.c */
void sl_mps_daemon_init(struct daemon *d); /* the loop starts the daemon */
void sl_mps_daemon_relimit(struct daemon *d);
/* Ends the daemon, then frees it. */
void sl_mps_daemon_remove(struct daemon *d);
/* Frees the struct, the daemon goes on. */
void sl_mps_daemon_free(struct daemon *d);
void sl_mps_daemon_exited(struct sl_source *source, uint32_t events);

/* mps_start.c: finds the daemon's process of an earlier agent, or starts a new one. */
int sl_mps_daemon_process(struct daemon *d, struct sl_err *err);
/* The started program has ended well: finds the process that it left in the background. -EAGAIN: not yet. */
int sl_mps_daemon_background(struct daemon *d, struct sl_err *err);
bool sl_mps_daemon_next_variant(struct daemon *d); /* false: there is no other variant */
const char *sl_mps_control_path(const struct sl_mps *mps, char *buf, size_t size);
void sl_mps_daemon_forget(const struct daemon *d); /* deletes the record of its process */
void sl_mps_daemon_sweep(const struct daemon *d);  /* deletes all its files */

#endif
