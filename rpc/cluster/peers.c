#include "rpc/cluster/peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/wire/address.h"
#include "rpc/wire/frame_unpack.h"

#define TICK_MS           100
#define RETRY_LEAST_MS    100
#define RETRY_MOST_MS     1000
#define HELLO_MOST_MS     2000
#define HELLO_FRAME_MAX   (64 * 1024) /* before the hellos no frame may be larger */
#define PING_MS           500
#define QUIET_MS          1000  /* a connection that is silent for so long may be dead; a new one replaces it */
#define UNWANTED_AGAIN_MS 60000 /* an unwanted server is dialled so rarely; a new one at its address dials us */
#define TELL_AGAIN_MS     60000 /* a repeated refusal is logged so often */
#define TOLD_MAX          16
#define DEAD_AFTER_MS     3000 /* a peer that was silent for so long is given up and dialled again */

/* An address to dial. */
struct target {
    struct list link;
    char name[128]; /* as given, with port */
    uint64_t id;    /* of the server there; 0: not known yet */
    bool self, dialling;
    bool
        plain; /* while an open cluster is being closed: the next attempt is plain, because the last encrypted one failed */
    struct address_turn turn; /* of a name's addresses */
    bool others;              /* another server than this one may be there, too */
    uint64_t next_ms, backoff_ms;
    struct reach reach; /* the outcome of its last attempt */
};

/* A connection, from its first byte on. */
struct contact {
    struct list link;
    struct peers *peers;
    struct link *wire;
    struct target *target; /* dialled ones */
    uint64_t since_ms, last_seen_ms, pinged_ms, received;
    bool greeted; /* its hello was accepted, so info is valid */
    bool stood;   /* the connection was established: a dialled one, or an encrypted one */
    bool shakes;  /* it was accepted, and may be encrypted */
    bool judged;  /* the target's `reach` has the outcome */
    bool unwanted;
    struct peer_info info;
};

struct peers {
    uv_loop_t *loop;
    struct peers_callbacks callbacks;
    char *bind, *address, *cluster, *node, *build;
    uint16_t port;
    uint64_t id;
    uint32_t expect;
    struct sockaddr_storage from; /* to dial from */
    struct security *security;
    struct link_security dials, accepts; /* as of security_generation `secured` */
    bool dials_secure, accepts_secure, mixed;
    uint64_t secured;
    struct handshakes_run *handshakes;
    uv_tcp_t listener;
    uv_timer_t timer;
    struct list targets, contacts;
    unsigned version_least, version_most;
    struct {
        uint64_t what, ms;
    } told[TOLD_MAX]; /* refusals that were logged */
    unsigned resolving;
    uint64_t ticked_ms;
    bool stopping;
    unsigned closing;
    void (*closed)(void *data);
    void *closed_data;
};

/* -- contacts ----------------------------------------------------------------------------------------------------- */
static struct contact *contact_of(struct peers *peers, uint64_t id) {
    LIST_FOREACH(item, &peers->contacts) {
        struct contact *contact = LIST_ENTRY(item, struct contact, link);
        if (contact->greeted && contact->info.id == id) return contact;
    }
    return NULL;
}

static void say_hello(struct contact *contact) {
    struct peers *peers = contact->peers;
    Pb__PeerServer servers[PEERS_MAX], *known[PEERS_MAX];
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    struct peers_self self = peers->callbacks.self(peers->callbacks.data);
    hello.protocol = HELLO_PROTOCOL, hello.version_least = HELLO_VERSION_LEAST, hello.version_most = HELLO_VERSION_MOST;
    hello.cluster_id = self.cluster_id, hello.cluster_version_least = peers->version_least,
    hello.cluster_version_most = peers->version_most;
    hello.cluster_version = self.has_log ? self.version : 0;
    hello.recovered_index = self.recovered_index;
    hello.cluster = peers->cluster, hello.id = peers->id, hello.address = peers->address, hello.node = peers->node;
    hello.build = peers->build;
    hello.expect = peers->expect, hello.has_log = self.has_log, hello.known = known;
    LIST_FOREACH(item, &peers->contacts) {
        struct contact *other = LIST_ENTRY(item, struct contact, link);
        if (!other->greeted || other == contact || hello.n_known == PEERS_MAX) continue;
        Pb__PeerServer *server = known[hello.n_known] = &servers[hello.n_known];
        *server = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server->id = other->info.id, server->address = other->info.address;
        hello.n_known++;
    }
    link_tell(contact->wire, PEER_HELLO, &hello.base);
    link_flush(contact->wire);
}

/* May a refusal be logged? Once a minute for each host and kind of refusal, because a refused process tries again every
 * second. The oldest entry makes room. */
static bool tell(struct peers *peers, const char *remote, int kind) {
    uint64_t now_ms = clock_mono_ms(),
             what = hash64_seed(remote, (size_t)(strrchr(remote, ':') - remote), (uint64_t)kind);
    size_t at = 0;
    for (size_t i = 0; i < TOLD_MAX; i++) {
        if (peers->told[i].what == what && peers->told[i].ms && now_ms - peers->told[i].ms < TELL_AGAIN_MS)
            return false;
        if (peers->told[i].what == what || (peers->told[at].what != what && peers->told[i].ms < peers->told[at].ms))
            at = i;
    }
    peers->told[at].what = what, peers->told[at].ms = now_ms;
    return true;
}

enum {
    TELL_THEIRS = 1000,
    TELL_NO_HELLO,
    TELL_BAD_HELLO,
    TELL_UNWANTED,
    TELL_NAMESAKE,
    TELL_INSECURE
}; /* besides enum hello_verdict */

static void judged(struct contact *contact, enum reach_what what, const char *why) {
    contact->judged = true;
    if (contact->target) reach_note(&contact->target->reach, what, 0, why);
}

static void refuse(struct contact *contact, int kind, const char *why) {
    char remote[64];
    judged(contact, kind == TELL_NO_HELLO || kind == TELL_BAD_HELLO ? REACH_STRANGER : REACH_UNWANTED, why);
    link_remote(contact->wire, remote);
    if (tell(contact->peers, remote, kind))
        log_warn("peer", "refused remote=%s%s%s reason=\"%s\"", remote, contact->info.node[0] ? " node=" : "",
                 contact->info.node, why);
    if (contact->info.terms.hears_refusal) {
        link_send(contact->wire, PEER_REFUSED, slice_text(why));
        link_flush(contact->wire);
    }
    link_close(contact->wire);
}

static void refused_by(struct contact *contact, struct slice why) {
    char remote[64], text[HELLO_WHY];
    link_remote(contact->wire, remote);
    snprintf(text, sizeof text, "%.*s", (int)(why.size < sizeof text ? why.size : sizeof text - 1), why.data);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == 127) *at = '?';
    judged(contact, REACH_REFUSES, text);
    if (tell(contact->peers, remote, TELL_THEIRS))
        log_warn("peer", "this server is refused by=%s reason=\"%s\"", remote, text);
    link_close(contact->wire);
}

/* An encrypted connection replaces a plain one: an open cluster is being closed. Of two connections between the same two
 * servers, the one dialled by the lower id stays; of two by the same side the
 * first. But a quiet one does not stay: the other side has lost its end of it (a cut, a restart), or it would not have
 * made a new one. */
static bool preferred(const struct contact *contact) {
    bool ours_is_lower = contact->peers->id < contact->info.id;
    return link_dialled(contact->wire) == ours_is_lower;
}

static bool replaces(const struct contact *contact, const struct contact *other) {
    bool encrypted = link_encrypted(contact->wire);
    if (encrypted != link_encrypted(other->wire)) return encrypted;
    return clock_mono_ms() - other->last_seen_ms > QUIET_MS || (preferred(contact) && !preferred(other));
}

_Static_assert(HELLO_ADDRESS_MAX < sizeof(((struct peer_info *)0)->address), "an address has room");
_Static_assert(HELLO_NODE_MAX < sizeof(((struct peer_info *)0)->node), "a name has room");

static struct hello_self self_now(const struct peers *peers) {
    struct peers_self self = peers->callbacks.self(peers->callbacks.data);
    return (struct hello_self){.cluster = peers->cluster,
                               .cluster_id = self.cluster_id,
                               .version = self.has_log ? self.version : 0,
                               .version_least = peers->version_least,
                               .version_most = peers->version_most};
}

const char *peers_judge_link(struct peers *peers, struct link *link, const Pb__PeerHello *hello, bool greeted,
                             char why[SECURITY_WHY]) {
    struct security_rules rules;
    struct security_seen seen = security_see(peers->security, link);
    if (!peers->security) return NULL;
    security_get(peers->security, &rules);
    seen.kept = greeted && security_keeps_plain(peers->security);
    const char *fault = security_judge(&rules, &seen, hello, why);
    if (!fault && seen.certificate && !hello->region[0] && peers->callbacks.distrusts)
        fault = peers->callbacks.distrusts(peers->callbacks.data, seen.certificate);
    return fault;
}

/* The certificate comes first: nothing is said of this cluster to somebody without the right one. False: it was refused. */
static bool is_who_it_says(struct contact *contact, const Pb__PeerHello *hello) {
    char why[SECURITY_WHY];
    const char *fault = peers_judge_link(contact->peers, contact->wire, hello, contact->greeted, why);
    if (!fault) return true;
    contact->info.terms.hears_refusal = true;
    refuse(contact, TELL_INSECURE, fault);
    return false;
}

/* False: it was refused. */
static bool fits(struct contact *contact, const Pb__PeerHello *hello) {
    if (!is_who_it_says(contact, hello)) return false;
    struct hello_self self = self_now(contact->peers);
    char why[HELLO_WHY];
    enum hello_verdict verdict = hello_judge(&self, hello, &contact->info.terms, why);
    const struct peers_callbacks *callbacks = &contact->peers->callbacks;
    const char *unwanted = verdict == HELLO_OK && (!hello->agent || hello->region[0]) && callbacks->unwanted
                               ? callbacks->unwanted(callbacks->data, hello)
                               : NULL;
    if (verdict == HELLO_OK && !unwanted) return true;
    if (verdict == HELLO_CLAIMS_REGION && callbacks->claimed) callbacks->claimed(callbacks->data, hello);
    if (verdict == HELLO_OTHER_CLUSTER && hello->agent) say_hello(contact); /* it learns which */
    if (hello->node != contact->info.node)
        snprintf(contact->info.node, sizeof contact->info.node, "%.64s", hello->node);
    contact->unwanted = unwanted != NULL;
    if (unwanted) refuse(contact, TELL_UNWANTED, unwanted);
    else refuse(contact, (int)verdict, why);
    return false;
}

/* The catalog takes nodes of one name for one node, so their records replace each other. */
static void warn_of_namesake(struct peers *peers, const struct peer_info *other) {
    if (!peers->node[0] || !slice_equal_nocase(slice_text(peers->node), slice_text(other->node))) return;
    if (!strrchr(other->address, ':') || !tell(peers, other->address, TELL_NAMESAKE)) return;
    log_warn("peer", "another server has this server's name: give one of them another (-node) name=%s here=%s there=%s",
             peers->node, peers->address, other->address);
}

static void accept_hello(struct contact *contact, const Pb__PeerHello *hello) {
    struct peers *peers = contact->peers;
    struct contact *other = contact_of(peers, hello->id);
    struct peer_info *info = &contact->info;
    info->id = hello->id, info->expect = hello->expect, info->has_log = hello->has_log, info->connected = true,
    info->cluster_id = hello->cluster_id;
    snprintf(info->address, sizeof info->address, "%s", hello->address);
    snprintf(info->node, sizeof info->node, "%s", hello->node);
    snprintf(info->build, sizeof info->build, "%s", hello->build);
    if (contact->target) contact->target->id = hello->id, contact->target->backoff_ms = 0;
    for (size_t i = 0; i < hello->n_known; i++) peers_know(peers, hello->known[i]->address);
    peers_know(peers, hello->address);
    if (other && !replaces(contact, other)) {
        judged(contact, REACH_MET, NULL);
        link_close(contact->wire);
        return;
    }
    contact->greeted = true;
    judged(contact, REACH_MET, NULL);
    link_limit(contact->wire, LINK_FRAME_MAX);
    /* While an open cluster is being closed both sides dial, and of two encrypted connections one stays: nothing may be lost
     * by that, either. */
    bool lives = other && clock_mono_ms() - other->last_seen_ms <= QUIET_MS;
    bool moves = other && link_encrypted(contact->wire) && (!link_encrypted(other->wire) || (peers->mixed && lives));
    if (moves) { /* frames on their way over it still count; then it ends (watch_contact) */
        other->greeted = false;
        other->since_ms = clock_mono_ms();
    } else if (other) { /* frames on their way over it are lost */
        other->greeted = false;
        link_close(other->wire);
        peers->callbacks.down(peers->callbacks.data, info->id);
    }
    log_info("peer", "connected node=%s address=%s id=%016llx", info->node, info->address,
             (unsigned long long)info->id);
    warn_of_namesake(peers, info);
    if (moves) peers->callbacks.moved(peers->callbacks.data, info->id);
    else peers->callbacks.up(peers->callbacks.data, info->id);
}

/* Gives the connection of a client agent away. */
static void take_agent(struct contact *contact, const Pb__PeerHello *hello) {
    struct peers *peers = contact->peers;
    if (!peers->callbacks.agent || contact->target || contact->info.id) {
        refuse(contact, TELL_BAD_HELLO, "it is a client agent");
        return;
    }
    if (!fits(contact, hello)) return;
    say_hello(contact);
    link_limit(contact->wire, LINK_FRAME_MAX);
    peers->callbacks.agent(peers->callbacks.data, contact->wire, hello);
    list_remove(&contact->link);
    free(contact);
}

static void take_hello(struct contact *contact, struct slice payload) {
    struct peers *peers = contact->peers;
    Pb__PeerHello *hello =
        payload.size <= HELLO_FRAME_MAX ? frame_unpack(&pb__peer_hello__descriptor, payload, NULL) : NULL;
    if (!hello) {
        refuse(contact, TELL_BAD_HELLO, "its hello does not decode");
        return;
    }
    if (hello->agent) {
        take_agent(contact, hello);
    } else if (hello->id == peers->id) {
        if (contact->target) contact->target->self = !contact->target->others;
        else say_hello(contact); /* its other end is this process, which learns it by this */
        judged(contact, REACH_SELF, NULL);
        link_close(contact->wire);
    } else if (contact->info.id == hello->id) { /* a second hello: it has learned its cluster */
        if (fits(contact, hello))
            contact->info.has_log = hello->has_log || contact->info.has_log,
            contact->info.cluster_id = hello->cluster_id;
    } else if (contact->info.id != 0) {
        refuse(contact, TELL_BAD_HELLO, "its second hello is another server's");
    } else if (fits(contact, hello)) {
        if (!link_dialled(contact->wire)) say_hello(contact);
        accept_hello(contact, hello);
    }
    frame_drop(hello);
}

static bool ending(const struct peers *peers) {
    return peers->callbacks.ending && peers->callbacks.ending(peers->callbacks.data);
}

static bool comes_for_certificate(const struct contact *contact) {
    const char *protocol = link_protocol(contact->wire);
    return protocol && !link_dialled(contact->wire) && strcmp(protocol, SECURITY_MEMBER) != 0;
}

static void give_to_enrolment(struct contact *contact, uint8_t type, struct slice payload) {
    struct peers *peers = contact->peers;
    if (!peers->callbacks.enrol || ending(peers)) {
        link_close(contact->wire);
        return;
    }
    struct link *wire = contact->wire;
    list_remove(&contact->link);
    free(contact);
    peers->callbacks.enrol(peers->callbacks.data, wire, type, payload);
}

static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct contact *contact = data;
    struct peers *peers = contact->peers;
    contact->last_seen_ms = clock_mono_ms();
    if (comes_for_certificate(contact)) {
        give_to_enrolment(contact, type, payload);
        return;
    }
    if (type == PEER_PING) return;
    if (type == PEER_HELLO && ending(peers)) {
        link_close(wire);
        return;
    }
    if (type == PEER_HELLO) {
        take_hello(contact, payload);
        return;
    }
    if (type == PEER_REFUSED) {
        refused_by(contact, payload);
        return;
    }
    if (contact->info.id == 0) refuse(contact, TELL_NO_HELLO, "it did not say hello");
    else peers->callbacks.frame(peers->callbacks.data, contact->info.id, type, payload);
}

/* The other end of a connection that this server dialled. False: it was refused. */
static bool is_a_server(struct contact *contact) {
    struct security_rules rules;
    char why[SECURITY_WHY];
    if (!contact->peers->security) return true;
    security_get(contact->peers->security, &rules);
    struct security_seen seen = security_see(contact->peers->security, contact->wire);
    const char *fault = security_judge_dialled(&rules, &seen, NULL, why);
    if (fault) refuse(contact, TELL_INSECURE, fault);
    return !fault;
}

static void on_connected(void *data, struct link *wire) {
    struct contact *contact = data;
    contact->stood = true;
    contact->since_ms = clock_mono_ms();
    if (ending(contact->peers)) link_close(wire);
    else if (link_dialled(wire) && is_a_server(contact)) say_hello(contact);
}

static void finish_stop(struct peers *peers);

/* The handshake failed: on either side. */
static void tell_denied(struct contact *contact, struct link *wire, bool denied) {
    char remote[64];
    const char *why = link_why(wire);
    link_remote(wire, remote);
    if (denied) judged(contact, REACH_UNWANTED, why);
    if (tell(contact->peers, remote, TELL_INSECURE))
        log_warn("peer", "no encrypted connection remote=%s reason=\"%s\"", remote, why);
}

static void on_closed(void *data, struct link *wire, int error) {
    struct contact *contact = data;
    struct peers *peers = contact->peers;
    int cause = link_cause(wire);
    list_remove(&contact->link);
    struct target *target = contact->target;
    bool failed = link_dialled(wire) && link_why(wire)[0]; /* the handshake */
    if ((error == CO_DENIED || failed) && !peers->stopping) tell_denied(contact, wire, error == CO_DENIED);
    if (target && !contact->judged) reach_ended(&target->reach, error, cause, contact->stood);
    else if (target && contact->greeted && target->reach.what == REACH_MET)
        reach_note(&target->reach, REACH_UNTRIED, 0, NULL);
    if (target) {
        target->dialling = false;
        target->backoff_ms = target->backoff_ms ? target->backoff_ms * 2 : RETRY_LEAST_MS;
        if (target->backoff_ms > RETRY_MOST_MS) target->backoff_ms = RETRY_MOST_MS;
        target->next_ms = address_failed(&target->turn) ? 0 : clock_mono_ms() + target->backoff_ms;
        if (contact->unwanted) target->next_ms = clock_mono_ms() + UNWANTED_AGAIN_MS;
        if (!contact->info.id) target->plain = !target->plain;
    }
    if (contact->greeted) {
        if (!peers->stopping)
            log_warn("peer", "connection lost node=%s address=%s reason=\"%s\"", contact->info.node,
                     contact->info.address, reach_end_text(error, cause));
        LIST_FOREACH(item, &peers->targets) { /* try again at once, whichever side had dialled */
            struct target *at = LIST_ENTRY(item, struct target, link);
            if (at->id == contact->info.id) at->next_ms = 0, at->backoff_ms = 0;
        }
        if (!peers->stopping) peers->callbacks.down(peers->callbacks.data, contact->info.id);
    }
    free(contact);
    finish_stop(peers);
}

static const struct link_callbacks link_callbacks = {.frame = on_frame, .connected = on_connected, .closed = on_closed};

static struct contact *contact_new(struct peers *peers, struct target *target) {
    struct contact *contact = mem_zalloc(sizeof *contact);
    contact->peers = peers, contact->target = target, contact->since_ms = contact->last_seen_ms = clock_mono_ms();
    list_append(&peers->contacts, &contact->link);
    return contact;
}

/* Takes over the rules that the process has now. Links keep what they began with. */
static void look_at_security(struct peers *peers) {
    uint64_t generation = peers->security ? security_generation(peers->security) : 0;
    if (generation == peers->secured) return;
    peers->secured = generation;
    peers->dials_secure = security_dial(peers->security, &peers->dials);
    peers->mixed = security_mixed(peers->security);
    peers->accepts_secure = security_accept(peers->security, PEER_REFUSED, &peers->accepts);
    peers->accepts.handshakes = peers->handshakes;
}

static void on_connection(uv_stream_t *server, int status) {
    struct peers *peers = server->data;
    if (status != 0 || peers->stopping) return;
    look_at_security(peers);
    struct contact *contact = contact_new(peers, NULL);
    contact->shakes = peers->accepts_secure;
    contact->wire = link_accept(server, peers->accepts_secure ? &peers->accepts : NULL, &link_callbacks, contact);
    if (contact->wire) {
        link_limit(contact->wire, HELLO_FRAME_MAX);
        return;
    }
    list_remove(&contact->link);
    free(contact);
}

/* -- dialling ----------------------------------------------------------------------------------------------------- */
static void dial(struct peers *peers, struct target *target, const struct sockaddr *to) {
    look_at_security(peers);
    struct contact *contact = contact_new(peers, target);
    contact->wire = link_dial(
        peers->loop, to, to->sa_family == peers->from.ss_family ? (struct sockaddr *)&peers->from : NULL,
        peers->dials_secure && !(peers->mixed && target->plain) ? &peers->dials : NULL, &link_callbacks, contact);
    link_limit(contact->wire, HELLO_FRAME_MAX);
}

struct resolve {
    uv_getaddrinfo_t work;
    struct peers *peers;
    struct target *target;
};

static void resolved(uv_getaddrinfo_t *work, int status, struct addrinfo *found) {
    struct resolve *resolve = CONTAINER_OF(work, struct resolve, work);
    struct peers *peers = resolve->peers;
    peers->resolving--;
    resolve->target->others = found && found->ai_next;
    if (status == 0 && found && !peers->stopping)
        dial(peers, resolve->target, address_next(&resolve->target->turn, found));
    else {
        reach_note(&resolve->target->reach, REACH_UNRESOLVED, status, NULL);
        resolve->target->dialling = false, resolve->target->next_ms = clock_mono_ms() + RETRY_MOST_MS;
    }
    uv_freeaddrinfo(found);
    free(resolve);
    finish_stop(peers);
}

static void try_target(struct peers *peers, struct target *target) {
    char host[128], port[8];
    if (!address_split(target->name, host, port)) {
        target->self = true;
        return;
    }
    target->dialling = true;
    struct sockaddr_storage to;
    if (address_ip(host, port, &to)) {
        dial(peers, target, (struct sockaddr *)&to);
        return;
    }
    struct resolve *resolve = mem_zalloc(sizeof *resolve);
    resolve->peers = peers, resolve->target = target;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    peers->resolving++;
    if (uv_getaddrinfo(peers->loop, &resolve->work, resolved, host, port, &hints) != 0) {
        peers->resolving--;
        target->dialling = false;
        free(resolve);
    }
}

static void watch_contact(struct contact *contact, uint64_t now_ms) {
    if (contact->shakes && !contact->stood) return; /* the link bounds its handshake */
    if (!contact->greeted) {
        /* a contact that was dialled in this turn may be younger than now_ms */
        if (now_ms > contact->since_ms + HELLO_MOST_MS) link_close(contact->wire);
        return;
    }
    if (link_heard(contact->wire, &contact->received)) contact->last_seen_ms = now_ms;
    if (now_ms > contact->last_seen_ms + DEAD_AFTER_MS) {
        log_warn("peer", "nothing heard, connection given up node=%s address=%s ms=%llu", contact->info.node,
                 contact->info.address, (unsigned long long)(now_ms - contact->last_seen_ms));
        link_close(contact->wire);
    } else if (now_ms >= contact->pinged_ms + PING_MS) {
        contact->pinged_ms = now_ms;
        link_send(contact->wire, PEER_PING, (struct slice){0});
        link_flush(contact->wire);
    }
}

/* The contact with this target, whichever side dialled; NULL: none. */
static const struct contact *contact_at(const struct peers *peers, const struct target *target) {
    LIST_FOREACH(item, &peers->contacts) {
        const struct contact *contact = LIST_ENTRY(item, struct contact, link);
        bool there = contact->info.id == target->id || strcmp(contact->info.address, target->name) == 0;
        if (contact->greeted && there) return contact;
    }
    return NULL;
}

/* Is there a connection with this target already? A second one would replace it. */
static bool reached(const struct peers *peers, struct target *target) {
    const struct contact *contact = contact_at(peers, target);
    if (contact) target->id = contact->info.id;
    bool may_be_better = contact && peers->dials_secure && !link_encrypted(contact->wire);
    if (may_be_better) target->plain = false;
    return contact && !may_be_better;
}

static void tick(uv_timer_t *timer) {
    struct peers *peers = timer->data;
    uint64_t now_ms = clock_mono_ms();
    look_at_security(peers);
    LIST_FOREACH(item, &peers->targets) {
        struct target *target = LIST_ENTRY(item, struct target, link);
        if (target->self || target->dialling || now_ms < target->next_ms) continue;
        if (reached(peers, target)) continue;
        try_target(peers, target);
    }
    LIST_FOREACH_SAFE(item, next, &peers->contacts) {
        struct contact *contact = LIST_ENTRY(item, struct contact, link);
        /* This process stood still: frames of others wait to be read, and they get their time to answer. */
        if (now_ms - peers->ticked_ms > QUIET_MS) contact->last_seen_ms = now_ms;
        watch_contact(contact, now_ms);
    }
    peers->ticked_ms = now_ms;
}

void peers_know(struct peers *peers, const char *address) {
    if (strcmp(address, peers->address) == 0 || !address[0] || strlen(address) >= sizeof((struct target *)0)->name)
        return;
    size_t count = 0;
    LIST_FOREACH(item, &peers->targets) {
        if (strcmp(LIST_ENTRY(item, struct target, link)->name, address) == 0) return;
        count++;
    }
    if (count == PEERS_MAX) return;
    struct target *target = mem_zalloc(sizeof *target);
    snprintf(target->name, sizeof target->name, "%s", address);
    list_append(&peers->targets, &target->link);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct link *peers_link(struct peers *peers, uint64_t id) {
    struct contact *contact = contact_of(peers, id);
    return contact ? contact->wire : NULL;
}

bool peers_queue(struct peers *peers, uint64_t to, uint8_t type, struct slice payload) {
    struct contact *contact = peers ? contact_of(peers, to) : NULL;
    if (contact) link_send(contact->wire, type, payload);
    return contact;
}

bool peers_tell(struct peers *peers, uint64_t to, uint8_t type, const ProtobufCMessage *message) {
    struct contact *contact = peers ? contact_of(peers, to) : NULL;
    if (!contact) return false;
    link_tell(contact->wire, type, message);
    link_flush(contact->wire);
    return true;
}

bool peers_connected(struct peers *peers, uint64_t id) { return peers && contact_of(peers, id) != NULL; }

/* Judges a server again that was connected already when the cluster's version rose, or that may have joined another
 * cluster meanwhile. */
static void judge_again(struct contact *contact) {
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    struct peer_info *info = &contact->info;
    hello.protocol = HELLO_PROTOCOL, hello.version_least = HELLO_VERSION_LEAST,
    hello.version_most = info->terms.protocol;
    hello.cluster = contact->peers->cluster, hello.id = info->id, hello.address = info->address,
    hello.node = info->node;
    hello.cluster_id = info->cluster_id;
    hello.cluster_version_least = info->terms.version_least, hello.cluster_version_most = info->terms.version_most;
    hello.cluster_version = info->terms.version;
    if (fits(contact, &hello)) say_hello(contact);
}

void peers_changed(struct peers *peers) {
    LIST_FOREACH_SAFE(item, next, &peers->contacts) {
        struct contact *contact = LIST_ENTRY(item, struct contact, link);
        if (contact->greeted) judge_again(contact);
    }
}

void peers_flush(struct peers *peers) {
    LIST_FOREACH(item, &peers->contacts) {
        struct contact *contact = LIST_ENTRY(item, struct contact, link);
        if (contact->greeted) link_flush(contact->wire);
    }
}

size_t peers_list(const struct peers *peers, struct peer_info *infos, size_t room) {
    size_t count = 0;
    LIST_FOREACH(item, &peers->contacts) {
        struct contact *contact = LIST_ENTRY(item, struct contact, link);
        if (contact->greeted && count < room) infos[count++] = contact->info;
    }
    return count;
}

size_t peers_addresses(const struct peers *peers, struct peers_address *addresses, size_t room) {
    size_t count = 0;
    LIST_FOREACH(item, &peers->targets) {
        const struct target *target = LIST_ENTRY(item, struct target, link);
        if (count == room) break;
        struct peers_address *address = &addresses[count++];
        snprintf(address->name, sizeof address->name, "%s", target->name);
        address->connected = contact_at(peers, target) != NULL, address->reach = target->reach;
    }
    return count;
}

static int listen_on(struct peers *peers, struct fault *fault) {
    struct sockaddr_storage at = {0};
    if (uv_ip4_addr(peers->bind, peers->port, (struct sockaddr_in *)&at) != 0 &&
        uv_ip6_addr(peers->bind, peers->port, (struct sockaddr_in6 *)&at) != 0)
        return fault_set(fault, CO_INVALID, "bind address %s is not an IP address", peers->bind);
    peers->from = at;
    if (at.ss_family == AF_INET) ((struct sockaddr_in *)&peers->from)->sin_port = 0;
    else ((struct sockaddr_in6 *)&peers->from)->sin6_port = 0;
    int rv = uv_tcp_bind(&peers->listener, (struct sockaddr *)&at, 0);
    if (rv == 0) rv = uv_listen((uv_stream_t *)&peers->listener, SOMAXCONN, on_connection);
    return rv == 0 ? CO_OK
                   : fault_set(fault, CO_IO, "server port %s:%u: %s", peers->bind, peers->port, uv_strerror(rv));
}

static void join_all(struct peers *peers, const char *const *join) {
    char name[ADDRESS_MAX];
    for (size_t i = 0; join && join[i]; i++)
        if (address_complete(join[i], peers->port, name)) peers_know(peers, name);
}

int peers_start(uv_loop_t *loop, const struct peers_config *config, const struct peers_callbacks *callbacks,
                struct peers **out, struct fault *fault) {
    struct peers *peers = mem_zalloc(sizeof *peers);
    peers->loop = loop, peers->callbacks = *callbacks;
    peers->bind = mem_strdup(config->bind), peers->address = mem_strdup(config->address),
    peers->cluster = mem_strdup(config->cluster);
    peers->node = mem_strdup(config->node), peers->build = mem_strdup(config->build ? config->build : "");
    peers->port = config->port, peers->id = config->id, peers->expect = config->expect;
    peers->version_least = config->version_least, peers->version_most = config->version_most;
    peers->security = config->security;
    peers->handshakes = handshakes_run_new(loop, HANDSHAKES_PER_TURN);
    list_init(&peers->targets);
    list_init(&peers->contacts);
    CHECK(uv_tcp_init(loop, &peers->listener) == 0 && uv_timer_init(loop, &peers->timer) == 0);
    peers->listener.data = peers->timer.data = peers;
    *out = peers;
    int rv = listen_on(peers, fault);
    if (rv != CO_OK) return rv;
    join_all(peers, config->join);
    uv_timer_start(&peers->timer, tick, 0, TICK_MS);
    return CO_OK;
}

static void finish_stop(struct peers *peers) {
    if (!peers->stopping || peers->closing > 0 || peers->resolving > 0 || !list_empty(&peers->contacts)) return;
    LIST_FOREACH_SAFE(item, next, &peers->targets) free(LIST_ENTRY(item, struct target, link));
    handshakes_run_free(peers->handshakes);
    free(peers->bind), free(peers->address), free(peers->cluster), free(peers->node), free(peers->build);
    void (*closed)(void *) = peers->closed;
    void *data = peers->closed_data;
    free(peers);
    closed(data);
}

static void handle_closed(uv_handle_t *handle) {
    struct peers *peers = handle->data;
    peers->closing--;
    finish_stop(peers);
}

void peers_stop(struct peers *peers, void (*closed)(void *data), void *data) {
    peers->stopping = true;
    peers->closed = closed, peers->closed_data = data;
    peers->closing = 2;
    uv_close((uv_handle_t *)&peers->listener, handle_closed);
    uv_close((uv_handle_t *)&peers->timer, handle_closed);
    LIST_FOREACH_SAFE(item, next, &peers->contacts) link_close(LIST_ENTRY(item, struct contact, link)->wire);
}
