/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/run_child.h"
#include "sluice/attach.h"

static bool names(const char *entry, const char *name)
{
    size_t n = strlen(name);
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

void sl_env_copy(struct sl_env *env)
{
    size_t n = 0;
    while (environ[n])
        n++;
    *env = (struct sl_env){.list = sl_xcalloc(n + 1, sizeof(char *))};
    for (; env->count < n; env->count++)
        env->list[env->count] = sl_xstrdup(environ[env->count]);
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

void sl_env_set(struct sl_env *env, const char *name, const char *value)
{
    char *entry = sl_xasprintf("%s=%s", name, value);
    for (size_t i = 0; i < env->count; i++)
        if (names(env->list[i], name)) {
            free(env->list[i]);
            env->list[i] = entry;
            return;
        }
    env->list = sl_xreallocarray(env->list, env->count + 2, sizeof(char *));
    env->list[env->count++] = entry;
    env->list[env->count] = NULL;
}

void sl_env_prepend(struct sl_env *env, const char *name, const char *value, char separator)
{
    const char *old = sl_env_get(env, name);
    size_t n = strlen(value);
    SL_CLEANUP(free) char *joined = sl_xmalloc(n + (old ? strlen(old) : 0) + 2);
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
    sl_env_set(env, name, joined);
}

void sl_env_tenant(struct sl_env *env, const char *attach, const char *visible,
                   const char *libsluice)
{
    sl_env_copy(env);
    sl_env_set(env, SL_ATTACH_ENV, attach);
    sl_env_set(env, "CUDA_VISIBLE_DEVICES", visible);
    sl_env_prepend(env, "LD_PRELOAD", libsluice, ':');
#ifdef SLUICE_SANITIZER_RUNTIME /* an instrumented build: its run-time has to be the very first */
    sl_env_prepend(env, "LD_PRELOAD", SLUICE_SANITIZER_RUNTIME, ':');
#endif
}
