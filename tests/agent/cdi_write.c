/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cdi_write ROOT DIR: the node spec of the driver in ROOT, into DIR. The cards are those its NVML knows
 * where the driver is a simulated one, else a single one: a tree of a test has no NVML to ask.
 */
#include <limits.h>
#include <stdio.h>

#include "container/cdi.h"

static int read_inventory(const struct sl_driver *driver, struct sl_inventory **ret,
                          struct sl_err *err)
{
    char library[PATH_MAX];
    struct sl_gpu *gpu = NULL;
    int rc = sl_driver_locate(driver->root, "libnvidia-ml.so.1", library, sizeof(library), err);
    if (rc == 0)
        rc = sl_gpu_open(library, &gpu, err);
    if (rc == 0)
        rc = sl_inventory_read(gpu, ret, err);
    sl_gpu_close(gpu);
    return rc;
}

int main(int argc, char **argv)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_driver *driver = NULL;
    struct sl_inv_gpu gpu = {.info = {.uuid = "GPU-0"}};
    struct sl_inventory one = {.gpu = &gpu, .gpu_count = 1}, *read = NULL;
    struct sl_driver_options options = {.root = argc == 3 ? argv[1] : NULL};
    if (argc != 3 || sl_driver_find(&options, &driver, &err) < 0 ||
        (driver->simulated && read_inventory(driver, &read, &err) < 0) ||
        sl_cdi_write_node(argv[2], driver, read ? read : &one, &err) < 0) {
        (void)fprintf(stderr, "cdi_write ROOT DIR: %s\n", err.msg);
        return 1;
    }
    for (size_t i = 0; i < driver->warning_count; i++)
        (void)fprintf(stderr, "cdi_write: %s\n", driver->warning[i]);
    sl_driver_free(driver);
    sl_inventory_free(read);
    return 0;
}
