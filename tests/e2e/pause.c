/* SPDX-License-Identifier: Apache-2.0 */
/* The process that holds a pod's namespaces: waits, and reaps what is left to it. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    _exit(0);
}

static void reap(int number)
{
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    (void)signal(SIGTERM, end);
    (void)signal(SIGINT, end);
    (void)signal(SIGCHLD, reap);
    for (;;)
        (void)pause();
}
