/* SPDX-License-Identifier: Apache-2.0 */
/* How this client proves its identity to the API server, and checks the identity of the server. */
#include "kube/errors.h"
#include "kube/kube_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/xalloc.h"

/* curl with GnuTLS takes files only: a PEM text becomes a memory file, which no other process can open by name. */
static int open_text(const char *name, const char *pem, int *ret, struct sl_err *err)
{
    if (!pem)
        return 0;
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t size = strlen(pem);
    if (fd < 0 || write(fd, pem, size) != (ssize_t)size) {
        int rc = sl_err_errno(err, errno, "cannot keep %s for the API server in memory", name);
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    *ret = fd;
    return 0;
}

static int read_token(struct sl_kube *kube, struct sl_err *err)
{
    const char *path = kube->config.token_file;
    char *text = NULL;
    size_t size;
    struct stat st;
    if (stat(path, &st) != 0)
        return sl_err_errno(err, errno, "cannot read the token %s", path);
    int rc = sl_fs_read(AT_FDCWD, path, KUBE_TOKEN_MAX, &text, &size, err);
    if (rc < 0)
        return rc;
    while (size > 0 && strchr(" \t\r\n", text[size - 1]))
        text[--size] = 0;
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~')
            size = 0; /* the token goes into a header: no line ends, no surprises */
    if (size == 0) {
        free(text);
        return sl_err_set(err, -EINVAL, SL_E_KUBE_TOKEN_BAD, path);
    }
    sl_free_secret(kube->token);
    kube->token = text;
    kube->token_stat = st;
    return 0;
}

void sl_kube_token_refresh(struct sl_kube *kube, bool force)
{
    struct stat st;
    const struct stat *old = &kube->token_stat;
    if (!kube->config.token_file)
        return;
    if (!force &&
        (stat(kube->config.token_file, &st) != 0 ||
         (st.st_ino == old->st_ino && st.st_dev == old->st_dev && st.st_size == old->st_size &&
          st.st_mtim.tv_sec == old->st_mtim.tv_sec && st.st_mtim.tv_nsec == old->st_mtim.tv_nsec)))
        return;
    int rc = read_token(kube, NULL); /* unreadable: the server may still take the old token */
    (void)rc;
}

int sl_kube_auth_open(struct sl_kube *kube, struct sl_err *err)
{
    struct sl_kube_config *c = &kube->config;
    int rc = open_text("ca", c->ca_pem, &kube->ca_fd, err);
    if (rc == 0)
        rc = open_text("certificate", c->cert_pem, &kube->cert_fd, err);
    if (rc == 0)
        rc = open_text("key", c->key_pem, &kube->key_fd, err);
    if (rc < 0)
        return rc;
    if (c->token_file)
        return read_token(kube, err);
    if (c->token) {
        for (const char *p = c->token; *p; p++)
            if (*p <= ' ' || *p > '~')
                return sl_err_set(err, -EINVAL, SL_E_KUBECONFIG_TOKEN);
        kube->token = sl_xstrdup(c->token);
    }
    return 0;
}

void sl_kube_auth_close(struct sl_kube *kube)
{
    int *fds[] = {&kube->ca_fd, &kube->cert_fd, &kube->key_fd};
    for (size_t i = 0; i < SL_ARRAY_LEN(fds); i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
    sl_free_secret(kube->token);
    kube->token = NULL;
}

static CURLcode set_file(CURL *easy, CURLoption option, const char *file, int fd)
{
    char path[32];
    if (fd < 0)
        return file ? curl_easy_setopt(easy, option, file) : CURLE_OK;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return curl_easy_setopt(easy, option, path);
}

int sl_kube_auth_apply(struct sl_kube *kube, struct kube_transfer *t, struct sl_err *err)
{
    const struct sl_kube_config *c = &kube->config;
    CURLcode code = set_file(t->easy, CURLOPT_CAINFO, c->ca_file, kube->ca_fd);
    if (c->ca_file || kube->ca_fd >= 0)
        KUBE_SET(code, t->easy, CURLOPT_CAPATH, NULL); /* this authority and no other */
    if (code == CURLE_OK)
        code = set_file(t->easy, CURLOPT_SSLCERT, c->cert_file, kube->cert_fd);
    if (code == CURLE_OK)
        code = set_file(t->easy, CURLOPT_SSLKEY, c->key_file, kube->key_fd);
    if (c->insecure) {
        KUBE_SET(code, t->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        KUBE_SET(code, t->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (code != CURLE_OK)
        return sl_kube_curl_failed(code, err);
    sl_kube_token_refresh(kube, false);
    if (!kube->token)
        return 0;
    char *value = sl_xasprintf("Bearer %s", kube->token);
    sl_kube_transfer_header(t, "Authorization", value);
    sl_free_secret(value);
    return 0;
}
