/* Keys and sessions against a model that a reader can check at a glance: arrays, walked from end to end. Random
 * commands in random batches; every answer, every listing and every index is compared, and no index ever goes back.
 * A failure names its seed: COORD_SEED=N runs that one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "commands.h"

enum { KEYS = 40, SESSIONS = 8, NODES = 2, VALUES = 3, BATCH = 6, STEPS = 300, SEEDS = 20 };

static struct fixture world;
static struct rng rng;
static uint64_t seed;

/* -- the model ---------------------------------------------------------------------------------------------------- */

static char *key_names[KEYS]; /* sorted */
static struct model_key {
    bool there;
    unsigned value;
    uint64_t flags, lock_index, create, modify, removed; /* removed: index of the last removal */
    uint64_t token, granted;                             /* granted: the highest token of a holder so far */
    int session;                                         /* -1: none */
    bool delayed;
    uint64_t delay_index;
} keys[KEYS];
static struct model_session {
    bool there, delete_keys, delays, on_check;
    unsigned node;
    uint64_t create, ended;
} sessions[SESSIONS];
static struct {
    bool there, critical;
    uint64_t sessions_index;
} nodes[NODES];
static uint64_t sessions_index;
static char ids[SESSIONS][UUID_TEXT_SIZE + 1];
static const char *const node_names[NODES] = {"n1", "n2"}, *const values[VALUES] = {"", "v", "another value"};

static int text_compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *repeated(const char *head, size_t size, const char *tail) {
    size_t head_size = strlen(head), tail_size = strlen(tail);
    char *text = mem_alloc(size + 1);
    CHECK(head_size + tail_size <= size);
    memset(text, 'x', size);
    memcpy(text, head, head_size);
    memcpy(text + size - tail_size, tail, tail_size);
    text[size] = '\0';
    return text;
}

static void model_begin(void) {
    static const char *const plain[] = {"a",   "a/",    "a/b",   "a/b/c", "a/c",  "ab",       "b", "b/1",
                                        "b/2", "b/2/x", "b/2/y", "c",     "\x01", "\xff\xfe", "l"};
    static const size_t sizes[] = {399, 400, 401, 416, 511, 512, 700, 8192};
    unsigned n = 0;
    for (; n < ARRAY_COUNT(plain); n++) key_names[n] = mem_strdup(plain[n]);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        key_names[n++] = repeated("l", sizes[i], "");
        if (i < 2) continue;
        key_names[n++] = repeated("l", sizes[i], "a");
        if (i < 7) key_names[n++] = repeated("l/", sizes[i], "/b");
    }
    for (; n < KEYS; n++) {
        char name[16];
        snprintf(name, sizeof name, "m/%u/%u", n % 3, n);
        key_names[n] = mem_strdup(name);
    }
    qsort(key_names, KEYS, sizeof *key_names, text_compare);
    memset(keys, 0, sizeof keys);
    memset(sessions, 0, sizeof sessions);
    memset(nodes, 0, sizeof nodes);
    sessions_index = 0;
    for (unsigned i = 0; i < KEYS; i++) keys[i].session = -1;
    for (unsigned i = 0; i < SESSIONS; i++) session_id(i, ids[i]);
}

static void model_end(void) {
    for (unsigned i = 0; i < KEYS; i++) free(key_names[i]);
}

static bool starts(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static void model_remove(struct model_key *key, uint64_t index) {
    key->there = false;
    key->session = -1, key->token = 0;
    key->removed = index;
}

static void model_write(struct model_key *key, unsigned value, uint64_t flags, uint64_t lock_index, int session,
                        uint64_t token, uint64_t index) {
    if (key->there && key->value == value && key->flags == flags && key->lock_index == lock_index &&
        key->session == session && key->token == token)
        return;
    if (!key->there) key->create = index;
    key->there = true;
    key->value = value, key->flags = flags, key->lock_index = lock_index, key->session = session;
    key->token = token;
    key->modify = index;
}

static void model_session_end(unsigned number, uint64_t index) {
    struct model_session *session = &sessions[number];
    if (!session->there) return;
    for (unsigned i = 0; i < KEYS; i++) {
        struct model_key *key = &keys[i];
        if (!key->there || key->session != (int)number) continue;
        if (session->delete_keys) model_remove(key, index);
        else model_write(key, key->value, key->flags, key->lock_index, -1, 0, index);
        if (!session->delays) continue;
        key->delayed = true;
        key->delay_index = index;
    }
    session->there = false;
    session->ended = sessions_index = nodes[session->node].sessions_index = index;
}

/* -- commands: made at random, told to the model, which says what the answer will be ------------------------------ */

struct planned {
    union {
        Pb__KvCommand kv;
        Pb__SessionCreateCommand create;
        Pb__SessionDestroyCommand destroy;
        Pb__LockDelayEndCommand delay_end;
        Pb__RegisterCommand enter;
        Pb__DeregisterCommand leave;
    } u;
    Pb__Session session;
    Pb__Node node;
    Pb__Check check, *check_list;
    char *check_name;
    struct command command;
    int error; /* expected; -1: not compared */
    bool yes;
    uint64_t token;
};

static char *mutable(const char *text) { return (char *)(uintptr_t)text; }
static bool one_in(unsigned n) { return rng_below(&rng, n) == 0; }

static void plan_kv(struct planned *p, uint64_t index) {
    unsigned number = (unsigned)rng_below(&rng, KEYS), value = (unsigned)rng_below(&rng, VALUES),
             who = (unsigned)rng_below(&rng, SESSIONS);
    struct model_key *key = &keys[number];
    Pb__KvCommand *c = &p->u.kv;
    pb__kv_command__init(c);
    p->command = (struct command){KV_APPLY, &c->base};
    c->verb = (Pb__KvVerb)rng_below(&rng, 7);
    c->key = (ProtobufCBinaryData){strlen(key_names[number]), (uint8_t *)key_names[number]};
    c->value = (ProtobufCBinaryData){strlen(values[value]), (uint8_t *)mutable(values[value])};
    c->flags = one_in(3) ? rng_below(&rng, 2) : 0;
    c->index = one_in(3) ? 0 : one_in(2) ? key->modify : rng_below(&rng, index + 1);
    bool fits = key->there ? c->index == key->modify : c->index == 0;
    bool wants_session = c->verb == PB__KV_VERB__KV_LOCK || c->verb == PB__KV_VERB__KV_UNLOCK;
    if (wants_session) c->session = ids[who];
    c->want_token = one_in(2);
    p->yes = true;
    switch (c->verb) {
        case PB__KV_VERB__KV_CAS:
            p->yes = fits;
            if (!fits) return;
            /* fall through */
        case PB__KV_VERB__KV_SET:
            model_write(key, value, c->flags, 0, key->there ? key->session : -1, key->token, index);
            return;
        case PB__KV_VERB__KV_LOCK: {
            bool held = key->there && key->session >= 0;
            p->yes = !key->delayed && sessions[who].there && (!held || key->session == (int)who);
            if (!key->delayed && !sessions[who].there) p->error = CO_INVALID;
            if (!p->yes) return;
            uint64_t token = held ? key->token : index;
            if (token != key->token) CHECK(token > key->granted);
            key->granted = token;
            if (c->want_token) p->token = token;
            model_write(key, value, c->flags, (key->there ? key->lock_index : 0) + !held, (int)who, token, index);
            return;
        }
        case PB__KV_VERB__KV_UNLOCK:
            p->yes = key->there && key->session == (int)who;
            if (!p->yes) return;
            if (c->want_token) p->token = key->token;
            model_write(key, value, c->flags, key->lock_index, -1, 0, index);
            return;
        case PB__KV_VERB__KV_DELETE_CAS:
            p->yes = !key->there || c->index == key->modify;
            if (!p->yes) return;
            /* fall through */
        case PB__KV_VERB__KV_DELETE:
            if (key->there) model_remove(key, index);
            return;
        case PB__KV_VERB__KV_DELETE_TREE:
            c->key.len = one_in(8) ? 0 : 1 + rng_below(&rng, c->key.len);
            for (unsigned i = 0; i < KEYS; i++)
                if (keys[i].there && strncmp(key_names[i], key_names[number], c->key.len) == 0)
                    model_remove(&keys[i], index);
            return;
        default: UNREACHABLE();
    }
}

static void plan_create(struct planned *p, uint64_t index) {
    static char check[] = "c1";
    unsigned number = (unsigned)rng_below(&rng, SESSIONS), node = (unsigned)rng_below(&rng, NODES);
    struct model_session *session = &sessions[number];
    bool on_check = one_in(2);
    pb__session_create_command__init(&p->u.create);
    pb__session__init(&p->session);
    p->u.create.session = &p->session;
    p->command = (struct command){SESSION_CREATE, &p->u.create.base};
    p->session.id = ids[number];
    p->session.node = mutable(node_names[node]);
    p->session.delete_behavior = one_in(2);
    p->session.lock_delay_ns = one_in(3) ? 15000000000 : 0;
    p->check_name = check;
    p->session.node_checks = &p->check_name;
    p->session.n_node_checks = on_check;
    p->yes = !session->there && nodes[node].there && !(on_check && nodes[node].critical);
    p->error = p->yes ? CO_OK : session->there ? CO_EXISTS : CO_INVALID;
    if (!p->yes) return;
    *session = (struct model_session){.there = true,
                                      .delete_keys = p->session.delete_behavior,
                                      .delays = p->session.lock_delay_ns != 0,
                                      .on_check = on_check,
                                      .node = node,
                                      .create = index};
    sessions_index = nodes[node].sessions_index = index;
}

static void plan_destroy(struct planned *p, uint64_t index) {
    unsigned number = (unsigned)rng_below(&rng, SESSIONS);
    pb__session_destroy_command__init(&p->u.destroy);
    p->command = (struct command){SESSION_DESTROY, &p->u.destroy.base};
    p->u.destroy.id = ids[number];
    p->u.destroy.term = rng_below(&rng, 3);
    p->yes = p->u.destroy.term != 2;
    p->error = p->yes ? CO_OK : CO_CONFLICT;
    if (p->yes) model_session_end(number, index);
}

static void plan_delay_end(struct planned *p, uint64_t index) {
    unsigned number = (unsigned)rng_below(&rng, KEYS);
    for (unsigned i = 0; i < KEYS && !keys[number].delayed; i++) number = (number + 1) % KEYS;
    struct model_key *key = &keys[number];
    (void)index;
    pb__lock_delay_end_command__init(&p->u.delay_end);
    p->command = (struct command){LOCK_DELAY_END, &p->u.delay_end.base};
    p->u.delay_end.key = (ProtobufCBinaryData){strlen(key_names[number]), (uint8_t *)key_names[number]};
    p->u.delay_end.index = key->delay_index - one_in(4);
    p->u.delay_end.term = 1;
    p->yes = key->delayed && p->u.delay_end.index == key->delay_index;
    if (p->yes) key->delayed = false;
}

/* A node with its check, passing or critical; or the node goes. */
static void plan_catalog(struct planned *p, uint64_t index) {
    static char address[] = "127.0.0.1", check[] = "c1";
    unsigned node = (unsigned)rng_below(&rng, NODES);
    bool goes = one_in(4), critical = !goes && one_in(2);
    p->error = -1;
    if (goes) {
        pb__deregister_command__init(&p->u.leave);
        p->u.leave.node = mutable(node_names[node]);
        p->command = (struct command){CATALOG_DEREGISTER, &p->u.leave.base};
    } else {
        pb__register_command__init(&p->u.enter);
        pb__node__init(&p->node);
        pb__check__init(&p->check);
        p->node.name = p->check.node = mutable(node_names[node]);
        p->node.address = address;
        p->check.check_id = p->check.name = check;
        p->check.status = critical ? PB__STATUS__CRITICAL : PB__STATUS__PASSING;
        p->check_list = &p->check;
        p->u.enter.node = &p->node;
        p->u.enter.checks = &p->check_list;
        p->u.enter.n_checks = 1;
        p->command = (struct command){CATALOG_REGISTER, &p->u.enter.base};
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        if (sessions[i].there && sessions[i].node == node && (goes || (critical && sessions[i].on_check)))
            model_session_end(i, index);
    nodes[node].there = !goes;
    nodes[node].critical = critical;
}

static void plan(struct planned *p, uint64_t index) {
    *p = (struct planned){.error = CO_OK};
    switch (rng_below(&rng, 20)) {
        case 0:
        case 1:
        case 2: plan_create(p, index); return;
        case 3: plan_destroy(p, index); return;
        case 4:
        case 5: plan_delay_end(p, index); return;
        case 6: plan_catalog(p, index); return;
        default: plan_kv(p, index); return;
    }
}

/* -- comparing ---------------------------------------------------------------------------------------------------- */

#define EXPECT(condition, ...) cr_assert(condition, "seed %lu: " #condition " " __VA_ARGS__)

static void compare_entry(const Pb__KvEntry *entry, unsigned number) {
    const struct model_key *key = &keys[number];
    EXPECT(bytes_are(entry->key, key_names[number]), "%.40s", seed, key_names[number]);
    EXPECT(bytes_are(entry->value, values[key->value]), "%.40s", seed, key_names[number]);
    EXPECT(entry->flags == key->flags && entry->lock_index == key->lock_index, "%.40s", seed, key_names[number]);
    EXPECT(strcmp(entry->session, key->session < 0 ? "" : ids[key->session]) == 0, "%.40s", seed, key_names[number]);
    EXPECT(entry->create_index == key->create && entry->modify_index == key->modify, "%.40s", seed, key_names[number]);
}

static void compare_key(unsigned number) {
    struct query_result result = kv_get(&world, key_names[number]);
    EXPECT(result.found == keys[number].there, "%.40s", seed, key_names[number]);
    if (result.found) compare_entry(entry_of(&result), number);
    EXPECT(result.index == (result.found ? keys[number].modify : keys[number].removed), "%.40s", seed,
           key_names[number]);
}

static void compare_prefix(const char *prefix) {
    struct query_result result = kv_list(&world, prefix);
    const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)result.message;
    size_t count = 0;
    uint64_t index = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        if (!starts(key_names[i], prefix)) continue;
        if (keys[i].there && keys[i].modify > index) index = keys[i].modify;
        if (keys[i].removed > index) index = keys[i].removed;
        if (!keys[i].there) continue;
        EXPECT(list && count < list->n_entries, "prefix %.40s lacks %.40s", seed, prefix, key_names[i]);
        compare_entry(list->entries[count++], i);
    }
    EXPECT(count == (list ? list->n_entries : 0), "prefix %.40s", seed, prefix);
    EXPECT(result.found == (count != 0), "prefix %.40s", seed, prefix);
    EXPECT(result.index == index, "prefix of %zu, %.40s: %lu, not %lu", seed, strlen(prefix), prefix, result.index,
           index);
}

static void compare_keys(const char *prefix, const char *separator) {
    struct query_result result = kv_keys(&world, prefix, separator);
    const Pb__KvKeysResult *list = (const Pb__KvKeysResult *)result.message;
    size_t count = 0;
    char *last = NULL;
    for (unsigned i = 0; i < KEYS; i++) {
        if (!keys[i].there || !starts(key_names[i], prefix)) continue;
        const char *cut = separator[0] ? strstr(key_names[i] + strlen(prefix), separator) : NULL;
        size_t size = cut ? (size_t)(cut - key_names[i]) + strlen(separator) : strlen(key_names[i]);
        char *name = mem_strndup(key_names[i], size);
        if (!last || strcmp(last, name) != 0) {
            EXPECT(count < list->n_keys && bytes_are(list->keys[count], name), "%.40s below %.40s", seed, name, prefix);
            count++;
        }
        free(last);
        last = name;
    }
    free(last);
    EXPECT(count == list->n_keys, "below %.40s", seed, prefix);
}

static void compare_sessions(int node) {
    struct query_result result = session_list(&world, node < 0 ? NULL : node_names[node]);
    const Pb__SessionsResult *list = (const Pb__SessionsResult *)result.message;
    size_t count = 0;
    for (unsigned i = 0; i < SESSIONS; i++) {
        if (!sessions[i].there || (node >= 0 && sessions[i].node != (unsigned)node)) continue;
        EXPECT(count < list->n_sessions && strcmp(list->sessions[count]->id, ids[i]) == 0, "session %u", seed, i);
        EXPECT(list->sessions[count++]->create_index == sessions[i].create, "session %u", seed, i);
    }
    EXPECT(count == list->n_sessions, "node %d", seed, node);
    EXPECT(result.index == (node < 0 ? sessions_index : nodes[node].sessions_index), "node %d: index %lu", seed, node,
           result.index);
}

static void compare_some(void) {
    char prefix[600];
    for (unsigned i = 0; i < 6; i++) compare_key((unsigned)rng_below(&rng, KEYS));
    for (unsigned i = 0; i < 3; i++) {
        const char *name = key_names[rng_below(&rng, KEYS)];
        snprintf(prefix, 1 + (size_t)rng_below(&rng, sizeof prefix), "%s", name);
        compare_prefix(prefix);
        compare_keys(prefix, one_in(2) ? "/" : one_in(2) ? "xa" : "");
    }
    unsigned number = (unsigned)rng_below(&rng, SESSIONS);
    struct query_result result = session_get_by(&world, ids[number]);
    EXPECT(result.found == sessions[number].there, "session %u", seed, number);
    EXPECT(result.index == (result.found ? sessions[number].create : sessions[number].ended), "session %u", seed,
           number);
    compare_sessions((int)rng_below(&rng, NODES + 1) - 1);
}

static void compare_all(void) {
    for (unsigned i = 0; i < KEYS; i++) compare_key(i);
    compare_prefix("");
    compare_keys("", "/");
    for (int node = -1; node < NODES; node++) compare_sessions(node);
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    EXPECT(store_sum(txn) == store_scrub(txn), "state sum", seed);
    store_read_done(world.reader);
}

/* Indexes as clients see them, by key and by prefix. */
static uint64_t seen_keys[KEYS], seen_prefixes[KEYS];
static void never_back(void) {
    for (unsigned i = 0; i < KEYS; i++) {
        uint64_t key = kv_get(&world, key_names[i]).index, prefix = kv_list(&world, key_names[i]).index;
        EXPECT(key >= seen_keys[i] && prefix >= seen_prefixes[i] && prefix >= key, "%.40s", seed, key_names[i]);
        EXPECT(key <= machine_applied(world.machine) && prefix <= machine_applied(world.machine), "%.40s", seed,
               key_names[i]);
        seen_keys[i] = key;
        seen_prefixes[i] = prefix;
    }
}

static unsigned answers[2]; /* no, yes */

static void batch(void) {
    static struct planned planned[BATCH];
    struct command commands[BATCH];
    struct outcome outcomes[BATCH];
    size_t count = 1 + (size_t)rng_below(&rng, BATCH);
    for (size_t i = 0; i < count; i++) {
        plan(&planned[i], machine_applied(world.machine) + 1 + i);
        commands[i] = planned[i].command;
    }
    fixture_apply_all(&world, commands, count, outcomes);
    for (size_t i = 0; i < count; i++) {
        if (planned[i].error == -1) continue;
        EXPECT(outcomes[i].error == planned[i].error, "command %zu of type %u: %s", seed, i, commands[i].type,
               outcomes[i].text);
        if (planned[i].error != CO_OK) continue;
        EXPECT(outcomes[i].yes == planned[i].yes, "command %zu of type %u", seed, i, commands[i].type);
        EXPECT(outcomes[i].token == planned[i].token, "command %zu: token %lu, not %lu", seed, i, outcomes[i].token,
               planned[i].token);
        answers[outcomes[i].yes]++;
    }
}

static void run(uint64_t number) {
    seed = number;
    rng_seed(&rng, seed);
    fixture_open(&world);
    model_begin();
    memset(seen_keys, 0, sizeof seen_keys);
    memset(seen_prefixes, 0, sizeof seen_prefixes);
    for (unsigned step = 0; step < STEPS; step++) {
        batch();
        compare_some();
        if (step % 10 == 0) never_back();
        if (step % 50 != 49) continue;
        compare_all();
        fixture_reopen(&world);
    }
    compare_all();
    model_end();
    fixture_close(&world);
}

Test(kv_model, random_commands) {
    const char *chosen = getenv("COORD_SEED");
    if (chosen) {
        run(strtoull(chosen, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= SEEDS; i++) run(i);
    cr_expect(answers[0] > 1000 && answers[1] > 1000, "the commands are one-sided: %u no, %u yes", answers[0],
              answers[1]);
}
