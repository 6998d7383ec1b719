/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_HTTP_ERRORS_H
#define SLUICE_HTTP_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("tls");

SL_ERROR(TLS_PAIR, "TLS needs one certificate and its key",
    "the certificate of a server of Sluice cannot be used", "a new certificate and key for the name of the server");
SL_ERROR_ALSO(TLS_MISMATCH, "the certificate of the server and its key do not belong together: %s");
SL_ERROR_ALSO(CERT_NAME, "the certificate is not for \"%.100s\"");
SL_ERROR_ALSO(CERT_AUTHORITY, "the certificate is not signed by its authority");
SL_ERROR_ALSO(CERT_TIME, "the certificate has expired, or is not valid yet");
SL_ERROR_ALSO(TLS_TEXT, "this server does not accept a certificate as a text");
SL_ERROR(TLS_CLIENT_CA, "cannot read the authorities of clients: %s",
    "`--extender-client-ca`",
    "a PEM file with authorities; `tlsConfig.certFile` and `keyFile` in the configuration of kube-scheduler");
SL_ERROR(CERT_FOR, "\"%.100s\" cannot be a name in a certificate",
    "a certificate was to be made for a wrong name or time", "correct the names of Service and namespace");
SL_ERROR_ALSO(CERT_NAMES, "a certificate needs 1 to %d names and a time of validity");
SL_ERROR(LISTEN_ADDRESS, "\"%.100s\" is not an address to listen on: write IP:PORT, [IPv6]:PORT or :PORT",
    "`--metrics-address`, `--listen` and the like", "`IP:PORT`, `[IPv6]:PORT` or `:PORT`");
SL_ERROR(HTTP_START, "cannot start the HTTP server: %s",
    "libmicrohttpd refused", "look whether the address is in use");
SL_ERROR(HTTP_NO_EPOLL, "cannot start the HTTP server: libmicrohttpd was built without epoll",
    "a libmicrohttpd that was built by hand", "use the build of the distribution");

#endif
