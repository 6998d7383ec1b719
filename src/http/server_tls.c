/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fsutil.h"
#include "base/xalloc.h"
#include "http/errors.h"

enum { PEM_MAX = 256 << 10, CHAIN_MAX = 16 };

static gnutls_datum_t datum(const char *text)
{
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)text, (unsigned)strlen(text)};
}

int sl_http_tls_set(struct http_tls *tls, const char *cert_pem, const char *key_pem,
                    struct sl_err *err)
{
    gnutls_certificate_credentials_t both;
    gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
    int rc = gnutls_certificate_allocate_credentials(&both);
    if (rc == 0) {
        rc = gnutls_certificate_set_x509_key_mem(both, &cert, &key, GNUTLS_X509_FMT_PEM);
        gnutls_certificate_free_credentials(both);
    }
    if (rc < 0)
        return sl_err_set(err, -EINVAL, SL_E_TLS_MISMATCH, gnutls_strerror(rc));
    char *new_cert = sl_xstrdup(cert_pem), *new_key = sl_xstrdup(key_pem);
    free(tls->cert_pem);
    sl_free_secret(tls->key_pem);
    tls->cert_pem = new_cert;
    tls->key_pem = new_key;
    return 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Files that cannot be used count as read too: the next attempt waits until they change. */
int sl_http_tls_refresh(struct http_tls *tls, struct sl_err *err)
{
    SL_CLEANUP(free) char *cert = NULL;
    char *key = NULL;
    size_t size;
    struct stat c, k;
    if (!tls->cert_file)
        return 0;
    if (stat(tls->cert_file, &c) != 0)
        return sl_err_errno(err, errno, "cannot read the certificate %s", tls->cert_file);
    if (stat(tls->key_file, &k) != 0)
        return sl_err_errno(err, errno, "cannot read the key %s", tls->key_file);
    if (same(&c, &tls->cert_stat) && same(&k, &tls->key_stat))
        return 0;
    int rc = sl_fs_read(AT_FDCWD, tls->cert_file, PEM_MAX, &cert, &size, err);
    if (rc == 0)
        rc = sl_fs_read(AT_FDCWD, tls->key_file, PEM_MAX, &key, &size, err);
    if (rc == 0)
        rc = sl_http_tls_set(tls, cert, key, err);
    sl_free_secret(key);
    tls->cert_stat = c;
    tls->key_stat = k;
    return rc;
}

int sl_http_tls_retrieve(const struct http_tls *tls, gnutls_pcert_st **ret_certs,
                         unsigned *ret_count, gnutls_privkey_t *ret_key)
{
    gnutls_datum_t cert = datum(tls->cert_pem), key = datum(tls->key_pem);
    unsigned count = CHAIN_MAX;
    gnutls_pcert_st *certs = gnutls_calloc(CHAIN_MAX, sizeof(*certs));
    gnutls_privkey_t private = NULL;
    if (!certs)
        return -1;
    int rc = gnutls_pcert_list_import_x509_raw(certs, &count, &cert, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0) {
        gnutls_free(certs);
        return -1;
    }
    rc = gnutls_privkey_init(&private);
    if (rc == 0)
        rc = gnutls_privkey_import_x509_raw(private, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc < 0) {
        if (private)
            gnutls_privkey_deinit(private);
        for (unsigned i = 0; i < count; i++)
            gnutls_pcert_deinit(&certs[i]);
        gnutls_free(certs);
        return -1;
    }
    *ret_certs = certs;
    *ret_count = count;
    *ret_key = private;
    return 0;
}

int sl_http_tls_ask_clients(struct http_tls *tls, const char *ca_pem, struct sl_err *err)
{
    gnutls_certificate_credentials_t trial;
    gnutls_datum_t ca = datum(ca_pem);
    int rc = gnutls_certificate_allocate_credentials(&trial);
    if (rc >= 0) {
        rc = gnutls_certificate_set_x509_trust_mem(trial, &ca, GNUTLS_X509_FMT_PEM);
        gnutls_certificate_free_credentials(trial);
    }
    if (rc <= 0)
        return sl_err_set(err, -EINVAL, SL_E_TLS_CLIENT_CA,
                          rc ? gnutls_strerror(rc) : "there is no certificate");
    tls->client_ca_pem = sl_xstrdup(ca_pem);
    return 0;
}

bool sl_http_tls_client(gnutls_session_t session, char name[128])
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned status = 0, count = 0;
    gnutls_x509_crt_t cert;
    size_t size = 128;
    name[0] = '\0';
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0 || status != 0)
        return false;
    const gnutls_datum_t *list = gnutls_certificate_get_peers(session, &count);
    if (!list || !count || gnutls_x509_crt_init(&cert) < 0)
        return false;
    bool good = gnutls_x509_crt_import(cert, list, GNUTLS_X509_FMT_DER) >= 0;
    if (good &&
        gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &size) < 0)
        name[0] = '\0';
    gnutls_x509_crt_deinit(cert);
    return good;
}

void sl_http_tls_close(struct http_tls *tls)
{
    free(tls->cert_file);
    free(tls->key_file);
    free(tls->cert_pem);
    free(tls->client_ca_pem);
    sl_free_secret(tls->key_pem);
    *tls = (struct http_tls){0};
}
