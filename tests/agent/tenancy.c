/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants and their spec are made in one order and undone in the other, and an error stops either at once. */
#include "agent/tenant/tenancy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static char said[400];       /* what was done, in order */
static const char *fails_at; /* the step that does not work, as `said` has it */

static int step(const char *what, const char *name, struct sl_err *err)
{
    char text[80];
    size_t n = strlen(said);
    (void)snprintf(text, sizeof(text), "%s %s", what, name);
    (void)snprintf(said + n, sizeof(said) - n, "%s%s", n ? ", " : "", text);
    return fails_at && strcmp(fails_at, text) == 0 ? sl_err_set(err, -EIO, "no %s", text) : 0;
}

/* The arbiter, which answers at once. */
void sl_leases_make(struct sl_leases *l, const struct sl_msg_lease *lease, sl_leases_done *done,
                    void *data)
{
    struct sl_err err = SL_ERR_INIT;
    (void)l;
    done(data, step("make", lease->name, &err), "", &err);
}

void sl_leases_set(struct sl_leases *l, const struct sl_msg_lease *lease, sl_leases_done *done,
                   void *data)
{
    struct sl_err err = SL_ERR_INIT;
    (void)l;
    done(data, step("set", lease->name, &err), "", &err);
}

void sl_leases_remove(struct sl_leases *l, const char *name, sl_leases_done *done, void *data)
{
    struct sl_err err = SL_ERR_INIT;
    (void)l;
    done(data, step("remove", name, &err), "", &err);
}

static int write_spec(void *data, struct sl_err *err)
{
    return step("write", data, err);
}

static int remove_spec(void *data, struct sl_err *err)
{
    return step("unlink", data, err);
}

static unsigned ends;
static int last_rc;
static enum sl_tenancy_step last_step;

static void ended(void *data, enum sl_tenancy_step where, int rc, const struct sl_err *err)
{
    (void)data;
    assert_true(rc == 0 || err->msg[0]);
    ends++;
    last_rc = rc;
    last_step = where;
}

static const struct sl_msg_lease a = {.name = "a"}, b = {.name = "b"};
static const struct sl_tenancy_tenant tenants[] = {{"a", &a, NULL}, {"b", &b, &b}};
static const struct sl_tenancy_ops ops = {.write_spec = write_spec, .remove_spec = remove_spec};
static char spec[] = "spec";

static void run(void (*what)(struct sl_tenancy *, sl_tenancy_done *), size_t count,
                const char *fails)
{
    struct sl_tenancy t = {.ops = &ops, .data = spec, .tenant = tenants, .count = count};
    said[0] = '\0';
    ends = 0;
    fails_at = fails;
    what(&t, ended);
    assert_int_equal(ends, 1);
}

static void makes_the_spec_last(void **state)
{
    (void)state;
    run(sl_tenancy_make, 2, NULL);
    assert_string_equal(said, "make a, make b, set b, write spec");
    assert_int_equal(last_rc, 0);
    run(sl_tenancy_make, 0, NULL); /* a claim of whole GPUs has a spec only */
    assert_string_equal(said, "write spec");
}

static void unmakes_the_spec_first(void **state)
{
    (void)state;
    run(sl_tenancy_unmake, 2, NULL);
    assert_string_equal(said, "unlink spec, remove a, remove b");
    assert_int_equal(last_rc, 0);
    run(sl_tenancy_unmake, 0, NULL);
    assert_string_equal(said, "unlink spec");
}

static void stops_at_an_error(void **state)
{
    (void)state;
    static const struct {
        void (*what)(struct sl_tenancy *, sl_tenancy_done *);
        const char *fails, *said;
        enum sl_tenancy_step step;
    } row[] = {
        {sl_tenancy_make, "make a", "make a", SL_TENANCY_TENANT},
        {sl_tenancy_make, "make b", "make a, make b", SL_TENANCY_TENANT},
        {sl_tenancy_make, "set b", "make a, make b, set b", SL_TENANCY_TENANT},
        {sl_tenancy_make, "write spec", "make a, make b, set b, write spec", SL_TENANCY_SPEC},
        {sl_tenancy_unmake, "unlink spec", "unlink spec", SL_TENANCY_SPEC},
        {sl_tenancy_unmake, "remove a", "unlink spec, remove a", SL_TENANCY_TENANT},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        run(row[i].what, 2, row[i].fails);
        assert_string_equal(said, row[i].said);
        assert_int_equal(last_rc, -EIO);
        assert_int_equal(last_step, row[i].step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_the_spec_last),
        cmocka_unit_test(unmakes_the_spec_first),
        cmocka_unit_test(stops_at_an_error),
    };
    return cmocka_run_group_tests_name("tenancy", tests, NULL, NULL);
}
