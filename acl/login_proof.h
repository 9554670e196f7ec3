/* A login that proves who it is without a word of its own: by the unix socket over which it comes (auth method `unix`), or by
 * the certificate of its TLS session (`certificate`). The process that is asked fills in a pb.AclProof (http/proof.h). A server
 * believes it from its own sockets, and from a client agent whose certificate is of the cluster's own CA; the certificate then
 * says which node it is (rpc/core/acl_call.c). Pure.
 *
 * Config of both: BoundNodes, globs of the nodes where logins count; none: all. Of `certificate` also CACerts: PEM; none: the
 * CAs of this cluster. Names for selectors and BindName:
 *
 *   unix         value.user .group .uid .gid .unit .host      (user, group, unit: "" where it is unknown)
 *   certificate  value.cn .serial .host  list.dns .uri        (dns in lower case; serial in hex) */
#ifndef COORD_ACL_LOGIN_PROOF_H
#define COORD_ACL_LOGIN_PROOF_H

#include "acl/acl.pb-c.h"
#include "acl/selector.h"
#include "tls/certificate.h"

extern const struct selector_names proof_unix_names, proof_certificate_names;

struct proven {
    struct jwt_variables variables;
    const char *who;                    /* "unix:web@h9", "certificate:web@h9": for people */
    struct tls_certificate certificate; /* of proof_certificate */
};
/* CO_DENIED and a line. `proof` NULL: nothing was seen of the login. */
int proof_unix(const Pb__AclProof *proof, struct arena *arena, struct proven *proven, struct fault *fault);
/* `cas`: PEM. The certificate has to be for clients, and its time has to be now. */
int proof_certificate(const Pb__AclProof *proof, struct slice cas, int64_t now_s, struct arena *arena,
                      struct proven *proven, struct fault *fault);

/* The systemd unit in the text of /proc/PID/cgroup, as the system's manager has it: "web.service". Units of a user's own
 * manager are inside user@UID.service, and count as that. Empty: it is in none. A part of the text. */
struct slice proof_unit(struct slice cgroup);

#endif
