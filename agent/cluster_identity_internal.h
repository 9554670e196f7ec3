/* Shared by the files of a node's identity in its cluster (agent/cluster_identity.h):
 *
 *     cluster_identity.c        the files in DATA/tls, and how they protect connections; what `coord init` left; life
 *     cluster_identity_trust.c  what the cluster trusts, and the key of a new CA
 *     cluster_identity_renew.c  a new certificate, in the thread pool
 *
 * Loop thread, where nothing else is said. */
#ifndef COORD_AGENT_CLUSTER_IDENTITY_INTERNAL_H
#define COORD_AGENT_CLUSTER_IDENTITY_INTERNAL_H

#include <stdatomic.h>
#include <time.h>

#include "agent/cluster_identity.h"
#include "tls/folder.h"

struct cluster_identity {
    struct cluster_identity_config config;
    char *data_dir, *node, *datacenter, *bind, *address;
    struct rpc *rpc;
    uv_timer_t timer;
    uv_async_t wake; /* `follow` or `first` is answered */
    struct certificate_renewal renewal;
    enum certificate_renewal_state told;
    _Atomic enum certificate_renewal_state state; /* as of the last tick */
    /* the question about the cluster's trust */
    struct rpc_fetch follow;
    bool following;
    uint64_t follow_at_ms, index;
    uv_mutex_t lock;                     /* what other threads leave for the loop, and: */
    struct cluster_identity_facts facts; /* its state is that of now when they are read */
    struct buffer answer;
    uint64_t answer_index;
    int answer_error;
    bool answered, first_done, note_done;
    int note_error;
    /* what `coord init` left */
    bool has_first, first_asked;
    struct rpc_write first;
    int first_error;
    /* a renewal, in the thread pool */
    uv_work_t work;
    bool working;
    struct buffer work_own_key;
    bool work_wants; /* only a certificate of the CA that signs now, as of its beginning */
    uint8_t work_signs[TLS_PIN_SIZE];
    struct buffer work_ca, work_key, work_secret; /* the CA's key that it brought; empty: none */
    struct arena work_arena;
    const char **servers;
    size_t server_count;
    int work_error;
    struct fault work_fault;
    /* an open cluster is being closed: this node comes for its first certificate */
    bool secures;                     /* it wants one */
    uint8_t secure_pin[TLS_PIN_SIZE]; /* of the CA */
    char secure_domain[TLS_DOMAIN_SIZE + 1];
    int64_t secure_at_s;
    struct rpc_write noted; /* a server that signed its own */
    bool noting;
    /* the end */
    bool stopping;
    unsigned closing;
    void (*stopped)(void *data);
    void *stopped_data;
};

static inline int64_t cluster_identity_now_s(void) { return (int64_t)time(NULL); }

/* -- cluster_identity.c ------------------------------------------------------------------------------------------- */
struct cluster_identity_files {
    struct buffer cas, chain, key, mode, regions;
    struct buffer shown;                /* tls_chain_shown */
    struct buffer trusted;              /* the CAs, and those of other regions */
    struct tls_certificate own, signer; /* signer: the CA's own, as the chain has it */
};
/* Blocking, any thread. CO_NOTFOUND: this node has no certificate. Free `loaded` in any case. */
int cluster_identity_read(const char *data_dir, struct cluster_identity_files *loaded, struct fault *fault);
void cluster_identity_files_free(struct cluster_identity_files *loaded);
/* A file that may be missing: then nothing is appended. */
int cluster_identity_read_more(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault);
/* After the files have changed. The ones of before stay in use when the new ones cannot be. */
void cluster_identity_take_files(struct cluster_identity *identity);
void cluster_identity_finish_stop(struct cluster_identity *identity); /* if it stops, and nothing is under way */

/* -- cluster_identity_trust.c ------------------------------------------------------------------------------------- */
void cluster_identity_follow(struct cluster_identity *identity); /* asks, where no question is under way */
/* The question has ended; `answer` is the trust, and empty in an open cluster. Asks the next one. */
void cluster_identity_answered(struct cluster_identity *identity, int error, struct slice answer, uint64_t index);

/* -- cluster_identity_renew.c ------------------------------------------------------------------------------------- */
void cluster_identity_begin_renewal(struct cluster_identity *identity); /* when none is under way */
/* The record of a certificate that this server signed itself. Other nodes' are made by the server that signs. */
void cluster_identity_note_own(struct cluster_identity *identity);

#endif
