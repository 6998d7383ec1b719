/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLUICE_CONTROLLER_BASE64_H
#define SLUICE_CONTROLLER_BASE64_H

/* Returns a NUL-terminated text, to be freed; NULL: not base64 of a text. */
char *sl_base64_encode(const char *text);
char *sl_base64_decode(const char *coded);

#endif
