/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_BASE_ERRORS_H
#define SLUICE_BASE_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("amounts");

SL_ERROR(MEMORY_UNIT,
    "memory \"%s\": the unit \"%s\" is not known: write \"%.*s%ci\" (powers of 1024) or \"%.*s%c\" (powers of 1000)",
    "`Gb`, `GB`, `Mb` and `MB` are ambiguous", "`10Gi` (1024³) or `10G` (1000³)");
SL_ERROR(MEMORY_BAD, "memory \"%s\" is not an amount: write for example 10Gi, 512Mi or 25%%",
    "not a number with a unit: `-1`, `1e30`, `10 Gi`, `ten`", "`10Gi`, `512Mi`, `25%`");
SL_ERROR(MEMORY_PERCENT, "memory \"%s\": a percentage of a card must be a whole number from 1%% to 100%%",
    "`0%`, `101%`, `25.5%`", "a whole percentage");
SL_ERROR(MEMORY_HUGE, "memory \"%s\" is more than any GPU has",
    "more than 2⁶³ bytes", "a smaller amount");
SL_ERROR(MEMORY_ZERO, "memory \"%s\" is zero: a tenant needs some memory, for example 1Gi",
    "`0`, or less than one byte", "at least 512 bytes");
SL_ERROR(CORES_BAD,
    "cores \"%s\" is not a share: write a percentage of one GPU from 0.1 to 100, for example 30, or 30:100 to use idle "
    "time as well",
    "not a percentage from 0.1 to 100 with at most one decimal", "`30`, `12.5`, `30:100`");
SL_ERROR(CORES_ORDER, "cores \"%s\": the limit is below the request: write REQUEST:LIMIT, for example 30:100",
    "for example `30:20`", "`20:30`");
SL_ERROR(TIME_BAD, "\"%.40s\" is not a time: write a whole number with s, m, h or d, for example 30s, 10m or 2h",
    "no number, no unit, zero, or more than 100,000 of the unit", "`30s`, `10m`, `2h`");

SL_ERROR_PART("files");

SL_ERROR(NOT_A_DIRECTORY, "%s is not a directory: remove it, or name another directory",
    "a file has the name of the directory", "remove the file, or name another directory");
SL_ERROR(FOREIGN_DIRECTORY, "directory %s belongs to another user (uid %u): name another directory",
    "the other user could change the files in it", "a directory of your own");
SL_ERROR(DIRECTORY_PATH, "directory \"%s\": the path is empty or too long",
    "an empty path, or more bytes than the system allows", "another path");
SL_ERROR(FILE_LARGE, "%s is larger than %zu bytes",
    "the file is not what the program expects there", "name the right file");
SL_ERROR(FILE_NAME_LONG, "file name %s is too long",
    "the directory has a long name", "a shorter directory");
SL_ERROR(JSON_NUMBER, "%s is not a whole number from 0 to %lld",
    "a field of a JSON text has another type or size", "correct the field");

SL_ERROR_PART("people");

SL_ERROR(OUTLINE_TAB, "a tab: indent with blanks, and put a blank between words",
    "tabs are as wide as each editor likes, so the file could mean two things", "replace each tab by blanks");
SL_ERROR_ALSO(OUTLINE_BYTE, "the byte 0x%02x does not belong into a text: remove it");
SL_ERROR_ALSO(OUTLINE_UTF8, "the text is not UTF-8: save the file as UTF-8");
SL_ERROR(OUTLINE_INDENT, "this line is indented in another way than the lines it belongs to: align it with them",
    "keys of one block begin in the same column, and a key with a value has no block below it",
    "align the line with the other keys of its block");
SL_ERROR(OUTLINE_NO_KEY, "a word is missing here: write KEY: VALUE",
    "a colon without a key, or a comma without a value", "`key: value`");
SL_ERROR_ALSO(OUTLINE_COLON, "\"%.60s\" is not followed by a colon: write KEY: VALUE");
SL_ERROR_ALSO(OUTLINE_BLANK, "after \"%.60s:\" a blank must follow: write KEY: VALUE");
SL_ERROR(OUTLINE_REST, "\"%c\" after the value: write one KEY: VALUE in a line, and \" #\" before a comment",
    "a second value in the same line", "one value in a line");
SL_ERROR(OUTLINE_QUOTE, "this quotation has no closing %c in its line: add it",
    "a quoted value ends in the line in which it begins", "add the quotation mark");
SL_ERROR_ALSO(OUTLINE_ESCAPE, "in double quotes only \\\" and \\\\ may follow a backslash: use single quotes");
SL_ERROR(OUTLINE_BRACE, "this { has no matching } in its line, or a comma is missing: write {KEY: VALUE, KEY: VALUE}",
    "keys in braces stand in one line, with commas between them", "`{memory: 40Gi, cores: 50}`");
SL_ERROR(OUTLINE_LIST, "a list, and no key of this file takes one: write KEY: VALUE",
    "lines that begin with `-`, or values in `[ ]`", "`key: value`");
SL_ERROR_ALSO(OUTLINE_SPECIAL, "a word cannot begin with \"%c\": put it into quotation marks if it does");
SL_ERROR(OUTLINE_TWICE, "\"%.60s\" is here a second time (first in line %u): keep one of them",
    "one of the two would be ignored", "keep one of them");
SL_ERROR(OUTLINE_DEEP, "keys are nested more than %d deep: no key of this file is",
    "a block in a block in a block …", "look at the indentation");
SL_ERROR_ALSO(OUTLINE_KEYS, "the file has more than %d keys: remove some");

SL_ERROR_PART("dra");

SL_ERROR(QUANTITY_BAD, "\"%.40s\" is not a Kubernetes quantity such as 10Gi or 30",
    "an amount that cannot be read", "write an amount as Kubernetes does; if Kubernetes wrote it, please report it");

#endif
