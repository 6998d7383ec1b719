/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that other programs must be able to read: JSON, protobuf and Go refuse a whole document for one byte that is no
 * UTF-8. Such bytes come from file names, from drivers, and from cutting a text to fit.
 */
#ifndef SLUICE_BASE_UTF8_H
#define SLUICE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The number of bytes of the well-formed character at s; 0: there is none. s is not at its NUL. */
size_t sl_utf8_length(const char *s);
bool sl_utf8_valid(const char *s);

/* Makes s well-formed in place: a character that was cut at the very end is removed, other wrong bytes become '?'. */
void sl_utf8_mend(char *s);

/* Copies as much of src as fits into size bytes with a NUL, but no part of a character. */
void sl_utf8_copy(char *dst, size_t size, const char *src);

#endif
