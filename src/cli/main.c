/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
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

/* Options before the verb. Returns how many words they took, or -1 - exit code to end here. */
static int global_options(int argc, char **argv, const char **dir)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        const char *word = argv[at];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            sl_cli_help(stdout);
            return -1 - SL_EXIT_OK;
        }
        if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
            (void)printf("sluice %s\n", SLUICE_VERSION);
            return -1 - SL_EXIT_OK;
        }
        if (strncmp(word, "--dir=", 6) == 0) {
            *dir = word + 6;
        } else if (strcmp(word, "--dir") == 0) {
            if (at + 1 >= argc) {
                sl_cli_complain(SL_E_DIR_NEEDS_VALUE);
                return -1 - SL_EXIT_USAGE;
            }
            *dir = argv[++at];
        } else {
            sl_cli_complain(SL_E_OPTION_BEFORE_VERB, word, word);
            return -1 - SL_EXIT_USAGE;
        }
    }
    return at;
}

/* `sluice help run` is `sluice run --help`. */
static int help_verb(int argc, char **argv)
{
    if (argc < 1) {
        sl_cli_help(stdout);
        return sl_cli_finish(SL_EXIT_OK);
    }
    const struct sl_cli_verb *verb = sl_cli_verb_find(argv[0]);
    if (!verb)
        return wrong_verb(argv[0]);
    sl_cli_verb_help(verb, stdout);
    return sl_cli_finish(SL_EXIT_OK);
}

int main(int argc, char **argv)
{
    fill_standard_fds();
    const char *dir = NULL;
    int at = global_options(argc, argv, &dir);
    if (at < 0)
        return sl_cli_finish(-1 - at);
    if (at >= argc) {
        sl_cli_help(stderr);
        return SL_EXIT_USAGE;
    }
    if (strcmp(argv[at], "help") == 0)
        return help_verb(argc - at - 1, argv + at + 1);
    const struct sl_cli_verb *verb = sl_cli_verb_find(argv[at]);
    if (!verb)
        return wrong_verb(argv[at]);

    struct sl_cli_args args = {.verb = verb, .dir = dir};
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_cli_parse(argc - at - 1, argv + at + 1, &args, &err);
    if (rc == -ECANCELED)
        return sl_cli_finish(SL_EXIT_OK);
    if (rc < 0) {
        sl_cli_complain("%s: %s", verb->name, err.msg);
        return verb->usage_exit;
    }
    return verb->run(&args);
}
