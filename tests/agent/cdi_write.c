/* SPDX-License-Identifier: Apache-2.0 */
/* cdi_write ROOT DIR: the node spec of the driver in ROOT, for a machine of one card, into DIR. */
#include <stdio.h>

#include "agent/cdi.h"

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_driver *driver = NULL;
    struct sl_inv_gpu gpu = {.info = {.uuid = "GPU-0"}};
    struct sl_inventory inv = {.gpu = &gpu, .gpu_count = 1};
    struct sl_driver_options options = {.root = argc == 3 ? argv[1] : NULL};
    if (argc != 3 || sl_driver_find(&options, &driver, &err) < 0 ||
        sl_cdi_write_node(argv[2], driver, &inv, NULL, &err) < 0) {
        (void)fprintf(stderr, "cdi_write ROOT DIR: %s\n", err.msg);
        return 1;
    }
    for (size_t i = 0; i < driver->warning_count; i++)
        (void)fprintf(stderr, "cdi_write: %s\n", driver->warning[i]);
    sl_driver_free(driver);
    return 0;
}
