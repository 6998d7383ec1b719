/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/run_child.h"
#include "sluice/attach.h"

static int out_of_memory(struct sl_err *err)
{
    return sl_err_set(err, -ENOMEM, "out of memory preparing the command's environment");
}

static bool names(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

int sl_env_copy(struct sl_env *env, struct sl_err *err)
{
    size_t n = 0;
    while (environ[n])
        n++;
    *env = (struct sl_env){.list = calloc(n + 1, sizeof(char *))};
    if (!env->list)
        return out_of_memory(err);
    for (; env->count < n; env->count++) {
        env->list[env->count] = strdup(environ[env->count]);
        if (!env->list[env->count])
            return out_of_memory(err);
    }
    return 0;
}

void sl_env_free(struct sl_env *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->list[i]);
    free(env->list);
    *env = (struct sl_env){0};
}

const char *sl_env_get(const struct sl_env *env, const char *name)
{
    for (size_t i = 0; i < env->count; i++)
        if (names(env->list[i], name))
            return env->list[i] + strlen(name) + 1;
    return NULL;
}

int sl_env_set(struct sl_env *env, const char *name, const char *value, struct sl_err *err)
{
    char *entry;
    if (asprintf(&entry, "%s=%s", name, value) < 0)
        return out_of_memory(err);
    for (size_t i = 0; i < env->count; i++)
        if (names(env->list[i], name)) {
            free(env->list[i]);
            env->list[i] = entry;
            return 0;
        }
    char **grown = realloc(env->list, (env->count + 2) * sizeof(char *));
    if (!grown) {
        free(entry);
        return out_of_memory(err);
    }
    env->list = grown;
    env->list[env->count++] = entry;
    env->list[env->count] = NULL;
    return 0;
}

int sl_env_prepend(struct sl_env *env, const char *name, const char *value, char separator,
                   struct sl_err *err)
{
    const char *old = sl_env_get(env, name);
    size_t n = strlen(value);
    SL_CLEANUP(free) char *joined = malloc(n + (old ? strlen(old) : 0) + 2);
    if (!joined)
        return out_of_memory(err);
    memcpy(joined, value, n);
    /* LD_PRELOAD may be split by spaces as well; a nested run must not load the library twice. */
    const char stops[] = {separator, ' ', '\0'};
    for (const char *p = old; p && *p;) {
        size_t part = strcspn(p, stops);
        if (part > 0 && !(part == strlen(value) && memcmp(p, value, part) == 0)) {
            joined[n++] = separator;
            memcpy(joined + n, p, part);
            n += part;
        }
        p += part;
        p += *p != '\0';
    }
    joined[n] = '\0';
    return sl_env_set(env, name, joined, err);
}

int sl_env_tenant(struct sl_env *env, const char *attach, const char *visible,
                  const char *libsluice, struct sl_err *err)
{
    int rc = sl_env_copy(env, err);
    if (rc == 0)
        rc = sl_env_set(env, SL_ATTACH_ENV, attach, err);
    if (rc == 0)
        rc = sl_env_set(env, "CUDA_VISIBLE_DEVICES", visible, err);
    if (rc == 0)
        rc = sl_env_prepend(env, "LD_PRELOAD", libsluice, ':', err);
#ifdef SLUICE_SANITIZER_RUNTIME /* an instrumented build: its run-time has to be the very first */
    if (rc == 0)
        rc = sl_env_prepend(env, "LD_PRELOAD", SLUICE_SANITIZER_RUNTIME, ':', err);
#endif
    return rc;
}
