/* SPDX-License-Identifier: Apache-2.0 */
/* One card's MPS daemon: started, limited, watched, healed, ended. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/mps/errors.h"
#include "agent/mps/mps_internal.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"

#define BACKOFF_MAX_NS (60 * SL_NS_PER_S)
#define PROBE_NS       (100 * SL_NS_PER_MS) /* between two questions to a daemon that starts */
#define LOOK_NS        (500 * SL_NS_PER_MS) /* from a line in the log to the check of the server */
#define HEAL_LOOK_NS   (2 * SL_NS_PER_S)    /* between two checks of a faulted server */
#define STEADY_NS      (300 * SL_NS_PER_S)  /* ready this long: forget earlier failures */
#define MISSES_MAX     2                    /* unanswered questions of the watch */

static void start(struct daemon *d);
static void ask(struct daemon *d, enum daemon_step step, const char *text);

static void after(struct daemon *d, uint64_t ns)
{
    sl_timer_set(d->mps->loop, &d->timer, sl_loop_now(d->mps->loop) + ns);
}

static void SL_PRINTF(3, 4) say(struct daemon *d, enum sl_mps_state state, const char *fmt, ...)
{
    char text[sizeof(d->reason)];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    bool restarted = state == SL_MPS_READY && d->was_bad;
    bool same = d->told && state == d->state;
    memcpy(d->reason, text, sizeof(text));
    d->state = state;
    d->told = true;
    d->was_bad = state == SL_MPS_READY ? false : d->was_bad || state >= SL_MPS_FAULTED;
    if (!same && !d->removed)
        d->mps->options.state(d->mps->options.data, d->uuid, state, restarted, d->reason);
}

/* ---- ending ---- */

/* The servers are children of the daemon, and may outlive it. */
static void kill_servers(struct daemon *d)
{
    for (size_t i = 0; i < d->server_count; i++) {
        int pidfd = -1;
        if (sl_mps_process_find(d->servers[i], d->variable, &pidfd) == 0) {
            sl_mps_process_kill(pidfd, SIGKILL);
            (void)close(pidfd);
        }
    }
    d->server_count = 0;
}

static void kill_all(struct daemon *d)
{
    /* A child that is not reaped yet keeps its PID, and so its process group keeps the number. */
    if (d->child && d->pid > 1)
        (void)kill(-d->pid, SIGKILL);
    if (d->pid)
        sl_mps_process_kill(d->exit.fd, SIGKILL);
    kill_servers(d);
}

static void drop_process(struct daemon *d)
{
    if (!d->pid)
        return;
    sl_loop_unwatch(d->mps->loop, &d->exit);
    (void)close(d->exit.fd);
    d->exit.fd = -1;
    d->pid = 0;
}

static void drop_command(struct daemon *d)
{
    sl_mps_command_cancel(d->command);
    d->command = NULL;
    d->step = STEP_NONE;
}

static void wait_and_start(struct daemon *d)
{
    d->phase = PHASE_IDLE;
    d->variant = 0;
    sl_mps_daemon_forget(d);
    after(d, d->backoff_ns);
}

/* The daemon ended, or must be ended: reports it, ends the rest, and starts a new one after a while. */
static void SL_PRINTF(2, 3) fail(struct daemon *d, const char *fmt, ...)
{
    char text[sizeof(d->reason)];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    uint64_t now = sl_loop_now(d->mps->loop);
    if (d->ready_ns && now - d->ready_ns >= STEADY_NS)
        d->backoff_ns = 0;
    d->ready_ns = 0;
    d->backoff_ns = d->backoff_ns ? d->backoff_ns * 2 : d->mps->options.backoff_ns;
    if (d->backoff_ns > BACKOFF_MAX_NS)
        d->backoff_ns = BACKOFF_MAX_NS;
    drop_command(d);
    if (d->pid) { /* end it first: two daemons would share one directory's sockets */
        d->phase = PHASE_ENDING;
        kill_all(d);
        after(d, SL_NS_PER_S);
    } else {
        wait_and_start(d);
    }
    say(d, SL_MPS_FAILED, "%s", text);
}

void sl_mps_daemon_free(struct daemon *d)
{
    drop_command(d);
    drop_process(d);
    sl_timer_stop(d->mps->loop, &d->timer);
    sl_mps_log_destroy(d->log);
    sl_list_drop(&d->mps->daemons, d);
    sl_mps_env_free(d->env);
    free(d);
}

void sl_mps_daemon_remove(struct daemon *d)
{
    bool answers = d->phase >= PHASE_LIMITS;
    d->removed = true;
    if (!d->pid) {
        sl_mps_daemon_free(d);
        return;
    }
    if (d->phase == PHASE_ENDING)
        return;
    drop_command(d);
    d->phase = PHASE_ENDING;
    if (answers)
        ask(d, STEP_QUIT, "quit\n");
    else
        sl_mps_process_kill(d->exit.fd, SIGTERM);
    after(d, d->mps->options.quit_ns); /* then it is killed */
}

/* ---- it ended ---- */

static void how_it_ended(struct daemon *d, const siginfo_t *info, char *buf, size_t size)
{
    char last[160];
    sl_mps_log_last(d->log_dir, last, sizeof(last));
    char how[48] = "the daemon is gone";
    if (info->si_pid && info->si_code == CLD_EXITED)
        (void)snprintf(how, sizeof(how), "exit status %d", info->si_status);
    else if (info->si_pid)
        (void)snprintf(how, sizeof(how), "signal %d", info->si_status);
    (void)snprintf(buf, size, "%s%s%s", how, last[0] ? "; its last message: " : "", last);
}

static void start_ended(struct daemon *d, const siginfo_t *info, const char *how)
{
    bool ended_well = info->si_code == CLD_EXITED && info->si_status == 0;
    struct sl_err err = SL_ERR_INIT;
    int rc = ended_well ? sl_mps_daemon_background(d, &err) : -ENOENT;
    if (rc == 0 || (rc == -EAGAIN && sl_loop_now(d->mps->loop) < d->deadline_ns)) {
        after(d, PROBE_NS);
        return;
    }
    /* 126 is a problem of the machine, not of an option. */
    bool other = info->si_code != CLD_EXITED || info->si_status != 126;
    if (!d->adopted && other && sl_mps_daemon_next_variant(d)) {
        d->phase = PHASE_IDLE;
        start(d);
        return;
    }
    fail(d, SL_E_MPS_START_LOG, d->index, how);
}

void sl_mps_daemon_exited(struct sl_source *source, uint32_t events)
{
    (void)events;
    struct daemon *d = sl_container_of(source, struct daemon, exit);
    siginfo_t info = {0};
    char how[300];
    if (d->child && d->pid > 1 && d->phase != PHASE_STARTING)
        (void)kill(-d->pid, SIGKILL); /* before it is reaped, see kill_all */
    if (d->child)
        (void)waitid(P_PIDFD, (id_t)source->fd, &info, WEXITED | WNOHANG);
    how_it_ended(d, &info, how, sizeof(how));
    enum daemon_phase phase = d->phase;
    drop_command(d);
    drop_process(d);
    d->child = false;
    if (phase != PHASE_STARTING)
        kill_servers(d);
    if (d->removed) {
        sl_mps_daemon_sweep(d);
        sl_mps_daemon_free(d);
    } else if (phase == PHASE_ENDING) {
        wait_and_start(d);
    } else if (phase == PHASE_STARTING) {
        start_ended(d, &info, how);
    } else {
        fail(d, SL_E_MPS_ENDED_LOG, d->index, how);
    }
}

/* ---- answers ---- */

/* One number a line. */
static void read_servers(struct daemon *d, const char *output)
{
    d->server_count = 0;
    for (const char *p = output; *p && d->server_count < MPS_SERVERS_MAX;) {
        char *end;
        long pid = strtol(p, &end, 10);
        if (end != p && pid > 1 && (*end == '\n' || *end == '\0'))
            d->servers[d->server_count++] = (pid_t)pid;
        p = strchr(p, '\n');
        if (!p)
            break;
        p++;
    }
}

static bool complains(const char *output)
{
    static const char *const words[] = {"error",     "invalid", "fail",         "unknown",
                                        "unrecogni", "cannot",  "not supported"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasestr(output, words[i]))
            return true;
    return false;
}

/* For future servers, and for future clients of the running MPS servers. */
static void set_limits(struct daemon *d)
{
    char text[4096];
    int n = snprintf(text, sizeof(text),
                     "set_default_device_pinned_mem_limit 0 %" PRIu64 "M\n"
                     "set_default_active_thread_percentage %u\n",
                     d->limit_mib, d->percent);
    for (size_t i = 0; i < d->server_count; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "set_device_pinned_mem_limit %d 0 %" PRIu64 "M\n"
                      "set_active_thread_percentage %d %u\n",
                      (int)d->servers[i], d->limit_mib, (int)d->servers[i], d->percent);
    ask(d, STEP_LIMITS, text);
}

static void become_ready(struct daemon *d)
{
    d->misses = 0;
    if (d->relimit) {
        d->relimit = false;
        d->phase = PHASE_LIMITS;
        ask(d, STEP_LIMIT_SERVERS, "get_server_list\n");
        return;
    }
    d->phase = PHASE_READY;
    if (!d->ready_ns)
        d->ready_ns = sl_loop_now(d->mps->loop);
    after(d, d->suspect ? LOOK_NS : d->mps->options.watch_ns);
    if (d->suspect) /* the answer may be older than the line in the log */
        return;
    bool many = d->variant == 0 || d->adopted;
    say(d, SL_MPS_READY,
        "the MPS daemon of GPU %u is ready%s: %u %% of its threads and %" PRIu64
        " MiB for each client%s",
        d->index, d->adopted ? " (the daemon was running already)" : "", d->percent, d->limit_mib,
        many ? ""
             : "; this driver has no -multiuser-server, so tenants with another UID "
               "wait until earlier tenants have ended");
}

static void verified(struct daemon *d, const char *output)
{
    char *end;
    double got = strtod(output, &end);
    bool wrong = end == output || got > d->percent + 0.5 || got < d->percent - 0.5;
    if (wrong && !d->relimit) /* else new limits are waiting already */
        fail(d, SL_E_MPS_LIMITS_LOG, d->index, d->percent, output);
    else
        become_ready(d);
}

static void faulted(struct daemon *d)
{
    uint64_t now = sl_loop_now(d->mps->loop);
    if (d->phase != PHASE_FAULTED) {
        d->phase = PHASE_FAULTED;
        d->faulted_ns = now;
    }
    say(d, SL_MPS_FAULTED, SL_E_MPS_FAULT_LOG, d->index);
    if (now - d->faulted_ns < d->mps->options.heal_ns) {
        after(d, HEAL_LOOK_NS);
        return;
    }
    fail(d, SL_E_MPS_STUCK_LOG, d->index);
}

static void ask_status(struct daemon *d)
{
    char text[1024];
    int n = 0;
    for (size_t i = 0; i < d->server_count; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "get_server_status %d\n",
                      (int)d->servers[i]);
    ask(d, STEP_STATUS, text);
}

static void no_answer(struct daemon *d, enum daemon_step step, const char *output)
{
    uint64_t now = sl_loop_now(d->mps->loop);
    if (step == STEP_QUIT) {
        sl_mps_process_kill(d->exit.fd, SIGTERM);
        return;
    }
    if (d->phase == PHASE_STARTING && now < d->deadline_ns) {
        after(d, PROBE_NS);
        return;
    }
    if (d->phase != PHASE_STARTING && ++d->misses < MISSES_MAX) {
        d->suspect = true;
        after(d, SL_NS_PER_S);
        return;
    }
    fail(d, SL_E_MPS_SILENT_LOG, d->index, output[0] ? ": " : "", output);
}

static void answered(void *data, int result, const char *output)
{
    struct daemon *d = data;
    enum daemon_step step = d->step;
    d->command = NULL;
    d->step = STEP_NONE;
    /* Without a daemon the control program exits with 0 and prints an error. */
    char *end;
    bool number = strtod(output, &end) >= 0 && end != output;
    if (result < 0 || (step == STEP_PROBE && !number)) {
        no_answer(d, step, output);
        return;
    }
    switch (step) {
    case STEP_PROBE:
        d->phase = PHASE_LIMITS;
        ask(d, STEP_LIMIT_SERVERS, "get_server_list\n");
        break;
    case STEP_LIMIT_SERVERS:
        read_servers(d, output);
        set_limits(d);
        break;
    case STEP_LIMITS:
        if (complains(output))
            fail(d, SL_E_MPS_REFUSED_LOG, d->index, output);
        else
            ask(d, STEP_VERIFY, "get_default_active_thread_percentage\n");
        break;
    case STEP_VERIFY:
        verified(d, output);
        break;
    case STEP_SERVERS:
        read_servers(d, output);
        if (d->server_count)
            ask_status(d);
        else
            become_ready(d);
        break;
    case STEP_STATUS:
        if (sl_mps_speaks_of_fault(output))
            faulted(d);
        else
            become_ready(d);
        break;
    case STEP_QUIT:
    case STEP_NONE:
        break;
    }
}

static void ask(struct daemon *d, enum daemon_step step, const char *text)
{
    char buf[MPS_PATH_SIZE + 64];
    struct sl_err err = SL_ERR_INIT;
    const char *path = sl_mps_control_path(d->mps, buf, sizeof(buf));
    drop_command(d);
    d->step = step;
    sl_timer_stop(d->mps->loop, &d->timer); /* the answer decides the next step */
    int rc = path ? sl_mps_command(&d->mps->commands, d->mps->loop, path, d->env, text,
                                   d->mps->options.command_ns, answered, d, &d->command, &err)
                  : sl_err_set(&err, -ENOENT, SL_E_MPS_CONTROL_GONE);
    if (rc < 0)
        no_answer(d, step, err.msg);
}

/* ---- starting and watching ---- */

static void log_speaks(void *data, const char *line)
{
    struct daemon *d = data;
    if (d->state != SL_MPS_READY || (d->phase != PHASE_READY && d->phase != PHASE_LIMITS))
        return;
    d->suspect = true;
    if (d->step == STEP_NONE)
        after(d, LOOK_NS);
    /* Unhealthy at once; healthy again when the check that follows says so. */
    say(d, SL_MPS_FAULTED, SL_E_MPS_CLIENT_LOG, d->index, line);
}

static void timer_fire(struct sl_timer *timer)
{
    struct daemon *d = sl_container_of(timer, struct daemon, timer);
    switch (d->phase) {
    case PHASE_IDLE:
        start(d);
        break;
    case PHASE_STARTING:
        if (!d->pid) { /* it has announced a background process, which is not there yet */
            siginfo_t ok = {.si_code = CLD_EXITED};
            start_ended(d, &ok, "the daemon did not start in the background");
            break;
        }
        ask(d, STEP_PROBE, "get_default_active_thread_percentage\n");
        break;
    case PHASE_LIMITS:
        ask(d, STEP_LIMIT_SERVERS, "get_server_list\n");
        break;
    case PHASE_READY:
    case PHASE_FAULTED:
        d->suspect = false;
        ask(d, STEP_SERVERS, "get_server_list\n");
        break;
    case PHASE_ENDING:
        kill_all(d);
        after(d, SL_NS_PER_S); /* the driver may hold it a while longer */
        break;
    }
}

static void start(struct daemon *d)
{
    struct sl_err err = SL_ERR_INIT;
    if (!d->told)
        say(d, SL_MPS_STARTING, "the MPS daemon of GPU %u is starting", d->index);
    int rc = sl_mps_daemon_process(d, &err);
    if (rc == 0 && !d->log)
        rc = sl_mps_log_create(d->mps->loop, d->log_dir, log_speaks, d, &d->log, &err);
    if (rc < 0) {
        fail(d, SL_E_MPS_START_LOG, d->index, err.msg);
        return;
    }
    d->phase = PHASE_STARTING;
    d->misses = 0;
    d->suspect = d->relimit = false;
    d->server_count = 0;
    d->deadline_ns = sl_loop_now(d->mps->loop) + d->mps->options.start_ns;
    after(d, d->adopted ? 0 : PROBE_NS / 5);
}

void sl_mps_daemon_init(struct daemon *d)
{
    d->timer.fire = timer_fire;
    after(d, 0);
}

void sl_mps_daemon_relimit(struct daemon *d)
{
    if (d->phase == PHASE_STARTING || d->phase == PHASE_IDLE || d->phase == PHASE_ENDING)
        return; /* they are set when it answers */
    if (d->phase != PHASE_READY || d->step != STEP_NONE) {
        d->relimit = true;
    } else {
        d->phase = PHASE_LIMITS; /* and still ready for tenants */
        ask(d, STEP_LIMIT_SERVERS, "get_server_list\n");
    }
}
