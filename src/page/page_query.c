/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for, from the query of an address. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/quantity.h"
#include "base/units.h"
#include "page/errors.h"
#include "page/page.h"

static int hex(char c)
{
    if (isdigit((unsigned char)c))
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The first value of a key, decoded and cut to fit; "" where there is none. A zero byte ends it. */
static const char *value_of(const char *query, const char *key, char *buf, size_t size)
{
    size_t length = strlen(key), n = 0;
    buf[0] = '\0';
    while (*query && (strncmp(query, key, length) != 0 || query[length] != '=')) {
        query += strcspn(query, "&");
        query += *query == '&';
    }
    if (!*query)
        return buf;
    for (query += length + 1; *query && *query != '&' && n + 1 < size; query++) {
        bool coded = query[0] == '%' && hex(query[1]) >= 0 && hex(query[2]) >= 0;
        buf[n++] = coded           ? (char)(hex(query[1]) * 16 + hex(query[2]))
                   : *query == '+' ? ' '
                                   : *query;
        query += coded ? 2 : 0;
    }
    buf[n] = '\0';
    return buf;
}

static size_t number_of(const char *query, const char *key, size_t missing, size_t most)
{
    char text[24];
    uint64_t n = 0;
    if (!*value_of(query, key, text, sizeof(text)))
        return missing;
    const char *rest = sl_number_read(text, UINT32_MAX, &n);
    return rest && !*rest ? (n < most ? (size_t)n : most) : missing;
}

void sl_page_ask_read(const char *query, struct sl_page_ask *ret)
{
    char sort[8];
    (void)value_of(query, "sort", sort, sizeof(sort));
    *ret = (struct sl_page_ask){.from = number_of(query, "from", 0, UINT32_MAX),
                                .count = number_of(query, "count", 24, SL_PAGE_COUNT_MAX),
                                .wait_from = number_of(query, "wait", 0, UINT32_MAX),
                                .sort = strcmp(sort, "full") == 0   ? SL_PAGE_FULL_FIRST
                                        : strcmp(sort, "free") == 0 ? SL_PAGE_FREE_FIRST
                                                                    : SL_PAGE_BY_NAME};
    (void)value_of(query, "find", ret->find, sizeof(ret->find));
}

int sl_page_want_read(const char *query, struct sl_page_want *ret, struct sl_err *err)
{
    char memory[32], cores[32], gpus[8];
    struct sl_memory_amount amount = {.bytes = 0};
    struct sl_page_want want = {.gpus = 1};
    uint64_t count = 1;
    int rc = 0;
    (void)value_of(query, "memory", memory, sizeof(memory));
    (void)value_of(query, "cores", cores, sizeof(cores));
    if (!memory[0] && !cores[0])
        return sl_err_set(err, -EINVAL, SL_E_PAGE_WANT_NOTHING);
    if (memory[0])
        rc = sl_parse_memory(memory, &amount, err);
    if (!rc && cores[0])
        rc = sl_parse_cores(cores, &want.cores_permille, &want.cores_limit_permille, err);
    if (!rc && *value_of(query, "gpus", gpus, sizeof(gpus))) {
        const char *rest = sl_number_read(gpus, 16, &count);
        if (!rest || *rest || count == 0)
            rc = sl_err_set(err, -EINVAL, SL_E_PAGE_WANT_GPUS);
    }
    if (rc)
        return rc;
    want.memory_bytes = amount.bytes;
    want.memory_percent = amount.percent;
    want.gpus = (unsigned)count;
    *ret = want;
    return 0;
}
