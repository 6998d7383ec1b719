/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of messages. Each room has a file errors.h with one entry for each message that a user may
 * see. The code uses the text of an entry by its name (sl_err_set(err, -EINVAL, SL_E_NAME_LONG, name)), and
 * tools/errors.py writes docs/errors.md from the entries, so the page and the program cannot differ.
 *
 * A new message is one entry:
 *     SL_ERROR(NAME, "text with %s", "cause", "what to do");
 * SL_ERROR_ALSO gives a further text for the cause and the cure of the entry before it. SL_ERROR_PART names the
 * part of the page for the entries that follow it; docs/errors.md.in lists the parts.
 *
 * The texts are constant arrays: gcc and clang check them against the arguments as they check literals.
 */
#ifndef SLUICE_BASE_ERRTABLE_H
#define SLUICE_BASE_ERRTABLE_H

#define SL_ERROR(name, text, cause, cure)                                                          \
    static const char SL_E_##name[] __attribute__((unused)) = text
#define SL_ERROR_ALSO(name, text) static const char SL_E_##name[] __attribute__((unused)) = text
#define SL_ERROR_PART(name)       _Static_assert(sizeof(name) > 1, "a part has a name")

#endif
