/* Tokens against a model, with the leader's table of deadlines at work: random commands, time that passes, leaders that
 * follow each other. Every answer and everything that is read is compared. A failure names its seed: COORD_SEED=N runs that
 * one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/resolve.h"
#include "acls.h"
#include "base/check.h"
#include "base/message.h"
#include "base/random.h"

enum { TOKENS = 8, POLICIES = 4, STEPS = 400, SEEDS = 20, LATE_MS = 1000 };

static struct acls a;
static struct rng rng;
static uint64_t seed;
static struct expiry *deadlines;
static uint64_t term, now_ms;

#define EXPECT(condition)         cr_assert(condition, "seed %lu: " #condition, seed)
#define EXPECT_OF(condition, ...) cr_assert(condition, "seed %lu: " #condition " " __VA_ARGS__)
static unsigned below(unsigned n) { return (unsigned)rng_below(&rng, n); }
static bool one_in(unsigned n) { return below(n) == 0; }

/* -- the model ---------------------------------------------------------------------------------------------------- */
static struct token {
    bool there, login;
    unsigned secret; /* its number */
    uint64_t made, end_ms;
    bool policies[POLICIES];
} tokens[TOKENS];
static struct { bool there, writes; } policies[POLICIES];
static unsigned secrets, ended, cut_short;

static void forget(struct token *token) { token->there = false; }

static const char *policy_name(unsigned number) {
    static const char *const names[POLICIES] = {"p0", "p1", "p2", "p3"};
    return names[number];
}

/* -- commands ----------------------------------------------------------------------------------------------------- */
static void do_policy(void) {
    static const char *const rules[] = {"key \"k\" { policy = \"read\" }", "key \"k\" { policy = \"write\" }"};
    unsigned number = below(POLICIES);
    if (policies[number].there && one_in(2)) {
        EXPECT(acls_policy_delete(&a, number).yes);
        policies[number].there = false;
        /* Links to it are left out when they are read, and a policy of this id never comes back in coord's API; here it may,
         * and its tokens would have it again. */
        for (unsigned i = 0; i < TOKENS; i++) {
            if (!tokens[i].there || !tokens[i].policies[number]) continue;
            EXPECT(acls_token_delete(&a, i, false).yes);
            forget(&tokens[i]);
        }
        return;
    }
    bool writes = one_in(2);
    struct policy_spec spec = {.name = policy_name(number), .rules = rules[writes], .change = policies[number].there};
    EXPECT(acls_policy(&a, number, spec).yes);
    policies[number].there = true, policies[number].writes = writes;
}

static struct grants_spec random_grants(bool wanted[POLICIES], bool *known) {
    struct grants_spec grants = {0};
    unsigned count = 0;
    memset(wanted, 0, POLICIES * sizeof *wanted);
    *known = true;
    for (unsigned i = 0; i < POLICIES && count < NAMES_MOST - 1; i++) {
        if (!one_in(3)) continue;
        grants.policy_names[count++] = policy_name(i);
        wanted[i] = true;
        *known = *known && policies[i].there;
    }
    return grants;
}

static void do_make(unsigned number) {
    struct token *token = &tokens[number];
    bool wanted[POLICIES], known, login = one_in(4);
    char secret[40];
    struct token_spec spec = {.grants = random_grants(wanted, &known), .login = login, .method = login ? "m" : NULL};
    unsigned of = secrets && one_in(8) ? below(secrets) : secrets++;
    snprintf(secret, sizeof secret, "%s", acls_secret(of)), spec.secret = secret;
    if (one_in(2)) spec.ttl_ms = 1 + below(20000);
    else if (one_in(3)) spec.expiration_ms = now_ms + 1 + below(20000);
    bool taken = token->there;
    for (unsigned i = 0; i < TOKENS; i++) taken = taken || (tokens[i].there && tokens[i].secret == of);
    struct outcome outcome = acls_token(&a, number, spec);
    EXPECT_OF((outcome.error == CO_OK) == (!taken && known), "%s", seed, outcome.text);
    if (outcome.error) return;
    *token = (struct token){.there = true, .login = login, .secret = of, .made = outcome.index};
    token->end_ms = spec.ttl_ms ? now_ms + (uint64_t)spec.ttl_ms : spec.expiration_ms;
    if (login && (!token->end_ms || token->end_ms > now_ms + 10000)) token->end_ms = now_ms + 10000;
    memcpy(token->policies, wanted, sizeof wanted);
}

static void do_change(unsigned number) {
    bool wanted[POLICIES], known;
    struct token_spec spec = {.change = true, .grants = random_grants(wanted, &known)};
    struct outcome outcome = acls_token(&a, number, spec);
    EXPECT_OF((outcome.error == CO_OK) == (tokens[number].there && known), "%s", seed, outcome.text);
    if (!outcome.error) memcpy(tokens[number].policies, wanted, sizeof wanted);
}

static void do_delete(unsigned number) {
    bool logout = one_in(3), may = !logout || (tokens[number].there && tokens[number].login);
    EXPECT(acls_token_delete(&a, number, logout).yes == may);
    if (!may || !tokens[number].there) return;
    cut_short += tokens[number].end_ms != 0;
    forget(&tokens[number]);
}

static void do_method(void) {
    EXPECT(acls_method_delete(&a, "m").yes && acls_method(&a, "m", "jwt", 10000).yes);
    for (unsigned i = 0; i < TOKENS; i++)
        if (tokens[i].login) forget(&tokens[i]);
}

/* -- the leader --------------------------------------------------------------------------------------------------- */
static void follow_updates(void) {
    for (struct expiry_update *update = expiry_updates_take(a.f.updates), *next; update; update = next) {
        struct slice name = slice_make(update->name, update->size);
        next = update->next;
        if (update->kind != &acl_token_expiry) (void)update;
        else if (update->ended) expiry_ended(deadlines, update->kind, name, update->index);
        else expiry_began(deadlines, update->kind, name, update->index, update->period_ns, now_ms);
        free(update);
    }
}

static void propose(void *data, uint8_t number, const ProtobufCMessage *message) {
    const Pb__AclTokenEndCommand *command = (const Pb__AclTokenEndCommand *)message;
    (void)data;
    struct outcome outcome = fixture_apply(&a.f, number, message);
    for (unsigned i = 0; i < TOKENS; i++) {
        if (strcmp(command->accessor, acls_id('a', i)) != 0) continue;
        EXPECT_OF(tokens[i].there && outcome.yes, "%s", seed, outcome.text);
        EXPECT_OF(tokens[i].end_ms && now_ms >= tokens[i].end_ms, "token %u ends early", seed, i);
        forget(&tokens[i]);
        ended++;
    }
}

static void due(void *data, const struct expiry_due *item) {
    struct expiry_leader leader = {.term = term, .now_ms = now_ms, .unix_ms = (int64_t)now_ms};
    (void)data;
    item->kind->end(item, &leader, propose, NULL);
}

static void lead(void) {
    struct expiry_leader leader = {.term = ++term, .now_ms = now_ms, .unix_ms = (int64_t)now_ms};
    a.f.term = term;
    expiry_follow(deadlines);
    expiry_lead(deadlines, term, now_ms);
    EXPECT(acl_token_expiry.read(acls_begin_read(&a), &leader, deadlines) == CO_OK);
    acls_end_read(&a);
}

/* In steps as short as the leader's, or it would look as if it had stood still. */
static void pass(uint64_t ms) {
    for (uint64_t end_ms = now_ms + ms; now_ms < end_ms;) {
        now_ms += 100;
        a.f.unix_ms = now_ms;
        follow_updates();
        expiry_tick(deadlines, now_ms, due, NULL);
    }
    for (unsigned i = 0; i < TOKENS; i++)
        EXPECT_OF(!tokens[i].there || !tokens[i].end_ms || now_ms < tokens[i].end_ms + LATE_MS, "token %u lives on",
                  seed, i);
}

/* -- what is read --------------------------------------------------------------------------------------------------- */
static enum access_level level_of(const struct token *token) {
    enum access_level level = ACCESS_DENY;
    for (unsigned i = 0; i < POLICIES; i++)
        if (token->policies[i]) level = policies[i].writes || level == ACCESS_WRITE ? ACCESS_WRITE : ACCESS_READ;
    return level;
}

static void compare_token(unsigned number) {
    const struct token *token = &tokens[number];
    const Pb__AclTokenResult *read = acls_read_token(&a, number);
    EXPECT_OF((read != NULL) == token->there, "token %u", seed, number);
    if (!read) return;
    unsigned count = 0;
    for (unsigned i = 0; i < POLICIES; i++) count += token->policies[i];
    EXPECT(read->token->n_policies == count && read->token->create_index == token->made);
    EXPECT(read->token->expiration_ms == token->end_ms);
    EXPECT(strcmp(read->secret, acls_secret(token->secret)) == 0);
}

static void compare_secret(unsigned secret) {
    struct resolve_settings settings = {"dc1", ACCESS_DENY};
    const struct token *token = NULL;
    struct resolved resolved;
    for (unsigned i = 0; i < TOKENS; i++)
        if (tokens[i].there && tokens[i].secret == secret) token = &tokens[i];
    bool counts = token && (!token->end_ms || now_ms < token->end_ms);
    int rv =
        resolve_secret(acls_begin_read(&a), a.key, slice_text(acls_secret(secret)), &settings, now_ms, &resolved, NULL);
    acls_end_read(&a);
    EXPECT_OF(rv == (counts ? CO_OK : CO_NOTFOUND), "secret %u: %d", seed, secret, rv);
    if (rv != CO_OK) return;
    EXPECT(access_level_of(resolved.access, ACCESS_KEY, slice_text("k")) == level_of(token));
    access_release(resolved.access);
}

static void compare(void) {
    size_t there = 1, of_policy[POLICIES] = {0};
    for (unsigned i = 0; i < TOKENS; i++) {
        compare_token(i);
        there += tokens[i].there;
        for (unsigned k = 0; k < POLICIES; k++) of_policy[k] += tokens[i].there && tokens[i].policies[k];
    }
    EXPECT(acls_read_tokens(&a, NULL, NULL, NULL)->n_tokens == there);
    for (unsigned k = 0; k < POLICIES; k++)
        EXPECT_OF(acls_read_tokens(&a, acls_id('p', k), NULL, NULL)->n_tokens == of_policy[k], "policy %u", seed, k);
    for (unsigned i = 0; i < 5 && secrets; i++) compare_secret(below(secrets));
}

/* -- runs ---------------------------------------------------------------------------------------------------------- */
static void step(void) {
    unsigned number = below(TOKENS);
    switch (below(12)) {
        case 0: do_policy(); break;
        case 1:
        case 2:
        case 3: do_make(number); break;
        case 4:
        case 5: do_change(number); break;
        case 6: do_delete(number); break;
        case 7:
            if (one_in(8)) do_method();
            break;
        case 8: lead(); break;
        default: pass(100 * (1 + below(30))); break;
    }
    follow_updates();
    compare();
}

static void run(uint64_t number) {
    seed = number;
    rng_seed(&rng, seed);
    memset(tokens, 0, sizeof tokens);
    memset(policies, 0, sizeof policies);
    secrets = 0, term = 0;
    acls_open(&a);
    now_ms = a.f.unix_ms;
    deadlines = expiry_new();
    lead();
    EXPECT(acls_method(&a, "m", "jwt", 10000).yes);
    for (unsigned i = 0; i < STEPS; i++) step();
    pass(30000);
    compare();
    fixture_sum(&a.f);
    expiry_free(deadlines);
    acls_close(&a);
}

Test(token_model, tokens_are_as_the_model_has_them) {
    const char *one = getenv("COORD_SEED");
    if (one) {
        run(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t number = 1; number <= SEEDS; number++) run(number);
    cr_expect(ended > 20 && cut_short > 20, "%u ended, %u were deleted before", ended, cut_short);
}
