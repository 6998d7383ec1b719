/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that our C library has under a newer symbol version than glibc 2.31. They are defined here, hidden, so that
 * libsluice also loads with 2.31. Threads and dlopen, which moved between libraries, are looked up at run time instead
 * (elfsym.h).
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstat(int fd, struct stat *st)
{
    return (int)syscall(SYS_fstat, fd, st); /* the kernel's layout is glibc's on 64-bit Linux */
}
