/* SPDX-License-Identifier: Apache-2.0 */
#include "http/cert.h"

#include "http/errors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

enum { NAMES_MAX = 64, SERIAL_BYTES = 16 };

/* Turns GnuTLS's return code into our error. */
static int failed(int code, const char *what, struct sl_err *err)
{
    return sl_err_set(err, -EINVAL, "cannot %s: %s", what, gnutls_strerror(code));
}

static gnutls_datum_t datum(const char *text)
{
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)text, (unsigned)strlen(text)};
}

struct pair {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
};

static void pair_close(struct pair *p)
{
    if (p->crt)
        gnutls_x509_crt_deinit(p->crt);
    if (p->key)
        gnutls_x509_privkey_deinit(p->key);
}

/* The fields that the authority and the server have in common. */
static int pair_open(struct pair *p, const char *common_name, time_t from, time_t until)
{
    unsigned char serial[SERIAL_BYTES] = {0};
    int rc = gnutls_x509_privkey_init(&p->key);
    if (rc == 0)
        rc = gnutls_x509_privkey_generate(p->key, GNUTLS_PK_ECDSA,
                                          GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (rc == 0)
        rc = gnutls_x509_crt_init(&p->crt);
    if (rc == 0)
        rc = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));
    serial[0] = (serial[0] & 0x7f) | 0x40; /* positive, and no leading zero byte */
    if (rc == 0)
        rc = gnutls_x509_crt_set_version(p->crt, 3);
    if (rc == 0)
        rc = gnutls_x509_crt_set_serial(p->crt, serial, sizeof(serial));
    if (rc == 0)
        rc = gnutls_x509_crt_set_activation_time(p->crt, from);
    if (rc == 0)
        rc = gnutls_x509_crt_set_expiration_time(p->crt, until);
    if (rc == 0)
        rc = gnutls_x509_crt_set_dn_by_oid(p->crt, GNUTLS_OID_X520_COMMON_NAME, 0, common_name,
                                           (unsigned)strlen(common_name));
    if (rc == 0)
        rc = gnutls_x509_crt_set_key(p->crt, p->key);
    unsigned char id[64];
    size_t id_size = sizeof(id);
    if (rc == 0)
        rc = gnutls_x509_crt_get_key_id(p->crt, GNUTLS_KEYID_USE_SHA256, id, &id_size);
    if (rc == 0)
        rc = gnutls_x509_crt_set_subject_key_id(p->crt, id, 20);
    return rc;
}

static int finish_ca(struct pair *ca)
{
    int rc = gnutls_x509_crt_set_ca_status(ca->crt, 1);
    if (rc == 0)
        rc = gnutls_x509_crt_set_key_usage(ca->crt, GNUTLS_KEY_KEY_CERT_SIGN);
    if (rc == 0)
        rc = gnutls_x509_crt_sign2(ca->crt, ca->crt, ca->key, GNUTLS_DIG_SHA256, 0);
    return rc;
}

static int add_name(gnutls_x509_crt_t crt, const char *name)
{
    unsigned char ip[16];
    unsigned size = inet_pton(AF_INET, name, ip) == 1    ? 4
                    : inet_pton(AF_INET6, name, ip) == 1 ? 16
                                                         : 0;
    if (size)
        return gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, ip, size,
                                                    GNUTLS_FSAN_APPEND);
    return gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, name,
                                                (unsigned)strlen(name), GNUTLS_FSAN_APPEND);
}

static int finish_server(struct pair *server, const struct pair *ca, const char *const *names,
                         size_t count)
{
    int rc = gnutls_x509_crt_set_basic_constraints(server->crt, 0, -1);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_name(server->crt, names[i]);
    if (rc == 0)
        rc = gnutls_x509_crt_set_key_usage(server->crt, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (rc == 0)
        rc = gnutls_x509_crt_set_key_purpose_oid(server->crt, GNUTLS_KP_TLS_WWW_SERVER, 0);
    unsigned char id[64];
    size_t id_size = sizeof(id);
    if (rc == 0)
        rc = gnutls_x509_crt_get_subject_key_id(ca->crt, id, &id_size, NULL);
    if (rc == 0)
        rc = gnutls_x509_crt_set_authority_key_id(server->crt, id, id_size);
    if (rc == 0)
        rc = gnutls_x509_crt_sign2(server->crt, ca->crt, ca->key, GNUTLS_DIG_SHA256, 0);
    return rc;
}

/* Our caller frees with free(), which may differ from GnuTLS's allocator. */
static int take_text(int rc, gnutls_datum_t *pem, char **ret)
{
    if (rc < 0)
        return rc;
    *ret = sl_xstrndup((const char *)pem->data, pem->size);
    gnutls_memset(pem->data, 0, pem->size);
    gnutls_free(pem->data);
    return 0;
}

static int write_out(const struct pair *ca, const struct pair *server, struct sl_cert *ret)
{
    gnutls_datum_t pem;
    int rc =
        take_text(gnutls_x509_crt_export2(ca->crt, GNUTLS_X509_FMT_PEM, &pem), &pem, &ret->ca_pem);
    if (rc == 0)
        rc = take_text(gnutls_x509_crt_export2(server->crt, GNUTLS_X509_FMT_PEM, &pem), &pem,
                       &ret->cert_pem);
    if (rc == 0)
        rc = take_text(gnutls_x509_privkey_export2(server->key, GNUTLS_X509_FMT_PEM, &pem), &pem,
                       &ret->key_pem);
    return rc;
}

int sl_cert_make(const char *const *names, size_t count, time_t from, time_t until,
                 struct sl_cert *ret, struct sl_err *err)
{
    struct pair ca = {0}, server = {0};
    struct sl_cert made = {0};
    if (count < 1 || count > NAMES_MAX || from >= until)
        return sl_err_set(err, -EINVAL, SL_E_CERT_NAMES, NAMES_MAX);
    for (size_t i = 0; i < count; i++)
        if (!names[i][0] || strlen(names[i]) > 253)
            return sl_err_set(err, -EINVAL, SL_E_CERT_FOR, names[i]);
    int rc = pair_open(&ca, "sluice authority", from, until);
    if (rc == 0)
        rc = finish_ca(&ca);
    if (rc == 0)
        rc = pair_open(&server, "sluice", from, until);
    if (rc == 0)
        rc = finish_server(&server, &ca, names, count);
    if (rc == 0)
        rc = write_out(&ca, &server, &made);
    pair_close(&server);
    pair_close(&ca);
    if (rc < 0) {
        sl_cert_free(&made);
        return failed(rc, "make a certificate", err);
    }
    *ret = made;
    return 0;
}

void sl_cert_free(struct sl_cert *cert)
{
    free(cert->ca_pem);
    free(cert->cert_pem);
    sl_free_secret(cert->key_pem);
    *cert = (struct sl_cert){0};
}

static int import(const char *pem, const char *what, gnutls_x509_crt_t *ret, struct sl_err *err)
{
    gnutls_datum_t text = datum(pem ? pem : "");
    int rc = gnutls_x509_crt_init(ret);
    if (rc < 0) {
        *ret = NULL;
        return failed(rc, "read a certificate", err);
    }
    rc = gnutls_x509_crt_import(*ret, &text, GNUTLS_X509_FMT_PEM);
    return rc < 0 ? failed(rc, what, err) : 0;
}

static int check_parsed(gnutls_x509_crt_t ca, gnutls_x509_crt_t crt, const char *name, time_t at,
                        struct sl_err *err)
{
    unsigned flaws = 0;
    if (gnutls_x509_crt_get_expiration_time(crt) <= at ||
        gnutls_x509_crt_get_activation_time(crt) > at)
        return sl_err_set(err, -EKEYEXPIRED, SL_E_CERT_TIME);
    int rc = gnutls_x509_crt_verify(crt, &ca, 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &flaws);
    if (rc < 0 || flaws)
        return sl_err_set(err, -EKEYREJECTED, SL_E_CERT_AUTHORITY);
    if (!gnutls_x509_crt_check_hostname(crt, name))
        return sl_err_set(err, -EKEYREJECTED, SL_E_CERT_NAME, name);
    return 0;
}

int sl_cert_check(const struct sl_cert *cert, const char *name, time_t at, struct sl_err *err)
{
    gnutls_x509_crt_t ca = NULL, crt = NULL;
    gnutls_certificate_credentials_t both = NULL;
    int rc = import(cert->ca_pem, "read the authority's certificate", &ca, err);
    if (rc == 0)
        rc = import(cert->cert_pem, "read the certificate", &crt, err);
    if (rc == 0)
        rc = check_parsed(ca, crt, name, at, err);
    if (rc == 0) {
        gnutls_datum_t crt_text = datum(cert->cert_pem);
        gnutls_datum_t key_text = datum(cert->key_pem ? cert->key_pem : "");
        rc = gnutls_certificate_allocate_credentials(&both);
        if (rc == 0) /* this function compares them */
            rc = gnutls_certificate_set_x509_key_mem(both, &crt_text, &key_text,
                                                     GNUTLS_X509_FMT_PEM);
        rc = rc < 0 ? failed(rc, "use the certificate with its key", err) : 0;
    }
    if (both)
        gnutls_certificate_free_credentials(both);
    if (crt)
        gnutls_x509_crt_deinit(crt);
    if (ca)
        gnutls_x509_crt_deinit(ca);
    return rc;
}
