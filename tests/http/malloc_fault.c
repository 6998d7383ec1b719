/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers with their n-th allocation failing, for every n: an error, never a crash, nothing lost. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/kube_config.h"
#include "kube/kube_index.h"
#include "kube/lines.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *ptr, size_t size);
void __real_free(void *ptr);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
void __wrap_free(void *ptr);
char *__wrap_strdup(const char *text);

static unsigned long allocations, fail_at;
static long live;

static bool fails(void)
{
    return ++allocations == fail_at;
}

void *__wrap_malloc(size_t size)
{
    void *p = fails() ? NULL : __real_malloc(size);
    live += p != NULL;
    return p;
}

void *__wrap_calloc(size_t count, size_t size)
{
    void *p = fails() ? NULL : __real_calloc(count, size);
    live += p != NULL;
    return p;
}

void *__wrap_realloc(void *ptr, size_t size)
{
    void *p = fails() ? NULL : __real_realloc(ptr, size);
    live += p && !ptr;
    return p;
}

void __wrap_free(void *ptr)
{
    live -= ptr != NULL;
    __real_free(ptr);
}

char *__wrap_strdup(const char *text)
{
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: allocation %lu: not true: %s\n", __FILE__, __LINE__, fail_at,  \
                    #cond);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int read_config(void)
{
    static const char text[] =
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://h:1'}}]\n"
        "users: [{name: u, user: {token: secret}}]\n";
    struct sl_kube_config c = {0};
    int rc = sl_kube_config_parse(text, sizeof(text) - 1, "/", &c, NULL);
    sl_kube_config_free(&c);
    return rc;
}

static int cut_lines(void)
{
    struct sl_lines l = {.max_bytes = 10000};
    char text[3000];
    size_t size;
    memset(text, 'x', sizeof(text));
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = sl_lines_feed(&l, text, sizeof(text), NULL);
    while (sl_lines_next(&l, &size))
        ;
    sl_lines_reset(&l);
    return rc;
}

static json_t *objects[200]; /* jansson's own allocations are not on trial */

static int keep_index(void)
{
    struct kube_index index = {.max = 1000};
    int rc = 0;
    for (int i = 0; i < 200 && rc == 0; i++) {
        if (!kube_index_add(&index, objects[i]))
            rc = -ENOMEM;
        CHECK(rc < 0 || kube_index_find(&index, objects[i]));
    }
    for (int i = 0; i < 200; i++) {
        struct kube_known *known = kube_index_find(&index, objects[i]);
        if (known && i % 2)
            kube_index_drop(&index, known);
    }
    kube_index_free(&index);
    return rc;
}

int main(void)
{
    int (*const all[])(void) = {read_config, cut_lines, keep_index};
    unsigned long runs = 0;
    for (int i = 0; i < 200; i++) {
        char name[20];
        (void)snprintf(name, sizeof(name), "o%d", i);
        objects[i] = json_pack("{s:{s:s,s:s}}", "metadata", "name", name, "uid", name);
        CHECK(objects[i]);
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK(all[i]() == 0); /* once in good health */
        long before = live;
        unsigned long n = 0;
        bool reached;
        do {
            allocations = 0;
            fail_at = ++n;
            int rc = all[i]();
            reached = allocations >= n;
            fail_at = 0;
            CHECK(rc == (reached ? -ENOMEM : 0));
            CHECK(live == before);
            runs++;
        } while (reached);
        CHECK(n > 1);
    }
    for (int i = 0; i < 200; i++)
        json_decref(objects[i]);
    printf("%lu runs, nothing lost\n", runs);
    return 0;
}
