/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/vm/errors.h"
#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/xalloc.h"

#define NVIDIA        0x10de
#define VALUE_SIZE    128       /* of a file with one value */
#define TYPES_SIZE    (1 << 14) /* of a list of vGPU types: more than a page of sysfs */
#define PCI_IDS_MAX   ((size_t)16 << 20)
#define MAX_FUNCTIONS 4096 /* a tree with more is not a machine */
#define MAX_TYPES     256

struct reader {
    const char *root;
    int pci; /* sys/bus/pci/devices */
    struct sl_pci_names *names;
    struct sl_vm_tree *tree;
};

/* --- files --------------------------------------------------------------------------------------- */

/* A file's text. -ENOENT: there is no such file; -EINVAL: the text is longer than a value may be. */
static int read_text(int dir, const char *name, char *buf, size_t size)
{
    SL_CLEANUP(close) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    if (fd < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    for (;;) {
        ssize_t got = read(fd, buf + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        n += (size_t)got;
        if (n == size)
            return -EINVAL;
        if (got == 0)
            break;
    }
    buf[n] = '\0';
    return memchr(buf, '\0', n) ? -EINVAL : 0;
}

/* The last part of the text of a link. -ENOENT: there is no such link. */
static int read_link(int dir, const char *name, char *buf, size_t size)
{
    char target[1024];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    if (n < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *last = slash ? slash + 1 : target;
    if (!*last || strlen(last) >= size)
        return -EINVAL;
    memcpy(buf, last, strlen(last) + 1);
    return 0;
}

/* Is there such a file in the machine's /dev? */
static bool is_there(const struct reader *r, const char *name)
{
    char path[4300];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/dev/%s", r->root, name);
    return stat(path, &st) == 0;
}

static DIR *open_dir(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        (void)close(fd);
    return d;
}

static void bad(struct reader *r, const char *what, const char *file)
{
    if (r->tree->unreadable++ == 0)
        (void)snprintf(r->tree->first_bad, sizeof(r->tree->first_bad), "%.40s/%.40s", what, file);
}

/* --- names from pci.ids -------------------------------------------------------------------------- */

void sl_pci_names_clear(struct sl_pci_names *names)
{
    free(names->item);
    names->item = NULL;
    names->count = 0;
}

static int read_ids(const struct reader *r, char **ret, size_t *ret_size)
{
    static const char *const places[] = {"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids",
                                         "usr/share/pci.ids"};
    char path[4300];
    if (r->names->file[0])
        return sl_fs_read(AT_FDCWD, r->names->file, PCI_IDS_MAX, ret, ret_size, NULL);
    for (size_t i = 0; i < SL_ARRAY_LEN(places) * 2; i++) {
        /* The agent's own file counts too: its image may have a newer one than the machine. */
        (void)snprintf(path, sizeof(path), "%s/%s", i < SL_ARRAY_LEN(places) ? r->root : "",
                       places[i % SL_ARRAY_LEN(places)]);
        if (sl_fs_read(AT_FDCWD, path, PCI_IDS_MAX, ret, ret_size, NULL) == 0)
            return 0;
    }
    return -ENOENT;
}

static void find_name(struct reader *r, struct sl_vm_function *f)
{
    struct sl_pci_names *names = r->names;
    size_t i = 0;
    while (i < names->count && names->item[i].device != f->device)
        i++;
    if (i == names->count) {
        SL_CLEANUP(free) char *text = NULL;
        size_t size = 0;
        names->item = sl_xreallocarray(names->item, names->count + 1, sizeof(*names->item));
        struct sl_pci_name *item = &names->item[names->count++];
        *item = (struct sl_pci_name){.device = f->device};
        if (read_ids(r, &text, &size) == 0 &&
            !sl_pci_ids_find(text, size, f->device, item->name, sizeof(item->name)))
            item->name[0] = '\0';
    }
    memcpy(f->name, names->item[i].name, sizeof(f->name));
}

/* --- PCI functions ------------------------------------------------------------------------------- */

/* A value that must be there, in hexadecimal digits. */
static bool read_hex(struct reader *r, int dir, const char *address, const char *file, uint32_t max,
                     uint32_t *ret)
{
    char text[VALUE_SIZE];
    int rc = read_text(dir, file, text, sizeof(text));
    if (rc == 0 && sl_sysfs_hex(text, max, ret))
        return true;
    if (rc != -ENOENT && rc != -ENODEV) /* a function that goes while it is read is no damage */
        bad(r, address, file);
    return false;
}

static int read_group(int dir)
{
    char text[32];
    int group = SL_NO_GROUP;
    if (read_link(dir, "iommu_group", text, sizeof(text)) < 0 || !sl_sysfs_number(text, &group))
        return SL_NO_GROUP;
    return group;
}

static void read_cdev(int dir, char ret[16])
{
    SL_CLEANUP(closedir) DIR *d = open_dir(dir, "vfio-dev");
    const struct dirent *e;
    ret[0] = '\0';
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "vfio", 4) == 0 && strlen(e->d_name) < 16 &&
            e->d_name[4 + strspn(e->d_name + 4, "0123456789")] == '\0' && e->d_name[4]) {
            memcpy(ret, e->d_name, strlen(e->d_name) + 1);
            return;
        }
}

static void read_creatable(struct reader *r, int dir, struct sl_vm_function *f)
{
    SL_CLEANUP(free) char *text = sl_xmalloc(TYPES_SIZE);
    int rc = read_text(dir, "nvidia/creatable_vgpu_types", text, TYPES_SIZE);
    if (rc < 0) {
        if (rc != -ENOENT)
            bad(r, f->address, "nvidia/creatable_vgpu_types");
        return;
    }
    struct sl_vgpu_type type = {0};
    for (const char *at = text; (at = sl_vgpu_type_line(at, &type.id, type.name));) {
        if (type.id == 0)
            continue;
        f->creatable =
            sl_xreallocarray(f->creatable, f->creatable_count + 1, sizeof(*f->creatable));
        f->creatable[f->creatable_count++] = type;
    }
}

static int by_dir(const void *a, const void *b)
{
    return strcmp(((const struct sl_mdev_type *)a)->dir, ((const struct sl_mdev_type *)b)->dir);
}

/* A virtual function of recent drivers: its vGPU type is a number in a file. */
static void read_vgpu(struct reader *r, int dir, struct sl_vm_function *f)
{
    char text[VALUE_SIZE];
    int type = 0;
    if (read_link(dir, "physfn", f->parent, sizeof(f->parent)) < 0 ||
        !sl_pci_address_valid(f->parent)) {
        f->parent[0] = '\0';
        return;
    }
    int rc = read_text(dir, "nvidia/current_vgpu_type", text, sizeof(text));
    if (rc == -ENOENT)
        return;
    if (rc < 0 || !sl_sysfs_number(text, &type) || type < 0) {
        bad(r, f->address, "nvidia/current_vgpu_type");
        return;
    }
    f->makes_vgpus = true;
    f->vgpu_type = (unsigned)type;
    read_creatable(r, dir, f);
}

static void read_mdev_types(struct reader *r, int dir, struct sl_vm_function *f)
{
    SL_CLEANUP(closedir) DIR *d = open_dir(dir, "mdev_supported_types");
    const struct dirent *e;
    f->makes_vgpus |= d != NULL;
    while (d && (e = readdir(d)) && f->mdev_type_count < MAX_TYPES) {
        struct sl_mdev_type t = {0};
        char text[VALUE_SIZE], path[300];
        if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof(t.dir))
            continue;
        memcpy(t.dir, e->d_name, strlen(e->d_name) + 1);
        (void)snprintf(path, sizeof(path), "%s/name", t.dir);
        if (read_text(dirfd(d), path, text, sizeof(text)) < 0 || !sl_vgpu_name(text, t.name))
            continue; /* drivers have types without a name */
        (void)snprintf(path, sizeof(path), "%s/available_instances", t.dir);
        if (read_text(dirfd(d), path, text, sizeof(text)) < 0 ||
            !sl_sysfs_number(text, &t.available)) {
            bad(r, f->address, path);
            continue;
        }
        f->mdev_type =
            sl_xreallocarray(f->mdev_type, f->mdev_type_count + 1, sizeof(*f->mdev_type));
        f->mdev_type[f->mdev_type_count++] = t;
    }
    if (f->mdev_type_count)
        qsort(f->mdev_type, f->mdev_type_count, sizeof(*f->mdev_type), by_dir);
}

/* sysfs has links here, "../../../devices/pci0000:15/0000:15:01.0/…": the first directory below devices is the root. */
static void read_pcie_root(int pci, const char *address, char *ret, size_t size)
{
    char target[1024];
    ssize_t n = readlinkat(pci, address, target, sizeof(target) - 1);
    ret[0] = '\0';
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *at = strstr(target, "/devices/pci");
    size_t length = at ? strcspn(at + 9, "/") : 0;
    if (length && length < size)
        (void)snprintf(ret, size, "%.*s", (int)length, at + 9);
}

static void read_function(struct reader *r, const char *address)
{
    struct sl_vm_function f = {.group = SL_NO_GROUP, .numa_node = -1};
    uint32_t vendor = 0;
    char text[VALUE_SIZE];
    SL_CLEANUP(close) int dir = openat(r->pci, address, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || strlen(address) >= sizeof(f.address) ||
        !read_hex(r, dir, address, "vendor", 0xffff, &vendor) || vendor != NVIDIA)
        return;
    memcpy(f.address, address, strlen(address) + 1);
    if (!read_hex(r, dir, address, "device", 0xffff, &f.device) ||
        !read_hex(r, dir, address, "class", 0xffffff, &f.pci_class))
        return;
    f.pci_class >>= 8; /* without the programming interface */
    if (!sl_vm_is_card(&f) && f.pci_class != SL_PCI_CLASS_AUDIO)
        return;
    if (read_link(dir, "driver", f.driver, sizeof(f.driver)) < 0)
        f.driver[0] = '\0';
    if (read_text(dir, "numa_node", text, sizeof(text)) < 0 || !sl_sysfs_number(text, &f.numa_node))
        f.numa_node = -1;
    f.group = read_group(dir);
    read_pcie_root(r->pci, address, f.pcie_root, sizeof(f.pcie_root));
    read_cdev(dir, f.cdev);
    if (sl_vm_is_card(&f)) {
        read_vgpu(r, dir, &f);
        read_mdev_types(r, dir, &f);
    }
    find_name(r, &f);
    struct sl_vm_tree *t = r->tree;
    t->function = sl_xreallocarray(t->function, t->function_count + 1, sizeof(*t->function));
    t->function[t->function_count++] = f;
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct sl_vm_function *)a)->address,
                  ((const struct sl_vm_function *)b)->address);
}

static int read_functions(struct reader *r, struct sl_err *err)
{
    char path[4300];
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", r->root);
    SL_CLEANUP(closedir) DIR *d = opendir(path);
    if (!d)
        return sl_err_errno(err, errno, SL_E_VM_NO_SYSFS, path);
    r->pci = dirfd(d);
    const struct dirent *e;
    while ((e = readdir(d)) && r->tree->function_count < MAX_FUNCTIONS)
        if (sl_pci_address_valid(e->d_name))
            read_function(r, e->d_name);
    r->pci = -1;
    if (r->tree->function_count)
        qsort(r->tree->function, r->tree->function_count, sizeof(*r->tree->function), by_address);
    return 0;
}

/* --- mediated devices ---------------------------------------------------------------------------- */

/* The function that the device is made of: the directory above the device. */
static bool read_parent(int dir, const char *uuid, char ret[SL_PCI_ADDRESS_SIZE])
{
    char target[1024];
    ssize_t n = readlinkat(dir, uuid, target, sizeof(target) - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    char *last = strrchr(target, '/');
    if (!last)
        return false;
    *last = '\0';
    const char *slash = strrchr(target, '/'), *parent = slash ? slash + 1 : target;
    if (!sl_pci_address_valid(parent))
        return false;
    memcpy(ret, parent, strlen(parent) + 1);
    return true;
}

static void read_mdev(struct reader *r, int devices, const char *uuid)
{
    struct sl_vm_mdev m = {.group = SL_NO_GROUP};
    char text[VALUE_SIZE];
    SL_CLEANUP(close) int dir = openat(devices, uuid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || !read_parent(devices, uuid, m.parent) || !sl_vm_tree_function(r->tree, m.parent))
        return; /* gone meanwhile, or not NVIDIA's */
    if (read_text(dir, "mdev_type/name", text, sizeof(text)) < 0 || !sl_vgpu_name(text, m.type)) {
        bad(r, uuid, "mdev_type/name");
        return;
    }
    memcpy(m.uuid, uuid, sizeof(m.uuid));
    m.group = read_group(dir);
    struct sl_vm_tree *t = r->tree;
    t->mdev = sl_xreallocarray(t->mdev, t->mdev_count + 1, sizeof(*t->mdev));
    t->mdev[t->mdev_count++] = m;
}

static int by_uuid(const void *a, const void *b)
{
    return strcmp(((const struct sl_vm_mdev *)a)->uuid, ((const struct sl_vm_mdev *)b)->uuid);
}

static void read_mdevs(struct reader *r)
{
    char path[4300];
    (void)snprintf(path, sizeof(path), "%s/sys/bus/mdev/devices", r->root);
    SL_CLEANUP(closedir) DIR *d = opendir(path);
    const struct dirent *e;
    while (d && (e = readdir(d)) && r->tree->mdev_count < MAX_FUNCTIONS)
        if (sl_mdev_uuid_valid(e->d_name))
            read_mdev(r, dirfd(d), e->d_name);
    if (r->tree->mdev_count)
        qsort(r->tree->mdev, r->tree->mdev_count, sizeof(*r->tree->mdev), by_uuid);
}

/* --- IOMMU groups -------------------------------------------------------------------------------- */

bool sl_vm_is_vfio_driver(const char *driver)
{
    static const char *const known[] = {"vfio-pci", "nvgrace_gpu_vfio_pci"};
    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++)
        if (strcmp(driver, known[i]) == 0)
            return true;
    return false;
}

/* The kernel gives a group to a virtual machine only when each member has a VFIO driver or none; a bridge may keep its
 * own driver. */
static void find_blocker(int members, const char *address, struct sl_vm_group *g)
{
    char driver[32];
    SL_CLEANUP(close) int dir = openat(members, address, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || read_link(dir, "driver", driver, sizeof(driver)) < 0)
        return;
    if (sl_vm_is_vfio_driver(driver) || strcmp(driver, "pcieport") == 0 ||
        strcmp(driver, "pci-stub") == 0 || strlen(address) >= sizeof(g->blocker))
        return;
    /* The lowest address: the answer must not depend on the order of the directory. */
    if (g->blocker[0] && strcmp(g->blocker, address) <= 0)
        return;
    memcpy(g->blocker, address, strlen(address) + 1);
    memcpy(g->blocker_driver, driver, sizeof(driver));
}

static void add_group(struct reader *r, int number, bool passthrough)
{
    char path[4300], name[32];
    if (number == SL_NO_GROUP || sl_vm_tree_group(r->tree, number))
        return;
    struct sl_vm_group g = {.number = number};
    (void)snprintf(name, sizeof(name), "vfio/%d", number);
    g.node = is_there(r, name);
    if (passthrough) {
        (void)snprintf(path, sizeof(path), "%s/sys/kernel/iommu_groups/%d/devices", r->root,
                       number);
        SL_CLEANUP(closedir) DIR *d = opendir(path);
        const struct dirent *e;
        while (d && (e = readdir(d)))
            if (e->d_name[0] != '.')
                find_blocker(dirfd(d), e->d_name, &g);
    }
    struct sl_vm_tree *t = r->tree;
    t->group = sl_xreallocarray(t->group, t->group_count + 1, sizeof(*t->group));
    t->group[t->group_count++] = g;
}

static int by_number(const void *a, const void *b)
{
    int x = ((const struct sl_vm_group *)a)->number, y = ((const struct sl_vm_group *)b)->number;
    return x < y ? -1 : x > y;
}

static void read_groups(struct reader *r)
{
    for (size_t i = 0; i < r->tree->function_count; i++)
        if (sl_vm_is_vfio_driver(r->tree->function[i].driver))
            add_group(r, r->tree->function[i].group, true);
    for (size_t i = 0; i < r->tree->function_count; i++)
        if (r->tree->function[i].vgpu_type)
            add_group(r, r->tree->function[i].group, false);
    for (size_t i = 0; i < r->tree->mdev_count; i++)
        add_group(r, r->tree->mdev[i].group, false);
    if (r->tree->group_count)
        qsort(r->tree->group, r->tree->group_count, sizeof(*r->tree->group), by_number);
}

/* --- the tree ------------------------------------------------------------------------------------ */

int sl_vm_tree_read(const char *root, struct sl_pci_names *names, struct sl_vm_tree **ret,
                    struct sl_err *err)
{
    struct reader r = {.root = strcmp(root, "/") == 0 ? "" : root, .pci = -1, .names = names};
    r.tree = sl_xcalloc(1, sizeof(*r.tree));
    int rc = read_functions(&r, err);
    if (rc < 0) {
        sl_vm_tree_free(r.tree);
        return rc;
    }
    read_mdevs(&r);
    read_groups(&r);
    r.tree->iommufd = is_there(&r, "iommu");
    *ret = r.tree;
    return 0;
}

void sl_vm_tree_free(struct sl_vm_tree *tree)
{
    if (!tree)
        return;
    for (size_t i = 0; i < tree->function_count; i++) {
        free(tree->function[i].creatable);
        free(tree->function[i].mdev_type);
    }
    free(tree->function);
    free(tree->mdev);
    free(tree->group);
    free(tree);
}

static bool same_types(const struct sl_vm_function *a, const struct sl_vm_function *b)
{
    for (size_t i = 0; i < a->creatable_count && i < b->creatable_count; i++)
        if (a->creatable[i].id != b->creatable[i].id ||
            strcmp(a->creatable[i].name, b->creatable[i].name) != 0)
            return false;
    for (size_t i = 0; i < a->mdev_type_count && i < b->mdev_type_count; i++)
        if (a->mdev_type[i].available != b->mdev_type[i].available ||
            strcmp(a->mdev_type[i].dir, b->mdev_type[i].dir) != 0 ||
            strcmp(a->mdev_type[i].name, b->mdev_type[i].name) != 0)
            return false;
    return a->creatable_count == b->creatable_count && a->mdev_type_count == b->mdev_type_count;
}

static bool same_function(const struct sl_vm_function *a, const struct sl_vm_function *b)
{
    return strcmp(a->address, b->address) == 0 && a->device == b->device &&
           a->pci_class == b->pci_class && strcmp(a->driver, b->driver) == 0 &&
           a->group == b->group && a->numa_node == b->numa_node && strcmp(a->cdev, b->cdev) == 0 &&
           strcmp(a->name, b->name) == 0 && strcmp(a->parent, b->parent) == 0 &&
           strcmp(a->pcie_root, b->pcie_root) == 0 && a->vgpu_type == b->vgpu_type &&
           a->makes_vgpus == b->makes_vgpus && same_types(a, b);
}

static bool same_mdev(const struct sl_vm_mdev *a, const struct sl_vm_mdev *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->parent, b->parent) == 0 &&
           strcmp(a->type, b->type) == 0 && a->group == b->group;
}

static bool same_group(const struct sl_vm_group *a, const struct sl_vm_group *b)
{
    return a->number == b->number && a->node == b->node && strcmp(a->blocker, b->blocker) == 0 &&
           strcmp(a->blocker_driver, b->blocker_driver) == 0;
}

bool sl_vm_tree_equal(const struct sl_vm_tree *a, const struct sl_vm_tree *b)
{
    if (!a || !b)
        return a == b;
    bool same = a->function_count == b->function_count && a->mdev_count == b->mdev_count &&
                a->group_count == b->group_count && a->iommufd == b->iommufd &&
                a->unreadable == b->unreadable && strcmp(a->first_bad, b->first_bad) == 0;
    for (size_t i = 0; same && i < a->function_count; i++)
        same = same_function(&a->function[i], &b->function[i]);
    for (size_t i = 0; same && i < a->mdev_count; i++)
        same = same_mdev(&a->mdev[i], &b->mdev[i]);
    for (size_t i = 0; same && i < a->group_count; i++)
        same = same_group(&a->group[i], &b->group[i]);
    return same;
}

const struct sl_vm_function *sl_vm_tree_function(const struct sl_vm_tree *tree, const char *address)
{
    for (size_t i = 0; i < tree->function_count; i++)
        if (strcmp(tree->function[i].address, address) == 0)
            return &tree->function[i];
    return NULL;
}

const struct sl_vm_group *sl_vm_tree_group(const struct sl_vm_tree *tree, int number)
{
    for (size_t i = 0; i < tree->group_count; i++)
        if (tree->group[i].number == number)
            return &tree->group[i];
    return NULL;
}

const char *sl_vm_type_name(const struct sl_vm_tree *tree, const struct sl_vgpu_type *types,
                            size_t type_count, unsigned id)
{
    for (size_t i = 0; i < tree->function_count; i++)
        for (size_t k = 0; k < tree->function[i].creatable_count; k++)
            if (tree->function[i].creatable[k].id == id)
                return tree->function[i].creatable[k].name;
    for (size_t i = 0; i < type_count; i++)
        if (types[i].id == id)
            return types[i].name;
    return "";
}
