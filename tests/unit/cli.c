/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's own parts: parsing by the table, the command's environment, tables, places. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arbiter/dir.h"
#include "cli/cli.h"
#include "cli/container_client.h"
#include "cli/doctor.h"
#include "cli/run_child.h"
#include "cli/table.h"
#include "cli/world.h"

static int parse(const char *verb, struct sl_cli_args *args, struct sl_err *err, char **words)
{
    int n = 0;
    while (words[n])
        n++;
    *args = (struct sl_cli_args){.verb = sl_cli_verb_find(verb)};
    return sl_cli_parse(n, words, args, err);
}

#define WORDS(...)                                                                                 \
    (char *[])                                                                                     \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static char *w(const char *text)
{
    return (char *)(uintptr_t)text; /* argv is char *; nothing writes to the strings */
}

static void options_end_at_the_command(void **state)
{
    (void)state;
    struct sl_cli_args a;
    char **words = WORDS(w("--memory"), w("1Gi"), w("prog"), w("--cores"), w("--"), w("x"));
    assert_int_equal(parse("run", &a, NULL, words), 0);
    assert_string_equal(sl_cli_value(&a, "memory"), "1Gi");
    assert_null(sl_cli_value(&a, "cores"));
    assert_int_equal(a.rest_count, 4);
    assert_string_equal(a.rest[0], "prog");
    assert_string_equal(a.rest[2], "--");

    words = WORDS(w("--memory=2Gi"), w("--"), w("--weird"), w("--"));
    assert_int_equal(parse("run", &a, NULL, words), 0);
    assert_string_equal(sl_cli_value(&a, "memory"), "2Gi");
    assert_int_equal(a.rest_count, 2);
    assert_string_equal(a.rest[0], "--weird");
}

static void container_clients_are_noticed(void **state)
{
    (void)state;
    assert_string_equal(sl_container_client(WORDS(w("docker"), w("run"))), "docker");
    assert_string_equal(sl_container_client(WORDS(w("/usr/local/bin/podman"))), "podman");
    assert_string_equal(sl_container_client(WORDS(w("sudo"), w("nerdctl"), w("run"))), "nerdctl");
    assert_string_equal(
        sl_container_client(WORDS(w("/usr/bin/sudo"), w("-E"), w("-u"), w("me"), w("docker"))),
        "docker");
    assert_string_equal(sl_container_client(WORDS(w("sudo"), w("-ume"), w("env"), w("A=b"),
                                                  w("nice"), w("-n"), w("5"), w("docker"))),
                        "docker");
    assert_null(sl_container_client(WORDS(w("python"), w("docker"))));
    assert_null(sl_container_client(WORDS(w("sudo"), w("-u"), w("docker"), w("true"))));
    assert_null(sl_container_client(WORDS(w("dockerd"))));
    assert_null(sl_container_client(WORDS(w("sudo"))));
    assert_null(sl_container_client(WORDS(w("sudo"), w("-u"))));
    assert_null(sl_container_client(WORDS(w(""))));
}

static void options_and_words_mix_elsewhere(void **state)
{
    (void)state;
    struct sl_cli_args a;
    char **words = WORDS(w("name"), w("--memory"), w("-1"), w("--dir=/x"));
    assert_int_equal(parse("set", &a, NULL, words), 0);
    assert_string_equal(sl_cli_value(&a, "memory"), "-1");
    assert_string_equal(a.dir, "/x");
    assert_int_equal(a.rest_count, 1);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct sl_cli_args a;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse("set", &a, &err, WORDS(w("--cores"))), -EINVAL);
    assert_non_null(strstr(err.msg, "needs a value"));
    assert_int_equal(parse("set", &a, &err, WORDS(w("--corse=1"))), -EINVAL);
    assert_non_null(strstr(err.msg, "--cores"));
    assert_int_equal(parse("set", &a, &err, WORDS(w("--cores=1"), w("--cores=2"))), -EINVAL);
    assert_int_equal(parse("set", &a, &err, WORDS(w("--dir=1"), w("--dir=2"))), -EINVAL);
}

static void every_verb_fits_the_parser(void **state)
{
    (void)state;
    for (const struct sl_cli_verb *v = sl_cli_verbs; v->name; v++) {
        size_t n = 0;
        assert_non_null(v->run);
        assert_true(!v->synopsis || v->synopsis[0]); /* NULL: the verb takes no words */
        for (const struct sl_cli_option *o = v->options; o && o->name; o++) {
            assert_non_null(o->help);
            n++;
        }
        assert_true(n <= SL_CLI_MAX_OPTIONS);
    }
}

static void lease_from_options(void **state)
{
    (void)state;
    struct sl_cli_args a;
    struct sl_msg_lease lease;
    struct sl_err err = SL_ERR_INIT;
    char **words = WORDS(w("--memory=25%"), w("--cores=30:100"), w("--priority=low"), w("--name=n"),
                         w("--gpu=1,GPU-x"));
    assert_int_equal(parse("run", &a, NULL, words), 0);
    assert_int_equal(sl_world_lease(&a, &lease, &err), 0);
    assert_int_equal(lease.fields, SL_FIELD_MEMORY | SL_FIELD_CORES | SL_FIELD_PRIORITY);
    assert_int_equal(lease.memory_percent, 25);
    assert_int_equal(lease.cores_request_permille, 300);
    assert_int_equal(lease.cores_limit_permille, 1000);
    assert_int_equal(lease.priority, SL_PRIORITY_LOW);
    assert_string_equal(lease.name, "n");
    assert_int_equal(lease.gpu_count, 2);
    assert_string_equal(lease.gpu[1], "GPU-x");

    assert_int_equal(
        parse("run", &a, NULL, WORDS(w("--gpu=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"))), 0);
    assert_int_equal(sl_world_lease(&a, &lease, &err), -E2BIG);
}

static void some_gpus_of_those_allowed(void **state)
{
    (void)state;
    struct sl_cli_args a;
    struct sl_msg_lease lease;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", " 3,GPU-12345, 1", 1), 0);
    assert_int_equal(parse("run", &a, NULL, WORDS(w("--gpu=auto"), w("--gpus=2"))), 0);
    assert_int_equal(sl_world_lease(&a, &lease, &err), 0);
    assert_int_equal(lease.gpu_count, 0);
    assert_int_equal(sl_world_visible(&lease, &err), 0);
    assert_true(lease.flags & SL_LEASE_ANY);
    assert_int_equal(sl_lease_wanted(lease.flags), 2);
    assert_int_equal(lease.gpu_count, 3);
    assert_string_equal(lease.gpu[1], "GPU-12345");

    assert_int_equal(parse("run", &a, NULL, WORDS(w("--gpu=2,0"), w("--gpus=2"))), 0);
    assert_int_equal(sl_world_lease(&a, &lease, &err), 0);
    assert_int_equal(sl_world_visible(&lease, &err), 0);
    assert_int_equal(lease.flags, 0); /* named: nothing is left to choose */
    assert_int_equal(lease.gpu_count, 2);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);

    assert_int_equal(parse("run", &a, NULL, WORDS(w("--name=n"))), 0);
    assert_int_equal(sl_world_lease(&a, &lease, &err), 0);
    assert_int_equal(sl_world_visible(&lease, &err), 0);
    assert_int_equal(lease.flags, SL_LEASE_ANY); /* one of all, as before there was a number */
    assert_int_equal(lease.gpu_count, 0);
}

static void environment_of_the_command(void **state)
{
    (void)state;
    struct sl_env env;
    assert_int_equal(setenv("SL_TEST_LIST", "/a:/lib/x.so /b", 1), 0);
    assert_int_equal(unsetenv("SL_TEST_NEW"), 0);
    sl_env_copy(&env);
    sl_env_prepend(&env, "SL_TEST_LIST", "/lib/x.so", ':');
    assert_string_equal(sl_env_get(&env, "SL_TEST_LIST"), "/lib/x.so:/a:/b");
    sl_env_prepend(&env, "SL_TEST_NEW", "v", ':');
    assert_string_equal(sl_env_get(&env, "SL_TEST_NEW"), "v");
    sl_env_set(&env, "SL_TEST_NEW", "");
    assert_string_equal(sl_env_get(&env, "SL_TEST_NEW"), "");
    assert_null(sl_env_get(&env, "SL_TEST"));
    assert_null(env.list[env.count]);
    sl_env_free(&env);
}

static void tables_line_up_and_obey_nobody(void **state)
{
    (void)state;
    static const struct sl_table_column columns[] = {
        {"A", SL_TABLE_LEFT}, {"NUMBER", SL_TABLE_RIGHT}, {"Z", SL_TABLE_LEFT}};
    struct sl_table t;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    sl_table_init(&t, columns, 3);
    for (int i = 0; i < 2; i++) {
        sl_table_cell(&t, "%s", i ? "long\033[31m" : "s");
        sl_table_cell(&t, "%d", i ? 1000000 : 1);
        sl_table_cell(&t, "z");
    }
    (void)sl_table_print(&t, out, false);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "  A           NUMBER  Z\n"
                              "  s                1  z\n"
                              "  long?[31m  1000000  z\n");
    free(text);
}

/* Columns of names give way, the widest first; lines of their own and prose are cut and broken. */
static void tables_fit(void **state)
{
    (void)state;
    static const struct sl_table_column columns[] = {
        {"NAME", SL_TABLE_NAME}, {"N", SL_TABLE_RIGHT}, {"OTHER", SL_TABLE_NAME}};
    char *text;
    size_t size;
    for (int width = 0; width <= 24; width += 24) {
        struct sl_table t;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        sl_table_init(&t, columns, 3);
        t.max_width = width;
        sl_table_cell(&t, "a-name-of-20-letters");
        sl_table_cell(&t, "1000");
        sl_table_cell(&t, "seven77");
        sl_table_line(&t, "  a line as long as it likes");
        assert_int_equal(sl_table_print(&t, out, false), width > 0);
        sl_table_prose(out, width, 0, 2,
                       "One two three, four five; sixseveneightnineteneleventwelve 13");
        assert_int_equal(fclose(out), 0);
        assert_string_equal(
            text, width ? "  NAME        N  OTHER\n"
                          "  a-name~  1000  seven77\n"
                          "  a line as long as it ~\n"
                          "One two three, four\n"
                          "  five;\n"
                          "  sixseveneightnineteneleventwelve\n"
                          "  13\n"
                        : "  NAME                     N  OTHER\n"
                          "  a-name-of-20-letters  1000  seven77\n"
                          "  a line as long as it likes\n"
                          "One two three, four five; sixseveneightnineteneleventwelve 13\n");
        free(text);
    }
}

/* A problem that another one explains is none of its own; what is well stays well. */
static void one_cause_is_one_problem(void **state)
{
    (void)state;
    struct sl_doctor d = {.world = NULL};
    sl_doctor_add(&d, "devices", SL_DOCTOR_PROBLEM, "open them", "closed");
    d.root = "device files";
    sl_doctor_add(&d, "nvml", SL_DOCTOR_PROBLEM, "look", "error %d", 9);
    sl_doctor_add(&d, "cuda", SL_DOCTOR_OK, NULL, "fine");
    assert_int_equal(sl_doctor_problems(&d), 1);
    assert_int_equal(d.line[1].result, SL_DOCTOR_SKIPPED);
    assert_string_equal(d.line[1].text, "because of the device files: error 9");
    assert_string_equal(d.line[1].cure, "");
    assert_int_equal(d.line[2].result, SL_DOCTOR_OK);
    d.root = NULL;
    sl_doctor_add(&d, "kernel", SL_DOCTOR_PROBLEM, "newer", "old");
    assert_int_equal(sl_doctor_problems(&d), 2);
    assert_string_equal(d.line[3].cure, "newer");
}

static void places(void **state)
{
    (void)state;
    struct sl_arbiter_dir p;
    struct sl_err err = SL_ERR_INIT;
    char long_dir[200];
    assert_int_equal(unsetenv(SL_DIR_ENV), 0);
    assert_int_equal(sl_arbiter_dir_find("/x/y//", NULL, &p, &err), 0);
    assert_string_equal(p.dir, "/x/y");
    assert_string_equal(p.socket, "/x/y/arbiter.sock");
    assert_string_equal(p.sim_state, "");
    assert_int_equal(sl_arbiter_dir_find("/x", "a100-80gx2,l4", &p, &err), 0);
    assert_string_equal(p.dir, "/x");
    assert_string_equal(p.sim_state, "/x/sim-a100-80gx2,l4.state");
    assert_int_equal(sl_arbiter_dir_find(NULL, "h200", &p, &err), 0);
    assert_non_null(strstr(p.dir, "/sim-h200"));
    assert_true(strlen(p.parent) > 0);
    /* Odd names get a file name that is one, and different ones different files. */
    assert_int_equal(sl_arbiter_dir_find("/x", "h 200", &p, &err), 0);
    assert_null(strchr(p.sim_state, ' '));
    assert_int_equal(sl_arbiter_dir_find("/x", "", &p, &err), -EINVAL);
    assert_int_equal(sl_arbiter_dir_find("", NULL, &p, &err), -EINVAL);
    memset(long_dir, 'd', sizeof(long_dir) - 1);
    long_dir[0] = '/';
    long_dir[sizeof(long_dir) - 1] = '\0';
    assert_int_equal(sl_arbiter_dir_find(long_dir, NULL, &p, &err), -ENAMETOOLONG);
    /* 107 bytes fit, 108 do not. */
    long_dir[94] = '\0';
    assert_int_equal(sl_arbiter_dir_find(long_dir, NULL, &p, &err), 0);
    assert_int_equal(strlen(p.socket), 107);
    long_dir[94] = 'd';
    long_dir[95] = '\0';
    assert_int_equal(sl_arbiter_dir_find(long_dir, NULL, &p, &err), -ENAMETOOLONG);
}

static void places_are_private(void **state)
{
    (void)state;
    struct sl_arbiter_dir p;
    struct sl_err err = SL_ERR_INIT;
    struct stat st;
    char root[] = "/tmp/slp.XXXXXX", dir[64];
    assert_non_null(mkdtemp(root));
    (void)snprintf(dir, sizeof(dir), "%s/a/b", root);
    assert_int_equal(sl_arbiter_dir_find(dir, NULL, &p, &err), 0);
    assert_int_equal(sl_arbiter_dir_check(&p, &err), -ENOENT);
    mode_t before = umask(0);
    assert_int_equal(sl_arbiter_dir_make(&p, &err), 0);
    (void)umask(before);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(sl_arbiter_dir_make(&p, &err), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    assert_int_equal(sl_arbiter_dir_check(&p, &err), -EPERM);
    assert_int_equal(sl_arbiter_dir_make(&p, &err), -EPERM);
    assert_int_equal(rmdir(dir), 0);
    /* A link that points nowhere is not made into a directory. */
    assert_int_equal(symlink("/nonexistent/planted", dir), 0);
    assert_true(sl_arbiter_dir_make(&p, &err) < 0);
    assert_int_equal(unlink(dir), 0);
    (void)snprintf(dir, sizeof(dir), "%s/a", root);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_end_at_the_command),
        cmocka_unit_test(options_and_words_mix_elsewhere),
        cmocka_unit_test(container_clients_are_noticed),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(every_verb_fits_the_parser),
        cmocka_unit_test(lease_from_options),
        cmocka_unit_test(some_gpus_of_those_allowed),
        cmocka_unit_test(environment_of_the_command),
        cmocka_unit_test(tables_line_up_and_obey_nobody),
        cmocka_unit_test(tables_fit),
        cmocka_unit_test(one_cause_is_one_problem),
        cmocka_unit_test(places),
        cmocka_unit_test(places_are_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
