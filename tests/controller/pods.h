/* SPDX-License-Identifier: Apache-2.0 */
/* Pods in tests: JSON with single quotes, patches applied, leaves looked up by path. */
#ifndef SLUICE_TESTS_CONTROLLER_PODS_H
#define SLUICE_TESTS_CONTROLLER_PODS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static inline json_t *quoted(const char *text)
{
    char *copy = strdup(text);
    json_error_t e;
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    json_t *j = json_loads(copy, 0, &e);
    if (!j)
        fail_msg("%s: %s", e.text, copy);
    free(copy);
    return j;
}

/* A leaf by "spec/containers/0/name"; ~1 is a slash, as in patches. */
static inline json_t *at(json_t *j, const char *path)
{
    char part[256];
    while (j && *path) {
        size_t n = 0;
        for (; *path && *path != '/'; path++) {
            if (path[0] == '~' && path[1] == '1') {
                part[n++] = '/';
                path++;
            } else {
                part[n++] = *path;
            }
        }
        part[n] = '\0';
        path += *path == '/';
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(part)) : json_object_get(j, part);
    }
    return j;
}

static inline const char *text_at(json_t *j, const char *path)
{
    const char *text = json_string_value(at(j, path));
    return text ? text : "";
}

/* Only "add" is ever used. */
static inline void apply(json_t *pod, const json_t *patch)
{
    const json_t *op;
    size_t i;
    json_array_foreach(patch, i, op)
    {
        char path[256];
        assert_string_equal(json_string_value(json_object_get(op, "op")), "add");
        (void)snprintf(path, sizeof(path), "%s",
                       json_string_value(json_object_get(op, "path")) + 1);
        char *last = strrchr(path, '/');
        *last = '\0';
        json_t *parent = at(pod, path);
        assert_true(json_is_object(parent));
        assert_int_equal(json_object_set(parent, last + 1, json_object_get(op, "value")), 0);
    }
}

/* One container `main` with these limits, metadata and more of the spec (each may be ""). */
static inline json_t *pod_of(const char *limits, const char *metadata, const char *spec)
{
    char text[4096];
    (void)snprintf(text, sizeof(text),
                   "{'metadata':{'name':'p'%s%s},'spec':{'containers':[{'name':'main','image':'i',"
                   "'resources':{'limits':{%s}}}]%s%s}}",
                   *metadata ? "," : "", metadata, limits, *spec ? "," : "", spec);
    return quoted(text);
}

#endif
