/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer for `--json` output: commas, quoting and indentation in one place. */
#ifndef SLUICE_BASE_JSON_H
#define SLUICE_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_json {
    FILE *out;
    int depth;
    bool first; /* nothing written yet at this depth */
};

void sl_json_init(struct sl_json *j, FILE *out);
/* `key`: the member's name in an object; NULL in a list and for the document itself. */
void sl_json_begin(struct sl_json *j, const char *key, char bracket);       /* '{' or '[' */
void sl_json_end(struct sl_json *j, char bracket);                          /* '}' or ']' */
void sl_json_string(struct sl_json *j, const char *key, const char *value); /* NULL writes null */
void sl_json_plain(struct sl_json *j, const char *key, const char *value);  /* unquoted */
void sl_json_uint(struct sl_json *j, const char *key, uint64_t value);
void sl_json_int(struct sl_json *j, const char *key, int64_t value);
void sl_json_double(struct sl_json *j, const char *key, double value); /* not finite: null */
void sl_json_bool(struct sl_json *j, const char *key, bool value);

#endif
