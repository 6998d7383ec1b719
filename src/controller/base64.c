/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/base64.h"

#include <gnutls/gnutls.h>
#include <stdint.h>
#include <string.h>

#include "base/xalloc.h"

/* Copies GnuTLS's memory into a text of our own; NULL: it contains a NUL. */
static char *text_of(gnutls_datum_t *d)
{
    if (!d->size)
        return sl_xstrdup("");
    char *text =
        memchr(d->data, '\0', d->size) ? NULL : sl_xstrndup((const char *)d->data, d->size);
    gnutls_free(d->data);
    return text;
}

static gnutls_datum_t datum(const char *text)
{
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)text, (unsigned)strlen(text)};
}

char *sl_base64_encode(const char *text)
{
    gnutls_datum_t in = datum(text), out = {0};
    if (in.size && gnutls_base64_encode2(&in, &out) != 0)
        sl_out_of_memory(); /* the only possible failure */
    return text_of(&out);
}

char *sl_base64_decode(const char *coded)
{
    gnutls_datum_t in = datum(coded), out = {0};
    return !in.size || gnutls_base64_decode2(&in, &out) == 0 ? text_of(&out) : NULL;
}
