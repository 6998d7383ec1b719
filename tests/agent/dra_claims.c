/* SPDX-License-Identifier: Apache-2.0 */
/* Claims, ShareConfigs, quantities and the checkpoint: what is taken, what is refused and how. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/dra/checkpoint.h"
#include "agent/dra/claim.h"
#include "agent/dra/dra_internal.h"
#include "base/quantity.h"

#define GIB (1ULL << 30)
#define UID "0c6a9f4e-0000-4000-8000-000000000001"

static json_t *claim_of(const char *results, const char *config)
{
    char text[4096];
    (void)snprintf(
        text, sizeof(text),
        "{\"metadata\":{\"name\":\"c\",\"namespace\":\"default\",\"uid\":\"" UID "\","
        "\"annotations\":{\"gpu.sluice.io/resize\":\"cores=40\"}},"
        "\"status\":{\"reservedFor\":[{\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"pu\"}],"
        "\"allocation\":{\"devices\":{\"results\":%s,\"config\":%s}}}}",
        results, config);
    json_error_t e;
    json_t *o = json_loads(text, 0, &e);
    if (!o)
        fail_msg("%s: %s", e.text, text);
    return o;
}

#define SHARE                                                                                      \
    "{\"request\":\"gpu/small\",\"driver\":\"gpu.sluice.io\",\"pool\":\"n1\",\"device\":\"gpu-0-"  \
    "share\",\"shareID\":\"s-1\",\"consumedCapacity\":{\"memory\":\"10Gi\",\"cores\":\"30\"}}"
#define WHOLE                                                                                      \
    "{\"request\":\"all\",\"driver\":\"gpu.sluice.io\",\"pool\":\"n1\",\"device\":\"gpu-1\"}"
#define OTHER                                                                                      \
    "{\"request\":\"nic\",\"driver\":\"nic.example.com\",\"pool\":\"x\",\"device\":\"eth-0\"}"
#define CONFIG(source, more)                                                                       \
    "{\"source\":\"" source "\",\"requests\":[],\"opaque\":{\"driver\":\"gpu.sluice.io\","         \
    "\"parameters\":{\"apiVersion\":\"gpu.sluice.io/v1alpha1\",\"kind\":\"ShareConfig\"" more      \
    "}}}"

static const struct sl_dra_names own = {.nvidia = false};

static int parse(const char *results, const char *config, struct sl_claim *c, struct sl_err *err)
{
    json_t *o = claim_of(results, config);
    int rc = sl_claim_parse(o, &own, "n1", UID, c, err);
    json_decref(o);
    return rc;
}

static void test_a_claim(void **state)
{
    (void)state;
    struct sl_claim c;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse("[" OTHER "," SHARE "," WHOLE "]",
                           "[" CONFIG("FromClaim", ",\"priority\":\"high\"") "," CONFIG(
                               "FromClass", ",\"priority\":\"low\",\"cores\":{\"limit\":80}") "]",
                           &c, &err),
                     -EINVAL); /* a claim's ShareConfig for everything, and one is a whole card */
    assert_int_equal(parse("[" OTHER "," SHARE "]",
                           "[" CONFIG("FromClaim", ",\"priority\":\"high\"") "," CONFIG(
                               "FromClass", ",\"priority\":\"low\",\"cores\":{\"limit\":80}") "]",
                           &c, &err),
                     0);
    assert_int_equal(c.result_count, 1);
    assert_string_equal(c.pod, "p");
    const struct sl_claim_result *r = &c.result[0];
    assert_string_equal(r->request, "gpu");
    assert_string_equal(r->share_id, "s-1");
    assert_int_equal(r->share.memory_bytes, 10 * GIB);
    assert_int_equal(r->share.cores_permille, 300);
    assert_int_equal(r->share.priority, SL_PRIORITY_HIGH); /* the claim's word */
    assert_int_equal(r->share.limit_permille, 800);        /* the class's default */
    assert_int_equal(
        parse("[" WHOLE "]", "[" CONFIG("FromClass", ",\"priority\":\"low\"") "]", &c, &err), 0);
}

/* A request that names no time uses what is idle, unless a configuration says how much. */
static void test_idle(void **state)
{
    (void)state;
    static const struct {
        const char *requests, *config;
        bool idle;
    } cases[] = {
        {"[{\"name\":\"gpu\",\"exactly\":{\"capacity\":{\"requests\":{\"memory\":\"10Gi\"}}}}]",
         "[]", true},
        {"[{\"name\":\"gpu\",\"exactly\":{}}]", "[]", true},
        {"[{\"name\":\"gpu\",\"exactly\":{\"capacity\":{\"requests\":{\"cores\":\"30\"}}}}]", "[]",
         false},
        {"[{\"name\":\"gpu\",\"exactly\":{}}]",
         "[" CONFIG("FromClass", ",\"cores\":{\"limit\":80}") "]", false},
        {"[{\"name\":\"gpu\",\"firstAvailable\":[{\"name\":\"large\",\"capacity\":{\"requests\":"
         "{\"cores\":\"60\"}}},{\"name\":\"small\"}]}]",
         "[]", true},
        {"[{\"name\":\"gpu\",\"firstAvailable\":[{\"name\":\"large\"},{\"name\":\"small\","
         "\"capacity\":"
         "{\"requests\":{\"cores\":\"30\"}}}]}]",
         "[]", false},
        {"[{\"name\":\"gpus\",\"exactly\":{}}]", "[]", false},
        {"7", "[]", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sl_claim c;
        json_t *o = claim_of("[" SHARE "]", cases[i].config);
        json_t *requests = json_loads(cases[i].requests, JSON_DECODE_ANY, NULL);
        assert_non_null(requests);
        json_object_set_new(o, "spec", json_pack("{s:{s:o}}", "devices", "requests", requests));
        assert_int_equal(sl_claim_parse(o, &own, "n1", UID, &c, NULL), 0);
        if (c.result[0].idle != cases[i].idle)
            fail_msg("%s", cases[i].requests);
        uint32_t before = c.result[0].share.limit_permille;
        struct sl_config config = {.fractional.allow = SL_CONFIG_ALLOW_DEFAULT};
        config.fractional.allow.burst = 60;
        assert_int_equal(sl_allow_claim(&config, &c, NULL), 0);
        assert_int_equal(c.result[0].share.limit_permille, cases[i].idle ? 600 : before);
        json_decref(o);
    }
}

static void refused(const char *results, const char *config, int code, const char *part)
{
    struct sl_claim c;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse(results, config, &c, &err), code);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("[]", "[]", -EAGAIN, "not allocated");
    refused("[" OTHER "]", "[]", -EINVAL, "no device of");
    refused(
        "[{\"request\":\"g\",\"driver\":\"gpu.sluice.io\",\"pool\":\"n2\",\"device\":\"gpu-0\"}]",
        "[]", -EINVAL, "node n2");
    refused("[{\"request\":\"g\",\"driver\":\"gpu.sluice.io\",\"pool\":\"n1\",\"device\":\"x\"}]",
            "[]", -EINVAL, "does not belong to this driver");
    refused("[{\"request\":\"g\",\"driver\":\"gpu.sluice.io\",\"pool\":\"n1\",\"device\":\"gpu-0-"
            "share\"}]",
            "[]", -EINVAL, "DRAConsumableCapacity");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"prioritty\":\"low\"") "]", -EINVAL,
            "prioritty is not known");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"priority\":\"urgent\"") "]", -EINVAL,
            "write low, normal or high");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"strategy\":\"magic\"") "]", -EINVAL,
            "libsluice, mps or timeSlicing");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"cores\":{\"limit\":20}") "]", -EINVAL,
            "below its share");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"cores\":{\"limit\":101}") "]", -EINVAL,
            "from 1 to 100");
    refused("[" SHARE "]", "[" CONFIG("FromClaim", ",\"cores\":50") "]", -EINVAL, "mapping");
    refused("[" SHARE "]",
            "[{\"source\":\"FromClaim\",\"opaque\":{\"driver\":\"gpu.sluice.io\",\"parameters\":{"
            "\"apiVersion\":\"gpu.example.com/v1\",\"kind\":\"ShareConfig\"}}}]",
            -EINVAL, "write apiVersion: gpu.sluice.io/v1alpha1");
    /* Another driver's parameters are not ours to judge. */
    struct sl_claim c;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(parse("[" SHARE "]",
                           "[{\"source\":\"FromClaim\",\"opaque\":{\"driver\":\"x.io\","
                           "\"parameters\":{}}}]",
                           &c, &err),
                     0);
    json_t *o = claim_of("[" SHARE "]", "[]");
    assert_int_equal(sl_claim_parse(o, &own, "n1", "other", &c, &err), -ESTALE);
    json_decref(o);
}

static void test_containers(void **state)
{
    (void)state;
    static const char text[] =
        "{\"spec\":{\"resourceClaims\":[{\"name\":\"gpus\",\"resourceClaimTemplateName\":\"t\"},"
        "{\"name\":\"mine\",\"resourceClaimName\":\"own\"}],"
        "\"initContainers\":[{\"name\":\"first\",\"resources\":{\"claims\":[{\"name\":\"mine\"}]}}]"
        ","
        "\"containers\":[{\"name\":\"a\",\"resources\":{\"claims\":[{\"name\":\"gpus\"}]}},"
        "{\"name\":\"b\",\"resources\":{\"claims\":[{\"name\":\"gpus\",\"request\":\"r1\"}]}},"
        "{\"name\":\"c\"}]},"
        "\"status\":{\"resourceClaimStatuses\":[{\"name\":\"gpus\",\"resourceClaimName\":\"t-x\"}]}"
        "}";
    char names[8];
    json_t *pod = json_loads(text, 0, NULL);
    assert_non_null(pod);
    sl_claim_containers(pod, "t-x", "r1", names, sizeof(names));
    assert_string_equal(names, "a,b");
    sl_claim_containers(pod, "t-x", "r2", names, sizeof(names));
    assert_string_equal(names, "a");
    sl_claim_containers(pod, "own", "r", names, sizeof(names));
    assert_string_equal(names, "first");
    sl_claim_containers(pod, "t-x", "r1", names, 3); /* no half a name */
    assert_string_equal(names, "a");
    sl_claim_containers(pod, "gpus", "r1", names, sizeof(names));
    assert_string_equal(names, "");
    json_decref(pod);
}

static void test_quantities(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t whole, milli;
    } good[] = {{"10Gi", 10 * GIB, 10 * GIB * 1000},
                {"30", 30, 30000},
                {"1500m", 1, 1500},
                {"0.5", 0, 500},
                {"12e6", 12000000, 12000000000ULL},
                {"12E6", 12000000, 12000000000ULL},
                {"1E", 1000000000000000000ULL, 0},
                {"2k", 2000, 2000000},
                {"1.5Gi", 3 * GIB / 2, 3 * GIB / 2 * 1000},
                {"100n", 0, 0},
                {"143771Mi", 143771ULL << 20, (143771ULL << 20) * 1000}};
    uint64_t v;
    struct sl_err err = SL_ERR_INIT;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(sl_quantity_read(good[i].text, 0, &v, &err), 0);
        assert_int_equal(v, good[i].whole);
        if (good[i].milli) {
            assert_int_equal(sl_quantity_read(good[i].text, 3, &v, &err), 0);
            assert_int_equal(v, good[i].milli);
        }
    }
    static const char *const bad[] = {
        "",     "Gi",   "10GB", "-1",   "1e",
        "1e99", "1..2", " 1",   "0x10", "99999999999999999999999999999Ei"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(sl_quantity_read(bad[i], 0, &v, &err) < 0);
    char b[40];
    sl_quantity_binary(16384ULL << 20, b, sizeof(b));
    assert_string_equal(b, "16Gi");
    sl_quantity_binary(143771ULL << 20, b, sizeof(b));
    assert_string_equal(b, "143771Mi");
    sl_quantity_decimal(2000, b, sizeof(b));
    assert_string_equal(b, "2k");
    sl_quantity_decimal(0, b, sizeof(b));
    assert_string_equal(b, "0");
}

static void test_resize(void **state)
{
    (void)state;
    struct sl_resize r;
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_resize_parse("memory=12Gi,cores=40", &r, &err), 0);
    assert_int_equal(r.memory_bytes, 12 * GIB);
    assert_int_equal(r.cores_permille, 400);
    assert_int_equal(r.limit_permille, 400);
    assert_int_equal(sl_resize_parse("cores=30:100", &r, &err), 0);
    assert_int_equal(r.memory_bytes, 0);
    assert_int_equal(r.limit_permille, 1000);
    static const char *const bad[] = {"",           "memory",    "memory=",     "memory=10%",
                                      "cores=0",    "cores=200", "memory=1Gi,", "mem=1Gi",
                                      "memory=12GB"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sl_resize_parse(bad[i], &r, &err), -EINVAL);
}

/* --- the checkpoint --- */

static char dir[64];

static int dir_setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/sluice-ckpt-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int dir_teardown(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static struct sl_prepared *fill(struct sl_checkpoint *c, const char *uid)
{
    struct sl_prepared *p = sl_checkpoint_add(c, uid, 2);
    assert_non_null(p);
    (void)snprintf(p->name, sizeof(p->name), "claim-%s", uid);
    p->state = SL_PREPARED;
    for (size_t i = 0; i < 2; i++) {
        struct sl_prepared_device *d = &p->device[i];
        (void)snprintf(d->request, sizeof(d->request), "r%zu", i);
        d->share.memory_bytes = 10 * GIB;
        d->share.cores_permille = 300;
        d->share.priority = SL_PRIORITY_HIGH;
        d->mig = i ? SL_MIG_MADE : SL_MIG_NO;
        d->mig_gpu_instance = UINT32_MAX;
    }
    return p;
}

static size_t loaded(bool *ret_doubtful)
{
    struct sl_checkpoint c = {0};
    struct sl_err err = SL_ERR_INIT;
    int rc = sl_checkpoint_load(dir, &c, &err);
    if (rc < 0)
        fail_msg("%s", err.msg);
    size_t n = 0;
    for (struct sl_prepared *p = c.claims; p; p = p->next)
        n++;
    *ret_doubtful = c.doubtful;
    sl_checkpoint_clear(&c);
    return n;
}

static void test_checkpoint(void **state)
{
    (void)state;
    struct sl_checkpoint c = {0}, back = {0};
    struct sl_err err = SL_ERR_INIT;
    bool doubtful;
    assert_int_equal(loaded(&doubtful), 0);
    assert_false(doubtful);
    (void)fill(&c, "a");
    assert_int_equal(sl_checkpoint_save(dir, &c, &err), 0);
    (void)fill(&c, "b");
    assert_int_equal(sl_checkpoint_save(dir, &c, &err), 0);
    assert_int_equal(sl_checkpoint_load(dir, &back, &err), 0);
    assert_false(back.doubtful);
    const struct sl_prepared *p = sl_checkpoint_find(&back, "a");
    assert_non_null(p);
    assert_string_equal(p->name, "claim-a");
    assert_int_equal(p->device_count, 2);
    assert_int_equal(p->device[1].mig, SL_MIG_MADE);
    assert_int_equal(p->device[0].mig_gpu_instance, UINT32_MAX);
    assert_int_equal(p->device[0].share.memory_bytes, 10 * GIB);
    assert_int_equal(p->device[0].share.priority, SL_PRIORITY_HIGH);
    sl_checkpoint_clear(&back);
    sl_checkpoint_clear(&c);
}

/* Cut at every length, and changed at places: the one before is taken, nothing half. */
/* A file as versions wrote it that knew no devices for virtual machines. */
static void test_checkpoint_of_before(void **state)
{
    (void)state;
    struct sl_checkpoint c = {0}, back = {0};
    struct sl_err err = SL_ERR_INIT;
    char path[128];
    struct sl_prepared *p = fill(&c, "a");
    (void)snprintf(p->pod_claim, sizeof(p->pod_claim), "cards");
    (void)snprintf(p->device[1].subrequest, sizeof(p->device[1].subrequest), "any");
    assert_int_equal(sl_checkpoint_save(dir, &c, &err), 0);
    assert_int_equal(sl_checkpoint_load(dir, &back, &err), 0);
    assert_string_equal(back.claims->pod_claim, "cards");
    assert_string_equal(back.claims->device[1].subrequest, "any");
    sl_checkpoint_clear(&back);

    (void)snprintf(path, sizeof(path), "%s/" SL_CHECKPOINT_FILE, dir);
    json_t *file = json_load_file(path, 0, NULL), *data = json_object_get(file, "data");
    json_t *claim = json_array_get(json_object_get(data, "claims"), 0);
    assert_int_equal(json_object_del(claim, "podClaim"), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            json_object_del(json_array_get(json_object_get(claim, "devices"), i), "subrequest"), 0);
    char *text = json_dumps(data, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    uint64_t h = 0xcbf29ce484222325ULL;
    for (const char *at = text; *at; at++)
        h = (h ^ (unsigned char)*at) * 0x100000001b3ULL;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "{\"version\":1,\"checksum\":\"%016llx\",\"data\":%s}", (unsigned long long)h,
                  text);
    (void)fclose(f);
    free(text);
    json_decref(file);
    assert_int_equal(sl_checkpoint_load(dir, &back, &err), 0);
    assert_false(back.doubtful);
    assert_string_equal(back.claims->name, "claim-a");
    assert_string_equal(back.claims->pod_claim, "");
    sl_checkpoint_clear(&back);
    sl_checkpoint_clear(&c);
}

static void test_checkpoint_damage(void **state)
{
    (void)state;
    struct sl_checkpoint c = {0};
    struct sl_err err = SL_ERR_INIT;
    char path[128], old[160];
    (void)snprintf(path, sizeof(path), "%s/" SL_CHECKPOINT_FILE, dir);
    (void)snprintf(old, sizeof(old), "%s.old", path);
    (void)fill(&c, "a");
    for (off_t cut = 0; cut < 400; cut += 7) {
        struct sl_checkpoint two = {0};
        (void)fill(&two, "a");
        assert_int_equal(sl_checkpoint_save(dir, &two, &err), 0);
        (void)fill(&two, "b");
        assert_int_equal(sl_checkpoint_save(dir, &two, &err), 0);
        sl_checkpoint_clear(&two);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, cut < st.st_size ? cut : st.st_size - 3), 0);
        bool doubtful;
        assert_int_equal(loaded(&doubtful), 1);
        assert_true(doubtful);
    }
    assert_int_equal(sl_checkpoint_save(dir, &c, &err), 0);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    char text[4096] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    char *at = strstr(text, "\"memoryBytes\":1");
    assert_non_null(at);
    assert_int_equal(pwrite(fd, "2", 1, at - text + 14), 1);
    (void)close(fd);
    (void)unlink(old);
    bool doubtful;
    assert_int_equal(loaded(&doubtful), 0);
    assert_true(doubtful);
    sl_checkpoint_clear(&c);
}

static void test_checkpoint_of_the_future(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/" SL_CHECKPOINT_FILE, dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    /* FNV-1a of {"claims":[]} */
    uint64_t h = 0xcbf29ce484222325ULL;
    for (const char *p = "{\"claims\":[]}"; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ULL;
    (void)fprintf(f, "{\"version\":2,\"checksum\":\"%016llx\",\"data\":{\"claims\":[]}}",
                  (unsigned long long)h);
    (void)fclose(f);
    struct sl_checkpoint c = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_checkpoint_load(dir, &c, &err), -EPROTONOSUPPORT);
    assert_int_equal(access(path, F_OK), 0);
}

/* --- a claim in protobuf --- */

static size_t put(uint8_t *to, unsigned number, const void *data, size_t size)
{
    assert_true(size < 128);
    to[0] = (uint8_t)(number << 3 | 2);
    to[1] = (uint8_t)size;
    memmove(to + 2, data, size);
    return size + 2;
}

/* {metadata {uid}, status {allocation, devices {driver}}} */
static size_t claim_bytes(uint8_t *to)
{
    uint8_t meta[64], device[64], status[120], claim[120];
    size_t m = put(meta, 5, "uid-1", 5);
    size_t d = put(device, 1, "nic.example.com", 15);
    size_t s = put(status, 1, "{ \"a\":  1 }", 11);
    s += put(status + s, 4, device, d);
    size_t c = put(claim, 1, meta, m);
    c += put(claim + c, 3, status, s);
    memcpy(to, "k8s", 4);
    return 4 + put(to + 4, 2, claim, c);
}

static bool has(const uint8_t *bytes, size_t size, const char *part)
{
    return memmem(bytes, size, part, strlen(part));
}

static void test_devices_in_protobuf(void **state)
{
    (void)state;
    uint8_t in[256], *out = NULL;
    size_t size = claim_bytes(in), n = 0;
    struct sl_err err = SL_ERR_INIT;
    json_t *devices =
        json_loads("[{\"driver\":\"gpu.sluice.io\",\"pool\":\"n\",\"device\":\"gpu-0-share\","
                   "\"shareID\":\"s-1\",\"data\":{\"memory\":\"1Gi\"},\"conditions\":["
                   "{\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"R\",\"message\":\"\","
                   "\"lastTransitionTime\":\"2026-01-02T03:04:05Z\"}]}]",
                   0, NULL);
    assert_int_equal(
        sl_claim_pb_devices(in, size, "uid-1", "gpu.sluice.io", devices, &out, &n, &err), 0);
    assert_memory_equal(out, "k8s", 4);
    assert_true(has(out, n, "{ \"a\":  1 }") && has(out, n, "nic.example.com"));
    assert_true(has(out, n, "{\"memory\":\"1Gi\"}") && has(out, n, "gpu-0-share") &&
                has(out, n, "Ready"));
    /* Ours again, over what is there: it does not grow. The other's, gone: */
    uint8_t *again = NULL;
    size_t m = 0;
    assert_int_equal(
        sl_claim_pb_devices(out, n, "uid-1", "gpu.sluice.io", devices, &again, &m, &err), 0);
    assert_int_equal(m, n);
    free(again);
    json_t *none = json_array();
    assert_int_equal(
        sl_claim_pb_devices(out, n, "uid-1", "nic.example.com", none, &again, &m, &err), 0);
    assert_false(has(again, m, "nic.example.com"));
    assert_true(has(again, m, "gpu-0-share"));
    json_decref(none);
    free(again);
    free(out);
    assert_int_equal(
        sl_claim_pb_devices(in, size, "uid-2", "gpu.sluice.io", devices, &out, &n, &err), -ESTALE);
    assert_int_equal(sl_claim_pb_devices((const uint8_t *)"{}", 2, "uid-1", "gpu.sluice.io",
                                         devices, &out, &n, &err),
                     -EBADMSG);
    /* Cut short and damaged at every byte: an answer or an error, never both, and no harm (sanitizers look). */
    for (size_t i = 0; i < size; i++) {
        uint8_t copy[256];
        memcpy(copy, in, size);
        out = NULL;
        assert_true(
            sl_claim_pb_devices(copy, i, "uid-1", "gpu.sluice.io", devices, &out, &n, &err) < 0);
        assert_null(out);
        copy[i] ^= 0x55;
        if (sl_claim_pb_devices(copy, size, "uid-1", "gpu.sluice.io", devices, &out, &n, &err) == 0)
            free(out);
    }
    json_decref(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_claim),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_containers),
        cmocka_unit_test(test_quantities),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_devices_in_protobuf),
        cmocka_unit_test_setup_teardown(test_checkpoint, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(test_checkpoint_of_before, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(test_checkpoint_damage, dir_setup, dir_teardown),
        cmocka_unit_test_setup_teardown(test_checkpoint_of_the_future, dir_setup, dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
