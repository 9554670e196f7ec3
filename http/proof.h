/* The connection of a request proves something of its client: the credentials of the other side of a unix socket, as they were when it
 * connected, and the certificates that it showed in TLS. */
#ifndef COORD_HTTP_PROOF_H
#define COORD_HTTP_PROOF_H

#include "acl/acl.pb-c.h"
#include "http/http.h"

/* In the request's arena. The names of user and group are looked up later (rpc/api/acl_admin.h). */
Pb__AclProof *http_proof(struct http_request *request);

#endif
