/* SPDX-License-Identifier: Apache-2.0 */
/* What lookup.c looks for: functions, an indirect one, one in two versions, and what is no function. */
#include <unistd.h>

int lookup_answer(void);
int lookup_chosen(void);
int lookup_old(void);
int lookup_new(void);

int lookup_data = 7;

int lookup_answer(void)
{
    return getpid() ? 42 : lookup_data;
}

static int chosen(void)
{
    return 43;
}

__attribute__((used)) static int (*choose(void))(void)
{
    return chosen;
}

int lookup_chosen(void) __attribute__((ifunc("choose")));

__asm__(".symver lookup_old, lookup_versioned@LOOKUP_1");
__asm__(".symver lookup_new, lookup_versioned@@LOOKUP_2");

int lookup_old(void)
{
    return 1;
}

int lookup_new(void)
{
    return 2;
}
