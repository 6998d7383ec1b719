/* SPDX-License-Identifier: Apache-2.0 */
/* A share: its forms in JSON, its comparison, and the lease that several of them make. */
#include "share/share.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "share/lease.h"
#include "share/share_json.h"

static const struct sl_share some = {.gpu = "GPU-a",
                                     .memory_bytes = 3ULL << 30,
                                     .cores_permille = 300,
                                     .limit_permille = 900,
                                     .priority = SL_PRIORITY_HIGH,
                                     .strategy = SL_SHARE_MPS};

static void expect_text(const struct sl_share *share, enum sl_share_form form, const char *text)
{
    json_t *j = json_object();
    sl_share_write(share, form, j);
    char *got = json_dumps(j, JSON_COMPACT);
    assert_string_equal(got, text);
    free(got);
    json_decref(j);
}

static void forms(void **state)
{
    (void)state;
    struct sl_share plain = SL_SHARE_INIT;
    expect_text(&some, SL_SHARE_REQUEST,
                "{\"memoryMiB\":3072,\"cores\":30,\"coresLimit\":90,\"priority\":\"high\"}");
    expect_text(&some, SL_SHARE_GPU, "{\"uuid\":\"GPU-a\",\"memoryMiB\":3072,\"cores\":30}");
    expect_text(&some, SL_SHARE_CONTAINER, "{\"coresLimit\":90,\"priority\":\"high\"}");
    expect_text(&some, SL_SHARE_CONFIG, "{\"priority\":\"high\",\"strategy\":\"mps\"}");
    expect_text(&some, SL_SHARE_KEPT,
                "{\"gpu\":\"GPU-a\",\"memoryBytes\":3221225472,\"coresPermille\":300,"
                "\"limitPermille\":900,\"priority\":2,\"strategy\":1}");
    struct sl_share by_turns = some;
    by_turns.compute = SL_COMPUTE_TURNS;
    expect_text(&by_turns, SL_SHARE_CONFIG,
                "{\"priority\":\"high\",\"strategy\":\"mps\",\"compute\":\"turns\"}");
    /* What is as usual is not said, where a form need not say it. */
    expect_text(&plain, SL_SHARE_CONTAINER, "{}");
    plain.memory_percent = 25;
    expect_text(&plain, SL_SHARE_REQUEST, "{\"memoryPercent\":25,\"cores\":0}");
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    static const enum sl_share_form parts[][2] = {{SL_SHARE_GPU, SL_SHARE_CONTAINER},
                                                  {SL_SHARE_KEPT, SL_SHARE_KEPT}};
    for (size_t i = 0; i < SL_ARRAY_LEN(parts); i++) {
        struct sl_share back = SL_SHARE_INIT;
        json_t *j = json_object();
        for (size_t k = 0; k < 2; k++)
            sl_share_write(&some, parts[i][k], j);
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(sl_share_read(j, parts[i][k], &back, NULL), 0);
        if (parts[i][0] == SL_SHARE_GPU)
            back.strategy = some.strategy; /* pods with annotations have one only */
        assert_true(sl_share_same(&some, &back));
        json_decref(j);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        enum sl_share_form form;
        const char *text, *part;
    } bad[] = {
        {SL_SHARE_REQUEST, "{\"cores\":101}", "cores is not a whole number from 0 to 100"},
        {SL_SHARE_REQUEST, "{\"cores\":-1}", "cores"},
        {SL_SHARE_REQUEST, "{\"cores\":\"30\"}", "cores"},
        {SL_SHARE_REQUEST, "{\"memoryMiB\":67108865}", "memoryMiB"},
        {SL_SHARE_REQUEST, "{\"memoryPercent\":200}", "memoryPercent"},
        {SL_SHARE_CONTAINER, "{\"coresLimit\":1.5}", "coresLimit"},
        {SL_SHARE_CONTAINER, "{\"priority\":\"urgent\"}", "urgent"},
        {SL_SHARE_GPU, "{\"cores\":1}", "uuid is missing"},
        {SL_SHARE_GPU, "{\"uuid\":\"\"}", "uuid"},
        {SL_SHARE_GPU, "{\"uuid\":\"a,b\"}", "uuid"},
        {SL_SHARE_KEPT, "{\"gpu\":\"a\",\"priority\":3}", "priority"},
        {SL_SHARE_KEPT, "{\"gpu\":\"a\",\"strategy\":\"mps\"}", "strategy"},
    };
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        struct sl_share share = SL_SHARE_INIT;
        struct sl_err err = SL_ERR_INIT;
        json_t *j = json_loads(bad[i].text, 0, NULL);
        if (sl_share_read(j, bad[i].form, &share, &err) != -EINVAL || !strstr(err.msg, bad[i].part))
            fail_msg("%s: \"%s\"", bad[i].text, err.msg);
        json_decref(j);
    }
}

static void compares(void **state)
{
    (void)state;
    struct sl_share other[8];
    for (size_t i = 0; i < SL_ARRAY_LEN(other); i++)
        other[i] = some;
    assert_true(sl_share_same(&some, &other[0]));
    other[0].gpu[4] = 'b';
    other[1].memory_bytes++;
    other[2].memory_percent++;
    other[3].cores_permille++;
    other[4].limit_permille++;
    other[5].priority = SL_PRIORITY_LOW;
    other[6].strategy = SL_SHARE_LIBSLUICE;
    other[7].compute = SL_COMPUTE_TURNS;
    for (size_t i = 0; i < SL_ARRAY_LEN(other); i++)
        assert_false(sl_share_same(&some, &other[i]));
}

static void composes(void **state)
{
    (void)state;
    struct sl_share share[3] = {some, some, some};
    struct sl_msg_lease m;
    memcpy(share[1].gpu, "GPU-b", 6);
    share[1].cores_permille = 200;
    share[1].priority = SL_PRIORITY_LOW;
    share[2].memory_bytes = 1 << 20;
    share[2].limit_permille = 1000;
    assert_int_equal(sl_lease_compose("t", &(struct sl_owner){.pod = "p"}, share, 3, &m, NULL), 0);
    assert_string_equal(m.name, "t");
    assert_string_equal(m.about, "pod=p");
    assert_int_equal(m.gpu_count, 2);
    assert_int_equal(m.gpu_memory_bytes[0], (3ULL << 30) + (1 << 20)); /* one GPU's shares add up */
    assert_int_equal(m.gpu_memory_bytes[1], 3ULL << 30);
    assert_int_equal(m.cores_request_permille, 200); /* the smaller of 600 and 200 */
    assert_int_equal(m.cores_limit_permille, 1000);
    assert_int_equal(m.priority, SL_PRIORITY_HIGH);
    assert_int_equal(m.fields, SL_FIELD_MEMORY | SL_FIELD_CORES | SL_FIELD_PRIORITY);
    assert_int_equal(m.flags, SL_LEASE_KEEP);
    /* How GPU time is shared: as a share says, else as the node has it. */
    sl_lease_compute(&m, SL_COMPUTE_SLICES);
    assert_int_equal(m.flags, SL_LEASE_KEEP | SL_LEASE_SLICES);
    share[1].compute = SL_COMPUTE_TURNS;
    assert_int_equal(sl_lease_compose("t", &(struct sl_owner){.pod = "p"}, share, 3, &m, NULL), 0);
    sl_lease_compute(&m, SL_COMPUTE_SLICES);
    assert_int_equal(m.flags, SL_LEASE_KEEP | SL_LEASE_TURNS);
}

static void composes_no_more_than_a_tenant_can_have(void **state)
{
    (void)state;
    struct sl_share share[SL_MAX_GPUS + 1];
    struct sl_msg_lease m = {.gpu_count = 99};
    struct sl_err err = SL_ERR_INIT;
    for (size_t i = 0; i < SL_ARRAY_LEN(share); i++) {
        share[i] = some;
        (void)snprintf(share[i].gpu, sizeof(share[i].gpu), "GPU-%zu", i);
    }
    const struct sl_owner nobody = {.pod = NULL};
    assert_int_equal(sl_lease_compose("t", &nobody, share, SL_MAX_GPUS + 1, &m, &err), -ENOSPC);
    assert_int_equal(m.gpu_count, 99);
    assert_int_equal(sl_lease_compose("t", &nobody, share, SL_MAX_GPUS, &m, &err), 0);
    assert_int_equal(m.gpu_count, SL_MAX_GPUS);
}

/* However long the names are, the uid is in it: tenants of claims that are gone are found by it. */
static void owners_keep_their_uid(void **state)
{
    (void)state;
    char pod[254], claim[254], part[64], about[SL_ABOUT_MAX];
    memset(pod, 'p', sizeof(pod) - 1);
    memset(claim, 'c', sizeof(claim) - 1);
    memset(part, 'x', sizeof(part) - 1);
    pod[253] = claim[253] = part[63] = '\0';
    const struct sl_owner owner = {.name_space = part,
                                   .pod = pod,
                                   .claim = claim,
                                   .claim_uid = "0b4f",
                                   .request = part,
                                   .container = part};
    sl_owner_text(&owner, about);
    assert_non_null(strstr(about, " uid=0b4f "));
    assert_null(strstr(about, "container=")); /* no half a name */
    sl_owner_text(&(struct sl_owner){.name_space = "n", .pod = "p", .container = "c"}, about);
    assert_string_equal(about, "namespace=n pod=p container=c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(refuses),
        cmocka_unit_test(compares),
        cmocka_unit_test(composes),
        cmocka_unit_test(composes_no_more_than_a_tenant_can_have),
        cmocka_unit_test(owners_keep_their_uid),
    };
    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
