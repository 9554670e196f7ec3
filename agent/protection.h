/* How the configuration has this process protect its connections with other processes: by certificates that it names
 * (ca_file, cert_file, verify_outgoing, ...), by a shared key (encrypt), or not. A certificate of the cluster (DATA/tls,
 * agent/cluster_identity.h) wins over both. Certificates that are demanded win over a key, and then the key is kept and
 * changed with those of others, but protects nothing. Loop thread. */
#ifndef COORD_AGENT_PROTECTION_H
#define COORD_AGENT_PROTECTION_H

#include <uv.h>

#include "agent/config.h"
#include "rpc/wire/security.h"

/* Pure: the rules, for a node without a certificate of its cluster. `keys`: it has shared keys. The fault says what is
 * missing. */
int protection_rules(const struct config *config, bool keys, struct security_rules *rules, struct fault *fault);

struct rpc;
struct protection;
/* Before rpc starts, after cluster_identity_load, which may have set `security` already; blocking. `security` outlives
 * it. A fault: *out is NULL. */
int protection_open(uv_loop_t *loop, const struct config *config, const char *data_dir, struct security *security,
                    struct protection **out, struct fault *fault);
/* Those of one's own CA; they live as long. NULL: none. */
struct certificates *protection_certificates(struct protection *protection);
void protection_start(struct protection *protection, struct rpc *rpc); /* answers questions about keys from now on */
void protection_reload(struct protection *protection, const struct config *config); /* files of certificates */
/* Before rpc stops; `stopped` is called when nothing is under way. NULL: at once. */
void protection_stop(struct protection *protection, void (*stopped)(void *data), void *data);
void protection_free(struct protection *protection);

#endif
