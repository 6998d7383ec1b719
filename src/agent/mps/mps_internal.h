/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of mps: processes, control commands, logs, and one daemon's life. */
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
    const char *own_shm; /* this directory is /dev/shm of the process; NULL: as it is */
};

/* Starts a program in a session of its own, so that it can be ended with all that it started. What fails after the
 * fork is said on its out_fd and by exit status 126 or 127. */
int sl_mps_spawn(const struct mps_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct sl_err *err);

/* A process that has `name=value` in its environment, for sure (PIDs are used again); a pidfd, or
 * -ESRCH. */
int sl_mps_process_find(pid_t pid, const char *variable, int *ret_pidfd);
void sl_mps_process_kill(int pidfd, int signal);

/* A list of "NAME=value" ended by NULL: that of the machine with some set. Freed by
 * sl_mps_env_free. */
char **sl_mps_env(char *const *base, const char *const *set, size_t set_count);
void sl_mps_env_free(char **env);

/* ---- mps_command.c ---- */

/*
 * One run of the control program with commands on its stdin. done is called once, on the loop:
 * result 0 with what it printed, -ETIMEDOUT, or -EIO for another exit status. A run that does not
 * die when killed is nobody's any more, but is still waited for.
 */
struct mps_command;
typedef void mps_command_done(void *data, int result, const char *output);

/* all: the list of every run alive. */
int sl_mps_command(struct mps_command **all, struct sl_loop *loop, const char *path,
                   char *const *envp, const char *text, uint64_t timeout_ns, mps_command_done *done,
                   void *data, struct mps_command **ret, struct sl_err *err);
void sl_mps_command_cancel(struct mps_command *command); /* done is not called; NULL is fine */
void sl_mps_commands_end(struct mps_command **all);

/* ---- mps_log.c ---- */

/* Follows the log files of a directory; tells lines that speak of a fault. */
struct mps_log;
int sl_mps_log_create(struct sl_loop *loop, const char *dir,
                      void (*fault)(void *data, const char *line), void *data, struct mps_log **ret,
                      struct sl_err *err);
void sl_mps_log_destroy(struct mps_log *log); /* NULL is fine */
/* "fatal", "fault", … but not "default". */
bool sl_mps_speaks_of_fault(const char *text);
/* The last line that says something, without its stamp; "" when there is none. */
void sl_mps_log_last(const char *dir, char *buf, size_t size);

/* ---- mps_daemon.c, mps_start.c ---- */

enum daemon_phase {
    PHASE_IDLE,     /* waits for its next start */
    PHASE_STARTING, /* a process is there, it has not answered yet */
    PHASE_LIMITS,   /* it answers; its limits are being set */
    PHASE_READY,
    PHASE_FAULTED,
    PHASE_ENDING, /* it is being ended, to start anew or for good */
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
    char variable[MPS_PATH_SIZE + 32]; /* of its processes' environment: names the pipe directory */
    char **env;
    unsigned index;
    uint64_t limit_mib;
    unsigned percent;

    enum daemon_phase phase;
    enum sl_mps_state state; /* as told */
    char reason[400];
    bool told;    /* anything at all */
    bool was_bad; /* since it was last ready: the next ready is a restart */
    bool relimit; /* the limits changed while they were being set */
    bool suspect; /* the log speaks of a fault: look */
    bool removed; /* ends for good */
    bool adopted; /* an earlier agent started it */
    unsigned variant, misses;

    pid_t pid;             /* 0: none */
    bool child;            /* ours to reap */
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
    struct sl_mps_options options; /* but for these strings */
    char *root, *control, *driver_root;
    char **env;
    struct daemon *daemons;
    struct mps_command *commands;
};

/* mps_daemon.c */
void sl_mps_daemon_init(struct daemon *d); /* starts it from the loop */
void sl_mps_daemon_relimit(struct daemon *d);
/* Ends it; frees it when that is done. */
void sl_mps_daemon_remove(struct daemon *d);
/* Lets go without ending it. */
void sl_mps_daemon_free(struct daemon *d);
void sl_mps_daemon_exited(struct sl_source *source, uint32_t events);

/* mps_start.c: a process for the daemon, the one an earlier agent left or a new one. */
int sl_mps_daemon_process(struct daemon *d, struct sl_err *err);
/* What was started has ended well: finds what it left in the background. -EAGAIN: not yet. */
int sl_mps_daemon_background(struct daemon *d, struct sl_err *err);
bool sl_mps_daemon_next_variant(struct daemon *d); /* false: that was the last */
const char *sl_mps_control_path(const struct sl_mps *mps, char *buf, size_t size);
void sl_mps_daemon_forget(const struct daemon *d); /* the record of its process */
void sl_mps_daemon_sweep(const struct daemon *d);  /* everything it had on disk */

#endif
