/* Certificates of one purpose, HTTPS with DNS over TLS or connections with other processes, from the files of the configuration or from
 * DATA/tls, and the contexts made of them.
 * They are looked at every few seconds: when a file is replaced, new connections get the new certificates, and open ones
 * keep theirs. Files that cannot be used (a key that does not fit, a key that others may read) are named in one line of
 * the log, and the certificates of before stay.
 *
 * Loop thread; the files are read in the thread pool, but for the two functions that start. */
#ifndef COORD_AGENT_CERTIFICATES_H
#define COORD_AGENT_CERTIFICATES_H

#include <uv.h>

#include "agent/config.h"
#include "rpc/wire/security.h"
#include "tls/certificate.h"
#include "tls/context.h"

/* Where they come from. A pair that the configuration names wins over the cluster's. */
enum certificate_source {
    CERTIFICATES_NONE,
    CERTIFICATES_FILES,   /* cert_file, key_file */
    CERTIFICATES_CLUSTER, /* DATA/tls (tls/folder.h) */
};
enum certificate_source certificates_source(const struct config_tls *tls, const char *data_dir);

struct certificates;
/* Reads the files, blocking. *out is NULL when nothing needs certificates (ports.https and ports.dns_tls are off). The fault says what is
 * missing or does not fit. */
int certificates_start(uv_loop_t *loop, const struct config *config, const char *data_dir, struct certificates **out,
                       struct fault *fault);
/* The same for the connections with other processes: sets `security` with these rules (SECURITY_OWN_CA), now and whenever
 * a file is replaced. A client agent may have no certificate, only CAs. `security` outlives it. */
int certificates_start_rpc(uv_loop_t *loop, const struct config *config, struct security *security,
                           const struct security_rules *rules, struct certificates **out, struct fault *fault);
/* The present ones, of HTTPS and DNS over TLS; lives until certificates_free. NULL for NULL. */
struct tls_slot *certificates_https(struct certificates *certificates);
/* The certificate that is in use, and where it is from. False: there is none. */
bool certificates_shown(const struct certificates *certificates, struct tls_certificate *certificate,
                        enum certificate_source *source);
/* The configuration was read again: its files count from now on, and are read at once. Copies what it needs. */
void certificates_reload(struct certificates *certificates, const struct config *config);
bool certificates_busy(const struct certificates *certificates); /* files are being read */
/* No more looking at files; `stopped` is called when nothing is under way. NULL: calls it at once. */
void certificates_stop(struct certificates *certificates, void (*stopped)(void *data), void *data);
void certificates_free(struct certificates *certificates); /* once stopped, and nobody uses the slot */

#endif
