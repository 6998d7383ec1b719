/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations that anybody may have written: refused, or read and written again the same. */
#include <string.h>

#include "fuzz.h"
#include "share/promise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_promise promise, again;
    struct sl_promise_node told, back;
    struct sl_err err = SL_ERR_INIT;
    char *text = strndup((const char *)data, size), *written;
    FUZZ_CHECK(text);
    if (sl_promise_lease_parse(text, &promise, &err) == 0 &&
        (written = sl_promise_lease_text(&promise))) {
        FUZZ_CHECK(sl_promise_lease_parse(written, &again, &err) == 0);
        FUZZ_CHECK(again.share_count == promise.share_count);
        free(written);
        written = sl_promise_hami_text(&promise);
        FUZZ_CHECK(written);
        if (promise.container_count)
            FUZZ_CHECK(sl_promise_hami_parse(written, &again, &err) == 0 &&
                       again.share_count == promise.share_count);
        free(written);
    }
    if (sl_promise_hami_parse(text, &promise, &err) == 0) {
        written = sl_promise_hami_text(&promise);
        FUZZ_CHECK(written && sl_promise_hami_parse(written, &again, &err) == 0);
        FUZZ_CHECK(again.share_count == promise.share_count);
        free(written);
    }
    if (sl_promise_gpus_parse(text, &told, &err) == 0 && (written = sl_promise_gpus_text(&told))) {
        FUZZ_CHECK(sl_promise_gpus_parse(written, &back, &err) == 0 && back.count == told.count);
        free(written);
    }
    if (sl_promise_register_parse(text, &told, &err) == 0 &&
        (written = sl_promise_register_text(&told, 10))) {
        FUZZ_CHECK(sl_promise_register_parse(written, &back, &err) == 0 &&
                   back.count == told.count);
        free(written);
    }
    free(text);
    return 0;
}
