/* SPDX-License-Identifier: Apache-2.0 */
/* Preferred node affinity: every operator, hostile terms, and the terms that Fluid's webhook writes. */
#include "pods.h"

#include <stdbool.h>
#include <stdio.h>

#include "share/affinity.h"

#define NODE(labels) "{'metadata':{'name':'n1','labels':{" labels "}}}"

static int32_t weigh(const char *node, const char *terms)
{
    json_t *n = quoted(node), *list = quoted(terms);
    char *labels = sl_affinity_labels(n);
    int32_t weight = sl_affinity_weight(list, "n1", labels);
    free(labels);
    json_decref(n);
    json_decref(list);
    return weight;
}

#define TERM(weight, expressions)                                                                  \
    "{'weight':" weight ",'preference':{'matchExpressions':[" expressions "]}}"
#define EXPR(key, op, values) "{'key':'" key "','operator':'" op "','values':[" values "]}"

static void test_operators(void **state)
{
    (void)state;
    static const struct {
        const char *expression;
        bool matches;
    } rows[] = {
        {EXPR("zone", "In", "'b','a'"), true},    {EXPR("zone", "In", "'b'"), false},
        {EXPR("none", "In", "'a'"), false},       {EXPR("zone", "NotIn", "'b'"), true},
        {EXPR("zone", "NotIn", "'a'"), false},    {EXPR("none", "NotIn", "'a'"), true},
        {EXPR("empty", "Exists", ""), true},      {EXPR("none", "Exists", ""), false},
        {EXPR("none", "DoesNotExist", ""), true}, {EXPR("zone", "DoesNotExist", ""), false},
        {EXPR("count", "Gt", "'7'"), true},       {EXPR("count", "Gt", "'8'"), false},
        {EXPR("count", "Lt", "'9'"), true},       {EXPR("zone", "Gt", "'1'"), false},
        {EXPR("count", "Gt", "'x'"), false},      {EXPR("count", "Gt", "'1','2'"), false},
        {EXPR("zone", "Near", "'a'"), false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char terms[256];
        (void)snprintf(terms, sizeof(terms), "[" TERM("10", "%s") "]", rows[i].expression);
        if (weigh(NODE("'zone':'a','empty':'','count':'8'"), terms) != (rows[i].matches ? 10 : 0))
            fail_msg("%s", rows[i].expression);
    }
    assert_int_equal(weigh(NODE("'zone':'a'"), "[{'weight':3,'preference':{'matchFields':["
                                               "{'key':'metadata.name','operator':'In',"
                                               "'values':['n1']}]}}]"),
                     3);
    assert_int_equal(weigh(NODE("'zone':'a'"), "[{'weight':3,'preference':{'matchFields':["
                                               "{'key':'spec.name','operator':'In',"
                                               "'values':['n1']}]}}]"),
                     0);
}

/* What is not as the API server would let it in adds nothing, and harms nobody. */
static void test_hostile(void **state)
{
    (void)state;
    const char *node = NODE("'zone':'a'");
    assert_int_equal(weigh(node, "[" TERM("0", EXPR("zone", "Exists", "")) "]"), 0);
    assert_int_equal(weigh(node, "[" TERM("101", EXPR("zone", "Exists", "")) "]"), 0);
    assert_int_equal(weigh(node, "[" TERM("-5", EXPR("zone", "Exists", "")) "]"), 0);
    assert_int_equal(weigh(node, "[" TERM("'x'", EXPR("zone", "Exists", "")) "]"), 0);
    assert_int_equal(weigh(node, "[" TERM("10", "") ",{'weight':10},7,null,[],'x']"), 0);
    assert_int_equal(weigh(node, "[" TERM("10", "7") "]"), 0);
    assert_int_equal(weigh(node, "[" TERM("10", "{'key':7,'operator':7}") "]"), 0);
    assert_int_equal(weigh("{'metadata':{'labels':{'a':7,'':'x','zone':'b'}}}",
                           "[" TERM("10", EXPR("zone", "In", "'b'")) "]"),
                     10);
    assert_int_equal(
        weigh("{'metadata':{'labels':[]}}", "[" TERM("10", EXPR("zone", "DoesNotExist", "")) "]"),
        10);
    json_t *pod = quoted("{'spec':{'affinity':{'nodeAffinity':'x'}}}");
    assert_null(sl_affinity_preferred(pod));
    json_decref(pod);
}

/* A node with the dataset in its cache, one in the same zone, one in the same region, one elsewhere. */
static void test_fluid(void **state)
{
    (void)state;
#define PLACE(zone, region)                                                                        \
    "'topology.kubernetes.io/zone':'" zone "','topology.kubernetes.io/region':'" region "'"
#define ZONE   EXPR("topology.kubernetes.io/zone", "In", "'zone-a'")
#define REGION EXPR("topology.kubernetes.io/region", "In", "'here'")
#define CACHE  EXPR("fluid.io/s-default-imagenet", "In", "'true'")
    const char *terms = "[" TERM("100", CACHE) "," TERM("50", ZONE) "," TERM("20", REGION) "]";
    assert_int_equal(weigh(NODE("'fluid.io/s-default-imagenet':'true',"
                                "'fluid.io/s-alluxio-default-imagenet':'true',"
                                "'fluid.io/dataset-num':'1'," PLACE("zone-a", "here")),
                           terms),
                     170);
    assert_int_equal(weigh(NODE(PLACE("zone-a", "here")), terms), 70);
    assert_int_equal(weigh(NODE(PLACE("zone-b", "here")), terms), 20);
    assert_int_equal(weigh(NODE(PLACE("zone-b", "there")), terms), 0);
    /* A pod without a dataset is kept away from caches. */
    const char *away = "[" TERM("50", EXPR("fluid.io/dataset-num", "DoesNotExist", "")) "]";
    assert_int_equal(weigh(NODE("'fluid.io/dataset-num':'1'"), away), 0);
    assert_int_equal(weigh(NODE("'a':'b'"), away), 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_fluid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
