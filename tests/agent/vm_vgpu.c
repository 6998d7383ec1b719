/* SPDX-License-Identifier: Apache-2.0 */
/* vGPUs that are made and removed: the next step on made machines, and the list of what Sluice made. */
#include "vm_world.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/vm/apply.h"
#include "agent/vm/made.h"

#define TEXT(literal) ((char *)(uintptr_t)(literal))
#define CARD          "0000:4e:00.0"
#define UUID          "aa618089-8b16-4d01-a136-25a0f3c73001"
#define TYPES         "ID    : vGPU Name\n1155  : NVIDIA L40S-1B\n1157  : NVIDIA L40S-8Q\n"

static struct vm_world world;
static struct sl_config_vgpu entry[2];
static struct sl_config_list list = {entry, 1};
static char made[70][SL_MDEV_UUID_SIZE];
static size_t made_count;
static const char *held_id, *busy_card;
static struct sl_vgpu_step step;

static bool held(void *data, const char *id)
{
    (void)data;
    return held_id && strcmp(held_id, id) == 0;
}

static bool busy(void *data, const char *address)
{
    (void)data;
    return busy_card && strcmp(busy_card, address) == 0;
}

static int set_up(void **state)
{
    (void)state;
    vm_open(&world);
    memset(entry, 0, sizeof(entry));
    entry[0].name = TEXT("NVIDIA L40S-8Q");
    entry[0].count = 2;
    list.count = 1;
    made_count = 0;
    held_id = busy_card = NULL;
    vm_function(&world, CARD, 0x26b9, 0x0302, 60, "nvidia");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vm_close(&world);
    return 0;
}

static struct sl_vgpu_input input(const struct sl_vm_tree *tree)
{
    static const struct sl_vgpu_card card = {"GPU-1", CARD};
    static const struct sl_vgpu_type known = {1157, "NVIDIA L40S-8Q"};
    return (struct sl_vgpu_input){.wanted = &list,
                                  .tree = tree,
                                  .types = &known,
                                  .type_count = 1,
                                  .card = &card,
                                  .card_count = 1,
                                  .made = made,
                                  .made_count = made_count,
                                  .held = held,
                                  .busy = busy,
                                  .new_uuid = UUID};
}

static enum sl_vgpu_kind next(void)
{
    struct sl_vm_tree *tree = vm_read(&world);
    struct sl_vgpu_input in = input(tree);
    sl_vgpu_next(&in, &step);
    sl_vm_tree_free(tree);
    return step.kind;
}

static bool leaves(const char *id)
{
    struct sl_vm_tree *tree = vm_read(&world);
    struct sl_vgpu_input in = input(tree);
    bool yes = sl_vgpu_leaves(&in, id);
    sl_vm_tree_free(tree);
    return yes;
}

static bool claims(const char *address)
{
    struct sl_vm_tree *tree = vm_read(&world);
    struct sl_vgpu_input in = input(tree);
    bool yes = sl_vgpu_claims(&in, address);
    sl_vm_tree_free(tree);
    return yes;
}

/* Takes the step in the made machine, as the driver would. */
static void apply(void)
{
    struct sl_err err = SL_ERR_INIT;
    assert_int_equal(sl_vgpu_apply(world.root, &step, &err), 0);
    if (step.kind == SL_VGPU_MAKE)
        (void)snprintf(made[made_count++], sizeof(made[0]), "%s", step.id);
}

static void on_functions(void **state)
{
    (void)state;
    assert_int_equal(next(), SL_VGPU_NOTHING); /* no virtual functions: nothing to say either */
    assert_string_equal(step.waits, "");
    assert_false(claims(CARD));
    vm_vf(&world, CARD, "0000:4e:00.4", 61, 0, TYPES);
    vm_vf(&world, CARD, "0000:4e:00.5", 62, 1157, TYPES); /* another's */
    vm_vf(&world, CARD, "0000:4e:00.6", 63, 0, TYPES);
    assert_true(claims(CARD));
    busy_card = CARD;
    assert_int_equal(next(), SL_VGPU_NOTHING);
    assert_non_null(strstr(step.waits, "containers still use"));
    busy_card = NULL;
    assert_int_equal(next(), SL_VGPU_MAKE); /* one is there already */
    assert_string_equal(step.id, "0000:4e:00.4");
    assert_string_equal(step.text, "1157\n");
    apply();
    assert_int_equal(next(), SL_VGPU_NOTHING);
    entry[0].count = 4;
    assert_int_equal(next(), SL_VGPU_MAKE);
    assert_string_equal(step.id, "0000:4e:00.6");
    apply();
    assert_int_equal(next(), SL_VGPU_NOTHING); /* three functions, four wanted */
    assert_non_null(strstr(step.waits, "does not fit on card " CARD " now: it has 3 of 4"));
    /* Fewer: ours go, the last first; another's stays. */
    entry[0].count = 2;
    assert_true(leaves("0000:4e:00.6"));
    assert_false(leaves("0000:4e:00.4"));
    assert_false(leaves("0000:4e:00.5"));
    held_id = "0000:4e:00.6";
    assert_int_equal(next(), SL_VGPU_NOTHING);
    assert_non_null(strstr(step.waits, "removed when its virtual machine has ended"));
    held_id = NULL;
    assert_int_equal(next(), SL_VGPU_REMOVE);
    assert_string_equal(step.id, "0000:4e:00.6");
    assert_int_equal(step.group, 63);
    apply();
    list.count = 0;
    assert_int_equal(next(), SL_VGPU_REMOVE);
    assert_string_equal(step.id, "0000:4e:00.4");
    apply();
    assert_int_equal(next(), SL_VGPU_NOTHING);
    assert_false(claims(CARD));
}

static void mediated(void **state)
{
    (void)state;
    entry[0].name = TEXT("NVIDIA A40-1Q");
    vm_file(&world, "NVIDIA A40-1Q\n", VM_PCI CARD "/mdev_supported_types/nvidia-558/name");
    vm_file(&world, "2\n", VM_PCI CARD "/mdev_supported_types/nvidia-558/available_instances");
    vm_file(&world, "", VM_PCI CARD "/mdev_supported_types/nvidia-558/create");
    vm_file(&world, "?\n", VM_PCI CARD "/mdev_supported_types/nvidia-9/name"); /* damaged */
    assert_int_equal(next(), SL_VGPU_MAKE);
    assert_string_equal(step.id, UUID);
    assert_string_equal(step.file,
                        "sys/bus/pci/devices/" CARD "/mdev_supported_types/nvidia-558/create");
    apply();
    vm_mdev(&world, CARD, UUID, 99, "NVIDIA A40-1Q");
    vm_file(&world, "0\n", VM_PCI CARD "/mdev_supported_types/nvidia-558/available_instances");
    assert_int_equal(next(), SL_VGPU_NOTHING);
    assert_non_null(strstr(step.waits, "it has 1 of 2"));
    entry[0].name = TEXT("NVIDIA A40-2Q"); /* another type: the old one leaves first */
    assert_true(leaves(UUID));
    assert_int_equal(next(), SL_VGPU_REMOVE);
    assert_string_equal(step.file, "sys/bus/mdev/devices/" UUID "/remove");
    assert_string_equal(step.text, "1\n");
}

static void some_cards(void **state)
{
    (void)state;
    char *names[] = {TEXT("GPU-1"), TEXT("0000:99:00.0")};
    vm_vf(&world, CARD, "0000:4e:00.4", 61, 0, TYPES);
    vm_function(&world, "0000:5e:00.0", 0x26b9, 0x0302, 70, "nvidia");
    vm_vf(&world, "0000:5e:00.0", "0000:5e:00.4", 71, 0, TYPES);
    assert_true(claims(CARD) && claims("0000:5e:00.0"));
    entry[0].devices = (struct sl_config_texts){names, 2};
    assert_true(claims(CARD) && !claims("0000:5e:00.0")); /* by its UUID */
    assert_int_equal(next(), SL_VGPU_MAKE);
    assert_string_equal(step.card, CARD);
    names[0] = TEXT("0000:5e:00.0");
    assert_int_equal(next(), SL_VGPU_MAKE);
    assert_string_equal(step.card, "0000:5e:00.0");
}

static void in_use_or_refused(void **state)
{
    (void)state;
    struct sl_err err = SL_ERR_INIT;
    vm_vf(&world, CARD, "0000:4e:00.4", 61, 1157, TYPES);
    (void)snprintf(made[made_count++], sizeof(made[0]), "0000:4e:00.4");
    list.count = 0;
    assert_int_equal(next(), SL_VGPU_REMOVE);
    /* A group that cannot be opened, as one that a machine has: a socket is such a file. */
    vm_remove(&world, "dev/vfio/61");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/dev/vfio/61", world.root);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_true(sl_vgpu_apply(world.root, &step, &err) < 0);
    assert_non_null(strstr(err.msg, "it is not removed"));
    assert_int_equal(close(fd), 0);
    vm_remove(&world, "dev/vfio/61");
    vm_remove(&world, VM_PCI "0000:4e:00.4/nvidia");
    assert_true(sl_vgpu_apply(world.root, &step, &err) < 0);
    assert_non_null(strstr(err.msg, "nvidia/current_vgpu_type"));
}

static void remembered(void **state)
{
    (void)state;
    struct sl_vgpu_made a, b;
    struct sl_err err = SL_ERR_INIT;
    char dir[100];
    (void)snprintf(dir, sizeof(dir), "%s/state", world.root);
    sl_vgpu_made_open(dir, &a);
    assert_int_equal(a.count, 0);
    assert_int_equal(sl_vgpu_made_add(&a, "0000:4e:00.4", 1157, &err), 0);
    assert_int_equal(sl_vgpu_made_add(&a, "0000:4e:00.4", 1157, &err), 0);
    assert_int_equal(sl_vgpu_made_add(&a, UUID, 0, &err), 0);
    sl_vgpu_made_open(dir, &b);
    assert_int_equal(b.count, 2);
    assert_string_equal(b.id[1], UUID);
    sl_vgpu_made_clear(&b);
    vm_vf(&world, CARD, "0000:4e:00.4", 61, 1157, TYPES);
    struct sl_vm_tree *tree = vm_read(&world);
    sl_vgpu_made_prune(&a, tree); /* the mediated device is not there */
    sl_vm_tree_free(tree);
    assert_int_equal(a.count, 1);
    sl_vgpu_made_open(dir, &b);
    assert_int_equal(b.count, 1);
    sl_vgpu_made_clear(&b);
    vm_file(&world, "another-boot\n0000:4e:00.4\n", "state/vgpu-made");
    sl_vgpu_made_open(dir, &b);
    assert_int_equal(b.count, 0);
    char text[200];
    (void)snprintf(text, sizeof(text), "%s\nGPU-x\n../../x\n0000:4e:00.4\n0000:4e:", a.boot);
    vm_file(&world, text, "state/vgpu-made");
    sl_vgpu_made_open(dir, &b);
    assert_int_equal(b.count, 1);
    sl_vgpu_made_clear(&b);
    vm_remove(&world, "state");
    vm_file(&world, "", "state"); /* not a directory: nothing is made that is not written down */
    assert_true(sl_vgpu_made_add(&a, UUID, 0, &err) < 0);
    assert_int_equal(a.count, 1);
    sl_vgpu_made_clear(&a);
}

/* Any sequence of wishes ends: each step brings the machine nearer to them. */
static void settles(void **state)
{
    (void)state;
    char address[SL_PCI_ADDRESS_SIZE];
    for (int i = 0; i < 64; i++) {
        (void)snprintf(address, sizeof(address), "0000:4e:%02x.%x", 1 + i / 8, i % 8);
        vm_vf(&world, CARD, address, 100 + i, 0, TYPES);
    }
    static const unsigned counts[] = {64, 3, 0, 5};
    for (size_t k = 0; k < 4; k++) {
        unsigned steps = 0;
        entry[0].count = counts[k];
        while (next() != SL_VGPU_NOTHING) {
            assert_true(steps++ <= 64);
            apply();
        }
        struct sl_vm_tree *tree = vm_read(&world);
        unsigned have = 0;
        for (size_t i = 0; i < tree->function_count; i++)
            have += tree->function[i].vgpu_type == 1157;
        sl_vm_tree_free(tree);
        assert_int_equal(have, counts[k]);
        made_count = 0; /* as the list has it after a look */
        for (unsigned i = 0; i < have; i++) {
            (void)snprintf(address, sizeof(address), "0000:4e:%02x.%x", 1 + i / 8, i % 8);
            (void)snprintf(made[made_count++], sizeof(made[0]), "%s", address);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(on_functions),      TEST(mediated),   TEST(some_cards),
        TEST(in_use_or_refused), TEST(remembered), TEST(settles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
