/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interval of time-slicing of a card, which only the driver's nvidia-smi can set. It runs on the thread that may
 * wait for the driver.
 */
#include "agent/dra/dra_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/dra/errors.h"
#include "base/cleanup.h"

/* The program and its library are the driver's own: those of this container may be of another version. */
static int locate(const char *root, char *program, size_t size, char *variable,
                  size_t variable_size, struct sl_err *err)
{
    char library[4096];
    int rc = sl_driver_locate(root, "nvidia-smi", program, size, err);
    if (rc == 0)
        rc = sl_driver_locate(root, "libnvidia-ml.so.1", library, sizeof(library), err);
    if (rc < 0)
        return rc;
    char *slash = strrchr(library, '/');
    (void)snprintf(variable, variable_size, "LD_LIBRARY_PATH=%.*s",
                   slash ? (int)(slash - library) : 0, library);
    return 0;
}

/* The first line that the program printed, for people; the rest is read and forgotten. */
static void read_words(int fd, char *words, size_t size)
{
    size_t used = 0;
    char piece[256];
    for (ssize_t n; (n = read(fd, piece, sizeof(piece))) > 0;)
        for (ssize_t i = 0; i < n && used + 1 < size; i++)
            words[used++] = piece[i];
    words[used] = '\0';
    words[strcspn(words, "\n")] = '\0';
}

static int run(const char *program, char *const *argv, char *const *env, char *words, size_t size)
{
    int pipes[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return -errno;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, pipes[1], STDERR_FILENO);
    int rc = -posix_spawn(&pid, program, &actions, NULL, argv, env);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipes[1]);
    if (rc == 0) {
        read_words(pipes[0], words, size);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        rc = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
    }
    (void)close(pipes[0]);
    return rc;
}

int sl_dra_timeslice(const char *driver_root, const char *uuid, uint32_t interval,
                     struct sl_err *err)
{
    char program[4096], variable[4200], number[16], name[SL_GPU_UUID_SIZE], words[300] = "";
    char smi[] = "nvidia-smi", policy[] = "compute-policy", of[] = "-i", to[] = "--set-timeslice";
    struct sl_err why = SL_ERR_INIT;
    (void)snprintf(number, sizeof(number), "%u", interval);
    (void)snprintf(name, sizeof(name), "%s", uuid);
    char *argv[] = {smi, policy, of, name, to, number, NULL};
    if (locate(driver_root, program, sizeof(program), variable, sizeof(variable), &why) < 0)
        return sl_err_set(err, -ENOENT, SL_E_TIMESLICE, uuid, why.msg);
    char *env[64] = {variable};
    for (size_t i = 0, n = 1; environ[i] && n + 1 < SL_ARRAY_LEN(env); i++)
        if (strncmp(environ[i], "LD_LIBRARY_PATH=", 16) != 0)
            env[n++] = environ[i];
    int rc = run(program, argv, env, words, sizeof(words));
    if (rc < 0)
        return sl_err_set(err, rc, SL_E_TIMESLICE, uuid, words[0] ? words : strerrordesc_np(-rc));
    return 0;
}
