/* SPDX-License-Identifier: Apache-2.0 */
/* Claims, pods and annotations from the API server: refused with a message, or within their bounds. */
#include <stdlib.h>
#include <string.h>

#include "agent/dra/claim.h"
#include "fuzz.h"

static void check_claim(const json_t *object, const struct sl_dra_names *names)
{
    static struct sl_claim c;
    struct sl_err err = SL_ERR_INIT;
    const char *uid =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "uid"));
    int rc = sl_claim_parse(object, names, "node-1", uid ? uid : "", &c, &err);
    if (rc < 0) {
        FUZZ_CHECK(err.code < 0 && err.msg[0] != '\0');
        return;
    }
    FUZZ_CHECK(c.result_count >= 1 && c.result_count <= SL_CLAIM_RESULTS);
    sl_claim_join(&c, object); /* as if it were a pod: whatever it is, groups stay within */
    for (size_t i = 0; i < c.result_count; i++) {
        const struct sl_claim_result *r = &c.result[i];
        FUZZ_CHECK(r->group < c.result_count && r->request[0]);
        FUZZ_CHECK(r->share.limit_permille <= 1000);
        if (r->name.kind == SL_DEVICE_SHARE && !r->admin)
            FUZZ_CHECK(r->share.memory_bytes > 0 && r->share.cores_permille >= 1 &&
                       r->share.cores_permille <= 1000);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_resize resize;
    struct sl_err err = SL_ERR_INIT;
    char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    if (sl_resize_parse(text, &resize, &err) == 0)
        FUZZ_CHECK(resize.memory_bytes || resize.cores_permille);
    else
        FUZZ_CHECK(err.msg[0] != '\0');
    free(text);
    json_t *object = json_loadb((const char *)data, size, 0, NULL);
    if (object)
        for (int nvidia = 0; nvidia < 2; nvidia++)
            check_claim(object, &(struct sl_dra_names){.nvidia = nvidia});
    json_decref(object);
    return 0;
}
