/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant whose kernels never end.
 *
 *   endless PROCESSES
 *
 * As attack.c: says "waiting", waits for a line of input, says "attacking" when each process has its kernel on the
 * GPU, and goes on until its input ends.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/tenant.h"

/* Its parent reads a byte once the kernel is queued. */
static void run(int told)
{
    struct sl_tenant t;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_tenant_open(&t, 0);
    sl_tenant_forever(&t, NULL);
    CHECK(write(told, "k", 1) == 1);
    for (;;)
        (void)pause();
}

int main(int argc, char **argv)
{
    int processes = argc == 2 ? atoi(argv[1]) : 0, told[2];
    char c;
    CHECK(processes > 0 && pipe(told) == 0);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)puts("waiting");
    if (read(STDIN_FILENO, &c, 1) != 1)
        return 0;
    for (int i = 0; i < processes; i++)
        if (fork() == 0)
            run(told[1]);
    for (int i = 0; i < processes; i++)
        CHECK(read(told[0], &c, 1) == 1);
    (void)puts("attacking");
    while (read(STDIN_FILENO, &c, 1) == 1)
        ;
    return 0; /* the kernel ends the children with us */
}
