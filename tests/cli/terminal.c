/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A person at a terminal: terminal [wait TEXT | send TEXT]... -- COMMAND...
 * Runs COMMAND on a pseudo-terminal of its own, waits for texts in its output and types others
 * (printf escapes \n, \003 and so on), then reads until it ends. Prints all it saw, then
 * "exit CODE" or "signal N". Gives up after 30 seconds with code 99.
 */
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char seen[65536];
static size_t seen_size, searched;

/* More of the output; 0 at its end. */
static ssize_t listen_on(int fd)
{
    ssize_t n;
    do
        n = read(fd, seen + seen_size, sizeof(seen) - 1 - seen_size);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return 0; /* the other side closed: EIO on a pty */
    seen_size += (size_t)n;
    seen[seen_size] = '\0';
    return n;
}

static int wait_for(int fd, const char *text)
{
    for (;;) {
        const char *at = strstr(seen + searched, text);
        if (at) {
            searched = (size_t)(at - seen) + strlen(text);
            return 0;
        }
        if (listen_on(fd) == 0)
            return -1;
    }
}

static void type(int fd, const char *text)
{
    char out[512];
    size_t n = 0;
    for (const char *p = text; *p && n < sizeof(out); p++) {
        if (*p != '\\') {
            out[n++] = *p;
        } else if (p[1] == 'n') {
            out[n++] = '\n';
            p++;
        } else {
            char digits[4] = {p[1], p[2], p[3], '\0'};
            out[n++] = (char)strtol(digits, NULL, 8);
            p += 3;
        }
    }
    if (write(fd, out, n) != (ssize_t)n)
        perror("terminal");
}

int main(int argc, char **argv)
{
    int command = 1, fd, status;
    while (command < argc && strcmp(argv[command], "--") != 0)
        command += 2;
    if (command + 1 >= argc)
        return 98;
    pid_t pid = forkpty(&fd, NULL, NULL, NULL);
    if (pid < 0) {
        perror("terminal");
        return 98;
    }
    if (pid == 0) {
        execvp(argv[command + 1], argv + command + 1);
        _exit(97);
    }
    (void)alarm(30);
    for (int i = 1; i < command; i += 2) {
        if (strcmp(argv[i], "send") == 0)
            type(fd, argv[i + 1]);
        else if (wait_for(fd, argv[i + 1]) != 0)
            break;
    }
    while (listen_on(fd) > 0)
        ;
    if (waitpid(pid, &status, 0) != pid)
        return 98;
    (void)fwrite(seen, 1, seen_size, stdout);
    if (WIFSIGNALED(status))
        (void)printf("\nsignal %d\n", WTERMSIG(status));
    else
        (void)printf("\nexit %d\n", WEXITSTATUS(status));
    return 0;
}
