#include "rpc/server/acl_keys.h"

#include <stdlib.h>

#include "acl/acl.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "rpc/server/server_internal.h"
#include "rpc/wire/frame_unpack.h"
#include "tls/secret.h"

#define TICK_MS  200
#define LOST_MS  3000 /* an answer is late */
#define SAY_MS   60000
#define SAY_WAIT 10000 /* before it is said that the key is missing */

struct acl_keys {
    struct rpc *rpc;
    char *data_dir;
    bool enabled, only_first;
    struct tls_secret initial;
    uv_timer_t timer;
    struct acl_key *key; /* the newest that this server has; NULL: none */
    bool stored;         /* it is in the file */
    _Atomic bool ready;  /* it is the state's */
    uint64_t looked;     /* generation of the state that it was last compared with; 0: none */
    uint64_t missing_ms, said_ms;
    uint64_t initial_term; /* the configured token was seen to in this term */
    bool busy;             /* one of these is under way */
    uv_work_t pool;
    struct acl_key *fresh; /* that the pool makes */
    int error;
    struct fault fault;
    struct rpc_write write;
    struct loop_task written;
    char why[128];
    struct call call;
    uint64_t asked; /* the server that was asked last */
    uint8_t wanted[ACL_KEY_ID_SIZE];
};

/* -- life --------------------------------------------------------------------------------------------------------- */
struct acl_keys *acl_keys_new(struct rpc *rpc, const struct acl_keys_config *config, const char *data_dir) {
    struct acl_keys *keys = mem_zalloc(sizeof *keys);
    keys->rpc = rpc, keys->enabled = config->enabled, keys->data_dir = mem_strdup(data_dir);
    keys->only_first = config->only_first;
    struct slice initial = slice_text(config->initial ? config->initial : "");
    CHECK(tls_secret_set(&keys->initial, initial, NULL) == CO_OK);
    return keys;
}

void acl_keys_free(struct acl_keys *keys) {
    if (!keys) return;
    CHECK(!keys->busy);
    if (keys->ready) acl_key_use(NULL);
    acl_key_release(keys->key);
    tls_secret_free(&keys->initial);
    free(keys->data_dir);
    free(keys);
}

bool acl_keys_ready(const struct rpc *rpc) { return atomic_load(&rpc->server->acl_keys->ready); }

const char *acl_keys_folder(const struct rpc *rpc) { return rpc->server->acl_keys->data_dir; }

static void begin(struct acl_keys *keys) {
    CHECK(!keys->busy); /* else a request that is queued would be queued again */
    keys->busy = true;
    rpc_job_begin(keys->rpc);
}

static void end(struct acl_keys *keys) {
    keys->busy = false;
    rpc_job_over(keys->rpc);
}

/* -- the thread pool: makes a key, or writes the present one to the file ------------------------------------------- */
static void work(uv_work_t *pool) {
    struct acl_keys *keys = CONTAINER_OF(pool, struct acl_keys, pool);
    keys->error = keys->fresh ? CO_OK : acl_key_make(&keys->fresh, &keys->fault);
    if (!keys->error) keys->error = acl_key_store(keys->fresh, keys->data_dir, &keys->fault);
}

static void worked(uv_work_t *pool, int status) {
    struct acl_keys *keys = CONTAINER_OF(pool, struct acl_keys, pool);
    if (status == 0 && keys->error == CO_OK) {
        acl_key_release(keys->key);
        keys->key = keys->fresh, keys->stored = true;
    } else {
        acl_key_release(keys->fresh);
        if (status == 0) log_error("acl", "the key of the tokens cannot be kept: %s", keys->fault.text);
    }
    keys->fresh = NULL;
    end(keys);
}

/* Takes the reference; NULL: a new one. */
static void store(struct acl_keys *keys, struct acl_key *fresh) {
    keys->fresh = fresh, keys->fault = (struct fault){0};
    begin(keys);
    CHECK(uv_queue_work(keys->rpc->loop, &keys->pool, work, worked) == 0);
}

/* -- commands ------------------------------------------------------------------------------------------------------ */
static void written_taken(struct loop_task *task) {
    struct acl_keys *keys = CONTAINER_OF(task, struct acl_keys, written);
    if (keys->why[0]) log_warn("acl", "%s", keys->why);
    end(keys);
}

/* Another thread. The outcome shows in the applied state. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct acl_keys *keys = CONTAINER_OF(write, struct acl_keys, write);
    bool refused = !error && result->error && result->error != CO_CONFLICT;
    snprintf(keys->why, sizeof keys->why, "%s", refused && result->text ? result->text : "");
    rpc_on_loop(keys->rpc, &keys->written, written_taken);
}

static void submit(struct acl_keys *keys, uint8_t command, const ProtobufCMessage *message) {
    begin(keys);
    keys->write.done = written;
    rpc_submit(keys->rpc, &keys->write, command, message);
}

static void propose_key(struct acl_keys *keys) {
    Pb__AclKeyCommand command = PB__ACL_KEY_COMMAND__INIT;
    struct slice id = acl_key_id(keys->key);
    command.id = (ProtobufCBinaryData){id.size, (uint8_t *)(uintptr_t)id.data};
    log_info("acl", "access control begins: this server's key is for all");
    submit(keys, ACL_KEY, &command.base);
}

static void propose_initial(struct acl_keys *keys, bool bootstrapped, struct arena *arena) {
    char accessor[UUID_TEXT_SIZE + 1];
    random_uuid(accessor);
    Pb__AclBootstrapCommand *first =
        acl_bootstrap(keys->key, accessor, "Initial Management Token", tls_secret_slice(&keys->initial), arena);
    log_info("acl", "makes the configured management token accessor=%s", accessor);
    if (!bootstrapped) {
        submit(keys, ACL_BOOTSTRAP, &first->base);
        return;
    }
    Pb__AclTokenSetCommand command = PB__ACL_TOKEN_SET_COMMAND__INIT;
    Pb__AclLink management = PB__ACL_LINK__INIT, *links[] = {&management};
    management.id = ACL_MANAGEMENT_ID;
    first->token->policies = links, first->token->n_policies = 1;
    command.token = first->token, command.key_id = first->key_id, command.create = true;
    submit(keys, ACL_TOKEN_SET, &command.base);
}

/* -- asking other servers ------------------------------------------------------------------------------------------ */
static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct acl_keys *keys = CONTAINER_OF(call, struct acl_keys, call);
    Pb__PeerAclKey *message = arena_alloc(arena, sizeof *message);
    pb__peer_acl_key__init(message);
    message->id = (ProtobufCBinaryData){sizeof keys->wanted, keys->wanted};
    return &message->base;
}

static uint64_t route(const struct call *call) { return CONTAINER_OF(call, struct acl_keys, call)->asked; }

const struct call_method acl_key_method = {.name = "acl-key",
                                           .request_frame = PEER_ACL_KEY,
                                           .answer_frame = PEER_ACL_KEY_ANSWER,
                                           .request = &pb__peer_acl_key__descriptor,
                                           .answer = &pb__peer_acl_key_answer__descriptor,
                                           .answer_ms = LOST_MS,
                                           .build = build,
                                           .route = route};

static void answered(struct call *call, int error, const ProtobufCMessage *message) {
    struct acl_keys *keys = CONTAINER_OF(call, struct acl_keys, call);
    const Pb__PeerAclKeyAnswer *answer = (const Pb__PeerAclKeyAnswer *)message;
    struct acl_key *key = NULL;
    struct slice wanted = slice_make(keys->wanted, sizeof keys->wanted);
    if (error == CO_OK && answer->outcome == CO_OK) {
        struct slice bytes = slice_make(answer->key.data, answer->key.len);
        (void)acl_key_take(bytes, &key, NULL);
        if (answer->key.len) explicit_bzero(answer->key.data, answer->key.len);
    }
    bool wants = acl_key_is(key, wanted) && !keys->rpc->stopping;
    end(keys);
    if (wants) {
        log_info("acl", "got the key of the tokens from=%s", rpc_server_name(keys->rpc, keys->asked));
        store(keys, key);
    } else {
        acl_key_release(key);
    }
}

/* The connected server that comes after the one that was asked last, in order of their ids. 0: nobody is connected. */
static uint64_t next_server(const struct acl_keys *keys) {
    struct peer_info peers[PEERS_MAX];
    uint64_t first = 0, next = 0;
    size_t count = keys->rpc->others ? peers_list(keys->rpc->others, peers, PEERS_MAX) : 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t id = peers[i].id;
        if (!peers[i].connected || !raft_members_find(node_members(keys->rpc->node), id)) continue;
        if (!first || id < first) first = id;
        if (id > keys->asked && (!next || id < next)) next = id;
    }
    return next ? next : first;
}

static void say_missing(struct acl_keys *keys, uint64_t now_ms) {
    if (!keys->missing_ms) keys->missing_ms = now_ms;
    if (now_ms - keys->missing_ms < SAY_WAIT || (keys->said_ms && now_ms - keys->said_ms < SAY_MS)) return;
    keys->said_ms = now_ms;
    log_error("acl",
              "this server does not have the key of the tokens, and no connected server has: no token is known here. "
              "Put the file acl/key of a server of this cluster into %s/acl and start again; or have a new key made, "
              "which ends all tokens: `coord acl reset -new-key`",
              keys->data_dir);
}

static void ask(struct acl_keys *keys, struct slice id) {
    uint64_t now_ms = clock_mono_ms(), server = next_server(keys);
    say_missing(keys, now_ms);
    if (!server) return;
    keys->asked = server;
    memcpy(keys->wanted, id.data, id.size);
    keys->call = (struct call){.done = answered};
    begin(keys);
    calls_begin(keys->rpc->calls, &keys->call, &acl_key_method, 0, now_ms);
    operator_poll(keys->rpc);
}

bool acl_keys_serve(const struct caller *caller, struct slice payload) {
    const struct acl_keys *keys = caller->rpc->server->acl_keys;
    Pb__PeerAclKey *asked = frame_unpack(&pb__peer_acl_key__descriptor, payload, NULL);
    if (!asked) return false;
    Pb__PeerAclKeyAnswer answer = PB__PEER_ACL_KEY_ANSWER__INIT;
    answer.number = asked->number, answer.outcome = CO_NOTFOUND;
    if (keys->ready && !caller->is_agent && acl_key_is(keys->key, slice_make(asked->id.data, asked->id.len))) {
        struct slice bytes = acl_key_bytes(keys->key);
        answer.outcome = CO_OK, answer.key = (ProtobufCBinaryData){bytes.size, (uint8_t *)(uintptr_t)bytes.data};
        log_info("acl", "the key of the tokens goes to=%s", rpc_server_name(caller->rpc, caller->id));
    }
    caller->tell(caller, PEER_ACL_KEY_ANSWER, &answer.base);
    frame_drop(asked);
    return true;
}

/* -- a turn --------------------------------------------------------------------------------------------------------- */
static bool leads(const struct rpc *rpc) { return atomic_load(&node_view(rpc->node)->ready); }

static void use(struct acl_keys *keys, bool is_right) {
    if (is_right == keys->ready) return;
    acl_key_use(is_right ? acl_key_keep(keys->key) : NULL);
    atomic_store(&keys->ready, is_right);
    keys->missing_ms = keys->said_ms = 0;
}

static void see_to_initial(struct acl_keys *keys, struct store_txn *txn, const Pb__AclState *state,
                           struct arena *arena) {
    uint64_t term = atomic_load(&node_view(keys->rpc->node)->term);
    uint8_t hash[ACL_HASH_SIZE];
    Pb__AclToken *token;
    if (!keys->initial.size || keys->initial_term == term) return;
    acl_key_hash(keys->key, tls_secret_slice(&keys->initial), hash);
    int error = acl_token_find(txn, hash, arena, &token);
    if (error != CO_NOTFOUND) keys->initial_term = term;
    else propose_initial(keys, state->bootstrap_index && !state->open, arena);
}

/* Is the first token, whose secret this server has, still to be made? Until then nobody else can bootstrap here. If one was
 * made, the secret is forgotten. */
static bool owes_first(struct acl_keys *keys, const Pb__AclState *state) {
    if (!keys->only_first || !keys->initial.size) return false;
    if (state && state->bootstrap_index) tls_secret_free(&keys->initial);
    return keys->initial.size != 0;
}

/* `state` NULL: there is none. */
static void step(struct acl_keys *keys, struct store_txn *txn, const Pb__AclState *state, struct arena *arena) {
    struct slice id = slice_make(state ? state->key_id.data : NULL, state ? state->key_id.len : 0);
    bool is_right = state && keys->stored && acl_key_is(keys->key, id);
    use(keys, is_right && !owes_first(keys, state));
    if (is_right && leads(keys->rpc)) see_to_initial(keys, txn, state, arena);
    else if (id.size == sizeof keys->wanted && !is_right) ask(keys, id);
    else if (!id.size && leads(keys->rpc) && keys->stored) propose_key(keys);
    else if (!id.size && leads(keys->rpc)) store(keys, NULL);
}

static void tick(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    struct acl_keys *keys = rpc->server->acl_keys;
    struct watch_key all = {SPACE_ACL_ALL, slice_make("", 0)};
    if (keys->busy || rpc->stopping) return;
    uint64_t now = rpc_generation(rpc, all) + 1;
    bool idle = keys->ready && now == keys->looked && (!keys->initial.size || !leads(rpc));
    if (idle) return;
    keys->looked = now;
    struct arena arena = {0};
    Pb__AclState *state;
    struct store_txn *txn = store_read(rpc->loop_reader);
    int error = acl_state_read(txn, &arena, &state);
    if (error == CO_OK || error == CO_NOTFOUND) step(keys, txn, state, &arena);
    store_read_done(rpc->loop_reader);
    arena_free(&arena);
}

int acl_keys_start(struct rpc *rpc, struct fault *fault) {
    struct acl_keys *keys = rpc->server->acl_keys;
    CHECK(uv_timer_init(rpc->loop, &keys->timer) == 0);
    keys->timer.data = rpc;
    if (!keys->enabled) return CO_OK;
    int error = acl_key_load(keys->data_dir, &keys->key, fault);
    if (error && error != CO_NOTFOUND) return error;
    keys->stored = error == CO_OK;
    uv_timer_start(&keys->timer, tick, 0, TICK_MS);
    return CO_OK;
}

void acl_keys_close(struct rpc *rpc, uv_close_cb closed) {
    uv_close((uv_handle_t *)&rpc->server->acl_keys->timer, closed);
}
