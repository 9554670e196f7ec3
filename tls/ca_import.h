/* A CA that somebody brings, for example an intermediate one of a company, to sign for a cluster. Everything that would keep its
 * certificates from being taken somewhere is found here, before anything is changed. Pure: time is an argument. Any thread.
 *
 * Accepted are keys that are EC (P-256, P-384) or RSA of 2048 to 4096 bits, in PEM without a password. The text has the CA's own
 * certificate first, then that of its issuer, and so on. The root may be there or not: with it more is checked.
 *
 * The CA itself is what the cluster trusts, and not the root above it: with the root trusted, every certificate of the company
 * that says spiffe://DOMAIN/server/NAME would be a server's. The certificates between the two are shown, for clients that know
 * the root alone. */
#ifndef COORD_TLS_CA_IMPORT_H
#define COORD_TLS_CA_IMPORT_H

#include "tls/certificate.h"

#define CA_IMPORT_MOST 5 /* certificates: a chain with the node's and one of a rotation fits into TLS_CHAIN_MOST */

struct ca_import {
    struct buffer certificate;   /* PEM: the CA alone */
    struct buffer above;         /* PEM: its issuers, the nearest one first, without a root; may be empty */
    struct tls_certificate read; /* of `certificate` */
    int64_t ends_s;              /* the first of them that ends */
};

/* For `subject.addresses`: nodes have any address. NULL-terminated. */
extern const char *const ca_import_addresses[];

/* `subject`: a server of the cluster. Certificates like its own have to be allowed.
 * CO_INVALID: the fault says what is wrong. Free with ca_import_free in any case. */
int ca_import_read(struct slice certificates, struct slice key, const struct tls_subject *subject, int64_t now_s,
                   struct ca_import *import, struct fault *fault);
/* Within a year? `line` says so to a person. */
#define CA_IMPORT_LINE 128
bool ca_import_ends_soon(const struct ca_import *import, int64_t now_s, char line[CA_IMPORT_LINE]);
void ca_import_free(struct ca_import *import);

#endif
