/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a kubeconfig: refused with a sentence, or complete. */
#include <string.h>

#include "fuzz.h"
#include "kube/kube_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_kube_config config = {0};
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_kube_config_parse((const char *)data, size, "/etc", &config, &err);
    if (rc == 0) {
        FUZZ_CHECK(config.server && config.server[0]);
        FUZZ_CHECK((config.cert_file || config.cert_pem) == (config.key_file || config.key_pem));
        FUZZ_CHECK(!config.ca_file || config.ca_file[0] == '/');
    } else {
        FUZZ_CHECK(rc < 0 && err.code == rc && err.msg[0]);
        FUZZ_CHECK(!config.server && !config.token);
    }
    sl_kube_config_free(&config);
    return 0;
}
