/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that start containers: `sluice run` cannot limit what they start. */
#ifndef SLUICE_CLI_CONTAINER_CLIENT_H
#define SLUICE_CLI_CONTAINER_CLIENT_H

#include "base/err.h"

/* The container client that these words run, without its folder: "docker" for `sudo -E /usr/bin/docker run …`. NULL:
 * they run none. What a shell or a script starts is not seen. */
const char *sl_container_client(char *const *words);

/* -EPERM when the words run a container client; the message says what to type instead. */
int sl_container_client_refuse(char *const *words, struct sl_err *err) SL_MUST_CHECK;

#endif
