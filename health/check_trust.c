/* The trusted certificates. Reading the whole trust store costs 7 ms and 2.5 MB: it is read once, not for every
 * connection. */
#include "health/check_trust.h"

#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

#define RELOAD_MS  UINT64_C(3600000) /* the administrator may have changed it */
#define CHAIN_MOST 16

/* For the life of the process. */
static gnutls_x509_trust_list_t trusted;
static uint64_t loaded_ms;

static bool load(struct fault *fault) {
    uint64_t now = clock_mono_ms();
    if (trusted && now - loaded_ms < RELOAD_MS) return true;
    if (trusted) gnutls_x509_trust_list_deinit(trusted, 1);
    trusted = NULL;
    if (gnutls_x509_trust_list_init(&trusted, 0) != 0) {
        trusted = NULL;
        fault_set(fault, CO_NOMEM, "x509: no memory for the trust store");
        return false;
    }
    loaded_ms = now;
    const char *file = getenv("SSL_CERT_FILE");
    int error = file && *file ? gnutls_x509_trust_list_add_trust_file(trusted, file, NULL, GNUTLS_X509_FMT_PEM, 0, 0)
                              : gnutls_x509_trust_list_add_system_trust(trusted, 0, 0);
    if (error >= 0) return true;
    loaded_ms = now - RELOAD_MS; /* the next check tries again */
    fault_set(fault, CO_IO, "x509: trusted certificates do not read from %s: %s", file && *file ? file : "the system",
              gnutls_strerror(error));
    return false;
}

static bool import_chain(gnutls_session_t session, gnutls_x509_crt_t *chain, unsigned *count, struct fault *fault) {
    unsigned given = 0;
    const gnutls_datum_t *raw = gnutls_certificate_get_peers(session, &given);
    *count = 0;
    if (!raw || given == 0 || gnutls_certificate_type_get(session) != GNUTLS_CRT_X509) {
        fault_set(fault, CO_DENIED, "x509: the server shows no certificate");
        return false;
    }
    for (unsigned i = 0; i < given && i < CHAIN_MOST; i++) {
        CHECK(gnutls_x509_crt_init(&chain[i]) == 0);
        (*count)++;
        if (gnutls_x509_crt_import(chain[i], &raw[i], GNUTLS_X509_FMT_DER) != 0) {
            fault_set(fault, CO_DENIED, "x509: the server's certificate does not read");
            return false;
        }
    }
    return true;
}

static void verify_chain(gnutls_x509_crt_t *chain, unsigned count, const char *host, struct fault *fault) {
    gnutls_typed_vdata_st wanted[2] = {
        {.type = GNUTLS_DT_DNS_HOSTNAME, .data = (unsigned char *)(uintptr_t)host, .size = (unsigned)strlen(host)},
        {.type = GNUTLS_DT_KEY_PURPOSE_OID,
         .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_SERVER,
         .size = sizeof GNUTLS_KP_TLS_WWW_SERVER - 1},
    };
    unsigned status = GNUTLS_CERT_INVALID;
    int error =
        gnutls_x509_trust_list_verify_crt2(trusted, chain, count, wanted, ARRAY_COUNT(wanted), 0, &status, NULL);
    if (error < 0) {
        fault_set(fault, CO_DENIED, "x509: %s", gnutls_strerror(error));
    } else if (status != 0) {
        gnutls_datum_t text = {0};
        bool printed = gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) == 0;
        fault_set(fault, CO_DENIED, "x509: %.150s(name \"%.60s\")", printed ? (const char *)text.data : "not verified ",
                  host);
        gnutls_free(text.data);
    }
}

bool trust_verify(gnutls_session_t session, const char *host, struct fault *fault) {
    gnutls_x509_crt_t chain[CHAIN_MOST];
    unsigned count = 0;
    if (import_chain(session, chain, &count, fault) && load(fault)) verify_chain(chain, count, host, fault);
    for (unsigned i = 0; i < count; i++) gnutls_x509_crt_deinit(chain[i]);
    return fault->code == CO_OK;
}
