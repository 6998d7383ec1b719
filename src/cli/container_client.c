/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container client asks a daemon, or builds the container's environment anew. Either way nothing that `sluice run`
 * gives to the client reaches the program in the container: it would run without limits, and nobody would be told.
 */
#include "cli/container_client.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cli/errors.h"

static const char *const clients[] = {"docker", "podman", "nerdctl", NULL};
/* Programs that run the command they are given, and their options that take the next word. */
static const struct {
    const char *name, *with_value;
} before[] = {
    {"sudo", "ugpCDRThrt"}, {"doas", "uC"},    {"env", "uCS"}, {"nice", "n"},
    {"nohup", ""},          {"time", "fo"},    {"exec", "a"},  {"setsid", ""},
    {"stdbuf", "ioe"},      {"ionice", "cnp"}, {NULL, NULL},
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Does "-u" need the next word? "-uroot" and "--user=root" do not. */
static bool takes_next(const char *option, const char *with_value)
{
    return option[0] == '-' && option[1] != '-' && option[1] != '\0' && option[2] == '\0' &&
           strchr(with_value, option[1]);
}

static const char *values_of(const char *word)
{
    for (size_t i = 0; before[i].name; i++)
        if (strcmp(base_name(word), before[i].name) == 0)
            return before[i].with_value;
    return NULL;
}

const char *sl_container_client(char *const *words)
{
    const char *with_value;
    for (; *words && (with_value = values_of(*words));) {
        words++;
        /* Its options, and env's variables. */
        for (; *words && ((*words)[0] == '-' || strchr(*words, '=')); words++)
            if (takes_next(*words, with_value) && words[1])
                words++;
    }
    for (size_t i = 0; *words && clients[i]; i++)
        if (strcmp(base_name(*words), clients[i]) == 0)
            return clients[i];
    return NULL;
}

int sl_container_client_refuse(char *const *words, struct sl_err *err)
{
    const char *client = sl_container_client(words);
    return client ? sl_err_set(err, -EPERM, SL_E_RUN_CONTAINER_CLIENT, client, client) : 0;
}
