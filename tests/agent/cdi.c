/* SPDX-License-Identifier: Apache-2.0 */
#include "container/cdi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/fsutil.h"
#include "driver_world.h"

#define NODE_FILE "k8s.device-plugin.nvidia.com-gpu.json"
#define UID       "5b3ad1a6-9c5e-4d1c-8a39-0c4f1c1b2a10"

static bool matches(const char *pattern, const char *text)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool yes = text && regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return yes;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void check_keys(json_t *object, const char *allowed)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!matches(allowed, key))
            fail_msg("unknown key %s", key);
    }
}

/* The rules of the CDI specification that runtimes refuse a file over. */
static void check_edits(json_t *edits)
{
    size_t i, k;
    json_t *item, *option;
    check_keys(edits, "^(env|deviceNodes|mounts)$");
    json_array_foreach(json_object_get(edits, "env"), i, item)
        assert_true(matches("^[A-Z_]+=", json_string_value(item)));
    json_array_foreach(json_object_get(edits, "deviceNodes"), i, item)
    {
        check_keys(item, "^(path|hostPath|type|major|minor|permissions)$");
        assert_true(matches("^/dev/", text_of(item, "path")));
        assert_true(matches("^/", text_of(item, "hostPath")));
        assert_true(matches("^[rwm]+$", text_of(item, "permissions")));
        if (json_object_get(item, "major"))
            assert_string_equal(text_of(item, "type"), "c");
    }
    json_array_foreach(json_object_get(edits, "mounts"), i, item)
    {
        check_keys(item, "^(hostPath|containerPath|options)$");
        assert_true(matches("^/", text_of(item, "hostPath")));
        assert_true(matches("^/", text_of(item, "containerPath")));
        json_array_foreach(json_object_get(item, "options"), k, option) assert_true(
            matches("^(ro|rw|nosuid|nodev|rbind|rprivate)$", json_string_value(option)));
    }
}

/* The spec in dir/file, checked; the caller's to free. */
static json_t *load_spec(const char *dir, const char *file, const char *kind)
{
    char path[PATH_MAX];
    json_error_t error;
    size_t i, k;
    json_t *device, *other;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    json_t *spec = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!spec)
        fail_msg("%s: %s", path, error.text);
    check_keys(spec, "^(cdiVersion|kind|devices|containerEdits)$");
    assert_string_equal(text_of(spec, "cdiVersion"), "0.5.0");
    assert_string_equal(text_of(spec, "kind"), kind);
    assert_true(
        matches("^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]$", kind));
    json_t *devices = json_object_get(spec, "devices");
    assert_true(json_array_size(devices) > 0);
    json_array_foreach(devices, i, device)
    {
        check_keys(device, "^(name|containerEdits)$");
        assert_true(
            matches("^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$", text_of(device, "name")));
        assert_true(json_object_size(json_object_get(device, "containerEdits")) > 0);
        check_edits(json_object_get(device, "containerEdits"));
        json_array_foreach(devices, k, other)
            assert_true(i == k || strcmp(text_of(device, "name"), text_of(other, "name")) != 0);
    }
    check_edits(json_object_get(spec, "containerEdits"));
    return spec;
}

/* The edits of one device, borrowed; NULL when the spec does not have it. */
static json_t *device_edits(const json_t *spec, const char *name)
{
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(spec, "devices"), i, device)
    {
        if (strcmp(text_of(device, "name"), name) == 0)
            return json_object_get(device, "containerEdits");
    }
    return NULL;
}

static bool has(const json_t *edits, const char *list, const char *key, const char *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(edits, list), i, item)
    {
        const char *text = key ? text_of(item, key) : json_string_value(item);
        if (text && strcmp(text, value) == 0)
            return true;
    }
    return false;
}

/* A spec that is written is a new file: changes with each write. */
static ino_t node_file(const struct driver_world *w)
{
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/" NODE_FILE, w->cdi);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static json_t *write_node(const struct driver_world *w, const struct sl_driver *d,
                          const struct sl_inventory *inv, bool want_changed)
{
    ino_t before = node_file(w);
    struct sl_err err = SL_ERR_INIT;
    if (sl_cdi_write_node(w->cdi, d, inv, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(node_file(w) != before, want_changed);
    return load_spec(w->cdi, NODE_FILE, SL_CDI_NODE_KIND);
}

static void node_spec(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    struct sl_inventory *inv = world_inventory();
    json_t *spec = write_node(w, d, inv, true);
    assert_int_equal(json_array_size(json_object_get(spec, "devices")), 9); /* 4 twice, and all */
    const char *whole[] = {inv->gpu[0].info.uuid, "0"};
    for (size_t i = 0; i < 2; i++) {
        json_t *e = device_edits(spec, whole[i]);
        assert_int_equal(json_array_size(json_object_get(e, "deviceNodes")), 1);
        assert_true(has(e, "deviceNodes", "path", "/dev/nvidia0"));
    }
    const char *mig[] = {inv->gpu[1].mig[0].info.uuid, "1:0"};
    for (size_t i = 0; i < 2; i++) {
        json_t *e = device_edits(spec, mig[i]);
        assert_int_equal(json_array_size(json_object_get(e, "deviceNodes")), 3);
        assert_true(has(e, "deviceNodes", "path", "/dev/nvidia1"));
        assert_true(has(e, "deviceNodes", "path", "/dev/nvidia-caps/nvidia-cap12"));
        assert_true(has(e, "deviceNodes", "path", "/dev/nvidia-caps/nvidia-cap13"));
    }
    json_t *all = json_object_get(device_edits(spec, "all"), "deviceNodes");
    assert_int_equal(json_array_size(all), 6); /* two cards, two times two capabilities */
    json_t *common = json_object_get(spec, "containerEdits");
    assert_true(has(common, "env", NULL, "NVIDIA_VISIBLE_DEVICES=void"));
    assert_true(has(common, "deviceNodes", "path", "/dev/nvidia-uvm"));
    assert_true(has(common, "mounts", "containerPath", "/usr/lib64/libcuda.so.1"));
    assert_false(has(common, "deviceNodes", "path", "/dev/nvidia0"));
    json_decref(spec);

    char path[PATH_MAX];
    struct stat st, again;
    (void)snprintf(path, sizeof(path), "%s/" NODE_FILE, w->cdi);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644 & ~umask(022));
    json_decref(write_node(w, d, inv, false)); /* the same again: the file is left alone */
    assert_int_equal(stat(path, &again), 0);
    assert_int_equal(st.st_ino, again.st_ino);
    world_free_inventory(inv);
    sl_driver_free(d);
}

/* Beside a card that never answered, and so has no place in the inventory: the driver's numbers. */
static void numbers_are_the_drivers(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    struct sl_inventory *inv = world_inventory();
    inv->gpu[0].index = 1;
    inv->gpu[1].index = 2;
    json_t *spec = write_node(w, d, inv, true);
    assert_null(device_edits(spec, "0"));
    assert_null(device_edits(spec, "1:0"));
    assert_true(has(device_edits(spec, "1"), "deviceNodes", "path", "/dev/nvidia0"));
    assert_true(has(device_edits(spec, "2:0"), "deviceNodes", "path", "/dev/nvidia1"));
    json_decref(spec);
    world_free_inventory(inv);
    sl_driver_free(d);
}

static void devices_come_and_go(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    struct sl_inventory *inv = world_inventory();
    json_decref(write_node(w, d, inv, true));
    inv->gpu[1].mig_count = 1; /* a MIG device was destroyed */
    json_t *spec = write_node(w, d, inv, true);
    assert_null(device_edits(spec, inv->gpu[1].mig[1].info.uuid));
    assert_null(device_edits(spec, "1:1"));
    assert_non_null(device_edits(spec, "1:0"));
    json_decref(spec);
    inv->gpu[0].lost = true;
    spec = write_node(w, d, inv, true);
    assert_null(device_edits(spec, "0"));
    assert_false(has(device_edits(spec, "all"), "deviceNodes", "path", "/dev/nvidia0"));
    json_decref(spec);
    /* A MIG device whose capability the driver does not tell is left out; its card is not. */
    inv->gpu[1].mig[0].info.gpu_instance = 77;
    spec = write_node(w, d, inv, true);
    assert_null(device_edits(spec, "1:0"));
    assert_non_null(device_edits(spec, "1"));
    json_decref(spec);
    inv->gpu[1].lost = true; /* nothing left: no empty spec stays behind */
    assert_int_equal(sl_cdi_write_node(w->cdi, d, inv, NULL), 0);
    assert_int_equal(node_file(w), 0);
    assert_int_equal(sl_cdi_write_node(w->cdi, d, inv, NULL), 0);
    world_free_inventory(inv);
    sl_driver_free(d);
}

static void imex_channel(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    world_node(w, "dev/nvidia-caps-imex-channels/channel0");
    struct sl_driver *d = world_find(w);
    struct sl_inventory *inv = world_inventory();
    json_decref(write_node(w, d, inv, true));
    json_t *spec =
        load_spec(w->cdi, "k8s.device-plugin.nvidia.com-imex-channel.json", SL_CDI_IMEX_KIND);
    assert_true(has(device_edits(spec, "0"), "deviceNodes", "path",
                    "/dev/nvidia-caps-imex-channels/channel0"));
    json_decref(spec);
    world_free_inventory(inv);
    sl_driver_free(d);
}

/* No room on the disk (a limit on the size of files stands in): an error, and the old spec as it was. */
static void disk_full(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    struct sl_inventory *inv = world_inventory();
    json_t *before = write_node(w, d, inv, true);
    inv->gpu[1].mig_count = 0;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 512;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct sl_err err = SL_ERR_INIT;
    ino_t file = node_file(w);
    int rc = sl_cdi_write_node(w->cdi, d, inv, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(err.msg, NODE_FILE));
    assert_int_equal(node_file(w), file);
    json_t *after = load_spec(w->cdi, NODE_FILE, SL_CDI_NODE_KIND);
    assert_true(json_equal(before, after));
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/" NODE_FILE ".new", w->cdi);
    assert_int_equal(access(path, F_OK), -1);
    json_decref(before);
    json_decref(after);
    json_decref(write_node(w, d, inv, true)); /* room again */
    world_free_inventory(inv);
    sl_driver_free(d);
}

static const char golden[] =
    "{\"cdiVersion\": \"0.5.0\", \"kind\": \"k8s.gpu.sluice.io/claim\", \"devices\": ["
    "{\"name\": \"" UID "-gpu\", \"containerEdits\": {\"env\": [\"A=1\"], \"deviceNodes\": ["
    "{\"path\": \"/dev/nvidia0\", \"hostPath\": \"/dev/nvidia0\", \"permissions\": \"rw\"},"
    "{\"path\": \"/dev/c\", \"hostPath\": \"/dev/c\", \"type\": \"c\", \"major\": 234, \"minor\": "
    "0,"
    " \"permissions\": \"rw\"}]}},"
    "{\"name\": \"" UID "-container-1-request-0\", \"containerEdits\": {\"mounts\": ["
    "{\"hostPath\": \"/a\", \"containerPath\": \"/b\","
    " \"options\": [\"rw\", \"nosuid\", \"nodev\", \"rbind\", \"rprivate\"]}]}}],"
    "\"containerEdits\": {\"mounts\": [{\"hostPath\": \"/l\", \"containerPath\": \"/m\","
    " \"options\": [\"ro\", \"nosuid\", \"nodev\", \"rbind\", \"rprivate\"]}]}}";

static void claim_specs(void **state)
{
    struct driver_world *w = *state;
    struct sl_edits first = {0}, second = {0}, common = {0};
    sl_edits_env(&first, "A", "1");
    sl_edits_node(&first, "/dev/nvidia0", "/dev/nvidia0");
    sl_edits_node_numbered(&first, "/dev/c", "/dev/c", 234, 0);
    sl_edits_mount(&second, "/a", "/b", false);
    sl_edits_mount(&common, "/l", "/m", true);
    const struct sl_cdi_device devices[] = {{"gpu", first}, {"container-1-request-0", second}};

    char **claims = NULL, name[SL_CDI_NAME_SIZE];
    size_t count = 99;
    assert_int_equal(sl_cdi_list(w->cdi, SL_CDI_CLAIM, &claims, &count, NULL),
                     0); /* no directory yet */
    assert_int_equal(count, 0);
    sl_cdi_list_free(claims, count);

    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, devices, 2, &common, NULL), 0);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, devices, 2, &common, NULL), 0);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, "another", devices, 1, NULL, NULL), 0);
    json_t *want = json_loads(golden, 0, NULL);
    json_t *spec =
        load_spec(w->cdi, "k8s.gpu.sluice.io-claim_" UID ".json", "k8s.gpu.sluice.io/claim");
    assert_true(json_equal(want, spec));
    json_decref(want);
    json_decref(spec);
    assert_int_equal(sl_cdi_name(SL_CDI_CLAIM, UID, "gpu", name, sizeof(name), NULL), 0);
    assert_string_equal(name, "k8s.gpu.sluice.io/claim=" UID "-gpu");
    assert_int_equal(sl_cdi_name(SL_CDI_CLAIM, UID, "gpu", name, 40, NULL), -ENAMETOOLONG);

    assert_int_equal(sl_cdi_list(w->cdi, SL_CDI_CLAIM, &claims, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(claims[0], UID);
    assert_string_equal(claims[1], "another");
    sl_cdi_list_free(claims, count);
    assert_int_equal(sl_cdi_remove(w->cdi, SL_CDI_CLAIM, UID, NULL), 0);
    assert_int_equal(sl_cdi_remove(w->cdi, SL_CDI_CLAIM, UID, NULL), 0);
    assert_int_equal(sl_cdi_list(w->cdi, SL_CDI_CLAIM, &claims, &count, NULL), 0);
    assert_int_equal(count, 1);
    sl_cdi_list_free(claims, count);
    sl_edits_clear(&first);
    sl_edits_clear(&second);
    sl_edits_clear(&common);
}

static void claims_that_make_no_spec(void **state)
{
    struct driver_world *w = *state;
    struct sl_edits some = {0}, none = {0};
    struct sl_err err = SL_ERR_INIT;
    sl_edits_env(&some, "A", "1");
    const struct sl_cdi_device good = {"gpu", some}, empty = {"gpu", none}, odd = {"gpu/sub", some},
                               twice[] = {{"gpu", some}, {"gpu", some}};
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, "../../etc/x", &good, 1, NULL, &err),
                     -EINVAL);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, "", &good, 1, NULL, &err), -EINVAL);
    assert_int_equal(sl_cdi_remove(w->cdi, SL_CDI_CLAIM, "../x", &err), -EINVAL);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, &good, 0, NULL, &err), -EINVAL);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, &empty, 1, NULL, &err), -EINVAL);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, &odd, 1, NULL, &err), -EINVAL);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_CLAIM, UID, twice, 2, NULL, &err), -EEXIST);
    assert_int_equal(access(w->cdi, F_OK), -1); /* nothing was begun */
    sl_edits_clear(&some);
}

static void libsluice_for_a_tenant(void **state)
{
    struct driver_world *w = *state;
    char lib[PATH_MAX], *text = NULL;
    world_text(w, "image/libsluice.so", "the library");
    (void)snprintf(lib, sizeof(lib), "%s/image/libsluice.so", w->root);
    assert_int_equal(sl_cdi_install_sluice(w->cdi, lib, NULL), 0);
    assert_int_equal(sl_cdi_install_sluice(w->cdi, lib, NULL), 0);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/ld.so.preload", w->cdi);
    assert_int_equal(sl_fs_read(AT_FDCWD, path, 4096, &text, NULL, NULL), 0);
    assert_string_equal(text, SL_CDI_LIBSLUICE "\n");
    free(text);
    (void)snprintf(path, sizeof(path), "%s/libsluice.so", w->cdi);
    assert_int_equal(sl_fs_read(AT_FDCWD, path, 4096, &text, NULL, NULL), 0);
    assert_string_equal(text, "the library");
    free(text);
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_cdi_install_sluice(w->cdi, "/nonexistent/libsluice.so", &err), -ENOENT);

    struct sl_edits e = {0};
    assert_int_equal(sl_cdi_sluice_edits("/var/lib/sluice", "/run/sluice/t1", &e, NULL), 0);
    assert_int_equal(e.mount_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(e.mount[i].read_only);
    assert_string_equal(world_mount(&e, "/etc/ld.so.preload")->host,
                        "/var/lib/sluice/ld.so.preload");
    assert_string_equal(world_mount(&e, SL_CDI_LIBSLUICE)->host, "/var/lib/sluice/libsluice.so");
    assert_string_equal(world_mount(&e, "/run/sluice")->host, "/run/sluice/t1");
    sl_edits_clear(&e);
}

static void lease_specs(void **state)
{
    struct driver_world *w = *state;
    struct sl_cdi_device device = {.name = ""};
    struct sl_err err = SL_ERR_INIT;
    char name[SL_CDI_NAME_SIZE], dir[PATH_MAX], path[PATH_MAX];
    assert_int_equal(sl_cdi_name(SL_CDI_LEASE, "train", "", name, sizeof(name), NULL), 0);
    assert_string_equal(name, "sluice.io/lease=train");
    assert_int_equal(sl_cdi_attach_dir(w->cdi, SL_CDI_LEASE, "train", dir, sizeof(dir), &err),
                     -ENOENT);
    assert_int_equal(
        sl_cdi_sluice_edits("/run/sluice/lease/train", "/run/sluice/k/train", &device.edits, NULL),
        0);
    assert_int_equal(sl_cdi_write(w->cdi, SL_CDI_LEASE, "train", &device, 1, NULL, &err), 0);
    sl_edits_clear(&device.edits);
    assert_int_equal(sl_cdi_attach_dir(w->cdi, SL_CDI_LEASE, "train", dir, sizeof(dir), &err), 0);
    assert_string_equal(dir, "/run/sluice/k/train");
    assert_int_equal(sl_cdi_attach_dir(w->cdi, SL_CDI_LEASE, "../x", dir, sizeof(dir), &err),
                     -EINVAL);
    assert_int_equal(sl_cdi_attach_dir(w->cdi, SL_CDI_LEASE, "train", dir, 4, &err), -EPROTO);

    /* What a killed writer left goes with the spec. */
    (void)snprintf(path, sizeof(path), "%s/sluice.io-lease_train.json.new", w->cdi);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
    assert_int_equal(sl_cdi_remove(w->cdi, SL_CDI_LEASE, "train", &err), 0);
    assert_int_equal(access(path, F_OK), -1);
    /* A file of somebody else. */
    (void)snprintf(path, sizeof(path), "%s/sluice.io-lease_other.json", w->cdi);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("{\"devices\": [{\"containerEdits\": {\"mounts\": [1, {}]}}]}", f);
    (void)fclose(f);
    assert_int_equal(sl_cdi_attach_dir(w->cdi, SL_CDI_LEASE, "other", dir, sizeof(dir), &err),
                     -EPROTO);
    assert_non_null(strstr(err.msg, path));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, driver_world_make, driver_world_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(node_spec),
        CASE(numbers_are_the_drivers),
        CASE(devices_come_and_go),
        CASE(imex_channel),
        CASE(disk_full),
        CASE(claim_specs),
        CASE(claims_that_make_no_spec),
        CASE(libsluice_for_a_tenant),
        CASE(lease_specs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
