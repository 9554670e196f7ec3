#include "acl/jwt.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/json_in.h"
#include "tests/lib/jwt_signer.h"

/* One key for all tokens of a test. */
struct world {
    struct jwt_signer *signer;
    struct jwt_keys *keys;
    struct buffer token;
};

static void world_open(struct world *world) {
    struct buffer pem = {0};
    *world = (struct world){.signer = jwt_signer_new(JWT_ES256), .keys = jwt_keys_new()};
    jwt_signer_pem(world->signer, &pem);
    cr_assert_eq(jwt_keys_add_pem(world->keys, buffer_slice(&pem), NULL), CO_OK);
    buffer_free(&pem);
}

static void world_close(struct world *world) {
    jwt_signer_free(world->signer);
    jwt_keys_free(world->keys);
    buffer_free(&world->token);
}

static const char es256[] = "{\"alg\":\"ES256\"}";

static struct slice signed_token(struct world *world, const char *header, const char *payload) {
    world->token.size = 0;
    jwt_sign(world->signer, JWT_ES256, slice_text(header), slice_text(payload), &world->token);
    return buffer_slice(&world->token);
}

/* Verifies; `wanted`: the fault, "" when the token is right. */
static void expect(struct world *world, const struct jwt_rules *rules, const char *header, const char *payload,
                   int code, const char *wanted) {
    struct json_object *claims = (struct json_object *)world;
    struct fault fault = {0};
    int rv = jwt_verify(world->keys, rules, signed_token(world, header, payload), &claims, &fault);
    cr_expect_eq(rv, code, "%s.%s at %ld: %s", header, payload, (long)rules->now_s, fault.text);
    cr_expect_str_eq(fault.text, wanted, "%s.%s at %ld: %s", header, payload, (long)rules->now_s, fault.text);
    cr_expect_eq(claims != NULL, rv == CO_OK);
    if (claims) {
        struct json_object *same = json_parse(slice_text(payload), NULL);
        cr_expect(json_object_equal(claims, same));
        json_object_put(same);
    }
    json_object_put(claims);
}

/* ---- the form of a token ---- */

Test(jwt, header) {
    static const char kind[] = "the token's signature is of no kind that is accepted (\"alg\")";
    static const char object[] = "the token's header is no JSON object, or has a name twice";
    static const char crit[] = "the token needs an extension (\"crit\"), and coord has none";
    static const struct {
        const char *header;
        int code;
        const char *wanted;
    } rows[] = {
        {"{\"alg\":\"ES256\"}", CO_OK, ""},
        {" {\"typ\":\"JWT\", \"cty\":\"x\", \"alg\":\"ES256\", \"b64\":false} ", CO_OK, ""},
        {"{}", CO_DENIED, kind},
        {"{\"Alg\":\"ES256\"}", CO_DENIED, kind},
        {"{\"alg\":\"none\"}", CO_DENIED, kind},
        {"{\"alg\":\"None\"}", CO_DENIED, kind},
        {"{\"alg\":\"NONE\"}", CO_DENIED, kind},
        {"{\"alg\":\"nOnE\"}", CO_DENIED, kind},
        {"{\"alg\":\"\"}", CO_DENIED, kind},
        {"{\"alg\":null}", CO_DENIED, kind},
        {"{\"alg\":1}", CO_DENIED, kind},
        {"{\"alg\":[\"ES256\"]}", CO_DENIED, kind},
        {"{\"alg\":\"es256\"}", CO_DENIED, kind},
        {"{\"alg\":\"ES256 \"}", CO_DENIED, kind},
        {"{\"alg\":\"ES256\\u0000\"}", CO_DENIED, kind},
        {"{\"alg\":\"ES256K\"}", CO_DENIED, kind},
        {"{\"alg\":\"HS256\"}", CO_DENIED, kind},
        {"{\"alg\":\"RS256\"}", CO_DENIED, "no known key made the token's signature"},
        {"{\"alg\":\"none\",\"alg\":\"ES256\"}", CO_INVALID, object},
        {"{\"alg\":\"ES256\",\"alg\":\"ES256\"}", CO_INVALID, object},
        {"[]", CO_INVALID, object},
        {"\"ES256\"", CO_INVALID, object},
        {"{\"alg\":\"ES256\"", CO_INVALID, object},
        {"{\"alg\":\"ES256\"} x", CO_INVALID, object},
        {"{\"alg\":\"ES256\",\"x\":\"\xff\"}", CO_INVALID, object},
        {"{\"alg\":\"ES256\",\"crit\":[\"exp\"]}", CO_INVALID, crit},
        {"{\"alg\":\"ES256\",\"crit\":[\"b64\"],\"b64\":true}", CO_INVALID, crit},
        {"{\"alg\":\"ES256\",\"crit\":[]}", CO_INVALID, crit},
        {"{\"alg\":\"ES256\",\"crit\":null}", CO_INVALID, crit},
        {"{\"alg\":\"ES256\",\"kid\":1}", CO_INVALID, "the token's \"kid\" is no text"},
    };
    struct world world;
    struct jwt_rules rules = {.now_s = 1000};
    world_open(&world);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        expect(&world, &rules, rows[i].header, "{\"iat\":1000}", rows[i].code, rows[i].wanted);
    world_close(&world);
}

Test(jwt, payload) {
    static const char object[] = "the token's payload is no JSON object, or has a name twice";
    static const char *const rows[] = {"",
                                       "[]",
                                       "null",
                                       "1",
                                       "{\"iat\":1000",
                                       "{\"iat\":1000}{}",
                                       "{\"iat\":1000,\"iat\":1000}",
                                       "{\"iat\":1000,\"a\":{\"b\":1,\"b\":2}}",
                                       "{\"iat\":1000,\"a\":\"\xc3\"}"};
    struct world world;
    struct jwt_rules rules = {.now_s = 1000};
    world_open(&world);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect(&world, &rules, es256, rows[i], CO_INVALID, object);
    expect(&world, &rules, es256, "{\"iat\":1000,\"IAT\":1,\"more\":[null,{\"a\":1}]}", CO_OK, "");
    world_close(&world);
}

static int open_text(const struct world *world, struct slice token) {
    struct buffer payload = {0};
    buffer_append_text(&payload, "kept");
    int rv = jwt_open(world->keys, 0, token, &payload, NULL);
    cr_expect_eq(payload.size > 4, rv == CO_OK);
    buffer_free(&payload);
    return rv;
}

Test(jwt, other_texts_of_a_token_are_refused) {
    struct world world;
    world_open(&world);
    /* Payloads of three lengths: the first two leave bits over at the end. */
    static const char *const payloads[] = {"{\"a\":1}", "{\"a\":12}", "{\"a\":123}"};
    for (size_t i = 0; i < ARRAY_COUNT(payloads); i++) {
        struct slice right = signed_token(&world, es256, payloads[i]);
        cr_expect_eq(open_text(&world, right), CO_OK);
        static const char *const inserted[] = {"=", " ", "\n", ".", "+", "/", "%", "A", "\0"};
        for (size_t j = 0; j < ARRAY_COUNT(inserted); j++) {
            for (size_t at = 0; at <= right.size; at++) {
                struct buffer other = {0};
                buffer_append(&other, right.data, at);
                buffer_append(&other, inserted[j], 1);
                buffer_append(&other, right.data + at, right.size - at);
                cr_expect_neq(open_text(&world, buffer_slice(&other)), CO_OK, "'%s' at %zu", inserted[j], at);
                buffer_free(&other);
            }
        }
        for (size_t size = 0; size < right.size; size++)
            cr_expect_neq(open_text(&world, slice_make(right.data, size)), CO_OK, "cut after %zu", size);
    }
    cr_expect_eq(open_text(&world, slice_make(NULL, 0)), CO_INVALID);
    cr_expect_eq(open_text(&world, SLICE_LITERAL("..")), CO_INVALID);
    cr_expect_eq(open_text(&world, SLICE_LITERAL("e30.e30.AA")), CO_DENIED);
    cr_expect_eq(open_text(&world, SLICE_LITERAL("e30.AA.AA.AA.AA")), CO_INVALID); /* encrypted: RFC 7516 */
    world_close(&world);
}

Test(jwt, is_bounded_in_size) {
    struct world world;
    struct buffer payload = {0};
    struct jwt_rules rules = {.now_s = 1000};
    world_open(&world);
    buffer_append(&payload, "{\"iat\":1000}", 13); /* with the NUL */
    payload.size--;
    while (signed_token(&world, es256, payload.data).size <= JWT_TOKEN_MOST) {
        for (unsigned i = 0; i < 50; i++) buffer_append_byte(&payload, ' ');
        buffer_append_byte(&payload, '\0');
        payload.size--;
    }
    struct json_object *claims;
    struct fault fault = {0};
    cr_expect_eq(jwt_verify(world.keys, &rules, buffer_slice(&world.token), &claims, &fault), CO_TOOLARGE);
    cr_expect(strstr(fault.text, "at most 32 KiB are taken"), "%s", fault.text);
    payload.data[payload.size - 100] = '\0';
    expect(&world, &rules, es256, payload.data, CO_OK, "");
    buffer_free(&payload);
    world_close(&world);
}

Test(jwt, only_algorithms_that_are_allowed) {
    struct world world;
    struct jwt_rules rules = {.now_s = 1000, .algs = 1u << JWT_RS256 | 1u << JWT_ES384};
    world_open(&world);
    expect(&world, &rules, es256, "{\"iat\":1000}", CO_DENIED,
           "the token's signature is of no kind that is accepted (\"alg\")");
    rules.algs |= 1u << JWT_ES256;
    expect(&world, &rules, es256, "{\"iat\":1000}", CO_OK, "");
    world_close(&world);
}

/* ---- times ---- */

#define EARLY   "the token is not valid yet"
#define EXPIRED "the token has expired"
#define FUTURE  "the token was issued in the future"

/* A token is right from `from` to `to`, both inclusive. */
static void expect_life(struct world *world, struct jwt_rules rules, const char *payload, int64_t from, int64_t to,
                        const char *before) {
    rules.now_s = from - 1;
    expect(world, &rules, es256, payload, CO_DENIED, before);
    rules.now_s = from;
    expect(world, &rules, es256, payload, CO_OK, "");
    rules.now_s = to;
    expect(world, &rules, es256, payload, CO_OK, "");
    rules.now_s = to + 1;
    expect(world, &rules, es256, payload, CO_DENIED, EXPIRED);
}

/* As Consul has them: 60 s of skew, 150 s for what is not said. */
Test(jwt, times) {
    struct world world;
    struct jwt_rules rules = {0};
    world_open(&world);
    expect_life(&world, rules, "{\"iat\":10000}", 10000 - 60, 10150 + 60, EARLY);
    expect_life(&world, rules, "{\"nbf\":10000}", 10000 - 60, 10150 + 60, EARLY);
    expect_life(&world, rules, "{\"exp\":10000}", 9850 - 60, 10000 + 60, EARLY);
    expect_life(&world, rules, "{\"iat\":10000,\"exp\":20000}", 10000 - 60, 20000 + 60, EARLY);
    expect_life(&world, rules, "{\"nbf\":10000,\"exp\":20000}", 10000 - 60, 20000 + 60, EARLY);
    expect_life(&world, rules, "{\"iat\":10000,\"nbf\":10100}", 10100 - 60, 10250 + 60, EARLY);
    expect_life(&world, rules, "{\"iat\":10100,\"nbf\":10000}", 10100 - 60, 10250 + 60, FUTURE);
    expect_life(&world, rules, "{\"iat\":10000,\"nbf\":10000,\"exp\":20000.9}", 10000 - 60, 20000 + 60, EARLY);
    expect_life(&world, rules, "{\"iat\":10500,\"nbf\":10000,\"exp\":20000}", 10500 - 60, 20000 + 60, FUTURE);
    expect_life(&world, rules, "{\"iat\":1e4,\"nbf\":0,\"exp\":2e4}", 10000 - 60, 20000 + 60, FUTURE);
    struct jwt_rules own = {.clock_skew_leeway_s = 5, .expiration_leeway_s = 1000, .not_before_leeway_s = 20};
    expect_life(&world, own, "{\"iat\":10000}", 10000 - 5, 11000 + 5, EARLY);
    expect_life(&world, own, "{\"exp\":10000}", 9980 - 5, 10000 + 5, EARLY);
    struct jwt_rules none = {.clock_skew_leeway_s = -1, .expiration_leeway_s = -1, .not_before_leeway_s = -1};
    expect_life(&world, none, "{\"iat\":10000}", 10000, 10000, EARLY);
    expect_life(&world, none, "{\"exp\":10000}", 10000, 10000, EARLY);
    expect_life(&world, none, "{\"iat\":10000,\"exp\":10001}", 10000, 10001, EARLY);
    world_close(&world);
}

Test(jwt, times_that_are_none) {
    struct world world;
    struct jwt_rules rules = {.now_s = 1000};
    world_open(&world);
    expect(&world, &rules, es256, "{}", CO_DENIED, "the token says no time: one of exp, nbf, iat is needed");
    expect(&world, &rules, es256, "{\"Exp\":2000}", CO_DENIED,
           "the token says no time: one of exp, nbf, iat is needed");
    /* 0 is a time as others are, not "none". */
    expect(&world, &rules, es256, "{\"exp\":0,\"iat\":1000}", CO_DENIED, EXPIRED);
    static const char *const values[] = {
        "\"2000\"", "null", "true", "[2000]", "{}", "1e300", "-1e300", "9007199254740994", "18446744073709551615"};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        static const char *const names[] = {"exp", "nbf", "iat"};
        for (size_t j = 0; j < ARRAY_COUNT(names); j++) {
            char payload[80], wanted[80];
            snprintf(payload, sizeof payload, "{\"%s\":%s}", names[j], values[i]);
            snprintf(wanted, sizeof wanted, "the token's \"%s\" is no time", names[j]);
            expect(&world, &rules, es256, payload, CO_INVALID, wanted);
        }
    }
    expect(&world, &rules, es256, "{\"exp\":9007199254740992,\"iat\":-9007199254740992}", CO_OK, "");
    world_close(&world);
}

/* ---- issuer and audience ---- */

Test(jwt, issuer) {
    struct world world;
    struct jwt_rules rules = {.now_s = 1000}, bound = {.now_s = 1000, .issuer = SLICE_LITERAL("https://a")};
    world_open(&world);
    expect(&world, &rules, es256, "{\"iat\":1000}", CO_OK, "");
    expect(&world, &rules, es256, "{\"iat\":1000,\"iss\":\"https://b\"}", CO_OK, "");
    expect(&world, &rules, es256, "{\"iat\":1000,\"iss\":1}", CO_INVALID, "the token's \"iss\" is no text");
    expect(&world, &bound, es256, "{\"iat\":1000,\"iss\":\"https://a\"}", CO_OK, "");
    static const char *const others[] = {"\"https://b\"", "\"https://a/\"", "\"HTTPS://A\"", "\"\"",
                                         "\"https://a\\u0000\""};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        char payload[80];
        snprintf(payload, sizeof payload, "{\"iat\":1000,\"iss\":%s}", others[i]);
        expect(&world, &bound, es256, payload, CO_DENIED, "the token is of another issuer");
    }
    expect(&world, &bound, es256, "{\"iat\":1000}", CO_DENIED, "the token is of another issuer");
    expect(&world, &bound, es256, "{\"iat\":1000,\"iss\":[\"https://a\"]}", CO_INVALID,
           "the token's \"iss\" is no text");
    expect(&world, &bound, es256, "{\"iat\":1000,\"iss\":null}", CO_INVALID, "the token's \"iss\" is no text");
    world_close(&world);
}

Test(jwt, audience) {
    static const char other[] = "the token is for another audience";
    static const char none[] = "the token is for an audience, and none is bound";
    static const char wrong[] = "the token's \"aud\" is neither text nor a list of texts";
    static const struct {
        const char *payload;
        int bound_code;
        const char *bound;
        int free_code;
        const char *unbound;
    } rows[] = {
        {"{\"iat\":1000}", CO_DENIED, other, CO_OK, ""},
        {"{\"iat\":1000,\"aud\":[]}", CO_DENIED, other, CO_OK, ""},
        {"{\"iat\":1000,\"aud\":\"a\"}", CO_OK, "", CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":\"b\"}", CO_OK, "", CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":\"c\"}", CO_DENIED, other, CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":\"\"}", CO_DENIED, other, CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":\"A\"}", CO_DENIED, other, CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":\"a b\"}", CO_DENIED, other, CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":[\"c\",\"b\"]}", CO_OK, "", CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":[\"b\",\"c\"]}", CO_OK, "", CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":[\"c\",\"d\"]}", CO_DENIED, other, CO_DENIED, none},
        {"{\"iat\":1000,\"aud\":[\"a\",1]}", CO_INVALID, wrong, CO_INVALID, wrong},
        {"{\"iat\":1000,\"aud\":[[\"a\"]]}", CO_INVALID, wrong, CO_INVALID, wrong},
        {"{\"iat\":1000,\"aud\":{\"a\":1}}", CO_INVALID, wrong, CO_INVALID, wrong},
        {"{\"iat\":1000,\"aud\":null}", CO_INVALID, wrong, CO_INVALID, wrong},
    };
    static const struct slice audiences[] = {{"a", 1}, {"b", 1}};
    struct world world;
    struct jwt_rules unbound = {.now_s = 1000};
    struct jwt_rules bound = {.now_s = 1000, .audiences = audiences, .audience_count = 2};
    world_open(&world);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        expect(&world, &bound, es256, rows[i].payload, rows[i].bound_code, rows[i].bound);
        expect(&world, &unbound, es256, rows[i].payload, rows[i].free_code, rows[i].unbound);
    }
    world_close(&world);
}

/* ---- claims become variables ---- */

static const char person[] =
    "{\"sub\":\"ann\",\"admin\":true,\"off\":false,\"n\":42,\"neg\":-7,\"big\":18446744073709551615,\"half\":-1.9,"
    "\"huge\":1e30,\"null\":null,\"groups\":[\"web\",\"\",\"db\",7,true],\"group\":\"web\",\"empty\":[],\"blank\":\"\","
    "\"nulls\":[\"a\",null],\"deep\":{\"a/b\":{\"m~n\":[\"x\",{\"y\":\"z\"}]},\"\":\"nothing\"},\"/slash\":\"s\","
    "\"01\":\"octal\"}";

static void expect_value(struct json_object *claims, const char *claim, const char *wanted) {
    struct arena arena = {0};
    struct jwt_variables variables;
    struct jwt_mapping mapping = {claim, "v"};
    cr_assert_eq(jwt_map(claims, &mapping, 1, NULL, 0, &arena, &variables, NULL), CO_OK, "%s", claim);
    cr_expect_eq(variables.list_count, 0);
    cr_expect_eq(variables.value_count, wanted ? 1 : 0, "%s", claim);
    if (wanted && variables.value_count) {
        cr_expect_str_eq(variables.values[0].name, "v");
        cr_expect(slice_is(variables.values[0].text, wanted), "%s: %.*s", claim, (int)variables.values[0].text.size,
                  variables.values[0].text.data);
    }
    arena_free(&arena);
}

Test(jwt, values) {
    static const struct {
        const char *claim, *wanted;
    } rows[] = {
        {"sub", "ann"},
        {"admin", "true"},
        {"off", "false"},
        {"n", "42"},
        {"neg", "-7"},
        {"big", "18446744073709551615"},
        {"half", "-1"},
        {"blank", ""},
        {"null", NULL},
        {"nothing", NULL},
        {"Sub", NULL},
        {"deep.a", NULL},
        {"", NULL},
        {"/sub", "ann"},
        {"/deep/", "nothing"},
        {"/deep/a~1b/m~0n/0", "x"},
        {"/deep/a~1b/m~0n/1/y", "z"},
        {"/deep/a~1b/m~0n/2", NULL},
        {"/deep/a~1b/m~0n/00", NULL},
        {"/deep/a~1b/m~0n/-", NULL},
        {"/deep/a~1b/m~0n/99999999999999999999", NULL},
        {"/deep/a/b", NULL},
        {"/sub/x", NULL},
        {"/null/x", NULL},
        {"/~1slash", "s"},
        {"/slash", NULL},
        {"/01", "octal"},
        {"/groups/0", "web"},
        {"/", NULL},
    };
    struct json_object *claims = json_parse(slice_text(person), NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect_value(claims, rows[i].claim, rows[i].wanted);
    json_object_put(claims);
}

Test(jwt, lists) {
    static const struct {
        const char *claim, *wanted;
    } rows[] = {
        {"groups", "web|db|7|true|"},
        {"group", "web|"},
        {"n", "42|"},
        {"admin", "true|"},
        {"empty", ""},
        {"blank", ""},
        {"/deep/a~1b/m~0n/0", "x|"},
        {"/groups/2", "db|"},
        {"nothing", NULL},
        {"null", NULL},
    };
    struct json_object *claims = json_parse(slice_text(person), NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct arena arena = {0};
        struct buffer is = {0};
        struct jwt_variables variables;
        struct jwt_mapping mapping = {rows[i].claim, "l"};
        cr_assert_eq(jwt_map(claims, NULL, 0, &mapping, 1, &arena, &variables, NULL), CO_OK, "%s", rows[i].claim);
        cr_expect_eq(variables.list_count, rows[i].wanted ? 1 : 0, "%s", rows[i].claim);
        for (size_t j = 0; variables.list_count && j < variables.lists[0].count; j++)
            buffer_printf(&is, "%.*s|", (int)variables.lists[0].items[j].size, variables.lists[0].items[j].data);
        cr_expect(slice_is(buffer_slice(&is), rows[i].wanted ? rows[i].wanted : ""), "%s: %.*s", rows[i].claim,
                  (int)is.size, is.data);
        buffer_free(&is);
        arena_free(&arena);
    }
    json_object_put(claims);
}

Test(jwt, claims_that_are_no_variables) {
    static const struct {
        const char *claim;
        bool list;
        const char *wanted;
    } rows[] = {
        {"deep", false, "the claim \"deep\" is no text, number or boolean"},
        {"groups", false, "the claim \"groups\" is no text, number or boolean"},
        {"huge", false, "the claim \"huge\" is no text, number or boolean"},
        {"deep", true, "the claim \"deep\" has a value that is no text, number or boolean"},
        {"nulls", true, "the claim \"nulls\" has a value that is no text, number or boolean"},
        {"/deep/a~1b/m~0n", true, "the claim \"/deep/a~1b/m~0n\" has a value that is no text, number or boolean"},
    };
    struct json_object *claims = json_parse(slice_text(person), NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct arena arena = {0};
        struct jwt_variables variables;
        struct jwt_mapping mapping = {rows[i].claim, "v"};
        struct fault fault = {0};
        bool list = rows[i].list;
        cr_expect_eq(jwt_map(claims, &mapping, !list, &mapping, list, &arena, &variables, &fault), CO_INVALID);
        cr_expect_str_eq(fault.text, rows[i].wanted);
        arena_free(&arena);
    }
    json_object_put(claims);
}

Test(jwt, several_mappings) {
    static const struct jwt_mapping values[] = {{"sub", "name"}, {"nothing", "a"}, {"/deep/", "b"}};
    static const struct jwt_mapping lists[] = {{"nothing", "c"}, {"group", "teams"}, {"sub", "names"}};
    struct json_object *claims = json_parse(slice_text(person), NULL);
    struct arena arena = {0};
    struct jwt_variables variables;
    cr_assert_eq(jwt_map(claims, values, 3, lists, 3, &arena, &variables, NULL), CO_OK);
    json_object_put(claims); /* the texts are in the arena */
    cr_assert(variables.value_count == 2 && variables.list_count == 2);
    cr_expect_str_eq(variables.values[0].name, "name");
    cr_expect(slice_is(variables.values[0].text, "ann"));
    cr_expect_str_eq(variables.values[1].name, "b");
    cr_expect(slice_is(variables.values[1].text, "nothing"));
    cr_expect_str_eq(variables.lists[0].name, "teams");
    cr_expect(slice_is(variables.lists[0].items[0], "web"));
    cr_expect_str_eq(variables.lists[1].name, "names");
    cr_expect(slice_is(variables.lists[1].items[0], "ann"));
    arena_free(&arena);
}
