/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the system's arbiter: any bytes are refused with line and column, or are limits within their bounds. */
#include <string.h>

#include "arbiter/rules.h"
#include "fuzz.h"

static void check_limits(const struct sl_limits *l, unsigned lines)
{
    for (int k = 0; k < SL_LIMITS; k++) {
        FUZZ_CHECK(l->of[k].line <= lines);
        FUZZ_CHECK(l->of[k].line || l->of[k].most == SL_LIMIT_NONE);
    }
    uint64_t priority = l->of[SL_LIMIT_PRIORITY].most;
    FUZZ_CHECK(priority == SL_LIMIT_NONE || priority <= 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_rules *r = NULL;
    struct sl_err err = SL_ERR_INIT;
    unsigned lines = 1, line = 0, column = 0;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    if (sl_rules_parse("f", (const char *)data, size, &r, &err) < 0) {
        FUZZ_CHECK(err.code < 0 && sscanf(err.msg, "f:%u:%u: ", &line, &column) == 2);
        FUZZ_CHECK(line >= 1 && line <= lines && column >= 1 && column <= size + 1);
        return 0;
    }
    FUZZ_CHECK(err.code == 0 && r->group[0]);
    check_limits(&r->defaults, lines);
    for (size_t i = 0; i < r->user_count; i++)
        check_limits(&r->users[i].limits, lines);
    for (size_t i = 0; i < r->group_count; i++)
        check_limits(&r->groups[i].limits, lines);
    sl_rules_free(r);
    return 0;
}
