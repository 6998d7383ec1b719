/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "shm/errors.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int make_memfd(const char *name, size_t size, void **ret_addr, struct sl_err *err)
{
    SL_CLEANUP(close) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return sl_err_errno(err, errno, "cannot create the shared page %s", name);
    if (ftruncate(fd, (off_t)size) != 0)
        return sl_err_errno(err, errno, "cannot size the shared page %s to %zu bytes", name, size);
    void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED)
        return sl_err_errno(err, errno, "cannot map the shared page %s", name);
    *ret_addr = addr;
    return sl_take_fd(fd);
}

int sl_lease_create(const uint8_t cookie[16], struct sl_lease_map *ret, struct sl_err *err)
{
    void *addr = NULL;
    SL_CLEANUP(close) int fd = make_memfd("sluice-lease", sizeof(struct sl_lease_page), &addr, err);
    if (fd < 0)
        return fd;
    /* Our writable mapping exists; FUTURE_WRITE forbids every later one, also through /proc/self/fd. Kernels before 5.1
     * lack this seal: there the page is only as safe as its mapping, which `sluice doctor` reports. */
    if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0 &&
        fcntl(fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) != 0) {
        int cause = errno;
        (void)munmap(addr, sizeof(struct sl_lease_page));
        return sl_err_errno(err, cause, "cannot seal the lease page");
    }
    /* The descriptor for tenants is opened read-only: on kernels without that seal this is the only guard. */
    char self[40];
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    int read_only = open(self, O_RDONLY | O_CLOEXEC);
    if (read_only >= 0) {
        (void)close(fd);
        fd = read_only;
    }
    struct sl_lease_page *page = addr;
    page->magic = SL_LEASE_MAGIC;
    page->version = SL_PAGE_VERSION;
    page->size_bytes = sizeof(*page);
    memcpy(page->cookie, cookie, sizeof(page->cookie));
    *ret = (struct sl_lease_map){.fd = sl_take_fd(fd), .page = page};
    return 0;
}

int sl_ledger_create(const uint8_t cookie[16], uint32_t gpu_count, struct sl_ledger_map *ret,
                     struct sl_err *err)
{
    void *addr = NULL;
    SL_CLEANUP(close)
    int fd = make_memfd("sluice-ledger", sizeof(struct sl_ledger_page), &addr, err);
    if (fd < 0)
        return fd;
    if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) != 0) {
        int cause = errno;
        (void)munmap(addr, sizeof(struct sl_ledger_page));
        return sl_err_errno(err, cause, "cannot seal the ledger page");
    }
    struct sl_ledger_page *page = addr;
    page->magic = SL_LEDGER_MAGIC;
    page->version = SL_PAGE_VERSION;
    page->size_bytes = sizeof(*page);
    page->gpu_count = gpu_count;
    page->slot_count = SL_MAX_SLOTS;
    memcpy(page->cookie, cookie, sizeof(page->cookie));
    *ret = (struct sl_ledger_map){.fd = sl_take_fd(fd), .page = page};
    return 0;
}

/* The descriptor must have the right size and be unable to lose it. Seals come first: asking for them touches only
 * memory, while fstat() of a file on a foreign file system may wait for ever. */
static int check_fd(int fd, size_t size, const char *what, struct sl_err *err)
{
    struct stat st;
    if (fcntl(fd, F_GETFD) < 0)
        return sl_err_errno(err, errno, SL_E_PAGE_UNREADABLE, what);
    if (!sl_page_fd(fd))
        return sl_err_set(err, -EPROTO, SL_E_PAGE_UNSEALED, what);
    if (fstat(fd, &st) != 0)
        return sl_err_errno(err, errno, SL_E_PAGE_UNREADABLE, what);
    if ((uint64_t)st.st_size != size)
        return sl_err_set(err, -EPROTO, SL_E_PAGE_SIZE, what, (long long)st.st_size, size);
    return 0;
}

bool sl_page_fd(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SIZE_SEALS) == SIZE_SEALS;
}

static int check_header(uint64_t magic, uint64_t want_magic, uint32_t version, const char *what,
                        struct sl_err *err)
{
    if (magic != want_magic)
        return sl_err_set(err, -EPROTO, SL_E_PAGE_MAGIC, what);
    if (version != SL_PAGE_VERSION)
        return sl_err_set(err, -EPROTO, SL_E_PAGE_VERSION, what, version, SL_PAGE_VERSION);
    return 0;
}

int sl_lease_attach(int fd, struct sl_lease_map *ret, struct sl_err *err)
{
    int rc = check_fd(fd, sizeof(struct sl_lease_page), "lease", err);
    if (rc < 0)
        return rc;
    struct sl_lease_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return sl_err_errno(err, errno, "cannot map the lease page");
    rc = check_header(page->magic, SL_LEASE_MAGIC, page->version, "lease", err);
    if (rc == 0 && (page->gpu_count == 0 || page->gpu_count > SL_MAX_GPUS))
        rc = sl_err_set(err, -EPROTO, SL_E_PAGE_GPUS, page->gpu_count);
    if (rc < 0) {
        (void)munmap(page, sizeof(*page));
        return rc;
    }
    *ret = (struct sl_lease_map){.fd = fd, .page = page};
    return 0;
}

int sl_ledger_attach(int fd, const uint8_t *cookie, struct sl_ledger_map *ret, struct sl_err *err)
{
    int rc = check_fd(fd, sizeof(struct sl_ledger_page), "ledger", err);
    if (rc < 0)
        return rc;
    struct sl_ledger_page *page =
        mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return sl_err_errno(err, errno, "cannot map the ledger page");
    rc = check_header(page->magic, SL_LEDGER_MAGIC, page->version, "ledger", err);
    if (rc == 0 && cookie && memcmp(page->cookie, cookie, sizeof(page->cookie)) != 0)
        rc = sl_err_set(err, -EPROTO, SL_E_PAGE_OTHER_LEASE);
    if (rc < 0) {
        (void)munmap(page, sizeof(*page));
        return rc;
    }
    *ret = (struct sl_ledger_map){.fd = fd, .page = page};
    return 0;
}

void sl_lease_close(struct sl_lease_map *map)
{
    if (!map)
        return;
    if (map->page)
        (void)munmap(map->page, sizeof(*map->page));
    sl_cleanup_close(&map->fd);
    *map = (struct sl_lease_map)SL_LEASE_MAP_INIT;
}

void sl_ledger_close(struct sl_ledger_map *map)
{
    if (!map)
        return;
    if (map->page)
        (void)munmap(map->page, sizeof(*map->page));
    sl_cleanup_close(&map->fd);
    *map = (struct sl_ledger_map)SL_LEDGER_MAP_INIT;
}
