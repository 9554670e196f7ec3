/* A certificate of its own for "check.test", for the tests' servers. */
#ifndef COORD_TESTS_HEALTH_CERTIFICATE_H
#define COORD_TESTS_HEALTH_CERTIFICATE_H

#include <gnutls/gnutls.h>

struct certificate { /* zero-initialise */
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t pem, key_pem;
};
void certificate_make(struct certificate *made);
void certificate_free(struct certificate *made);
void certificate_write(const struct certificate *made, const char *path, const char *key_path); /* PEM; NULL: not */

#endif
