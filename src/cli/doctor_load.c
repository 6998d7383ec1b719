/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor.h"

#define LOAD_SECONDS 30 /* a cold driver without persistence loads firmware first */

static char scratch_dir[SL_DOCTOR_TMP];

int sl_doctor_tmp(char dir[SL_DOCTOR_TMP], struct sl_err *err)
{
    (void)snprintf(dir, SL_DOCTOR_TMP, "/tmp/sluice-doctor-%d-XXXXXX", (int)getpid());
    if (mkdtemp(dir))
        return 0;
    dir[0] = '\0';
    return sl_err_errno(err, errno, "cannot make a directory in /tmp");
}

int sl_doctor_scratch_begin(const char *sim, struct sl_err *err)
{
    char file[sizeof(scratch_dir) + 16];
    int rc = sl_doctor_tmp(scratch_dir, err);
    (void)snprintf(file, sizeof(file), "%s/state", scratch_dir);
    if (rc == 0 && (setenv(SL_SIM_ENV, sim, 1) != 0 || setenv(SL_SIM_STATE_ENV, file, 1) != 0))
        rc = sl_err_errno(err, errno, "cannot set the environment");
    return rc;
}

void sl_doctor_scratch_end(void)
{
    SL_CLEANUP(closedir) DIR *d = scratch_dir[0] ? opendir(scratch_dir) : NULL;
    const struct dirent *e;
    int at = d ? dirfd(d) : -1;
    while (at >= 0 && (e = readdir(d)))
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
            (void)unlinkat(at, e->d_name, 0);
    if (scratch_dir[0])
        (void)rmdir(scratch_dir);
    scratch_dir[0] = '\0';
}

/* A function pointer out of dlsym: ISO C has no cast for it. */
static void *symbol(void *lib, const char *name, void *ret_function)
{
    void *p = dlsym(lib, name);
    memcpy(ret_function, &p, sizeof(p));
    return p;
}

static void load_here(const char *library, bool probe_cuda, struct sl_load_result *r)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        (void)snprintf(r->message, sizeof(r->message), "%s", why ? why : "unknown reason");
        return;
    }
    r->loaded = true;
    int (*init)(unsigned) = NULL;
    int (*version)(int *) = NULL;
    r->cu_init = -1;
    if (!probe_cuda || !symbol(lib, "cuInit", &init))
        return;
    if (symbol(lib, "cuDriverGetVersion", &version) && version(&r->cuda_version) != 0)
        r->cuda_version = 0;
    r->cu_init = init(0);
}

static void child(const char *library, bool probe_cuda, int out)
{
    struct sl_load_result r = {.loaded = false};
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) { /* the library's output is not the doctor's output */
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    (void)alarm(LOAD_SECONDS);
    load_here(library, probe_cuda, &r);
    ssize_t put = write(out, &r, sizeof(r));
    _exit(put == (ssize_t)sizeof(r) ? 0 : 1);
}

void sl_doctor_load(const char *library, bool probe_cuda, struct sl_load_result *ret)
{
    int ends[2];
    *ret = (struct sl_load_result){.crashed = true};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    SL_CLEANUP(close) int reader = ends[0];
    SL_CLEANUP(close) int writer = ends[1];
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child(library, probe_cuda, writer);
    (void)close(sl_take_fd(writer));
    if (pid < 0)
        return;
    struct sl_load_result got;
    ssize_t n;
    do
        n = read(reader, &got, sizeof(got));
    while (n < 0 && errno == EINTR);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n == (ssize_t)sizeof(got))
        *ret = got;
}
