/* The cluster's trust, for endpoints that show or change it: join tokens, certificates of nodes, CAs. */
#ifndef COORD_HTTP_API_TRUST_VIEWS_H
#define COORD_HTTP_API_TRUST_VIEWS_H

#include "http/http.h"
#include "registry/trust.pb-c.h"
#include "rpc/api/trust_admin.h"

/* Asks a server by rpc_trust, then calls `view` on the worker, which must reply. `ask`: verb and what follows; it is
 * copied, its strings stay until then. trust->text is overwritten when the view has returned, because it may be a
 * secret. `context` is passed on. */
typedef void (*http_trust_view)(struct http_request *request, int error, const struct rpc_trust *trust,
                                const void *context);
void http_ask_trust(struct http_request *request, const struct rpc_trust *ask, http_trust_view view,
                    const void *context);
/* Replies an error of the above, with the reason if there is one. */
void http_refuse_trust(struct http_request *request, int error, const struct rpc_trust *trust);

/* "2026-11-26T10:00:00Z"; in the arena. */
const char *trust_time_text(struct arena *arena, int64_t unix_s);
/* In hexadecimal digits; in the arena. */
const char *trust_pin_text(struct arena *arena, struct slice pin);

/* When a node begins to renew its certificate: at half of its life (agent/certificate_renewal.h: some of them a little
 * later). */
int64_t trust_renews_s(const Pb__CertificateInfo *info);
/* "valid", "renewal-due", "expired", "removed". */
const char *trust_state(const Pb__NodeCertificate *record, int64_t now_s);

/* The records of nodes in an order in which they are found by name. */
struct trust_names {
    const Pb__NodeCertificate **records;
    size_t count;
};
/* In the arena; borrows the records. */
struct trust_names trust_names_of(struct arena *arena, const Pb__CertificatesResult *all);
/* Has the node a certificate, and was not removed? */
bool trust_has(const struct trust_names *names, bool server, const char *node);

#endif
