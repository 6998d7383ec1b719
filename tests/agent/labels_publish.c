/* SPDX-License-Identifier: Apache-2.0 */
/* Labels over time: what is handed on, the file, the machine's own part. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "labels_world.h"

#include "agent/node/labels_publish.h"
#include "base/clock.h"
#include "base/log.h"

static uint64_t now_ns = SL_NS_PER_S;
static struct sl_loop *loop;
static struct sl_labeler *labeler;
static struct world w;
static char root[64], file[128];
static unsigned published;
static char count[64], machine[64];

static uint64_t clock_ns(void)
{
    return now_ns;
}

static uint64_t wall(void)
{
    return 1763189402;
}

static void changed(void *data)
{
    (void)data;
    published++;
    const struct sl_labels *labels = sl_labeler_last(labeler);
    const char *c = sl_labels_get(labels, "nvidia.com/gpu.count");
    const char *m = sl_labels_get(labels, "nvidia.com/gpu.machine");
    (void)snprintf(count, sizeof(count), "%s", c ? c : "");
    (void)snprintf(machine, sizeof(machine), "%s", m ? m : "");
}

static void put(const char *name, const void *data, size_t size)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, data, size), size);
    (void)close(fd);
}

static bool file_says(const char *line)
{
    static char text[8192];
    FILE *f = fopen(file, "re");
    if (!f)
        return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void)fclose(f);
    return strstr(text, line) != NULL;
}

static int setup(void **state)
{
    (void)state;
    static char machine_file[] = "/sys/class/dmi/id/product_name";
    sl_log_open(SL_LOG_OFF, -1);
    (void)strcpy(root, "/tmp/sluice-labels-XXXXXX");
    assert_non_null(mkdtemp(root));
    (void)snprintf(file, sizeof(file), "%s/features.d/gfd", root);
    put("/features.d/other", "", 0);
    put(machine_file, "Machine 1\n", 10);
    world_h200(&w, 1);
    world_offer(&w, "nvidia.com/gpu", false, 0, SL_NO_MIG, SL_SHARING_NONE, 1);
    w.config.gfd_output_file = file;
    w.config.gfd_machine_type_file = machine_file;
    w.config.gfd_sleep_ns = 60 * SL_NS_PER_S;
    assert_int_equal(sl_loop_create(clock_ns, &loop, NULL), 0);
    struct sl_labeler_options opt = {
        .changed = changed, .write_file = true, .sys_root = root, .wall_s = wall};
    labeler = sl_labeler_create(loop, &opt);
    published = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sl_labeler_destroy(labeler);
    sl_loop_destroy(loop);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void pass(uint64_t seconds)
{
    now_ns += seconds * SL_NS_PER_S;
    assert_int_equal(sl_loop_step(loop, 0, NULL), 0);
}

static void only_changes_are_handed_on(void **state)
{
    (void)state;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    assert_int_equal(published, 1);
    assert_string_equal(machine, "Machine-1");
    assert_true(file_says("nvidia.com/gpu.count=1\n"));
    assert_true(file_says("nvidia.com/gfd.timestamp=1763189402\n"));
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    pass(61);
    assert_int_equal(published, 1);
    w.gpu[0].lost = true;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    assert_int_equal(published, 2);
    assert_string_equal(count, "0");
    put("/sys/class/dmi/id/product_name", "Machine 2\n", 10);
    pass(61); /* what nobody tells is found at the interval */
    assert_int_equal(published, 3);
    assert_string_equal(machine, "Machine-2");
    w.config.gfd_sleep_ns = UINT64_MAX;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    put("/sys/class/dmi/id/product_name", "Machine 3\n", 10);
    pass(100000);
    assert_int_equal(published, 3);
}

static void the_file_comes_back(void **state)
{
    (void)state;
    struct stat before, after;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    assert_int_equal(stat(file, &before), 0);
    pass(61);
    assert_int_equal(stat(file, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* as it was: not written again */
    assert_int_equal(unlink(file), 0);
    pass(61);
    assert_true(file_says("nvidia.com/gpu.count=1\n"));
    char hidden[140];
    (void)snprintf(hidden, sizeof(hidden), "%s/features.d/.gfd", root);
    assert_int_equal(access(hidden, F_OK), -1);
    sl_labeler_destroy(labeler);
    labeler = NULL;
    assert_int_equal(access(file, F_OK), -1);
}

static void a_bad_place_is_no_end(void **state)
{
    (void)state;
    char nowhere[] = "/nonexistent/features.d/gfd";
    w.config.gfd_output_file = nowhere;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    assert_int_equal(published, 1);
    w.config.gfd_output_file = file;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    assert_true(file_says("nvidia.com/gpu.count=1\n"));
}

static void oneshot(void **state)
{
    (void)state;
    w.config.gfd_oneshot = true;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    w.gpu[0].lost = true;
    sl_labeler_update(labeler, &w.config, &w.inv, &w.plan);
    pass(1000);
    assert_int_equal(published, 1);
    sl_labeler_destroy(labeler);
    labeler = NULL;
    assert_true(file_says("nvidia.com/gpu.count=1\n")); /* it stays */
}

static void virtual_gpus(void **state)
{
    (void)state;
    struct sl_labels_host host;
    unsigned char space[256] = {0};
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_UNKNOWN);
    assert_string_equal(host.machine, "");

    space[0x06] = 0x10;
    space[0x34] = 0x40;
    space[0x40] = 0x05; /* another capability first */
    space[0x41] = 0x80;
    space[0x80] = 0x09;
    space[0x82] = 5 + 4 + 22;
    put("/sys/bus/pci/devices/0000:1b:00.0/config", space, sizeof(space));
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_NO);

    memcpy(space + 0x83,
           "VF\x01\x04??\x00\x16"
           "550.90.05\0"
           "r550_00\0\0",
           2 + 4 + 2 + 19);
    put("/sys/bus/pci/devices/0000:1b:00.0/config", space, sizeof(space));
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_YES);
    assert_string_equal(host.vgpu_driver_version, "550.90.05");
    assert_string_equal(host.vgpu_driver_branch, "r550_00");

    /* Nonsense ends: a list in a ring, lengths beyond the end, records of length 0, a short file. */
    space[0x83] = 'X';
    space[0x81] = 0x40;
    put("/sys/bus/pci/devices/0000:1b:00.0/config", space, sizeof(space));
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_NO);
    space[0x83] = 'V';
    space[0x82] = 255;
    space[0x85] = 1;
    space[0x86] = 0;
    put("/sys/bus/pci/devices/0000:1b:00.0/config", space, sizeof(space));
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_YES);
    assert_string_equal(host.vgpu_driver_version, "");
    put("/sys/bus/pci/devices/0000:1b:00.0/config", space, 64);
    sl_labels_host_read(root, NULL, &w.inv, &host);
    assert_int_equal(host.vgpu, SL_VGPU_UNKNOWN);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_changes_are_handed_on),
        TEST(the_file_comes_back),
        TEST(a_bad_place_is_no_end),
        TEST(oneshot),
        TEST(virtual_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
