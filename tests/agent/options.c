/* SPDX-License-Identifier: Apache-2.0 */
/* sluiced's command line and environment: precedence, what is passed on, and what is refused in which words. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "agent/options.h"

static struct sl_agent_options opt;
static struct sl_err err;

/* Up to a NULL. */
static int parse_in(char *const *environ_list, ...)
{
    char *argv[16] = {(char *)(uintptr_t)"sluiced"};
    int argc = 1;
    va_list ap;
    va_start(ap, environ_list);
    while ((argv[argc] = va_arg(ap, char *)))
        argc++;
    va_end(ap);
    err = (struct sl_err)SL_ERR_INIT;
    return sl_agent_options_parse(&opt, argc, argv, environ_list, &err);
}
#define parse(...) parse_in(NULL, __VA_ARGS__, (char *)NULL)

static void precedence(void **state)
{
    (void)state;
    char *env[] = {(char *)(uintptr_t)"NODE_NAME=from-env",
                   (char *)(uintptr_t)"SLUICE_DRA=true",
                   (char *)(uintptr_t)"CDI_DIR=",
                   (char *)(uintptr_t)"SLUICE_LABELS=",
                   (char *)(uintptr_t)"METRICS_ADDRESS=",
                   (char *)(uintptr_t)"CDI_DIRECTORY=/x",
                   NULL};
    assert_int_equal(parse_in(env, "--node-name=from-flag", "--no-api", (char *)NULL), 0);
    assert_string_equal(opt.node_name, "from-flag");
    assert_true(opt.dra && opt.no_api);
    assert_string_equal(opt.cdi_dir, "/var/run/cdi"); /* set to nothing: not set */
    assert_true(opt.labels);
    assert_string_equal(opt.metrics_address, ""); /* but here nothing says something */
    assert_string_equal(opt.state_dir_host, opt.state_dir);
    assert_int_equal(opt.names, 1);
    sl_agent_options_clear(&opt);
    assert_int_equal(parse_in(env, "--metrics-names=sluice,dcgm", (char *)NULL), 0);
    assert_int_equal(opt.names, 5);
    sl_agent_options_clear(&opt);
    assert_int_equal(parse_in(env, "--metrics-names=prometheus", (char *)NULL), -EINVAL);
    assert_int_equal(
        parse_in(env, "--dra-driver=gpu.nvidia.com", "--consumable-shares=4", (char *)NULL), 0);
    assert_true(opt.dra_names.nvidia);
    assert_int_equal(opt.dra_names.count, 4);
    sl_agent_options_clear(&opt);
    assert_int_equal(parse("--dra-driver=gpu.nvidia.com"), -EINVAL); /* without --dra */
    assert_int_equal(parse_in(env, "--dra-driver=gpu.example.com", (char *)NULL), -EINVAL);
    assert_int_equal(parse_in(env, "--consumable-shares=memory", (char *)NULL), -EINVAL);
    assert_int_equal(parse_in(env, "--dra=false", "--state-dir", "/a", "--labels=0", (char *)NULL),
                     0);
    assert_string_equal(opt.node_name, "from-env");
    assert_false(opt.dra || opt.labels);
    assert_string_equal(opt.state_dir_host, "/a");
    sl_agent_options_clear(&opt);
}

static void the_configurations_are_passed_on(void **state)
{
    (void)state;
    assert_int_equal(parse("--mig-strategy", "mixed", "--config-file=/c", "--pass-device-specs"),
                     0);
    assert_int_equal(opt.flags_count, 3);
    assert_string_equal(opt.flags[0].flag, "mig-strategy");
    assert_string_equal(opt.flags[0].value, "mixed");
    assert_string_equal(opt.flags[1].value, "/c");
    assert_string_equal(opt.flags[2].value, "true");
    sl_agent_options_clear(&opt);
}

static void refused(const char *words)
{
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
}

static void bad_ones(void **state)
{
    (void)state;
    assert_int_equal(parse("--no-ap"), -EINVAL);
    refused("there is no option --no-ap: did you mean --no-api?");
    assert_int_equal(parse("--mig-strategi=none"), -EINVAL);
    refused("did you mean --mig-strategy?");
    assert_int_equal(parse("--lables"), -EINVAL);
    refused("did you mean --labels?");
    assert_int_equal(parse("--sim=h200"), -EINVAL);
    refused("there is no option --sim: see sluiced --help");
    assert_int_equal(parse("now"), -EINVAL);
    refused("\"now\" is not an option");
    assert_int_equal(parse("--"), -EINVAL);
    assert_int_equal(parse("--kubeconfig", "--node-name=x"), -EINVAL);
    refused("--kubeconfig needs a value");
    assert_int_equal(parse("--mig-strategy"), -EINVAL);
    refused("--mig-strategy needs a value");
    assert_int_equal(parse("--cdi-dir="), -EINVAL);
    refused("--cdi-dir needs a value");
    assert_int_equal(parse("--labels=yes"), -EINVAL);
    refused("--labels must be true or false, not \"yes\"");
    assert_int_equal(parse("--log-level=loud"), -EINVAL);
    refused("not \"loud\"");
    char *env[] = {(char *)(uintptr_t)"SLUICE_LOG=loud", NULL};
    assert_int_equal(parse_in(env, (char *)NULL), -EINVAL);
    refused("SLUICE_LOG");
    assert_int_equal(parse("--log-level=off"), 0);
    assert_int_equal(parse("--metrics-address="), 0);
    char huge[300];
    memset(huge, 'x', sizeof(huge));
    memcpy(huge, "--", 2);
    huge[sizeof(huge) - 1] = '\0';
    assert_int_equal(parse(huge), -EINVAL);
    assert_null(opt.flags);
}

/* Each option is in the help and in the manual, and the manual has no other. */
static void as_documented(void **state)
{
    (void)state;
    char *help = NULL, line[1024], name[64], flag[80];
    size_t size = 0, in_help = 0, in_manual = 0;
    FILE *out = open_memstream(&help, &size);
    sl_agent_options_help(out);
    assert_int_equal(fclose(out), 0);
    for (const char *at = help; (at = strstr(at, "\n  --")); at++)
        in_help++;
    FILE *manual = fopen(SLUICED_MANUAL, "re");
    assert_non_null(manual);
    while (fgets(line, sizeof(line), manual)) {
        if (strncmp(line, ".It ", 4) != 0)
            continue;
        for (const char *at = line; (at = strstr(at, "Fl -")); at += 4) {
            assert_int_equal(sscanf(at, "Fl -%63s", name), 1);
            (void)snprintf(flag, sizeof(flag), "\n  --%s ", name);
            if (!strstr(help, flag))
                fail_msg("the manual has --%s, the program has not", name);
            in_manual++;
        }
    }
    (void)fclose(manual);
    assert_int_equal(in_help, in_manual);
    free(help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precedence),
        cmocka_unit_test(the_configurations_are_passed_on),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
