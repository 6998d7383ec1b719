/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd (MHD) inside the loop: MHD has one epoll descriptor and one deadline. */
#include "http/errors.h"
#include "http/server_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/xalloc.h"

/* SPARE: MHD accepts connections before it closes others; in between there are more than connections_max. */
enum { MEMORY_PER_CONNECTION = 32 << 10, LAST_ROUNDS = 16, SPARE = 32 };

/* GnuTLS's callback for a certificate has no argument of ours; handshakes happen inside run(), which sets this. */
static _Thread_local struct sl_http_server *running;

void sl_http_run_soon(struct sl_http_server *server)
{
    server->run_soon = true;
    sl_timer_set(server->loop, &server->timer, sl_loop_now(server->loop));
}

static void run(struct sl_http_server *server)
{
    struct sl_http_server *outer = running;
    unsigned long long timeout_ms;
    running = server;
    server->run_soon = false;
    (void)MHD_run(server->daemon);
    running = outer;
    if (server->run_soon)
        sl_http_run_soon(server);
    else if (MHD_get_timeout(server->daemon, &timeout_ms) == MHD_YES)
        sl_timer_set(server->loop, &server->timer,
                     sl_loop_now(server->loop) + timeout_ms * SL_NS_PER_MS);
    else
        sl_timer_stop(server->loop, &server->timer);
}

static void ready(struct sl_source *source, uint32_t events)
{
    (void)events;
    run(sl_container_of(source, struct sl_http_server, source));
}

static void timer_fired(struct sl_timer *timer)
{
    run(sl_container_of(timer, struct sl_http_server, timer));
}

/* --- MHD's callbacks ------------------------------------------------------------------------ */

static void too_slow(struct sl_timer *timer)
{
    struct http_conn *conn = sl_container_of(timer, struct http_conn, timer);
    (void)shutdown(conn->fd, SHUT_RDWR); /* MHD sees the end and closes it */
}

static void connection_changed(void *data, struct MHD_Connection *mhd, void **context,
                               enum MHD_ConnectionNotificationCode what)
{
    struct sl_http_server *server = data;
    struct http_conn *conn = *context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = conn = sl_xcalloc(1, sizeof(*conn));
        conn->server = server;
        conn->fd = info->connect_fd;
        conn->timer.fire = too_slow;
        sl_http_conn_arrived(conn);
    } else {
        sl_http_conn_left(conn);
        free(conn);
    }
}

static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certs, unsigned *count, gnutls_ocsp_data_st **ocsp,
                    unsigned *ocsp_count, gnutls_privkey_t *key, unsigned *flags)
{
    (void)session;
    (void)info;
    struct sl_http_server *server = running;
    struct sl_err err = SL_ERR_INIT;
    if (!server)
        return -1;
    if (sl_http_tls_refresh(&server->tls, &err) < 0 && server->opt.trouble)
        server->opt.trouble(server->opt.data, &err);
    *ocsp = NULL;
    *ocsp_count = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return sl_http_tls_retrieve(&server->tls, certs, count, key);
}

static void SL_PRINTF(2, 0) complain(void *data, const char *fmt, va_list args)
{
    struct sl_http_server *server = data;
    (void)vsnprintf(server->complaint, sizeof(server->complaint), fmt, args);
    server->complaint[strcspn(server->complaint, "\n")] = 0;
}

/* --- start and stop ------------------------------------------------------------------------- */

static int open_tls(struct sl_http_server *server, const struct sl_http_server_options *opt,
                    bool *ret_tls, struct sl_err *err)
{
    bool files = opt->cert_file || opt->key_file, texts = opt->cert_pem || opt->key_pem;
    *ret_tls = files || texts;
    if ((files && (!opt->cert_file || !opt->key_file)) ||
        (texts && (!opt->cert_pem || !opt->key_pem)) || (files && texts))
        return sl_err_set(err, -EINVAL, SL_E_TLS_PAIR);
    if (*ret_tls && opt->client_ca_pem) {
        int rc = sl_http_tls_ask_clients(&server->tls, opt->client_ca_pem, err);
        if (rc < 0)
            return rc;
    }
    server->tls.cert_file = sl_xstrdup(opt->cert_file);
    server->tls.key_file = sl_xstrdup(opt->key_file);
    if (files)
        return sl_http_tls_refresh(&server->tls, err);
    return texts ? sl_http_tls_set(&server->tls, opt->cert_pem, opt->key_pem, err) : 0;
}

static int start_daemon(struct sl_http_server *server, int fd, bool tls, struct sl_err *err)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (tls ? (unsigned)MHD_USE_TLS : 0);
    struct MHD_OptionItem tls_options[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)(uintptr_t)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
        {MHD_OPTION_END, 0, NULL}};
    if (server->tls.client_ca_pem) /* clients are asked, and may have no certificate */
        tls_options[2] =
            (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, server->tls.client_ca_pem};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, sl_http_call_handle, server, MHD_OPTION_EXTERNAL_LOGGER, complain,
        server, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        server->opt.connections_max + SPARE, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_PER_CONNECTION,
        MHD_OPTION_URI_LOG_CALLBACK, sl_http_call_open, server, MHD_OPTION_NOTIFY_COMPLETED,
        sl_http_call_completed, server, MHD_OPTION_NOTIFY_CONNECTION, connection_changed, server,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls ? tls_options : none,
        MHD_OPTION_END);
    if (!server->daemon) {
        (void)close(fd);
        return sl_err_set(err, -EIO, SL_E_HTTP_START,
                          server->complaint[0] ? server->complaint : "out of memory");
    }
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return sl_err_set(err, -ENOTSUP, SL_E_HTTP_NO_EPOLL);
    server->source.fd = info->epoll_fd;
    server->source.ready = ready;
    return sl_loop_watch(server->loop, &server->source, EPOLLIN, err);
}

int sl_http_server_create(struct sl_loop *loop, const struct sl_http_server_options *opt,
                          struct sl_http_server **ret, struct sl_err *err)
{
    struct sl_http_server *server = sl_xcalloc(1, sizeof(*server));
    bool tls = false;
    server->loop = loop;
    if (getrandom(&server->origin_secret, sizeof(server->origin_secret), GRND_NONBLOCK) < 0)
        server->origin_secret = sl_now_ns(); /* a weak secret is enough: it only serves fairness */
    server->timer.fire = timer_fired;
    server->opt = *opt;
    if (!server->opt.body_max)
        server->opt.body_max = 4U << 20;
    if (!server->opt.connections_max)
        server->opt.connections_max = 256;
    if (!server->opt.held_max)
        server->opt.held_max = 16U << 20;
    if (!server->opt.idle_timeout_s)
        server->opt.idle_timeout_s = 60;
    int rc = open_tls(server, opt, &tls, err);
    if (rc >= 0)
        rc = sl_http_listen(opt->address, err);
    if (rc >= 0) {
        server->port = sl_http_listen_port(rc);
        rc = start_daemon(server, rc, tls, err);
    }
    if (rc < 0) {
        sl_http_server_destroy(server);
        return rc;
    }
    *ret = server;
    return 0;
}

void sl_http_server_quiesce(struct sl_http_server *server)
{
    MHD_socket fd = MHD_quiesce_daemon(server->daemon);
    if (fd != MHD_INVALID_SOCKET)
        (void)close(fd);
}

void sl_http_server_destroy(struct sl_http_server *server)
{
    if (!server)
        return;
    for (struct sl_http_call *call = server->calls, *next; call; call = next) {
        next = call->next;
        sl_http_call_drop(call);
    }
    if (server->daemon) {
        /* Write finished answers as far as the sockets take them without waiting. */
        for (int i = 0; i < LAST_ROUNDS && server->calls; i++)
            run(server);
        sl_loop_unwatch(server->loop, &server->source);
        MHD_stop_daemon(server->daemon);
    }
    sl_timer_stop(server->loop, &server->timer);
    while (server->calls)
        sl_http_call_free(server->calls);
    sl_http_tls_close(&server->tls);
    free(server);
}

unsigned sl_http_server_port(const struct sl_http_server *server)
{
    return server->port;
}

int sl_http_server_certify(struct sl_http_server *server, const char *cert_pem, const char *key_pem,
                           struct sl_err *err)
{
    if (server->tls.cert_file || !server->tls.cert_pem)
        return sl_err_set(err, -EINVAL, SL_E_TLS_TEXT);
    return sl_http_tls_set(&server->tls, cert_pem, key_pem, err);
}
