/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"

/* A closed stdin, stdout or stderr would be handed to the next file opened (a socket, a page), and
 * a stray message would go there. */
static void fill_standard_fds(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

static int wrong_verb(const char *word)
{
    const char *close_one = sl_cli_verb_suggest(word);
    if (close_one)
        sl_cli_complain(SL_E_VERB_UNKNOWN_NEAR, word, close_one);
    else
        sl_cli_complain(SL_E_VERB_UNKNOWN, word);
    return SL_EXIT_USAGE;
}

/* `sluice help run` is `sluice run --help`; `sluice help --help` and `sluice help help` are `sluice --help`. */
static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* words: what follows `help`. */
static int help_verb(char *const *words)
{
    const char *name = words[0];
    bool own = !name || asks_for_help(name) || strcmp(name, "help") == 0;
    const struct sl_cli_verb *verb = own ? &sl_cli_top : sl_cli_verb_find(name);
    if (!verb)
        return wrong_verb(name);
    if (name && words[1] && !asks_for_help(words[1])) {
        sl_cli_complain(SL_E_WORD_AFTER, words[1], "help ", name);
        return SL_EXIT_USAGE;
    }
    sl_cli_verb_help(verb, stdout);
    return sl_cli_finish(SL_EXIT_OK);
}

static int version_verb(char *const *words)
{
    if (words[0] && asks_for_help(words[0])) {
        sl_cli_verb_help(&sl_cli_top, stdout);
    } else if (words[0]) {
        sl_cli_complain(SL_E_WORD_AFTER, words[0], "version", "");
        return SL_EXIT_USAGE;
    } else {
        sl_cli_version(stdout);
    }
    return sl_cli_finish(SL_EXIT_OK);
}

/* By the name kubectl-sluice this is kubectl's plugin: `kubectl sluice nodes` is `sluice cluster nodes`, and -n is known,
 * as everybody types it. */
static bool be_plugin(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    if (strcmp(slash ? slash + 1 : argv[0], "kubectl-sluice") != 0)
        return false;
    static char name_space[] = "--namespace";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-n") == 0)
            argv[i] = name_space;
    return true;
}

int main(int argc, char **argv)
{
    fill_standard_fds();
    bool plugin = argc > 0 && be_plugin(argc, argv);
    struct sl_err err = SL_ERR_INIT;
    struct sl_cli_args top = {.verb = &sl_cli_top};
    int rc = sl_cli_parse(argc - 1, argv + 1, &top, &err);
    if (rc == -ECANCELED)
        return sl_cli_finish(SL_EXIT_OK);
    if (rc < 0) {
        sl_cli_complain("%s", err.msg);
        return SL_EXIT_USAGE;
    }
    if (top.rest_count == 0) {
        sl_cli_help(stderr);
        return SL_EXIT_USAGE;
    }
    if (strcmp(top.rest[0], "help") == 0)
        return help_verb(top.rest + 1);
    if (strcmp(top.rest[0], "version") == 0)
        return version_verb(top.rest + 1);
    bool view = plugin && sl_cli_is_view(top.rest[0]);
    const struct sl_cli_verb *verb = sl_cli_verb_find(view ? "cluster" : top.rest[0]);
    if (!verb)
        return wrong_verb(top.rest[0]);

    struct sl_cli_args args = {.verb = verb, .dir = top.dir};
    rc = sl_cli_parse(top.rest_count - !view, top.rest + !view, &args, &err);
    if (rc == -ECANCELED)
        return sl_cli_finish(SL_EXIT_OK);
    if (rc < 0) {
        sl_cli_complain("%s: %s", verb->name, err.msg);
        return verb->usage_exit ? verb->usage_exit : SL_EXIT_USAGE;
    }
    return verb->run(&args);
}
