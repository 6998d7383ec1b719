/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for a server without a certificate authority: makes an authority that signs only once. */
#ifndef SLUICE_HTTP_CERT_H
#define SLUICE_HTTP_CERT_H

#include <stddef.h>
#include <time.h>

#include "base/err.h"

struct sl_cert {
    char *ca_pem;   /* the authority for clients (the webhook's caBundle); its key is not kept */
    char *cert_pem; /* the server's certificate */
    char *key_pem;  /* the key of that certificate */
};

/* For DNS names and IP addresses, at least one. */
int sl_cert_make(const char *const *names, size_t count, time_t from, time_t until,
                 struct sl_cert *ret, struct sl_err *err) SL_MUST_CHECK;
void sl_cert_free(struct sl_cert *cert);

/* Can a server with this certificate serve clients of `name` at time `at`? Checks the authority's signature, the name,
 * the validity and the key. */
int sl_cert_check(const struct sl_cert *cert, const char *name, time_t at,
                  struct sl_err *err) SL_MUST_CHECK;

#endif
