/* Verification of servers' certificates for HTTP checks. libcurl over GnuTLS reads the whole trust store anew for
 * every connection; here it is shared (check_trust.h). libcurl makes the connection without looking at the
 * certificate and asks before the request leaves: nothing is sent to a server that is not the right one. */
#include <curl/curl.h>
#include <string.h>

#include "health/check_http.h"
#include "health/check_trust.h"

bool http_tls_can_verify(void) {
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    return info->ssl_version && strncmp(info->ssl_version, "GnuTLS", 6) == 0;
}

bool http_tls_verify(CURL *easy, const char *host, struct fault *fault) {
    struct curl_tlssessioninfo *info = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &info) != CURLE_OK || !info || !info->internals ||
        info->backend != CURLSSLBACKEND_GNUTLS) {
        fault_set(fault, CO_DENIED, "x509: there is no TLS session to verify");
        return false;
    }
    return trust_verify(info->internals, host, fault);
}
