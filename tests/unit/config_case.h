/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the configuration. */
#ifndef SLUICE_TESTS_CONFIG_CASE_H
#define SLUICE_TESTS_CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/schema.h"

/* Reads text as the file "c.yaml", and nothing else. */
static inline struct sl_config *config_of(const char *text)
{
    struct sl_config *c = NULL;
    struct sl_err err = SL_ERR_INIT;
    if (sl_config_parse("c.yaml", text, strlen(text), NULL, NULL, 0, &c, &err) < 0)
        fail_msg("%s\nis refused: %s", text, err.msg);
    return c;
}

/* The same value after printing and reading again, as YAML and as JSON. */
static inline void check_round_trip(const struct sl_config *c)
{
    for (int json = 0; json < 2; json++) {
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        struct sl_json j;
        sl_json_init(&j, f);
        if (json)
            sl_config_json(c, NULL, &j);
        else
            sl_config_print(c, f);
        assert_int_equal(fclose(f), 0);
        struct sl_config *again = NULL;
        struct sl_err err = SL_ERR_INIT;
        if (sl_config_parse("printed", text, size, NULL, NULL, 0, &again, &err) < 0)
            fail_msg("%s\nis refused: %s", text, err.msg);
        free(again->kubelet_socket); /* not in the file */
        again->kubelet_socket = strdup(c->kubelet_socket);
        if (!sl_config_equal(c, again))
            fail_msg("%s\nis not what was printed", text);
        sl_config_free(again);
        free(text);
    }
}

/* The value at a path, as it would be printed. */
static inline const char *value_at(const struct sl_config *c, const char *path)
{
    static char value[400];
    char *text = NULL, *rest = NULL, at[8][64];
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    sl_config_print(c, f);
    assert_int_equal(fclose(f), 0);
    value[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char here[256] = "";
        size_t depth = strspn(line, " ") / 2, key = strcspn(line + 2 * depth, ":");
        assert_true(depth < 8);
        (void)snprintf(at[depth], sizeof(at[0]), "%.*s", (int)key, line + 2 * depth);
        for (size_t i = 0; i <= depth; i++)
            (void)snprintf(here + strlen(here), sizeof(here) - strlen(here), "%s%s", i ? "." : "",
                           at[i]);
        if (strcmp(here, path) == 0)
            (void)snprintf(value, sizeof(value), "%s", line + 2 * depth + key + 1);
    }
    free(text);
    assert_true(value[0]);
    return value;
}

#endif
