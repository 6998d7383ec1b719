/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/kubectl.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "cli/errors.h"
#include "cli/table.h"

#define ANSWER_MAX (512ull << 20) /* a list of all pods of a large cluster */
#define SAID_MAX   4096

struct text {
    char *bytes;
    size_t size, max;
    bool over;
};

bool sl_kubectl_name_ok(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 253 || !isalnum((unsigned char)name[0]) ||
        !isalnum((unsigned char)name[n - 1]))
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n;
}

/* Appends what there is to read. False: the other side has closed it. */
static bool drain(int fd, struct text *t)
{
    char buf[65536];
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n < 0)
        return errno == EINTR;
    if (n == 0)
        return false;
    size_t room = t->max - t->size, take = (size_t)n < room ? (size_t)n : room;
    t->over |= take < (size_t)n;
    t->bytes = sl_xrealloc(t->bytes, t->size + take + 1);
    memcpy(t->bytes + t->size, buf, take);
    t->size += take;
    t->bytes[t->size] = '\0';
    return true;
}

static void drain_both(int out, int err, struct text *answer, struct text *said)
{
    struct pollfd fds[] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    struct text *texts[] = {answer, said};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        for (size_t i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents && !drain(fds[i].fd, texts[i]))
                fds[i].fd = -1;
    }
}

static void become_kubectl(char *const *argv, int out, int err)
{
    if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        (void)execvp(argv[0], argv);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Runs kubectl with these words. Returns its exit code, 127 where there is none. */
static int run(const struct sl_kubectl *k, const char *const *words, struct text *answer,
               struct text *said)
{
    char *argv[16] = {(char[]){"kubectl"}};
    int out[2], err[2], status = 0;
    size_t n = 1;
    const char *const options[][2] = {{"--kubeconfig", k->kubeconfig}, {"--context", k->context}};
    for (size_t i = 0; i < 2; i++)
        if (options[i][1]) {
            argv[n++] = (char *)(uintptr_t)options[i][0];
            argv[n++] = (char *)(uintptr_t)options[i][1];
        }
    for (; *words && n < SL_ARRAY_LEN(argv) - 1; words++)
        argv[n++] = (char *)(uintptr_t)*words;
    if (pipe2(out, O_CLOEXEC) != 0)
        return 126;
    if (pipe2(err, O_CLOEXEC) != 0) {
        (void)close(out[0]);
        (void)close(out[1]);
        return 126;
    }
    pid_t child = fork();
    if (child == 0)
        become_kubectl(argv, out[1], err[1]);
    (void)close(out[1]);
    (void)close(err[1]);
    if (child > 0)
        drain_both(out[0], err[0], answer, said);
    (void)close(out[0]);
    (void)close(err[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 126;
    return child < 0 || !WIFEXITED(status) ? 126 : WEXITSTATUS(status);
}

static int refuse(int code, struct text *said, const char *path, struct sl_err *err)
{
    char *text = said->bytes ? sl_table_printable(said->bytes) : NULL;
    size_t n = text ? strlen(text) : 0;
    while (n > 0 && text[n - 1] == '?') /* the end of the line */
        text[--n] = '\0';
    if (code == 127)
        return sl_err_set(err, -ENOEXEC, SL_E_NO_KUBECTL);
    if (text && strstr(text, "(NotFound)"))
        return sl_err_set(err, -ENOENT, SL_E_KUBECTL_NOT_FOUND, path);
    if (text && strstr(text, "(Forbidden)"))
        return sl_err_set(err, -EACCES, SL_E_KUBECTL_FORBIDDEN, path, text);
    return sl_err_set(err, -EIO, SL_E_KUBECTL_FAILED, text && *text ? text : "no reason given");
}

static int ask(const struct sl_kubectl *k, const char *const *words, const char *path, char **ret,
               size_t *ret_size, struct sl_err *err)
{
    struct text answer = {.max = ANSWER_MAX}, said = {.max = SAID_MAX};
    int code = run(k, words, &answer, &said), rc = 0;
    if (code != 0)
        rc = refuse(code, &said, path, err);
    else if (answer.over)
        rc = sl_err_set(err, -EFBIG, SL_E_KUBECTL_LARGE, path);
    free(said.bytes);
    if (rc < 0) {
        free(answer.bytes);
        return rc;
    }
    *ret = answer.bytes ? answer.bytes : sl_xstrdup("");
    *ret_size = answer.size;
    return 0;
}

int sl_kubectl_get(const struct sl_kubectl *kubectl, const char *path, json_t **ret,
                   struct sl_err *err)
{
    const char *const words[] = {"get", "--raw", path, NULL};
    size_t size = 0;
    char *text = NULL;
    int rc = ask(kubectl, words, path, &text, &size, err);
    if (rc < 0)
        return rc;
    *ret = json_loadb(text, size, 0, NULL);
    free(text);
    return *ret ? 0 : sl_err_set(err, -EBADMSG, SL_E_KUBECTL_NO_JSON, path);
}

int sl_kubectl_namespace(const struct sl_kubectl *kubectl, char **ret, struct sl_err *err)
{
    const char *const words[] = {"config", "view", "--minify", "-o", "jsonpath={..namespace}",
                                 NULL};
    size_t size = 0;
    int rc = ask(kubectl, words, "the kubeconfig", ret, &size, err);
    if (rc == -ENOEXEC || (rc == 0 && size > 0))
        return rc;
    /* No namespace in the context; or no context at all, as in a pod, where kubectl works all the same. */
    if (rc == 0)
        free(*ret);
    *ret = sl_xstrdup("default");
    return 0;
}
