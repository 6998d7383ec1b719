/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line's one table. A verb is a row in verbs.c: its options, its help and its function.
 * Parsing, --help, suggestions for a mistyped word and shell completion all read that row.
 */
#ifndef SLUICE_CLI_CLI_H
#define SLUICE_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

#define SL_CLI_MAX_OPTIONS 24

/* Exit codes. `run` uses the last four like env(1) and timeout(1), so that a script can tell a failure of Sluice from
 * a failure of the command. */
enum sl_cli_exit {
    SL_EXIT_OK = 0,
    SL_EXIT_FAILED = 1,
    SL_EXIT_USAGE = 2,
    SL_EXIT_NOT_KNOWN = 3,    /* explain: it could not be found out */
    SL_EXIT_RUN_WAITED = 124, /* --wait=TIME was not enough */
    SL_EXIT_RUN_OURS = 125,
    SL_EXIT_RUN_NOT_EXECUTABLE = 126,
    SL_EXIT_RUN_NOT_FOUND = 127,
};

struct sl_cli_option {
    const char *name; /* without the dashes; NULL ends a list */
    const char *arg;  /* name of its value for --help; NULL: a switch; "[=TIME]": may have one */
    const char *help;
    const char *words; /* completion: values separated by spaces, or "@file", "@dir" */
};

/* The words of the command line. Strings are borrowed from argv. */
struct sl_cli_args {
    const struct sl_cli_verb *verb;
    const char *value[SL_CLI_MAX_OPTIONS]; /* by position in the verb's options; "" for a switch */
    const char *dir;                       /* --dir, before or after the verb */
    char **rest;                           /* the words that are no options, NULL-terminated */
    int rest_count;
};

enum sl_cli_verb_flags {
    SL_VERB_HIDDEN = 1, /* not in --help and completion */
    SL_VERB_STOP = 2,   /* the first word that is no option ends the options (run) */
};

struct sl_cli_verb {
    const char *name;
    const char *synopsis; /* after the options: "[--] COMMAND [ARGUMENT...]"; NULL: no words */
    const char *summary;  /* one line, lower case, no full stop */
    const char *details;  /* paragraphs for --help, or NULL */
    const struct sl_cli_option *options;
    unsigned flags;
    int usage_exit; /* exit code for a wrong command line; 0: SL_EXIT_USAGE */
    int (*run)(const struct sl_cli_args *args);
};

/* The table; the last row has no name. */
extern const struct sl_cli_verb sl_cli_verbs[];
/* The options before the verb. */
extern const struct sl_cli_verb sl_cli_top;
extern const struct sl_cli_option sl_cli_global_options[];

/* One function a verb, in cmd_<verb>.c. Returns the exit code. */
int sl_cmd_run(const struct sl_cli_args *args);
int sl_cmd_status(const struct sl_cli_args *args);
int sl_cmd_history(const struct sl_cli_args *args);
int sl_cmd_top(const struct sl_cli_args *args);
int sl_cmd_lease(const struct sl_cli_args *args);
int sl_cmd_set(const struct sl_cli_args *args);
int sl_cmd_pause(const struct sl_cli_args *args);
int sl_cmd_resume(const struct sl_cli_args *args);
int sl_cmd_forget(const struct sl_cli_args *args);
int sl_cmd_doctor(const struct sl_cli_args *args);
int sl_cmd_arbiter(const struct sl_cli_args *args);
int sl_cmd_explain(const struct sl_cli_args *args);
int sl_cmd_cluster(const struct sl_cli_args *args);
int sl_cmd_simulate(const struct sl_cli_args *args);
int sl_cmd_config(const struct sl_cli_args *args);
int sl_cmd_spin(const struct sl_cli_args *args);
int sl_cmd_web(const struct sl_cli_args *args);
int sl_cmd_words(const struct sl_cli_args *args);

/* A word after `sluice cluster`? */
bool sl_cli_is_view(const char *word);

/* --- options.c --- */

const struct sl_cli_verb *sl_cli_verb_find(const char *name);

/* The visible verb that is closest to a mistyped word, or NULL when no verb is close. */
const char *sl_cli_verb_suggest(const char *word);

/* Parses the words after the verb into args, whose verb and dir are set. -EINVAL: err says what to write instead.
 * -ECANCELED: the user asked for --help or --version, and the answer is printed. */
int sl_cli_parse(int argc, char **argv, struct sl_cli_args *args, struct sl_err *err) SL_MUST_CHECK;

/* The value of an option of this verb: NULL when it was not given, "" for a switch. */
const char *sl_cli_value(const struct sl_cli_args *args, const char *name);

void sl_cli_version(FILE *out);
void sl_cli_help(FILE *out);
void sl_cli_verb_help(const struct sl_cli_verb *verb, FILE *out);

/* Prints `sluice: text` on stderr. */
void sl_cli_complain(const char *fmt, ...) SL_PRINTF(1, 2);

/* Flushes stdout; a full disk or a closed pipe turns a good exit code into a failure. */
int sl_cli_finish(int exit_code);

#endif
