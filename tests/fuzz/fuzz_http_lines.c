/* SPDX-License-Identifier: Apache-2.0 */
/* A stream in pieces, beside a reader that sees all of it at once. The first byte says how large the pieces
 * are, the second how long a line may be. */
#include <errno.h>
#include <string.h>

#include "fuzz.h"
#include "kube/lines.h"

/* The next line that is not empty in data from *at on; NULL: none is complete. */
static const char *model(const char *data, size_t size, size_t *at, size_t *ret_size)
{
    const char *end;
    while (*at < size && (end = memchr(data + *at, '\n', size - *at))) {
        const char *line = data + *at;
        size_t n = (size_t)(end - line);
        *at += n + 1;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        if (n > 0) {
            *ret_size = n;
            return line;
        }
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t total)
{
    if (total < 2)
        return 0;
    const char *data = (const char *)bytes + 2;
    size_t size = total - 2, piece = bytes[0] + 1U, seen = 0, expected, got;
    struct sl_lines lines = {.max_bytes = bytes[1]};
    int rc = 0;
    for (size_t at = 0; at < size && rc == 0; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        rc = sl_lines_feed(&lines, data + at, n, NULL);
        const char *line;
        while ((line = sl_lines_next(&lines, &got))) {
            const char *want = model(data, size, &seen, &expected);
            FUZZ_CHECK(want && got == expected && memcmp(line, want, got) == 0);
            FUZZ_CHECK(got <= lines.max_bytes);
        }
        FUZZ_CHECK(rc == 0 || rc == -EMSGSIZE);
    }
    /* Refused exactly when there is a longer line (its end need not be there). */
    size_t longest = 0, open = 0;
    for (size_t i = 0; i < size; i++) {
        open = data[i] == '\n' ? 0 : open + 1;
        longest = open > longest ? open : longest;
    }
    FUZZ_CHECK((rc == -EMSGSIZE) == (longest > lines.max_bytes));
    FUZZ_CHECK(rc != 0 || !model(data, size, &seen, &expected));
    sl_lines_reset(&lines);
    return 0;
}
