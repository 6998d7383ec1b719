/* SPDX-License-Identifier: Apache-2.0 */
#include "tenant_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void tenant_begin(const struct world *w, const char *name, uint64_t memory_bytes,
                  struct tenant *ret)
{
    union sl_packet p;
    struct sl_msg_lease ask = lease_ask(name, memory_bytes);
    *ret = (struct tenant){.world = w, .control = world_connect(w)};
    if (world_call(ret->control, &ask.h, &p) != SL_MSG_CREATED)
        fail_msg("no tenant: %s", p.text.text);
    memcpy(ret->name, p.created.name, sizeof(ret->name));
    memcpy(ret->attach_path, p.created.attach_path, sizeof(ret->attach_path));
}

void tenant_set_limit(const struct tenant *t, uint64_t memory_bytes)
{
    union sl_packet p;
    struct sl_msg_lease ask = lease_ask(t->name, memory_bytes);
    int fd = world_connect(t->world);
    ask.h.type = SL_MSG_SET;
    if (world_call(fd, &ask.h, &p) != SL_MSG_OK)
        fail_msg("limit not set: %s", p.text.text);
    (void)close(fd);
}

struct usage tenant_usage(const struct tenant *t)
{
    struct usage u = {0};
    struct sl_msg ask;
    union sl_packet p;
    int fd = world_connect(t->world);
    sl_packet_init(&ask, SL_MSG_STATUS, sizeof(ask));
    enum sl_msg_type type = world_call(fd, &ask, &p);
    while (type != SL_MSG_END) {
        if (type == SL_MSG_TENANT && strcmp(p.tenant.name, t->name) == 0)
            u = (struct usage){.limit_bytes = p.tenant.gpu[0].limit_bytes,
                               .used_bytes = p.tenant.gpu[0].used_bytes,
                               .overhead_bytes = p.tenant.gpu[0].overhead_bytes,
                               .oom_count = p.tenant.oom_count,
                               .processes = p.tenant.processes};
        struct sl_err err = SL_ERR_INIT;
        if (sl_packet_wait(fd, WORLD_ANSWER_MS, &err) < 0 || sl_packet_recv(fd, &p, NULL, &err) < 0)
            fail_msg("%s", err.msg);
        type = (enum sl_msg_type)p.h.type;
    }
    (void)close(fd);
    return u;
}

void tenant_end(struct tenant *t)
{
    (void)close(t->control);
    *t = (struct tenant){.control = -1};
}

void tenant_preload_library(const char *first, const char *library, char *buf, size_t size)
{
    const char *runtime = getenv("SLUICE_TEST_RUNTIME");
    (void)snprintf(buf, size, "LD_PRELOAD=%s%s%s", runtime ? runtime : "", first, library);
}

void tenant_preload(const char *first, char *buf, size_t size)
{
    tenant_preload_library(first, getenv("SLUICE_TEST_PRELOAD"), buf, size);
}

static void child_environment(const struct tenant *t, const char *const *extra)
{
    static char preload[2048];
    tenant_preload("", preload, sizeof(preload));
    (void)putenv(preload);
    (void)setenv("LD_LIBRARY_PATH", getenv("SLUICE_TEST_DRIVER"), 1);
    if (t)
        (void)setenv(SL_ATTACH_ENV, t->attach_path, 1);
    else
        (void)unsetenv(SL_ATTACH_ENV);
    for (; extra && *extra; extra++) {
        char *copy = strdup(*extra);
        if (copy)
            (void)putenv(copy);
    }
}

void program_start(const struct tenant *t, const char *const *argv, const char *const *extra,
                   struct program *ret)
{
    int in[2], out[2];
    char file[512];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    (void)snprintf(file, sizeof(file), "%s/%s", getenv("SLUICE_TEST_BIN"), argv[0]);
    ret->pid = fork();
    if (ret->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        for (int fd = 3; fd < 256; fd++)
            (void)close(fd);
        child_environment(t, extra);
        (void)execv(file, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    ret->in = fdopen(in[1], "w");
    ret->out = fdopen(out[0], "r");
}

void program_say(struct program *p, const char *line)
{
    (void)fprintf(p->in, "%s\n", line);
    (void)fflush(p->in);
}

void program_answer(struct program *p, char *buf, size_t size)
{
    if (!fgets(buf, (int)size, p->out))
        fail_msg("the program gave no answer");
}

void program_ask(struct program *p, const char *line, char *buf, size_t size)
{
    program_say(p, line);
    program_answer(p, buf, size);
}

int program_end(struct program *p)
{
    int status = -1;
    /* An arbiter started meanwhile holds a copy of the pipe, so its end alone would not be seen. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (p->in) {
        (void)fputs("quit\n", p->in);
        (void)fclose(p->in);
    }
    (void)waitpid(p->pid, &status, 0);
    if (p->out)
        (void)fclose(p->out);
    *p = (struct program){0};
    return status;
}
