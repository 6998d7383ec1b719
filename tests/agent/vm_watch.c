/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a made machine: changes, damage, names that are remembered, and a sysfs that does not answer. */
#include "vm_world.h"

#include <fcntl.h>

#include "agent/vm/vm.h"
#include "base/clock.h"
#include "base/loop.h"

static struct vm_world world;
static struct sl_loop *loop;
static struct sl_vm *vm;
static unsigned changes, troubles, stalls, resumes;
static size_t functions;
static char words[400], state_dir[100];

static void changed(void *data, const struct sl_vm_tree *tree)
{
    (void)data;
    changes++;
    functions = tree->function_count;
}

static void trouble(void *data, const struct sl_err *err)
{
    (void)data;
    troubles++;
    (void)snprintf(words, sizeof(words), "%s", err->msg);
}

static void stalled(void *data, uint64_t for_ns)
{
    (void)data;
    (void)for_ns;
    stalls++;
}

static void resumed(void *data, uint64_t after_ns)
{
    (void)data;
    (void)after_ns;
    resumes++;
}

static void start(void)
{
    struct sl_err err = SL_ERR_INIT;
    static const struct sl_vm_ops ops = {changed, trouble, stalled, resumed};
    const struct sl_vm_options options = {.root = world.root,
                                          .state_dir = state_dir,
                                          .poll_ns = SL_NS_PER_MS,
                                          .stall_ns = 50 * SL_NS_PER_MS};
    if (sl_vm_create(loop, &options, &ops, NULL, &vm, &err) < 0)
        fail_msg("%s", err.msg);
    char ids[100];
    (void)snprintf(ids, sizeof(ids), "%s/usr/share/hwdata/pci.ids", world.root);
    sl_vm_pci_ids(vm, ids);
}

static int set_up(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    vm_open(&world);
    (void)snprintf(state_dir, sizeof(state_dir), "%s/state", world.root);
    changes = troubles = stalls = resumes = 0;
    functions = 0;
    return sl_loop_create(NULL, &loop, &err);
}

static int tear_down(void **state)
{
    (void)state;
    sl_vm_destroy(vm);
    vm = NULL;
    sl_loop_destroy(loop);
    vm_close(&world);
    return 0;
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        struct sl_err err_ = SL_ERR_INIT;                                                          \
        uint64_t end_ = sl_now_ns() + 60 * SL_NS_PER_S;                                            \
        while (!(condition)) {                                                                     \
            if (sl_now_ns() > end_)                                                                \
                fail_msg("never: %s", #condition);                                                 \
            assert_int_equal(sl_loop_step(loop, 5, &err_), 0);                                     \
        }                                                                                          \
    } while (0)

static void comes_and_goes(void **state)
{
    (void)state;
    start();
    UNTIL(changes == 1);
    assert_int_equal(functions, 0);
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    UNTIL(functions == 1);
    vm_remove(&world, VM_PCI "0000:1b:00.0");
    UNTIL(functions == 0);
    vm_remove(&world, "sys");
    UNTIL(troubles > 0);
    assert_non_null(strstr(words, "sys/bus/pci/devices"));
}

/* The thread that reads waits in a pipe which nobody writes to. Returns the pipe's other end. */
static int block(void)
{
    char path[200];
    int fd = -1;
    (void)snprintf(path, sizeof(path), "%s/" VM_PCI "0000:1b:00.0/vendor", world.root);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    /* It can be opened only when the thread is there. */
    UNTIL((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
    assert_int_equal(unlink(path), 0); /* the next read finds a file again */
    vm_file(&world, "0x10de\n", VM_PCI "0000:1b:00.0/vendor");
    UNTIL(stalls > resumes); /* on a slow machine there may have been others before */
    return fd;
}

static void blocks(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    start();
    UNTIL(functions == 1);
    int fd = block();
    assert_int_equal(sl_vm_tree_last(vm)->function_count, 1); /* what was known stays */
    unsigned before = changes;
    assert_int_equal(write(fd, "0x10de\n", 7), 7);
    assert_int_equal(close(fd), 0);
    UNTIL(stalls == resumes);
    assert_int_equal(changes, before);
}

/* The agent ends although a read never does. */
static void ends_while_blocked(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    start();
    UNTIL(functions == 1);
    int fd = block();
    sl_vm_destroy(vm);
    vm = NULL;
    assert_int_equal(close(fd), 0); /* the thread goes on, and frees what it holds */
}

static void remembers_types(void **state)
{
    (void)state;
    size_t n = 0;
    vm_vf(&world, "0000:4e:00.0", "0000:4e:00.4", 61, 0, "ID : vGPU Name\n1157 : NVIDIA L40S-8Q\n");
    start();
    UNTIL(functions == 1);
    sl_vm_destroy(vm);
    vm_file(&world, "ID : vGPU Name\n", VM_PCI "0000:4e:00.4/nvidia/creatable_vgpu_types");
    changes = 0;
    start(); /* another agent, and the card is full now */
    UNTIL(changes == 1);
    const struct sl_vgpu_type *type = sl_vm_types(vm, &n);
    assert_int_equal(n, 1);
    assert_int_equal(type->id, 1157);
    assert_string_equal(type->name, "NVIDIA L40S-8Q");
    sl_vm_destroy(vm);
    vm_file(&world, "1157 : NVIDIA L40S-8Q\nxx\n12 :", "state/vgpu-types"); /* damaged */
    start();
    (void)sl_vm_types(vm, &n);
    assert_int_equal(n, 1);
}

static void other_pci_ids(void **state)
{
    (void)state;
    vm_h200(&world, "0000:1b:00.0", 30, "vfio-pci");
    start();
    UNTIL(functions == 1);
    assert_string_equal(sl_vm_tree_last(vm)->function[0].name, "GH100 [H200 SXM 141GB]");
    vm_file(&world, "10de  NVIDIA\n\t2335  Other\n", "ids");
    char ids[100];
    (void)snprintf(ids, sizeof(ids), "%s/ids", world.root);
    sl_vm_pci_ids(vm, ids);
    UNTIL(strcmp(sl_vm_tree_last(vm)->function[0].name, "Other") == 0);
    (void)snprintf(ids, sizeof(ids), "%s/none", world.root);
    sl_vm_pci_ids(vm, ids);
    UNTIL(strcmp(sl_vm_tree_last(vm)->function[0].name, "") == 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comes_and_goes),  TEST(blocks),        TEST(ends_while_blocked),
        TEST(remembers_types), TEST(other_pci_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
