/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim in the API server's protobuf, with our devices put into its status. Opaque configs are text to the API
 * server: it compares an allocation's byte by byte, but rewrites them wherever it takes JSON apart itself (patches
 * of any kind). Only an update in protobuf has them back as they were.
 */
#ifndef SLUICE_AGENT_DRA_CLAIM_PB_H
#define SLUICE_AGENT_DRA_CLAIM_PB_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Returns the object with the status.devices of `driver` replaced by these (as in JSON); those
 * of other drivers stay. The caller frees *ret. -ESTALE: the claim has another uid; -EBADMSG:
 * the object is not a claim. */
int sl_claim_pb_devices(const uint8_t *object, size_t size, const char *uid, const char *driver,
                        const json_t *devices, uint8_t **ret, size_t *ret_size,
                        struct sl_err *err) SL_MUST_CHECK;

#endif
