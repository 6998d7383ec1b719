/* SPDX-License-Identifier: Apache-2.0 */
/* What HAMi's annotations are to say of a pod that was bound: nothing before its containers have their GPUs. */
#include "pods.h"

#include "controller/controller_internal.h"

#define LEASE                                                                                      \
    "{\\\"version\\\":1,\\\"node\\\":\\\"n1\\\",\\\"containers\\\":[{\\\"name\\\":\\\"warm\\\","   \
    "\\\"gpus\\\":[{\\\"uuid\\\":\\\"GPU-1\\\",\\\"memoryMiB\\\":5,\\\"cores\\\":0}]},{"           \
    "\\\"name\\\":"                                                                                \
    "\\\"main\\\",\\\"gpus\\\":[{\\\"uuid\\\":\\\"GPU-1\\\",\\\"memoryMiB\\\":5,\\\"cores\\\":0}]" \
    "}]}"
#define DEVICES "GPU-1,NVIDIA,5,0:;;GPU-1,NVIDIA,5,0:;"

static json_t *pod(const char *phase, const char *node, const char *status)
{
    char text[2048];
    (void)snprintf(text, sizeof(text),
                   "{'metadata':{'uid':'u','annotations':{'sluice.io/lease':'" LEASE
                   "','hami.io/bind-phase':'%s','hami.io/vgpu-devices-to-allocate':'" DEVICES
                   "'}},'spec':{'nodeName':'%s'},'status':{%s}}",
                   phase, node, status);
    return quoted(text);
}

/* phase "" : nothing to say. */
static void says(const char *was, const char *node, const char *status, const char *phase,
                 const char *left)
{
    json_t *p = pod(was, node, status), *patch = sl_settle_patch(p);
    if (strcmp(text_at(patch, "hami.io~1bind-phase"), phase) != 0)
        fail_msg("%s: \"%s\"", status, text_at(patch, "hami.io~1bind-phase"));
    assert_string_equal(text_at(patch, "hami.io~1vgpu-devices-to-allocate"), left);
    assert_int_equal(patch != NULL, phase[0] != '\0');
    json_decref(patch);
    json_decref(p);
}

#define WARM    "'initContainerStatuses':[{'name':'warm','containerID':'c://1'}]"
#define MAIN    "'containerStatuses':[{'name':'other'},{'name':'main','containerID':'c://2'}]"
#define WAITING "'containerStatuses':[{'name':'main','containerID':''}]"

static void test_phases(void **state)
{
    (void)state;
    says("allocating", "n1", "'phase':'Pending'", "", "");
    says("allocating", "n1", "'phase':'Pending'," WARM, "", "");
    says("allocating", "n1", "'phase':'Pending'," WARM "," WAITING, "", "");
    /* A neighbour that asked for nothing may still wait for its image. */
    says("allocating", "n1", "'phase':'Pending'," WARM "," MAIN, "success", ";;;");
    says("allocating", "n1", "'phase':'Running'," WARM "," MAIN, "success", ";;;");
    says("allocating", "n1", "'phase':'Failed'," WARM "," MAIN, "success", ";;;");
    says("allocating", "n1", "'phase':'Failed'", "failed", "");
    says("allocating", "n1", "'phase':'Failed'," WARM "," WAITING, "failed", "");
    /* Said already, or not ours to say. */
    says("success", "n1", "'phase':'Running'," WARM "," MAIN, "", "");
    says("failed", "n1", "'phase':'Running'," WARM "," MAIN, "", "");
    says("allocating", "", "'phase':'Running'," WARM "," MAIN, "", "");
}

static void test_others(void **state)
{
    (void)state;
    static const char *const pods[] = {
        "{}", "{'metadata':{'annotations':{'hami.io/bind-phase':'allocating'}}}",
        ("{'metadata':{'annotations':{'hami.io/bind-phase':'allocating','sluice.io/lease':'x'}},"
         "'spec':{'nodeName':'n'},'status':{'phase':'Failed'}}"),
        ("{'metadata':{'annotations':{'hami.io/bind-phase':'allocating',"
         "'hami.io/vgpu-devices-to-allocate':'" DEVICES "'}},'spec':{'nodeName':'n'},"
         "'status':{'phase':'Failed'}}")};
    for (size_t i = 0; i < sizeof(pods) / sizeof(pods[0]); i++) {
        json_t *p = quoted(pods[i]);
        assert_null(sl_settle_patch(p));
        json_decref(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_phases),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
