/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"

#include "sluice_commit.h" /* written while building, by cmake/SluiceCommit.cmake */

const char *sl_version(void)
{
    return SLUICE_VERSION " (commit " SLUICE_COMMIT ")";
}
