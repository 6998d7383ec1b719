/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/argv.h"
#include "base/version.h"
#include "base/words.h"
#include "cli/errors.h"

void sl_cli_complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("sluice: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
}

int sl_cli_finish(int exit_code)
{
    /* ferror without a failing fflush: an earlier write failed, and its errno is lost. */
    int cause = fflush(stdout) != 0 ? errno : 0;
    if (!cause && !ferror(stdout))
        return exit_code;
    if (!cause)
        sl_cli_complain(SL_E_OUTPUT_LOST);
    else if (cause != EPIPE)
        sl_cli_complain(SL_E_OUTPUT_REFUSED, strerror(cause));
    return exit_code ? exit_code : SL_EXIT_FAILED;
}

const struct sl_cli_verb *sl_cli_verb_find(const char *name)
{
    for (const struct sl_cli_verb *v = sl_cli_verbs; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

/* Keeps the closer of two candidates. */
static void consider(const char *word, const char *candidate, const char **best, unsigned *best_d)
{
    unsigned d = sl_word_distance(word, candidate);
    size_t n = strlen(word);
    if (n >= 2 && strncmp(word, candidate, n) == 0)
        d = 1; /* an abbreviation */
    if (d < *best_d) {
        *best = candidate;
        *best_d = d;
    }
}

const char *sl_cli_verb_suggest(const char *word)
{
    const char *best = NULL;
    unsigned best_d = SL_WORD_FAR;
    for (const struct sl_cli_verb *v = sl_cli_verbs; v->name; v++)
        if (!(v->flags & SL_VERB_HIDDEN))
            consider(word, v->name, &best, &best_d);
    return best;
}

static const char *option_suggest(const struct sl_cli_verb *verb, const char *word)
{
    const char *best = NULL;
    unsigned best_d = SL_WORD_FAR;
    for (const struct sl_cli_option *o = verb->options; o && o->name; o++)
        consider(word, o->name, &best, &best_d);
    for (const struct sl_cli_option *o = sl_cli_global_options; o->name; o++)
        consider(word, o->name, &best, &best_d);
    return best;
}

static const struct sl_cli_option *option_find(const struct sl_cli_option *list, const char *name)
{
    for (const struct sl_cli_option *o = list; o && o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

static int unknown_option(const struct sl_cli_verb *verb, const char *word, struct sl_err *err)
{
    char bare[40];
    size_t dashes = strspn(word, "-");
    (void)snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    const char *close = option_suggest(verb, bare);
    if (verb == &sl_cli_top)
        return sl_err_set(err, -EINVAL, SL_E_OPTION_BEFORE_VERB, word, word);
    if (close)
        return sl_err_set(err, -EINVAL, SL_E_OPTION_UNKNOWN_NEAR, word, close);
    return sl_err_set(err, -EINVAL, SL_E_OPTION_UNKNOWN, word, verb->name);
}

/* Answers --help and --version, stores --dir. Returns 1 when the option was one of those three. */
static int take_global(const struct sl_cli_option *o, const char *value, struct sl_cli_args *args,
                       struct sl_err *err)
{
    if (strcmp(o->name, "help") == 0) {
        sl_cli_verb_help(args->verb, stdout);
        return -ECANCELED;
    }
    if (strcmp(o->name, "version") == 0) {
        sl_cli_version(stdout);
        return -ECANCELED;
    }
    if (args->dir && strcmp(args->dir, value) != 0)
        return sl_err_set(err, -EINVAL, SL_E_DIR_TWICE);
    args->dir = value;
    return 0;
}

static int keep_value(struct sl_cli_args *args, const struct sl_cli_option *own, const char *value,
                      struct sl_err *err)
{
    const char **slot = &args->value[own - args->verb->options];
    if (*slot && own->arg)
        return sl_err_set(err, -EINVAL, SL_E_OPTION_TWICE, own->name);
    *slot = value;
    return 0;
}

/* The value may be left out, and then the next word is not it. */
static bool value_is_optional(const struct sl_cli_option *o)
{
    return o->arg && o->arg[0] == '[';
}

/* The long form of a short option. */
static const char *spelled_out(const struct sl_cli_verb *verb, const char *word)
{
    if (strcmp(word, "-h") == 0)
        return "--help";
    if (strcmp(word, "-V") == 0)
        return "--version";
    if (strcmp(word, "-n") == 0 && option_find(verb->options, "last"))
        return "--last";
    return word;
}

/* One option word (and its value, in the same word after '=' or in the next). */
static int take_option(int argc, char **argv, int *at, struct sl_cli_args *args, struct sl_err *err)
{
    const char *word = spelled_out(args->verb, argv[*at]);
    struct sl_option written;
    if (!sl_option_split(word, &written))
        return unknown_option(args->verb, word, err);
    const struct sl_cli_option *own = option_find(args->verb->options, written.name);
    const struct sl_cli_option *o = own ? own : option_find(sl_cli_global_options, written.name);
    if (!o)
        return unknown_option(args->verb, word, err);
    bool optional = value_is_optional(o);
    if (optional && written.value && !written.value[0])
        return sl_err_set(err, -EINVAL, SL_E_OPTION_EMPTY_VALUE, o->name, o->name, o->arg);
    if (written.value && !o->arg)
        return sl_err_set(err, -EINVAL, SL_E_OPTION_TAKES_NO_VALUE, o->name);
    const char *value =
        o->arg && !(optional && !written.value) ? sl_option_value(&written, argc, argv, at) : "";
    if (!value)
        return sl_err_set(err, -EINVAL, SL_E_OPTION_NEEDS_VALUE, o->name, o->name, o->arg);
    if (!own)
        return take_global(o, value, args, err);
    return keep_value(args, own, value, err);
}

int sl_cli_parse(int argc, char **argv, struct sl_cli_args *args, struct sl_err *err)
{
    /* Words that are no options move to the front of argv, in order. */
    int kept = 0, at = 0;
    for (; at < argc; at++) {
        const char *word = argv[at];
        if (strcmp(word, "--") == 0) {
            at++;
            break;
        }
        if (word[0] == '-' && word[1] != '\0') {
            int rc = take_option(argc, argv, &at, args, err);
            if (rc < 0)
                return rc;
            continue;
        }
        if (args->verb->flags & SL_VERB_STOP)
            break;
        argv[kept++] = argv[at];
    }
    while (at < argc)
        argv[kept++] = argv[at++];
    argv[kept] = NULL;
    args->rest = argv;
    args->rest_count = kept;
    if (kept > 0 && !args->verb->synopsis)
        return sl_err_set(err, -EINVAL, SL_E_EXTRA_WORD, argv[0], args->verb->name);
    return 0;
}

const char *sl_cli_value(const struct sl_cli_args *args, const char *name)
{
    const struct sl_cli_option *o = option_find(args->verb->options, name);
    return o ? args->value[o - args->verb->options] : NULL;
}

static void print_options(const struct sl_cli_option *list, FILE *out)
{
    for (const struct sl_cli_option *o = list; o && o->name; o++) {
        char left[40];
        (void)snprintf(left, sizeof(left), "--%s%s%s", o->name,
                       o->arg && !value_is_optional(o) ? " " : "", o->arg ? o->arg : "");
        /* A long left side gets its help on the next line, so that the columns line up. */
        const char *text = o->help;
        bool fits = strlen(left) <= 22;
        (void)fprintf(out, "  %-22s", left);
        if (!fits)
            (void)fprintf(out, "\n%24s", "");
        for (;;) {
            size_t line = strcspn(text, "\n");
            (void)fprintf(out, "  %.*s\n", (int)line, text);
            if (text[line] == '\0')
                break;
            text += line + 1;
            (void)fprintf(out, "%24s", "");
        }
    }
}

void sl_cli_verb_help(const struct sl_cli_verb *verb, FILE *out)
{
    if (verb == &sl_cli_top) {
        sl_cli_help(out);
        return;
    }
    (void)fprintf(out, "Usage: sluice %s%s%s%s\n", verb->name, verb->options ? " [OPTIONS]" : "",
                  verb->synopsis ? " " : "", verb->synopsis ? verb->synopsis : "");
    (void)fprintf(out, "%c%s.\n", verb->summary[0] - 'a' + 'A', verb->summary + 1);
    if (verb->details)
        (void)fprintf(out, "\n%s\n", verb->details);
    (void)fputs("\nOptions:\n", out);
    print_options(verb->options, out);
    print_options(sl_cli_global_options, out);
}

void sl_cli_version(FILE *out)
{
    (void)fprintf(out, "sluice %s\n", sl_version());
}

void sl_cli_help(FILE *out)
{
    (void)fputs("Usage: sluice [--dir DIR] VERB [OPTIONS]\n"
                "Share a GPU the way CPU and memory are shared.\n\nVerbs:\n",
                out);
    for (const struct sl_cli_verb *v = sl_cli_verbs; v->name; v++)
        if (!(v->flags & SL_VERB_HIDDEN))
            (void)fprintf(out, "  %-10s  %s\n", v->name, v->summary);
    (void)fputs("\nOptions:\n", out);
    print_options(sl_cli_global_options, out);
    (void)fputs("\nTry:  sluice run --memory 10Gi --cores 30 -- python train.py\n"
                "      sluice status\n"
                "`sluice VERB --help` explains a verb.\n",
                out);
}
