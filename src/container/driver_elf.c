/* SPDX-License-Identifier: Apache-2.0 */
#include "container/driver_internal.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MAX_SEGMENTS 64
#define MAX_DYNAMIC  4096 /* entries to read; a driver library has a few dozen */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#error "the NVIDIA driver exists for x86-64 and aarch64 only"
#endif

static bool read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    if (offset > INT64_MAX - size)
        return false;
    for (size_t n = 0; n < size;) {
        ssize_t got = pread(fd, (char *)buf + n, size - n, (off_t)(offset + n));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    return true;
}

/* The offset in the file of the byte that is loaded at this address. */
static bool file_offset(const Elf64_Phdr *ph, size_t count, uint64_t address, uint64_t *ret)
{
    for (size_t i = 0; i < count; i++) {
        if (ph[i].p_type != PT_LOAD || address < ph[i].p_vaddr ||
            address - ph[i].p_vaddr >= ph[i].p_filesz)
            continue;
        return !__builtin_add_overflow(address - ph[i].p_vaddr, ph[i].p_offset, ret);
    }
    return false;
}

static int read_soname(int fd, const Elf64_Phdr *ph, size_t count, const Elf64_Phdr *dynamic,
                       struct driver_elf *ret)
{
    uint64_t strings = 0, name = 0, offset;
    bool have_strings = false, have_name = false;
    for (uint64_t i = 0; i < MAX_DYNAMIC && (i + 1) * sizeof(Elf64_Dyn) <= dynamic->p_filesz; i++) {
        Elf64_Dyn d;
        if (__builtin_add_overflow(dynamic->p_offset, i * sizeof(d), &offset) ||
            !read_at(fd, &d, sizeof(d), offset))
            return -ENOEXEC;
        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_STRTAB) {
            strings = d.d_un.d_ptr;
            have_strings = true;
        } else if (d.d_tag == DT_SONAME) {
            name = d.d_un.d_val;
            have_name = true;
        }
    }
    if (!have_name)
        return 0;
    if (!have_strings || __builtin_add_overflow(strings, name, &name) ||
        !file_offset(ph, count, name, &offset))
        return -ENOEXEC;
    for (size_t i = 0; i < sizeof(ret->soname); i++) {
        if (!read_at(fd, &ret->soname[i], 1, offset + i))
            return -ENOEXEC;
        if (ret->soname[i] == '\0')
            return strchr(ret->soname, '/') ? -ENOEXEC : 0;
    }
    return -ENOEXEC;
}

int sl_driver_elf_read(int fd, struct driver_elf *ret)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph[MAX_SEGMENTS] = {0};
    *ret = (struct driver_elf){.native = false};
    /* A 32-bit header is shorter, but every library is longer than a 64-bit header. */
    if (!read_at(fd, &eh, sizeof(eh), 0) || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
        eh.e_type != ET_DYN)
        return -ENOEXEC;
    ret->native = eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_ident[EI_DATA] == ELFDATA2LSB &&
                  eh.e_machine == MACHINE;
    if (!ret->native)
        return 0;
    if (eh.e_phentsize != sizeof(ph[0]) || eh.e_phnum > MAX_SEGMENTS ||
        !read_at(fd, ph, eh.e_phnum * sizeof(ph[0]), eh.e_phoff))
        return -ENOEXEC;
    for (size_t i = 0; i < eh.e_phnum; i++) {
        if (ph[i].p_type == PT_DYNAMIC)
            return read_soname(fd, ph, eh.e_phnum, &ph[i], ret);
    }
    return 0;
}
