/* SPDX-License-Identifier: Apache-2.0 */
/* Files: directories made safely, whole-file reads, and replacement that survives a crash. */
#ifndef SLUICE_BASE_FSUTIL_H
#define SLUICE_BASE_FSUTIL_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* mkdir -p with the given mode for new directories; the last component must be a directory owned by the caller. */
int sl_fs_mkdirs(const char *path, mode_t mode, struct sl_err *err) SL_MUST_CHECK;

/* Reads up to max bytes into a fresh NUL-terminated buffer; a longer file is an error. */
int sl_fs_read(int dirfd, const char *name, size_t max, char **ret_text, size_t *ret_size,
               struct sl_err *err) SL_MUST_CHECK;

/* Writes a temporary file beside it (name and SL_FS_HALF) and renames that to name: readers see the old or the new file,
 * never half. A writer that is killed leaves the temporary file, and the next writer replaces it. */
#define SL_FS_HALF ".new"
int sl_fs_replace(int dirfd, const char *name, const void *data, size_t size, mode_t mode,
                  struct sl_err *err) SL_MUST_CHECK;

#endif
