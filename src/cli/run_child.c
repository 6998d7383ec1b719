/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command stays in our process group. So the terminal itself sends Ctrl-C, Ctrl-\, Ctrl-Z and a hang-up to the
 * command, and a pipeline stays one job. A signal from the terminal is marked SI_KERNEL: it must not be passed on a
 * second time. A signal from another process is passed on.
 */
#include "cli/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/cli.h"
#include "cli/errors.h"
#include "sluice/attach.h"

/* --- the environment --- */

static bool names(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

void sl_env_copy(struct sl_env *env)
{
    size_t n = 0;
    while (environ[n])
        n++;
    *env = (struct sl_env){.list = sl_xcalloc(n + 1, sizeof(char *))};
    for (; env->count < n; env->count++)
        env->list[env->count] = sl_xstrdup(environ[env->count]);
}

void sl_env_free(struct sl_env *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->list[i]);
    free(env->list);
    *env = (struct sl_env){0};
}

const char *sl_env_get(const struct sl_env *env, const char *name)
{
    for (size_t i = 0; i < env->count; i++)
        if (names(env->list[i], name))
            return env->list[i] + strlen(name) + 1;
    return NULL;
}

void sl_env_set(struct sl_env *env, const char *name, const char *value)
{
    char *entry = sl_xasprintf("%s=%s", name, value);
    for (size_t i = 0; i < env->count; i++)
        if (names(env->list[i], name)) {
            free(env->list[i]);
            env->list[i] = entry;
            return;
        }
    env->list = sl_xreallocarray(env->list, env->count + 2, sizeof(char *));
    env->list[env->count++] = entry;
    env->list[env->count] = NULL;
}

void sl_env_prepend(struct sl_env *env, const char *name, const char *value, char separator)
{
    const char *old = sl_env_get(env, name);
    size_t n = strlen(value);
    SL_CLEANUP(free) char *joined = sl_xmalloc(n + (old ? strlen(old) : 0) + 2);
    memcpy(joined, value, n);
    /* LD_PRELOAD may be split by spaces as well; a nested run must not load the library twice. */
    const char stops[] = {separator, ' ', '\0'};
    for (const char *p = old; p && *p;) {
        size_t part = strcspn(p, stops);
        if (part > 0 && !(part == strlen(value) && memcmp(p, value, part) == 0)) {
            joined[n++] = separator;
            memcpy(joined + n, p, part);
            n += part;
        }
        p += part;
        p += *p != '\0';
    }
    joined[n] = '\0';
    sl_env_set(env, name, joined);
}

void sl_env_tenant(struct sl_env *env, const char *attach, const char *visible,
                   const char *libsluice)
{
    sl_env_copy(env);
    sl_env_set(env, SL_ATTACH_ENV, attach);
    sl_env_set(env, "CUDA_VISIBLE_DEVICES", visible);
    sl_env_prepend(env, "LD_PRELOAD", libsluice, ':');
#ifdef SLUICE_SANITIZER_RUNTIME /* an instrumented build: the sanitizer's run-time must be the very first library */
    sl_env_prepend(env, "LD_PRELOAD", SLUICE_SANITIZER_RUNTIME, ':');
#endif
}

/* --- the process --- */

static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT, SIGUSR1,
                                SIGUSR2, SIGALRM, SIGWINCH, SIGTSTP, SIGCONT};

static int cannot_run(const char *command, int error, struct sl_err *err)
{
    if (error == ENOENT || error == ENOTDIR) {
        (void)sl_err_set(err, -ENOENT, SL_E_COMMAND_NOT_FOUND, command);
        return SL_EXIT_RUN_NOT_FOUND;
    }
    (void)sl_err_errno(err, error, "cannot execute %s", command);
    return SL_EXIT_RUN_NOT_EXECUTABLE;
}

/* 0 when the file can be executed, else errno. */
static int try_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

int sl_child_lookup(const char *command, struct sl_err *err)
{
    if (command[0] == '\0')
        return cannot_run("\"\"", ENOENT, err);
    if (strchr(command, '/')) {
        int error = try_file(command);
        return error ? cannot_run(command, error, err) : 0;
    }
    const char *path = getenv("PATH");
    int kept = ENOENT;
    for (const char *p = path ? path : "/bin:/usr/bin";; p++) {
        size_t n = strcspn(p, ":");
        char file[4096];
        int len = n ? snprintf(file, sizeof(file), "%.*s/%s", (int)n, p, command)
                    : snprintf(file, sizeof(file), "./%s", command);
        int error = (size_t)len < sizeof(file) ? try_file(file) : ENOENT;
        if (error == 0)
            return 0;
        if (error == EACCES)
            kept = EACCES; /* the file exists, but cannot run: say that rather than "not found" */
        p += n;
        if (*p == '\0')
            return cannot_run(command, kept, err);
    }
}

static void fill_set(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < SL_ARRAY_LEN(passed_on); i++)
        (void)sigaddset(set, passed_on[i]);
}

int sl_child_start(struct sl_child *child, char *const *argv, char *const *envp, struct sl_err *err)
{
    sigset_t set, before;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)sl_err_errno(err, errno, "cannot make a pipe");
        return SL_EXIT_RUN_OURS;
    }
    SL_CLEANUP(close) int reader = ends[0];
    SL_CLEANUP(close) int writer = ends[1];
    fill_set(&set);
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    child->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    child->pid = child->signals < 0 ? -1 : fork();
    if (child->pid < 0) {
        (void)sl_err_errno(err, errno, "cannot start %s", argv[0]);
        return SL_EXIT_RUN_OURS;
    }
    if (child->pid == 0) {
        /* Dispositions were never changed: a signal that our caller ignored (nohup) stays ignored. */
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        (void)execvpe(argv[0], argv, envp);
        int cause = errno;
        ssize_t put = write(writer, &cause, sizeof(cause));
        _exit(put == (ssize_t)sizeof(cause) ? 0 : SL_EXIT_RUN_OURS);
    }
    (void)close(sl_take_fd(writer));
    int cause = 0;
    ssize_t got;
    do
        got = read(reader, &cause, sizeof(cause));
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(cause))
        return 0; /* exec closed the pipe: the command runs */
    (void)waitpid(child->pid, NULL, 0);
    child->pid = -1;
    return cannot_run(argv[0], cause, err);
}

static void pass_on(struct sl_child *child, const struct signalfd_siginfo *info)
{
    int sig = (int)info->ssi_signo;
    bool terminal = info->ssi_code == SI_KERNEL;
    bool own = info->ssi_code == SI_USER && info->ssi_pid == (uint32_t)child->pid;
    if (!terminal && !own)
        (void)kill(child->pid, sig);
    /* A stop is for the whole job: we stop too, so that the shell takes the terminal back. */
    if (sig == SIGTSTP)
        (void)raise(SIGSTOP);
}

/* Collects ended children; true with the status when ours is among them. */
static bool reap(struct sl_child *child, int *ret_status)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid <= 0)
            return false;
        if (pid != child->pid) {
            if (!WIFSTOPPED(status) && child->on_watch)
                child->on_watch(child, pid, status);
            continue;
        }
        if (!WIFSTOPPED(status)) {
            *ret_status = status;
            return true;
        }
        /* The command stopped itself as a job does (an editor's Ctrl-Z, a read in the background). SIGSTOP is
         * different: the process that sent it will continue the command. */
        if (WSTOPSIG(status) != SIGSTOP)
            (void)raise(SIGSTOP);
    }
}

int sl_child_wait(struct sl_child *child)
{
    int status = 0;
    for (;;) {
        struct pollfd p[] = {{.fd = child->signals, .events = POLLIN},
                             {.fd = child->watch, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) {
            /* Out of kernel memory: signals are lost, the command's end is not. */
            while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
                ;
            return status;
        }
        if (p[1].revents && child->on_watch)
            child->on_watch(child, 0, 0);
        struct signalfd_siginfo info;
        bool ended = false;
        while (read(child->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (info.ssi_signo == SIGCHLD)
                ended = reap(child, &status) || ended;
            else if (!ended)
                pass_on(child, &info);
        }
        if (ended)
            return status;
    }
}

void sl_child_follow(int status)
{
    if (WIFSIGNALED(status)) {
        int sig = WTERMSIG(status);
        sigset_t set;
        /* The command has dumped its core already; a second core dump has no use. */
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)signal(sig, SIG_DFL);
        (void)sigemptyset(&set);
        (void)sigaddset(&set, sig);
        (void)raise(sig);
        (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
        _exit(128 + sig); /* a signal that does not kill us, or is blocked for good */
    }
    _exit(WEXITSTATUS(status));
}
