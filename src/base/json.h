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
    bool first;     /* nothing written yet at this depth */
    bool after_key; /* the next value belongs to a key already written */
};

void sl_json_init(struct sl_json *j, FILE *out);
void sl_json_begin(struct sl_json *j, char bracket); /* '{' or '[' */
void sl_json_end(struct sl_json *j, char bracket);   /* '}' or ']' */
void sl_json_key(struct sl_json *j, const char *key);
void sl_json_string(struct sl_json *j, const char *value); /* NULL writes null */
void sl_json_uint(struct sl_json *j, uint64_t value);
void sl_json_int(struct sl_json *j, int64_t value);
void sl_json_double(struct sl_json *j, double value); /* not finite: null */
void sl_json_bool(struct sl_json *j, bool value);

#endif
