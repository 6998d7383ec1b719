/* SPDX-License-Identifier: Apache-2.0 */
/* A server's certificate, which may be replaced while the server runs. */
#ifndef SLUICE_HTTP_SERVER_TLS_H
#define SLUICE_HTTP_SERVER_TLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* Zeroed before first use. */
struct http_tls {
    char *cert_file, *key_file; /* NULL: given as texts */
    struct stat cert_stat, key_stat;
    char *cert_pem, *key_pem; /* these two belong together */
    char *client_ca_pem;      /* NULL: clients are not asked for a certificate */
};

int sl_http_tls_set(struct http_tls *tls, const char *cert_pem, const char *key_pem,
                    struct sl_err *err) SL_MUST_CHECK;
/* Reads the files where they changed. -errno: the new files cannot be used, and the old ones stay. */
int sl_http_tls_refresh(struct http_tls *tls, struct sl_err *err) SL_MUST_CHECK;
/* The credentials of one handshake, freed by GnuTLS: a reload does not disturb handshakes in
 * progress. */
int sl_http_tls_retrieve(const struct http_tls *tls, gnutls_pcert_st **ret_certs,
                         unsigned *ret_count, gnutls_privkey_t *ret_key);
/* Sets the authorities for clients' certificates; checks that there is at least one. */
int sl_http_tls_ask_clients(struct http_tls *tls, const char *ca_pem,
                            struct sl_err *err) SL_MUST_CHECK;
/* The certificate of the peer, checked: signed, not expired, and made for clients. */
bool sl_http_tls_client(gnutls_session_t session, char name[128]);
void sl_http_tls_close(struct http_tls *tls);

#endif
