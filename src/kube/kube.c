/* SPDX-License-Identifier: Apache-2.0 */
/* curl's multi interface inside the loop, and the small helpers. */
#include "kube/errors.h"
#include "kube/kube_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/list.h"
#include "base/xalloc.h"

static const char pod_dir[] = "/var/run/secrets/kubernetes.io/serviceaccount";

/* --- curl and the loop ---------------------------------------------------------------------- */

/* curl's own callbacks only take notes. This function runs after curl has returned: the user's callbacks may do
 * anything with the client, and never call curl from inside curl. */
static void after_curl(struct sl_kube *kube)
{
    CURLMsg *msg;
    int left;
    sl_kube_enter(kube);
    sl_kube_watches_pump(kube);
    while (!kube->dead && (msg = curl_multi_info_read(kube->multi, &left))) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        CURLcode code = msg->data.result;
        struct kube_transfer *t = NULL;
        (void)curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        (void)curl_multi_remove_handle(kube->multi, t->easy);
        t->added = false;
        t->done(t, code);
    }
    if (!kube->dead)
        sl_kube_calls_start(kube);
    sl_kube_leave(kube);
}

static void socket_ready(struct sl_source *source, uint32_t events)
{
    struct kube_socket *s = sl_container_of(source, struct kube_socket, source);
    struct sl_kube *kube = s->kube;
    int mask = 0, running;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP))
        mask |= CURL_CSELECT_IN;
    if (events & EPOLLOUT)
        mask |= CURL_CSELECT_OUT;
    if (events & EPOLLERR)
        mask |= CURL_CSELECT_ERR;
    (void)curl_multi_socket_action(kube->multi, source->fd, mask, &running);
    after_curl(kube); /* s may be gone */
}

static void socket_drop(struct kube_socket *s)
{
    sl_loop_unwatch(s->kube->loop, &s->source);
    sl_list_drop(&s->kube->sockets, s);
    free(s);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    (void)easy;
    struct sl_kube *kube = data;
    struct kube_socket *s = socket_data;
    if (what == CURL_POLL_REMOVE) {
        if (s)
            socket_drop(s);
        return 0;
    }
    if (!s) {
        s = sl_xcalloc(1, sizeof(*s));
        s->kube = kube;
        s->source.fd = fd;
        s->source.ready = socket_ready;
        s->next = kube->sockets;
        kube->sockets = s;
        (void)curl_multi_assign(kube->multi, fd, s);
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0U) | (what & CURL_POLL_OUT ? EPOLLOUT : 0U);
    return sl_loop_watch(kube->loop, &s->source, events, NULL) < 0 ? -1 : 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *data)
{
    (void)multi;
    struct sl_kube *kube = data;
    if (timeout_ms < 0)
        sl_timer_stop(kube->loop, &kube->timer);
    else
        sl_timer_set(kube->loop, &kube->timer,
                     sl_loop_now(kube->loop) + (uint64_t)timeout_ms * SL_NS_PER_MS);
    return 0;
}

static void timer_fired(struct sl_timer *timer)
{
    struct sl_kube *kube = sl_container_of(timer, struct sl_kube, timer);
    int running;
    (void)curl_multi_socket_action(kube->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    after_curl(kube);
}

static void kick_fired(struct sl_timer *timer)
{
    struct sl_kube *kube = sl_container_of(timer, struct sl_kube, kick);
    sl_kube_enter(kube);
    sl_kube_calls_start(kube);
    sl_kube_leave(kube);
}

/* A connection whose peer is gone accepts a request and stays silent. So sent bytes must be acknowledged within ten
 * seconds, or the connection is closed and made anew. */
static int on_connect(void *data, curl_socket_t fd, curlsocktype purpose)
{
    (void)data;
    (void)purpose;
    unsigned int ms = 10000;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

/* --- transfers ------------------------------------------------------------------------------ */

int sl_kube_curl_failed(CURLcode code, struct sl_err *err)
{
    return sl_err_set(err, -EINVAL, SL_E_KUBE_SETUP, curl_easy_strerror(code));
}

int sl_kube_transfer_open(struct sl_kube *kube, struct kube_transfer *t, const char *path,
                          struct sl_err *err)
{
    t->easy = curl_easy_init();
    if (!t->easy)
        sl_out_of_memory();
    char *url = sl_xasprintf("%s%s", kube->config.server, path);
    CURL *e = t->easy;
    CURLcode code = curl_easy_setopt(e, CURLOPT_URL, url);
    free(url);
    KUBE_SET(code, e, CURLOPT_PRIVATE, t);
    KUBE_SET(code, e, CURLOPT_ERRORBUFFER, t->why);
    KUBE_SET(code, e, CURLOPT_NOSIGNAL, 1L);
    /* The API server's audit log then names Sluice. */
    KUBE_SET(code, e, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
    KUBE_SET(code, e, CURLOPT_PROTOCOLS_STR, "http,https");
    KUBE_SET(code, e, CURLOPT_FOLLOWLOCATION, 0L);
    KUBE_SET(code, e, CURLOPT_NOPROXY, "*"); /* reach the API server directly */
    KUBE_SET(code, e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    KUBE_SET(code, e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    KUBE_SET(code, e, CURLOPT_CONNECTTIMEOUT_MS, (long)KUBE_CONNECT_MS);
    KUBE_SET(code, e, CURLOPT_TCP_KEEPALIVE, 1L); /* notices a server that vanished while idle */
    KUBE_SET(code, e, CURLOPT_TCP_KEEPIDLE, 30L);
    KUBE_SET(code, e, CURLOPT_TCP_KEEPINTVL, 10L);
    KUBE_SET(code, e, CURLOPT_SOCKOPTFUNCTION, on_connect);
    KUBE_SET(code, e, CURLOPT_PATH_AS_IS, 1L);
    return code == CURLE_OK ? sl_kube_auth_apply(kube, t, err) : sl_kube_curl_failed(code, err);
}

void sl_kube_transfer_header(struct kube_transfer *t, const char *name, const char *value)
{
    char *line = sl_xasprintf("%s: %s", name, value);
    struct curl_slist *headers = curl_slist_append(t->headers, line);
    explicit_bzero(line, strlen(line));
    free(line);
    if (!headers)
        sl_out_of_memory();
    t->headers = headers;
}

int sl_kube_transfer_start(struct sl_kube *kube, struct kube_transfer *t, struct sl_err *err)
{
    CURLcode code = curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    if (code != CURLE_OK)
        return sl_kube_curl_failed(code, err);
    CURLMcode mcode = curl_multi_add_handle(kube->multi, t->easy);
    if (mcode != CURLM_OK)
        return sl_err_set(err, -EINVAL, SL_E_KUBE_START, curl_multi_strerror(mcode));
    t->added = true;
    return 0;
}

void sl_kube_transfer_close(struct sl_kube *kube, struct kube_transfer *t)
{
    if (t->added)
        (void)curl_multi_remove_handle(kube->multi, t->easy);
    t->added = false;
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
    for (struct curl_slist *h = t->headers; h; h = h->next)
        explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    t->why[0] = 0;
}

void sl_kube_transfer_error(const struct kube_transfer *t, CURLcode code, struct sl_err *err)
{
    static const struct {
        CURLcode curl;
        int code;
    } codes[] = {
        {CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT},    {CURLE_COULDNT_CONNECT, -ECONNREFUSED},
        {CURLE_COULDNT_RESOLVE_HOST, -ENXIO},      {CURLE_OUT_OF_MEMORY, -ENOMEM},
        {CURLE_PEER_FAILED_VERIFICATION, -EACCES}, {CURLE_SSL_CACERT_BADFILE, -ENOENT},
        {CURLE_SSL_CERTPROBLEM, -EACCES},
    };
    int rc = -EIO;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].curl == code)
            rc = codes[i].code;
    (void)sl_err_set(err, rc, SL_E_KUBE_NO_ANSWER, t->why[0] ? t->why : curl_easy_strerror(code));
}

/* --- the client ----------------------------------------------------------------------------- */

void sl_kube_enter(struct sl_kube *kube)
{
    kube->depth++;
}

void sl_kube_leave(struct sl_kube *kube)
{
    if (--kube->depth == 0 && kube->dead)
        free(kube);
}

uint64_t sl_kube_random(struct sl_kube *kube)
{
    kube->random ^= kube->random << 13; /* xorshift: only spreads retries out */
    kube->random ^= kube->random >> 7;
    kube->random ^= kube->random << 17;
    return kube->random;
}

static void replace(char **at, const char *value)
{
    if (!value)
        return;
    free(*at);
    *at = sl_xstrdup(value);
}

static int find_config(struct sl_kube *kube, const struct sl_kube_options *opt, struct sl_err *err)
{
    struct sl_kube_config *c = &kube->config;
    int rc = 0;
    if (opt->kubeconfig)
        rc = sl_kube_config_file(opt->kubeconfig, c, err);
    else if (!opt->server)
        rc = sl_kube_config_pod(pod_dir, c, err);
    if (rc < 0)
        return rc;
    if (opt->ca_file) {
        free(c->ca_pem);
        c->ca_pem = NULL;
    }
    replace(&c->server, opt->server);
    replace(&c->ca_file, opt->ca_file);
    replace(&c->token_file, opt->token_file);
    for (size_t n = strlen(c->server); n > 0 && c->server[n - 1] == '/'; n--)
        c->server[n - 1] = 0;
    bool plain = strncasecmp(c->server, "http://", 7) == 0;
    if (!plain && strncasecmp(c->server, "https://", 8) != 0)
        return sl_err_set(err, -EINVAL, SL_E_KUBE_URL, c->server);
    if (plain && (c->token || c->token_file))
        return sl_err_set(err, -EINVAL, SL_E_KUBE_PLAIN, c->server);
    return 0;
}

static int open_multi(struct sl_kube *kube, struct sl_err *err)
{
    static bool ready; /* curl is set up once for each process */
    if (!ready && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return sl_err_set(err, -ENOMEM, SL_E_KUBE_CURL_GONE);
    ready = true;
    kube->multi = curl_multi_init();
    if (!kube->multi)
        sl_out_of_memory();
    CURLMcode code = curl_multi_setopt(kube->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    if (code == CURLM_OK)
        code = curl_multi_setopt(kube->multi, CURLMOPT_SOCKETDATA, kube);
    if (code == CURLM_OK)
        code = curl_multi_setopt(kube->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    if (code == CURLM_OK)
        code = curl_multi_setopt(kube->multi, CURLMOPT_TIMERDATA, kube);
    if (code == CURLM_OK) /* the handle is kept for reuse */
        code = curl_multi_setopt(kube->multi, CURLMOPT_MAXCONNECTS, (long)KUBE_ACTIVE_MAX);
    if (code != CURLM_OK)
        return sl_err_set(err, -EINVAL, SL_E_KUBE_CURL, curl_multi_strerror(code));
    return 0;
}

int sl_kube_create(struct sl_loop *loop, const struct sl_kube_options *opt, struct sl_kube **ret,
                   struct sl_err *err)
{
    struct sl_kube *kube = sl_xcalloc(1, sizeof(*kube));
    kube->loop = loop;
    kube->ca_fd = kube->cert_fd = kube->key_fd = -1;
    kube->timer.fire = timer_fired;
    kube->kick.fire = kick_fired;
    kube->timeout_ns = opt->timeout_ns ? opt->timeout_ns : 30 * SL_NS_PER_S;
    if (getrandom(&kube->random, sizeof(kube->random), GRND_NONBLOCK) < 0 || !kube->random)
        kube->random = sl_now_ns() | 1;
    int rc = find_config(kube, opt, err);
    if (rc == 0)
        rc = open_multi(kube, err);
    if (rc == 0)
        rc = sl_kube_auth_open(kube, err);
    if (rc < 0) {
        sl_kube_destroy(kube);
        return rc;
    }
    *ret = kube;
    return 0;
}

void sl_kube_destroy(struct sl_kube *kube)
{
    if (!kube || kube->dead)
        return;
    sl_kube_enter(kube);
    kube->dead = true;
    while (kube->watches)
        sl_kube_watch_stop(kube->watches);
    while (kube->first_call)
        sl_kube_call_free(kube->first_call);
    if (kube->multi)
        (void)curl_multi_cleanup(kube->multi); /* calls on_socket for the sockets that are left */
    kube->multi = NULL;
    while (kube->sockets)
        socket_drop(kube->sockets);
    sl_timer_stop(kube->loop, &kube->timer);
    sl_timer_stop(kube->loop, &kube->kick);
    sl_kube_auth_close(kube);
    sl_kube_config_free(&kube->config);
    sl_kube_leave(kube);
}

/* --- small helpers -------------------------------------------------------------------------- */

const char *sl_kube_meta(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(object, "metadata"), key));
    return text ? text : "";
}

char *sl_kube_path(const char *fmt, ...)
{
    char *text;
    size_t size;
    va_list ap;
    FILE *out = sl_xmemstream(&text, &size);
    va_start(ap, fmt);
    for (; *fmt; fmt++) {
        if (*fmt != '%' || *++fmt != 's') {
            (void)fputc(*fmt, out);
            continue;
        }
        for (const char *p = va_arg(ap, const char *); *p; p++)
            (void)fprintf(out, isalnum((unsigned char)*p) || strchr("-._~", *p) ? "%c" : "%%%02X",
                          (unsigned char)*p);
    }
    va_end(ap);
    sl_xmemstream_close(out);
    return text;
}
