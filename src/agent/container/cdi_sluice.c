/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/container/cdi_internal.h"
#include "agent/container/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"

#define LIBRARY_FILE "libsluice.so"
#define PRELOAD_FILE "ld.so.preload"

int sl_cdi_install_sluice(const char *dir, const char *libsluice, struct sl_err *err)
{
    static const char preload[] = SL_CDI_LIBSLUICE "\n";
    SL_CLEANUP(free) char *library = NULL;
    size_t size = 0;
    int rc = sl_fs_read(AT_FDCWD, libsluice, CDI_FILE_MAX_BYTES, &library, &size, err);
    if (rc == 0)
        rc = sl_cdi_put_file(dir, LIBRARY_FILE, library, size, 0755, NULL, err);
    return rc < 0 ? rc
                  : sl_cdi_put_file(dir, PRELOAD_FILE, preload, strlen(preload), 0644, NULL, err);
}

int sl_cdi_sluice_edits(const char *dir_host, const char *attach_dir_host, struct sl_edits *edits,
                        struct sl_err *err)
{
    char library[PATH_MAX], preload[PATH_MAX];
    if ((size_t)snprintf(library, sizeof(library), "%s/" LIBRARY_FILE, dir_host) >=
            sizeof(library) ||
        (size_t)snprintf(preload, sizeof(preload), "%s/" PRELOAD_FILE, dir_host) >= sizeof(preload))
        return sl_err_set(err, -ENAMETOOLONG, SL_E_CDI_PATH_LONG, dir_host);
    sl_edits_mount(edits, library, SL_CDI_LIBSLUICE, true);
    sl_edits_mount(edits, preload, "/etc/ld.so.preload", true);
    sl_edits_mount(edits, attach_dir_host, SL_CDI_ATTACH_DIR, true);
    return 0;
}
