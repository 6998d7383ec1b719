/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers with their n-th allocation failing, for every n: an error, never a crash, nothing lost. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/kube_config.h"
#include "kube/lines.h"
#include "support/nth_malloc.h"

#define CHECK NTH_CHECK

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

int main(void)
{
    int (*const all[])(void) = {read_config, cut_lines};
    unsigned long runs = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK(all[i]() == 0); /* once in good health */
        long before = nth_malloc.live;
        unsigned long n = 0;
        bool reached;
        do {
            (void)nth_malloc_set(++n);
            int rc = all[i]();
            reached = nth_malloc_set(0) >= n;
            CHECK(rc == (reached ? -ENOMEM : 0));
            CHECK(nth_malloc.live == before);
            runs++;
        } while (reached);
        CHECK(n > 1);
    }
    printf("%lu runs, nothing lost\n", runs);
    return 0;
}
