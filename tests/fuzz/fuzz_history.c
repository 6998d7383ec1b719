/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the history. Any text is refused, or an entry that comes back the same from its own line. Each line is tried
 * as it is, and with the checksum that belongs to it: else hardly one would get past that.
 */
#include <string.h>

#include "base/hash.h"
#include "fuzz.h"
#include "policy/history.h"

static void one(const char *line, size_t size)
{
    struct sl_history_entry e, back;
    char first[SL_HISTORY_LINE_MAX], second[SL_HISTORY_LINE_MAX];
    memset(&e, 0x5a, sizeof(e));
    if (!sl_history_parse(line, size, &e)) {
        FUZZ_CHECK(e.uid == 0x5a5a5a5a); /* untouched */
        return;
    }
    FUZZ_CHECK(e.gpu_count <= SL_HISTORY_GPUS && e.end <= SL_HISTORY_REMOVED);
    FUZZ_CHECK(memchr(e.name, '\0', sizeof(e.name)) && e.name[0]);
    FUZZ_CHECK(memchr(e.command, '\0', sizeof(e.command)));
    size_t n = sl_history_format(&e, first);
    FUZZ_CHECK(n < sizeof(first) && n == strlen(first) && !strchr(first, '\n'));
    FUZZ_CHECK(sl_history_parse(first, n, &back));
    FUZZ_CHECK(sl_history_format(&back, second) == n && memcmp(first, second, n) == 0);
    struct sl_history_hint h[2];
    FUZZ_CHECK(sl_history_hints(&e, 1, h, 2) <= 2);
}

static void with_sum(const char *line, size_t size)
{
    char text[SL_HISTORY_LINE_MAX + 16];
    if (size > SL_HISTORY_LINE_MAX)
        return;
    uint64_t h = sl_hash_bytes(SL_HASH_START, line, size);
    memcpy(text, line, size);
    int n = snprintf(text + size, 16, " sum=%08x", (unsigned)(uint32_t)(h ^ h >> 32));
    one(text, size + (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    while (size > 0) {
        const char *feed = memchr(text, '\n', size);
        size_t n = feed ? (size_t)(feed - text) : size;
        one(text, n);
        with_sum(text, n);
        n += feed != NULL;
        text += n;
        size -= n;
    }
    return 0;
}
