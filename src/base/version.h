/* SPDX-License-Identifier: Apache-2.0 */
/* Which Sluice this is. A library of its own (sl_version), so that a commit compiles one file again. */
#ifndef SLUICE_BASE_VERSION_H
#define SLUICE_BASE_VERSION_H

/* The version and the commit it was built from: "0.1.0 (commit 0123456789ab)". "-dirty" after the commit: files were
 * changed since. "unknown": the source was no git checkout, and nobody said. */
const char *sl_version(void);

#endif
