/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/vm/apply.h"
#include "agent/vm/errors.h"
#include "agent/vm/worker.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/fsutil.h"
#include "base/log.h"
#include "base/xalloc.h"

#define STOP_WAIT_NS SL_NS_PER_S
#define TYPES_FILE   "vgpu-types"
#define TYPES_MAX    (1 << 20)
#define MANY_TYPES   4096

struct sl_vm {
    struct sl_loop *loop;
    struct sl_vm_ops ops;
    void *data;
    struct sl_worker *worker;
    char root[4096];
    char state_dir[4096], types_file[4300]; /* "": not remembered */
    char pci_ids[4096];
    uint64_t poll_ns, stall_ns;
    struct sl_timer poll, stall;
    bool reading, stalled;
    bool again; /* a refresh came during a read */
    uint64_t asked_ns;
    struct sl_vm_tree *tree;
    struct sl_pci_names names; /* lent to the read that is under way */
    struct sl_vgpu_type *type;
    size_t type_count;
    char said[400]; /* the last trouble */
};

/* One read, and what it needs: a thread that hangs keeps it. */
struct reading {
    struct sl_vm *vm; /* only for `done`, on the loop */
    char root[4096];
    struct sl_pci_names names;
    struct sl_vm_tree *tree;
    struct sl_err err;
    int rc;
};

/* --- names of types ------------------------------------------------------------------------------ */

static bool learn(struct sl_vm *vm, const struct sl_vgpu_type *type)
{
    for (size_t i = 0; i < vm->type_count; i++)
        if (vm->type[i].id == type->id) {
            bool same = strcmp(vm->type[i].name, type->name) == 0;
            vm->type[i] = *type; /* another driver may number its types anew */
            return !same;
        }
    if (vm->type_count == MANY_TYPES)
        return false;
    vm->type = sl_xreallocarray(vm->type, vm->type_count + 1, sizeof(*vm->type));
    vm->type[vm->type_count++] = *type;
    return true;
}

static void recall_types(struct sl_vm *vm)
{
    SL_CLEANUP(free) char *text = NULL;
    struct sl_vgpu_type type = {0};
    if (!vm->types_file[0] ||
        sl_fs_read(AT_FDCWD, vm->types_file, TYPES_MAX, &text, NULL, NULL) < 0)
        return;
    for (const char *at = text; (at = sl_vgpu_type_line(at, &type.id, type.name));)
        if (type.id)
            (void)learn(vm, &type);
}

static void remember_types(const struct sl_vm *vm)
{
    char *text = NULL;
    size_t size = 0;
    struct sl_err err = SL_ERR_INIT;
    if (!vm->types_file[0])
        return;
    FILE *out = sl_xmemstream(&text, &size);
    for (size_t i = 0; i < vm->type_count; i++)
        (void)fprintf(out, "%u : %s\n", vm->type[i].id, vm->type[i].name);
    sl_xmemstream_close(out);
    if (sl_fs_mkdirs(vm->state_dir, 0755, &err) < 0 ||
        sl_fs_replace(AT_FDCWD, vm->types_file, text, size, 0644, &err) < 0)
        sl_warn(SL_E_VM_TYPES_UNSAVED_LOG, err.msg);
    free(text);
}

static void learn_types(struct sl_vm *vm, const struct sl_vm_tree *tree)
{
    bool fresh = false;
    for (size_t i = 0; i < tree->function_count; i++)
        for (size_t k = 0; k < tree->function[i].creatable_count; k++)
            fresh |= learn(vm, &tree->function[i].creatable[k]);
    if (fresh)
        remember_types(vm);
}

/* --- reading ------------------------------------------------------------------------------------- */

static void drop_reading(void *arg)
{
    struct reading *r = arg;
    sl_pci_names_clear(&r->names);
    sl_vm_tree_free(r->tree);
    free(r);
}

static void run_reading(void *arg)
{
    struct reading *r = arg;
    r->rc = sl_vm_tree_read(r->root, &r->names, &r->tree, &r->err);
}

static void say(struct sl_vm *vm, const struct sl_err *err)
{
    if (strcmp(vm->said, err->msg) == 0)
        return;
    (void)snprintf(vm->said, sizeof(vm->said), "%s", err->msg);
    vm->ops.trouble(vm->data, err);
}

static void got_tree(struct sl_vm *vm, struct sl_vm_tree *tree)
{
    struct sl_err err = SL_ERR_INIT;
    if (tree->unreadable) {
        (void)sl_err_set(&err, -EINVAL, SL_E_VM_UNREADABLE, tree->unreadable, tree->first_bad);
        say(vm, &err);
    } else {
        vm->said[0] = '\0';
    }
    if (vm->tree && sl_vm_tree_equal(vm->tree, tree)) {
        sl_vm_tree_free(tree);
        return;
    }
    learn_types(vm, tree);
    struct sl_vm_tree *before = vm->tree;
    vm->tree = tree;
    vm->ops.changed(vm->data, tree);
    sl_vm_tree_free(before);
}

static void ask(struct sl_vm *vm);

static void done_reading(void *arg)
{
    struct reading *r = arg;
    struct sl_vm *vm = r->vm;
    uint64_t now = sl_loop_now(vm->loop);
    vm->reading = false;
    sl_timer_stop(vm->loop, &vm->stall);
    if (vm->stalled) {
        vm->stalled = false;
        vm->ops.resumed(vm->data, now - vm->asked_ns);
    }
    bool same_file = strcmp(r->names.file, vm->pci_ids) == 0;
    vm->names = r->names;
    r->names = (struct sl_pci_names){0};
    if (!same_file || vm->again) { /* this answer is too old */
        ask(vm);
    } else {
        sl_timer_set(vm->loop, &vm->poll, now + vm->poll_ns);
        if (r->rc < 0)
            say(vm, &r->err);
        else
            got_tree(vm, sl_take_ptr(r->tree));
    }
    drop_reading(r);
}

static void ask(struct sl_vm *vm)
{
    struct reading *r = sl_xcalloc(1, sizeof(*r));
    r->vm = vm;
    memcpy(r->root, vm->root, sizeof(r->root));
    if (strcmp(vm->names.file, vm->pci_ids) != 0)
        sl_pci_names_clear(&vm->names);
    r->names = vm->names;
    vm->names = (struct sl_pci_names){0};
    memcpy(r->names.file, vm->pci_ids, sizeof(vm->pci_ids));
    const struct sl_worker_task task = {run_reading, done_reading, drop_reading, r};
    vm->reading = true;
    vm->again = false;
    vm->asked_ns = sl_loop_now(vm->loop);
    sl_timer_stop(vm->loop, &vm->poll);
    sl_timer_set(vm->loop, &vm->stall, vm->asked_ns + vm->stall_ns);
    sl_worker_submit(vm->worker, &task);
}

static void poll_fire(struct sl_timer *timer)
{
    ask(sl_container_of(timer, struct sl_vm, poll));
}

static void stall_fire(struct sl_timer *timer)
{
    struct sl_vm *vm = sl_container_of(timer, struct sl_vm, stall);
    vm->stalled = true;
    vm->ops.stalled(vm->data, sl_loop_now(vm->loop) - vm->asked_ns);
}

/* --- for callers --------------------------------------------------------------------------------- */

int sl_vm_create(struct sl_loop *loop, const struct sl_vm_options *options,
                 const struct sl_vm_ops *ops, void *data, struct sl_vm **ret, struct sl_err *err)
{
    struct sl_vm *vm = sl_xcalloc(1, sizeof(*vm));
    vm->loop = loop;
    vm->ops = *ops;
    vm->data = data;
    vm->poll_ns = options->poll_ns ? options->poll_ns : 2 * SL_NS_PER_S;
    vm->stall_ns = options->stall_ns ? options->stall_ns : 10 * SL_NS_PER_S;
    vm->poll.fire = poll_fire;
    vm->stall.fire = stall_fire;
    (void)snprintf(vm->root, sizeof(vm->root), "%s", options->root ? options->root : "/");
    if (options->state_dir) {
        (void)snprintf(vm->state_dir, sizeof(vm->state_dir), "%s", options->state_dir);
        (void)snprintf(vm->types_file, sizeof(vm->types_file), "%s/" TYPES_FILE, vm->state_dir);
    }
    int rc = sl_worker_create(loop, &vm->worker, err);
    if (rc < 0) {
        free(vm);
        return rc;
    }
    recall_types(vm);
    ask(vm);
    *ret = vm;
    return 0;
}

void sl_vm_destroy(struct sl_vm *vm)
{
    if (!vm)
        return;
    sl_timer_stop(vm->loop, &vm->poll);
    sl_timer_stop(vm->loop, &vm->stall);
    sl_worker_destroy(vm->worker, STOP_WAIT_NS);
    sl_pci_names_clear(&vm->names);
    sl_vm_tree_free(vm->tree);
    free(vm->type);
    free(vm);
}

void sl_vm_pci_ids(struct sl_vm *vm, const char *file)
{
    if (strcmp(vm->pci_ids, file ? file : "") == 0)
        return;
    (void)snprintf(vm->pci_ids, sizeof(vm->pci_ids), "%s", file ? file : "");
    if (!vm->reading)
        ask(vm);
}

void sl_vm_refresh(struct sl_vm *vm)
{
    if (vm->reading)
        vm->again = true;
    else
        ask(vm);
}

/* --- steps --------------------------------------------------------------------------------------- */

struct applying {
    struct sl_vm *vm; /* only for `done`, on the loop */
    sl_vm_applied *done;
    char root[4096];
    struct sl_vgpu_step step;
    struct sl_err err;
    int rc;
};

static void run_applying(void *arg)
{
    struct applying *x = arg;
    x->rc = sl_vgpu_apply(x->root, &x->step, &x->err);
}

static void done_applying(void *arg)
{
    struct applying *x = arg;
    x->done(x->vm->data, &x->step, x->rc, &x->err);
    free(x);
}

void sl_vm_apply(struct sl_vm *vm, const struct sl_vgpu_step *step, sl_vm_applied *done)
{
    struct applying *x = sl_xcalloc(1, sizeof(*x));
    x->vm = vm;
    x->done = done;
    x->step = *step;
    memcpy(x->root, vm->root, sizeof(x->root));
    const struct sl_worker_task task = {run_applying, done_applying, free, x};
    sl_worker_submit(vm->worker, &task);
}

const struct sl_vgpu_type *sl_vm_types(const struct sl_vm *vm, size_t *ret_count)
{
    *ret_count = vm->type_count;
    return vm->type;
}

const struct sl_vm_tree *sl_vm_tree_last(const struct sl_vm *vm)
{
    return vm->tree;
}
