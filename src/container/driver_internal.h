/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the driver part. */
#ifndef SLUICE_CONTAINER_DRIVER_INTERNAL_H
#define SLUICE_CONTAINER_DRIVER_INTERNAL_H

#include <limits.h>
#include <stdint.h>

#include "container/driver.h"

/* The properties of a shared library. */
struct driver_elf {
    char soname[128]; /* empty: the library has none */
    bool native;      /* for this machine: a 64-bit tenant cannot use a 32-bit library */
};

/* -ENOEXEC when the file is no ELF shared library, or a damaged one. */
int sl_driver_elf_read(int fd, struct driver_elf *ret) SL_MUST_CHECK;

/* Opens root/rel (O_PATH: no file is opened for reading). Follows every link inside the root, absolute ones too. real:
 * the final path, without the root, beginning with '/'. Returns the descriptor or a negative errno. */
int sl_driver_open_in_root(const char *root, const char *rel, char real[PATH_MAX]) SL_MUST_CHECK;

/* Joins with one '/' between: root "/" and name "/dev" is "/dev". -ENAMETOOLONG */
int sl_driver_join(char path[PATH_MAX], const char *root, const char *rel,
                   struct sl_err *err) SL_MUST_CHECK;

void sl_driver_warn(struct sl_driver *d, const char *fmt, ...) SL_PRINTF(2, 3);

/* The parts of sl_driver_find(): each fills its edits of d. */
int sl_driver_find_files(struct sl_driver *d, struct sl_err *err) SL_MUST_CHECK;
int sl_driver_find_simulation(struct sl_driver *d, struct sl_err *err) SL_MUST_CHECK;
int sl_driver_find_nodes(struct sl_driver *d, const struct sl_driver_options *options,
                         struct sl_err *err) SL_MUST_CHECK;

#endif
