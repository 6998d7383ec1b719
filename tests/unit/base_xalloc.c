/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has no memory left says so in one line and aborts; nothing returns NULL. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/xalloc.h"

/* volatile: the compiler would refuse what can never succeed. */
static volatile size_t too_much = SIZE_MAX / 2;

static void ask_malloc(void)
{
    free(sl_xmalloc(too_much));
}

static void ask_calloc_overflow(void)
{
    free(sl_xcalloc(too_much, 4));
}

static void ask_realloc(void)
{
    free(sl_xrealloc(sl_xmalloc(1), too_much));
}

static void ask_reallocarray_overflow(void)
{
    free(sl_xreallocarray(NULL, too_much, 4));
}

static void ask_memstream(void)
{
    char *text;
    size_t size;
    char block[65536];
    const struct rlimit few = {64 << 20, 64 << 20};
    (void)setrlimit(RLIMIT_AS, &few);
    FILE *out = sl_xmemstream(&text, &size);
    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 4096; i++)
        (void)fwrite(block, 1, sizeof(block), out);
    sl_xmemstream_close(out);
}

static void assert_aborts(void (*ask)(void))
{
    int says[2], status;
    char text[256] = "";
    assert_int_equal(pipe(says), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(says[1], STDERR_FILENO);
        ask();
        _exit(0);
    }
    (void)close(says[1]);
    ssize_t n = read(says[0], text, sizeof(text) - 1);
    (void)close(says[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(n > 0 && text[n - 1] == '\n' && strchr(text, '\n') == &text[n - 1]);
    assert_memory_equal(text, "out of memory", strlen("out of memory"));
}

static void no_memory_ends_the_program(void **state)
{
    (void)state;
    assert_aborts(ask_malloc);
    assert_aborts(ask_calloc_overflow);
    assert_aborts(ask_realloc);
    assert_aborts(ask_reallocarray_overflow);
}

static void a_stream_that_cannot_grow_ends_the_program(void **state)
{
    (void)state;
    assert_aborts(ask_memstream);
}

static void memory_is_there(void **state)
{
    (void)state;
    char *nothing = sl_xmalloc(0), *text = sl_xasprintf("%s-%d", "gpu", 7),
         *cut = sl_xstrndup("share", 2);
    int *zero = sl_xcalloc(3, sizeof(*zero));
    assert_non_null(nothing);
    assert_string_equal(text, "gpu-7");
    assert_string_equal(cut, "sh");
    assert_true(zero[0] == 0 && zero[2] == 0);
    assert_null(sl_xstrdup(NULL));
    assert_null(sl_xstrndup(NULL, 3));
    free(nothing);
    free(text);
    free(cut);
    free(zero);
}

static void a_stream_ends_as_its_text(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = sl_xmemstream(&text, &size);
    (void)fprintf(out, "%d,%d", 1, 2);
    sl_xmemstream_close(out);
    assert_int_equal(size, 3);
    assert_string_equal(text, "1,2");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_there),
        cmocka_unit_test(a_stream_ends_as_its_text),
        cmocka_unit_test(no_memory_ends_the_program),
        cmocka_unit_test(a_stream_that_cannot_grow_ends_the_program),
    };
    return cmocka_run_group_tests_name("xalloc", tests, NULL, NULL);
}
