/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: what it means, and what is refused before anything is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "controller/options.h"

/* Words with blanks between them; the texts live until the next call. */
static int parse(const char *line, struct sl_ctl_args *args, struct sl_err *err)
{
    static char text[512];
    static char program[] = "sluice-controller";
    char *argv[32] = {program}, *next = text;
    int argc = 1;
    (void)snprintf(text, sizeof(text), "%s", line);
    for (char *word = strsep(&next, " "); word; word = strsep(&next, " "))
        if (*word)
            argv[argc++] = word;
    return sl_ctl_args_parse(argc, argv, args, err);
}

static void refused(const char *line, const char *words)
{
    struct sl_ctl_args args;
    struct sl_err err = SL_ERR_INIT;
    int rc = parse(line, &args, &err);
    if (rc >= 0 || !strstr(err.msg, words))
        fail_msg("%s: %d \"%s\" has no \"%s\"", line, rc, err.msg, words);
}

static void test_defaults(void **state)
{
    (void)state;
    struct sl_ctl_args args;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse("--namespace x", &args, &err), 0);
    assert_true(args.opt.admission && args.opt.elect);
    assert_int_equal(args.opt.mutate.mode, SL_MUTATE_DRA);
    assert_int_equal(args.opt.extender, SL_EXTENDER_OFF);
    assert_int_equal(args.opt.policy, SL_PLACE_SLUICE);
    assert_string_equal(args.opt.listen, ":8443");
    assert_string_equal(args.opt.mutate.scheduler, "default-scheduler");
    assert_null(args.opt.mutate.second);
    assert_int_equal(args.opt.lease_ns, 15 * SL_NS_PER_S);
    assert_int_equal(args.log, SL_LOG_INFO);
}

static void test_values(void **state)
{
    (void)state;
    struct sl_ctl_args args;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse("--admission=extender --extender all --policy fgd --listen off "
                           "--admission off --extender-http :1 --scheduler= --leader-election off "
                           "--metrics off --log debug --slot-resource a.b/c --lease-seconds 3",
                           &args, &err),
                     0);
    assert_false(args.opt.admission || args.opt.elect); /* the last one counts */
    assert_int_equal(args.opt.extender, SL_EXTENDER_ALL);
    assert_int_equal(args.opt.policy, SL_PLACE_FGD);
    assert_null(args.opt.listen);
    assert_null(args.opt.metrics);
    assert_string_equal(args.opt.mutate.scheduler, "");
    assert_string_equal(args.opt.mutate.slot_resource, "a.b/c");
    assert_int_equal(args.log, SL_LOG_DEBUG);
    assert_int_equal(parse("--namespace x --second-scheduler gpu.s-1", &args, &err), 0);
    assert_string_equal(args.opt.mutate.second, "gpu.s-1");
    assert_int_equal(parse("--namespace x --second-scheduler=", &args, &err), 0);
    assert_int_equal(parse("--help", &args, &err), 0);
    assert_true(args.help && !args.version);
    assert_int_equal(parse("--version", &args, &err), 0);
    assert_true(args.version);
}

static void test_refused(void **state)
{
    (void)state;
    refused("extra", "\"extra\" is not an option: see --help");
    refused("--namespac x", "is not an option");
    refused("--namespace", "--namespace needs a value");
    refused("--admission x", "--admission x is not one of: dra, extender, off");
    refused("--extender x", "is not one of: off, choose, all, prioritize");
    refused("--leader-election x", "is not one of: off, on");
    refused("--log loud", "--log loud is not one of: off, error, warn, info, debug");
    refused("--policy x", "policy \"x\" is not known");
    refused("--lease-seconds 2", "from 3 to 3600");
    refused("--lease-seconds 5s", "from 3 to 3600");
    refused("--keep-templates 5", "from 6 to");
    refused("--namespace x --cert-file c", "must be given together");
    refused("--admission extender", "add --extender choose");
    refused("--admission extender --extender prioritize", "add --extender choose");
    refused("--admission off", "there is nothing to do");
    refused("--listen off", "the webhook has no address");
    refused("--admission off --extender choose --listen off", "cannot be reached");
    refused("--extender choose --extender-client x", "give --extender-client-ca");
    refused("--extender-client-ca x", "--listen or --extender is off");
    refused("--admission off --extender choose --listen off --extender-http :1 "
            "--extender-client-ca x",
            "--listen or --extender is off");
    refused("--namespace x --second-scheduler Sluice", "is not a name of a scheduler");
    refused("--namespace x --second-scheduler -x", "is not a name of a scheduler");
    refused("--namespace x --second-scheduler default-scheduler", "a name of its own");
    refused("--admission off --extender choose --second-scheduler s", "--admission is off");
    refused("--slot-resource=", "write for example nvidia.com/gpu");
    refused("--slot-resource gpu", "write for example nvidia.com/gpu");
    refused("--slot-resource /gpu", "write for example nvidia.com/gpu");
}

int main(void)
{
    (void)unsetenv("POD_NAMESPACE");
    (void)unsetenv("POD_NAME");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults),
                                       cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
