/* SPDX-License-Identifier: Apache-2.0 */
#include "container/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "container/driver_internal.h"
#include "base/fsutil.h"
#include "driver_world.h"

#define DEBIAN  "/usr/lib/" MULTIARCH "/"
#define RED_HAT "/usr/lib64/"
#define HOST    "/run/nvidia/driver"

static void mounted(const struct sl_driver *d, const char *container, const char *host)
{
    const struct sl_edit_mount *m = world_mount(&d->files, container);
    if (!m)
        fail_msg("%s is not mounted", container);
    assert_string_equal(m->host, host);
    assert_true(m->read_only);
}

/* Each library under every name it goes by, in both families' directories; links inside the root. */
static void libraries_under_their_names(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    static const char *const names[] = {"libcuda.so", "libcuda.so.1",
                                        ("libcuda.so." WORLD_VERSION)};
    for (size_t i = 0; i < 3; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof(path), DEBIAN "%s", names[i]);
        mounted(d, path, HOST DEBIAN "libcuda.so." WORLD_VERSION);
        (void)snprintf(path, sizeof(path), RED_HAT "%s", names[i]);
        mounted(d, path, HOST DEBIAN "libcuda.so." WORLD_VERSION);
    }
    mounted(d, DEBIAN "libnvidia-ml.so.1",
            HOST DEBIAN "nvidia/current/libnvidia-ml.so." WORLD_VERSION);
    mounted(d, DEBIAN "libnvidia-ptxjitcompiler.so.1",
            HOST DEBIAN "libnvidia-ptxjitcompiler.so." WORLD_VERSION);
    mounted(d, RED_HAT "libnvidia-gpucomp.so." WORLD_VERSION,
            HOST DEBIAN "libnvidia-gpucomp.so." WORLD_VERSION);
    assert_null(world_mount(&d->files, DEBIAN "libnvidia-glcore.so." WORLD_VERSION));
    assert_null(world_mount(&d->files, DEBIAN "libcuda.so.535.104.05"));
    assert_null(world_mount(&d->files, DEBIAN "libz.so.1.2.13"));
    assert_int_equal(d->warning_count, 0);
    sl_driver_free(d);
}

static void programs_sockets_firmware(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    mounted(d, "/usr/bin/nvidia-smi", HOST "/usr/bin/nvidia-smi");
    mounted(d, "/usr/bin/nvidia-cuda-mps-control", HOST "/usr/bin/nvidia-cuda-mps-control");
    assert_null(world_mount(&d->files, "/usr/bin/nvidia-imex"));
    mounted(d, "/run/nvidia-persistenced/socket", HOST "/run/nvidia-persistenced/socket");
    mounted(d, "/lib/firmware/nvidia/" WORLD_VERSION, HOST "/lib/firmware/nvidia/" WORLD_VERSION);
    mounted(d, "/etc/OpenCL/vendors/nvidia.icd", HOST "/etc/OpenCL/vendors/nvidia.icd");
    assert_int_equal(d->files.env_count, 0);
    sl_driver_free(d);
}

static void other_layouts_and_guessed_version(void **state)
{
    struct driver_world *w = *state;
    world_library(w, "usr/lib64/libcuda.so." WORLD_VERSION, "cuda");
    world_link(w, "usr/lib64/libcuda.so.1", "libcuda.so." WORLD_VERSION);
    struct sl_driver_options o = {.root = w->root, .proc = w->proc};
    struct sl_driver *d = NULL;
    assert_int_equal(sl_driver_find(&o, &d, NULL), 0);
    assert_string_equal(d->version, WORLD_VERSION);
    char host[PATH_MAX];
    (void)snprintf(host, sizeof(host), "%s/usr/lib64/libcuda.so." WORLD_VERSION, w->root);
    mounted(d, DEBIAN "libcuda.so.1", host);
    /* NVML, the PTX compiler and two nodes are missed. */
    assert_int_equal(d->warning_count, 4);
    assert_non_null(strstr(d->warning[0], "libnvidia-ml"));
    assert_non_null(strstr(d->warning[3], "nvidia-modprobe"));
    sl_driver_free(d);
}

static void what_is_no_library_is_left_out(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    world_text(w, DEBIAN "libnvidia-odd.so." WORLD_VERSION, "not a library");
    world_library(w, DEBIAN "libnvidia-old.so." WORLD_VERSION, "none");
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s" DEBIAN "libnvidia-old.so." WORLD_VERSION, w->root);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\1", 1, 4), 1); /* ELFCLASS32 */
    (void)close(fd);
    struct sl_driver *d = world_find(w);
    assert_null(world_mount(&d->files, DEBIAN "libnvidia-odd.so." WORLD_VERSION));
    assert_null(world_mount(&d->files, DEBIAN "libnvidia-old.so." WORLD_VERSION));
    assert_int_equal(d->warning_count, 1);
    assert_non_null(strstr(d->warning[0], "libnvidia-odd"));
    sl_driver_free(d);
}

static void no_driver(void **state)
{
    struct driver_world *w = *state;
    struct sl_driver *d = NULL;
    struct sl_err err = SL_ERR_INIT;
    struct sl_driver_options o = {.root = w->root, .version = WORLD_VERSION};
    assert_int_equal(sl_driver_find(&o, &d, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "libcuda.so." WORLD_VERSION));
    world_library(w, DEBIAN "libcuda.so.535.104.05",
                  "cuda"); /* of another version than the kernel's */
    assert_int_equal(sl_driver_find(&o, &d, &err), -ENOENT);
    o.version = "../../etc";
    assert_int_equal(sl_driver_find(&o, &d, &err), -EINVAL);
    assert_null(d);
}

static void nodes_there_and_by_number(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    const struct sl_edit_node *n = world_has_node(&d->nodes, "/dev/nvidiactl");
    assert_non_null(n);
    assert_string_equal(n->host, "/dev/nvidiactl");
    assert_false(n->numbered);
    /* Not on the host yet, but its driver is: a profiler gets it. */
    n = world_has_node(&d->nodes, "/dev/nvidia-uvm-tools");
    assert_non_null(n);
    assert_true(n->numbered && n->major == 511 && n->minor == 1);
    assert_null(world_has_node(&d->nodes, "/dev/nvidia-modeset"));
    sl_driver_free(d);
}

static void companions_when_enabled(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    world_node(w, "dev/gdrdrv");
    world_node(w, "dev/nvidia-fs0");
    world_node(w, "dev/nvidia-fs1");
    world_text(w, "dev/nvidia-fs-note", "not a node");
    world_node(w, "dev/infiniband/uverbs0");
    world_node(w, "dev/infiniband/issm0");
    struct sl_driver_options o = {
        .root = w->root, .proc = w->proc, .version = WORLD_VERSION, .gds = true, .mofed = true};
    struct sl_driver *d = NULL;
    assert_int_equal(sl_driver_find(&o, &d, NULL), 0);
    assert_null(world_has_node(&d->nodes, "/dev/gdrdrv"));
    assert_non_null(world_has_node(&d->nodes, "/dev/nvidia-fs0"));
    assert_non_null(world_has_node(&d->nodes, "/dev/nvidia-fs1"));
    assert_null(world_has_node(&d->nodes, "/dev/nvidia-fs-note"));
    assert_non_null(world_has_node(&d->nodes, "/dev/infiniband/uverbs0"));
    assert_null(world_has_node(&d->nodes, "/dev/infiniband/issm0"));
    sl_driver_free(d);
}

static void mig_capabilities(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    struct sl_driver *d = world_find(w);
    struct sl_edits e = {0};
    assert_int_equal(sl_driver_mig_nodes(d, 1, 1, 0, &e, NULL), 0);
    assert_int_equal(e.node_count, 2);
    assert_string_equal(e.node[0].container, "/dev/nvidia-caps/nvidia-cap12");
    assert_string_equal(e.node[1].container, "/dev/nvidia-caps/nvidia-cap13");
    assert_false(e.node[0].numbered || e.node[1].numbered);
    sl_edits_clear(&e);
    /* Just made: no node on the host yet. */
    assert_int_equal(sl_driver_mig_nodes(d, 1, 2, 0, &e, NULL), 0);
    assert_true(e.node[1].numbered && e.node[1].major == 234 && e.node[1].minor == 22);
    sl_edits_clear(&e);
    /* Only the table knows it. */
    world_proc(w, "driver/nvidia-caps/mig-minors",
               "config 1\nmonitor 2\ngpu1/gi9/access 93\ngpu1/gi9/ci0/access 94\n");
    assert_int_equal(sl_driver_mig_nodes(d, 1, 9, 0, &e, NULL), 0);
    assert_string_equal(e.node[0].container, "/dev/nvidia-caps/nvidia-cap93");
    sl_edits_clear(&e);
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_driver_mig_nodes(d, 1, 9, 1, &e, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "gi9/ci1"));
    sl_edits_clear(&e);
    sl_driver_free(d);
}

static void simulated_root(void **state)
{
    struct driver_world *w = *state;
    world_library(w, "lib/libcuda.so.580.0", "cuda");
    world_link(w, "lib/libcuda.so.1", "libcuda.so.580.0");
    world_library(w, "lib/libnvidia-ml.so.1", "ml");
    world_text(w, "dev/nvidiactl", "");
    world_text(w, "dev/nvidia-uvm", "");
    world_text(w, "dev/nvidia0", "");
    world_text(w, "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 3\n");
    world_text(w, "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access",
               "DeviceFileMinor: 4\n");
    world_text(w, "dev/nvidia-caps/nvidia-cap3", "");
    world_text(w, "dev/nvidia-caps/nvidia-cap4", "");
    world_text(w, "sluice-sim", "# one card\nSLUICE_SIM=h200\nSLUICE_SIM_STATE=state/machine\n");
    struct sl_driver_options o = {.root = w->root, .root_host = "/srv/sim", .version = "580.0"};
    struct sl_driver *d = NULL;
    assert_int_equal(sl_driver_find(&o, &d, NULL), 0);
    assert_true(d->simulated);
    mounted(d, DEBIAN "libcuda.so.1", "/srv/sim/lib/libcuda.so.580.0");
    mounted(d, RED_HAT "libnvidia-ml.so.1", "/srv/sim/lib/libnvidia-ml.so.1");
    assert_string_equal(world_env(&d->files, "SLUICE_SIM"), "h200");
    assert_string_equal(world_env(&d->files, "SLUICE_SIM_DEV"), "/dev");
    const char *in_container = world_env(&d->files, "SLUICE_SIM_STATE");
    assert_non_null(in_container);
    const struct sl_edit_mount *m = world_mount(&d->files, in_container);
    assert_non_null(m);
    assert_string_equal(m->host, "/srv/sim/state/machine");
    assert_false(m->read_only);
    m = world_mount(&d->nodes, "/dev/nvidiactl");
    assert_non_null(m);
    assert_string_equal(m->host, "/srv/sim/dev/nvidiactl");
    assert_int_equal(d->nodes.node_count, 0);
    struct sl_edits e = {0};
    assert_int_equal(sl_driver_gpu_node(d, 0, &e, NULL), 0);
    assert_int_equal(sl_driver_mig_nodes(d, 0, 1, 0, &e, NULL), 0);
    assert_int_equal(e.mount_count, 3);
    assert_string_equal(e.mount[2].container, "/dev/nvidia-caps/nvidia-cap4");
    assert_int_equal(sl_driver_gpu_node(d, 1, &e, NULL), -ENOENT);
    sl_edits_clear(&e);
    sl_driver_free(d);

    world_text(w, "sluice-sim", "LD_PRELOAD=/tmp/x.so\n");
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_driver_find(&o, &d, &err), -EINVAL);
}

static void a_file_is_no_node(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    world_text(w, "dev/nvidia7", "");
    struct sl_driver *d = world_find(w);
    struct sl_edits e = {0};
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_driver_gpu_node(d, 7, &e, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "not a device node"));
    assert_int_equal(e.node_count + e.mount_count, 0);
    sl_driver_free(d);
}

/* As NVIDIA's configuration says it: where the host has the driver, and where the agent sees that. */
static void options_of_a_configuration(void **state)
{
    struct driver_world *w = *state;
    char host[] = "/run/nvidia/driver", dev[] = "/", absent[] = "/nonexistent/driver-root";
    struct sl_config config = {.driver_root = host, .container_driver_root = w->root, .gds = true};
    struct sl_driver_options o;
    sl_driver_options_set(&o, &config, WORLD_VERSION);
    assert_string_equal(o.root, w->root);
    assert_string_equal(o.root_host, host);
    assert_string_equal(o.dev_root, "/"); /* no nodes in the root: the machine's */
    assert_string_equal(o.dev_root_host, host);
    assert_true(o.gds && !o.mofed);
    world_node(w, "dev/nvidiactl");
    config.dev_root = dev;
    sl_driver_options_set(&o, &config, NULL);
    assert_null(o.dev_root);
    assert_string_equal(o.dev_root_host, "/");
    config.container_driver_root = absent; /* not in a container */
    sl_driver_options_set(&o, &config, NULL);
    assert_string_equal(o.root, host);
}

static void locate_before_anything(void **state)
{
    struct driver_world *w = *state;
    world_debian(w);
    char path[PATH_MAX], want[PATH_MAX];
    assert_int_equal(sl_driver_locate(w->root, "libnvidia-ml.so.1", path, sizeof(path), NULL), 0);
    (void)snprintf(want, sizeof(want), "%s" DEBIAN "nvidia/current/libnvidia-ml.so." WORLD_VERSION,
                   w->root);
    assert_string_equal(path, want);
    assert_int_equal(sl_driver_locate(w->root, "nvidia-cuda-mps-control", path, sizeof(path), NULL),
                     0);
    assert_non_null(strstr(path, "/usr/bin/nvidia-cuda-mps-control"));
    assert_int_equal(sl_driver_locate(w->root, "nvidia-imex", path, sizeof(path), NULL), -ENOENT);
    assert_int_equal(sl_driver_locate(w->root, "nvidia-smi", path, 8, NULL), -ENAMETOOLONG);
}

/* A damaged library is refused or read, never believed beyond its end. */
static void damaged_libraries(void **state)
{
    (void)state;
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(sl_fs_read(AT_FDCWD, DRIVER_LIBRARY_DIR "/driver_library_cuda.so", 1u << 20,
                                &data, &size, NULL),
                     0);
    int fd = memfd_create("library", 0);
    struct driver_elf elf;
    assert_int_equal(pwrite(fd, data, size, 0), (ssize_t)size);
    assert_int_equal(sl_driver_elf_read(fd, &elf), 0);
    assert_string_equal(elf.soname, "libcuda.so.1");
    for (size_t i = 0; i < 1024 && i < size; i++) {
        static const unsigned char bad[] = {0x00, 0x01, 0x7f, 0xff};
        for (size_t k = 0; k < sizeof(bad); k++) {
            assert_int_equal(pwrite(fd, &bad[k], 1, (off_t)i), 1);
            int rc = sl_driver_elf_read(fd, &elf);
            assert_true(rc == 0 || rc == -ENOEXEC);
            assert_non_null(memchr(elf.soname, '\0', sizeof(elf.soname)));
        }
        assert_int_equal(pwrite(fd, data + i, 1, (off_t)i), 1);
    }
    assert_int_equal(ftruncate(fd, 600), 0);
    assert_int_equal(sl_driver_elf_read(fd, &elf), -ENOEXEC);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(sl_driver_elf_read(fd, &elf), -ENOEXEC);
    (void)close(fd);
    free(data);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, driver_world_make, driver_world_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(libraries_under_their_names),
        CASE(programs_sockets_firmware),
        CASE(other_layouts_and_guessed_version),
        CASE(what_is_no_library_is_left_out),
        CASE(no_driver),
        CASE(nodes_there_and_by_number),
        CASE(companions_when_enabled),
        CASE(mig_capabilities),
        CASE(simulated_root),
        CASE(a_file_is_no_node),
        CASE(options_of_a_configuration),
        CASE(locate_before_anything),
        cmocka_unit_test(damaged_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
