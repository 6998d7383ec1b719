/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities: any text is either refused with a message, or a value within its bounds. */
#include <string.h>

#include "base/units.h"
#include "fuzz.h"

static void memory(const char *text)
{
    struct sl_memory_amount a = {0, 0};
    struct sl_err err = SL_ERR_INIT;
    if (sl_parse_memory(text, &a, &err) == 0) {
        FUZZ_CHECK(err.code == 0);
        FUZZ_CHECK((a.percent == 0) != (a.bytes == 0));
        FUZZ_CHECK(a.percent <= 100 && a.bytes <= INT64_MAX);
        char buf[8];
        (void)sl_format_bytes(a.bytes, buf, sizeof(buf));
        FUZZ_CHECK(strlen(buf) < sizeof(buf));
    } else {
        FUZZ_CHECK(err.code < 0 && err.msg[0] != '\0');
        FUZZ_CHECK(a.bytes == 0 && a.percent == 0);
    }
}

static void cores(const char *text)
{
    uint32_t request = 0, limit = 0, request2 = 0, limit2 = 0;
    struct sl_err err = SL_ERR_INIT;
    if (sl_parse_cores(text, &request, &limit, &err) == 0) {
        FUZZ_CHECK(request >= 1 && request <= limit && limit <= 1000);
        char buf[16];
        FUZZ_CHECK(sl_parse_cores(sl_format_cores(request, limit, buf, sizeof(buf)), &request2,
                                  &limit2, NULL) == 0);
        FUZZ_CHECK(request == request2 && limit == limit2);
    } else {
        FUZZ_CHECK(err.code < 0 && err.msg[0] != '\0' && request == 0 && limit == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    memory(text);
    cores(text);
    free(text);
    return 0;
}
