/* Budgets over HTTP: defining them, leases of who has no agent, and takes that the agent answers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_in.h"
#include "kv/quota/spender.h"
#include "web_world.h"

static struct world *world;
static void setup(void) {
    world = world_start_spending(NULL);
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"n1\",\"Address\":\"1.2.3.4\",\"Check\":{\"CheckID\":\"serfHealth\",\"Name\":\"x\","
                  "\"Status\":\"passing\"}}"));
}
static void teardown(void) { world_stop(world); }
TestSuite(quota, .init = setup, .fini = teardown, .timeout = 300);

static void expect(int status, const char *asked, const char *body, const char *words) {
    char *text = web_want(world, status, asked, body);
    cr_expect(strstr(text, words), "%s\n  got    %s\n  wanted %s", asked, text, words);
    free(text);
}

static uint64_t number(const char *asked, const char *member) {
    char *text = web_want(world, 200, asked, NULL);
    struct fault fault = {0};
    uint64_t value = UINT64_MAX;
    struct json_object *json = json_parse(slice_text(text), &fault);
    json_get_u64(json, member, UINT64_MAX, &value, &fault);
    cr_expect(!fault.code && value != UINT64_MAX, "%s: no %s in %s", asked, member, text);
    if (json) json_object_put(json);
    free(text);
    return value;
}

#define HUNDRED "{\"Budget\":100,\"Refill\":{\"Window\":\"day\"},\"MaxLeaseFraction\":1}"

/* -- defining ----------------------------------------------------------------------------------------------------- */

Test(quota, a_budget_is_defined_read_listed_and_deleted) {
    free(web_want(world, 200, "PUT /v1/quota/calls",
                  "{\"Budget\":1000,\"Burst\":2000,\"Refill\":{\"Tokens\":10,\"Every\":\"1s\"},\"Mode\":\"bounded\","
                  "\"LeaseTTL\":\"20s\",\"MaxLeaseFraction\":0.25,\"Drift\":0.02,\"LowWatermark\":0.05,"
                  "\"UnknownSlack\":0.5,\"OnLoss\":\"open\",\"LocalCap\":7}"));
    free(web_want(world, 200, "PUT /v1/quota/calls%2Feu",
                  "{\"Budget\":5,\"Refill\":{\"Window\":\"month\",\"Offset\":\"-05:30\"}}"));
    expect(200, "GET /v1/quota/calls", NULL, "\"Budget\":1000");
    expect(200, "GET /v1/quota/calls", NULL, "\"Every\":\"1s\"");
    expect(200, "GET /v1/quota/calls", NULL, "\"Drift\":0.02");
    expect(200, "GET /v1/quota/calls%2Feu", NULL, "\"Offset\":\"-05:30\"");
    expect(200, "GET /v1/quota/calls%2Feu", NULL, "\"WorstCaseOverAdmission\":0");
    expect(200, "GET /v1/quotas?prefix=calls", NULL, "calls/eu");
    expect(200, "GET /v1/quotas?prefix=x", NULL, "[]");
    expect(200, "DELETE /v1/quota/calls", NULL, "true");
    expect(404, "GET /v1/quota/calls", NULL, "quota \"calls\" is not known");
    expect(404, "DELETE /v1/quota/calls", NULL, "");
    expect(404, "GET /v1/quota/calls/audit", NULL, "quota \"calls\" is not known");
}

Test(quota, with_cas_only_what_was_read_is_replaced) {
    expect(200, "PUT /v1/quota/a?cas=0", HUNDRED, "");
    expect(409, "PUT /v1/quota/a?cas=0", HUNDRED, "");
    uint64_t index = number("GET /v1/quota/a", "DefinedIndex");
    char asked[80];
    snprintf(asked, sizeof asked, "PUT /v1/quota/a?cas=%llu", (unsigned long long)index);
    expect(200, asked, "{\"Budget\":7,\"Refill\":{\"Window\":\"day\"}}", "");
    expect(409, asked, HUNDRED, "");
}

Test(quota, what_makes_no_sense_is_refused_in_one_line_that_names_the_member) {
#define REFILL "\"Refill\":{\"Tokens\":1,\"Every\":\"1s\"}"
    static const struct {
        const char *body, *words;
    } table[] = {
        {"", "Budget"},
        {"[]", "an object is wanted"},
        {"{\"Budget\":5", "JSON"},
        {"{" REFILL "}", "Budget"},
        {"{\"Budget\":5}", "Refill"},
        {"{\"Budget\":0," REFILL "}", "Budget"},
        {"{\"Budget\":-5," REFILL "}", "Budget"},
        {"{\"Budget\":1.5," REFILL "}", "Budget"},
        {"{\"Budget\":\"5\"," REFILL "}", "Budget"},
        {"{\"Budget\":1000000000000000000," REFILL "}", "Budget"},
        {"{\"Budget\":5,\"Budjet\":5," REFILL "}", "Budjet"},
        {"{\"Budget\":5,\"Burst\":-1," REFILL "}", "Burst"},
        {"{\"Budget\":5,\"Refill\":7}", "Refill"},
        {"{\"Budget\":5,\"Refill\":{}}", "Refill"},
        {"{\"Budget\":5,\"Refill\":{\"Tokens\":1}}", "Refill"},
        {"{\"Budget\":5,\"Refill\":{\"Every\":\"1s\"}}", "Refill"},
        {"{\"Budget\":5,\"Refill\":{\"Tokens\":0.5,\"Every\":\"1s\"}}", "Refill.Tokens"},
        {"{\"Budget\":5,\"Refill\":{\"Tokens\":1,\"Every\":\"1ms\"}}", "Refill.Every"},
        {"{\"Budget\":5,\"Refill\":{\"Tokens\":1,\"Every\":\"-1s\"}}", "Refill.Every"},
        {"{\"Budget\":5,\"Refill\":{\"Window\":\"year\"}}", "Refill.Window"},
        {"{\"Budget\":5,\"Refill\":{\"Window\":\"day\",\"Offset\":\"1h\"}}", "to \"+23:59\""},
        {"{\"Budget\":5,\"Refill\":{\"Window\":\"day\",\"Offset\":\"+25:00\"}}", "Refill.Offset"},
        {"{\"Budget\":5,\"Refill\":{\"Window\":\"day\",\"Tokens\":1,\"Every\":\"1s\"}}", "Refill"},
        {"{\"Budget\":5,\"Refill\":{\"Window\":\"day\",\"Until\":1}}", "Until"},
        {"{\"Budget\":5,\"Mode\":\"loose\"," REFILL "}", "Mode"},
        {"{\"Budget\":5,\"Mode\":\"owner\"," REFILL "}", "Service"},
        {"{\"Budget\":5,\"LeaseTTL\":\"10ms\"," REFILL "}", "LeaseTTL"},
        {"{\"Budget\":5,\"MaxLeaseFraction\":1.5," REFILL "}", "MaxLeaseFraction"},
        {"{\"Budget\":5,\"MaxLeaseFraction\":0," REFILL "}", "MaxLeaseFraction"},
        {"{\"Budget\":5,\"Drift\":-0.1," REFILL "}", "Drift"},
        {"{\"Budget\":5,\"Drift\":\"much\"," REFILL "}", "Drift"},
        {"{\"Budget\":5,\"UnknownSlack\":1.1," REFILL "}", "UnknownSlack"},
        {"{\"Budget\":5,\"OnLoss\":\"panic\"," REFILL "}", "OnLoss"},
        {"{\"Budget\":5,\"OnLoss\":\"open\"," REFILL "}", "LocalCap"},
        {"{\"Budget\":5,\"Split\":0," REFILL "}", "Split"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        char *text = web_want(world, 400, "PUT /v1/quota/bad", table[i].body);
        cr_expect(strstr(text, table[i].words) && !strchr(text, '\n'), "%s\n  got    %s\n  wanted %s", table[i].body,
                  text, table[i].words);
        free(text);
    }
    expect(404, "GET /v1/quota/bad", NULL, "");
    expect(400, "PUT /v1/quota/%C3%BC", HUNDRED, "ASCII");
}

/* -- leases ------------------------------------------------------------------------------------------------------- */

static uint64_t lease_of(const char *asked, uint64_t granted, uint64_t remaining) {
    char *text = web_want(world, 200, asked, NULL);
    unsigned long long lease = 0, got = 0, balance = 0, left = 0;
    char ttl[32] = "";
    int fields = sscanf(
        text, "{\"Lease\":%llu,\"Token\":42,\"Granted\":%llu,\"Balance\":%llu,\"TTL\":\"%31[^\"]\",\"Remaining\":%llu",
        &lease, &got, &balance, ttl, &left);
    cr_expect(fields == 5 && got == granted && left == remaining && strcmp(ttl, "10s") == 0,
              "%s\n  got    %s\n  wanted %llu, %llu", asked, text, (unsigned long long)granted,
              (unsigned long long)remaining);
    bool made = strstr(asked, "ttl=");
    cr_expect(made == (strstr(text, "\"NotBefore\":") != NULL), "it is known of sessions that it made: %s", text);
    free(text);
    return lease;
}

Test(quota, a_lease_is_taken_renewed_and_settled_once) {
    char asked[200];
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    uint64_t lease = lease_of("PUT /v1/quota/a/lease?ttl=1m&want=40&token=42", 40, 60);
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&token=42&spent=41", (unsigned long long)lease);
    char *text = web_want(world, 400, asked, NULL);
    free(text);
    cr_expect_eq(number("GET /v1/quota/a", "Leased"), 40, "a refusal changes nothing");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&token=42&spent=25", (unsigned long long)lease);
    expect(200, asked, NULL, "");
    cr_expect_eq(number("GET /v1/quota/a", "Spent"), 25);
    cr_expect_eq(number("GET /v1/quota/a", "Leased"), 0);
    expect(404, asked, NULL, "");
    cr_expect_eq(number("GET /v1/quota/a", "Spent"), 25, "twice counts once");
}

/* Listings show others its lease and session, but these do not let them end it. */
Test(quota, a_lease_is_its_holders_who_knows_the_token) {
    char asked[300], session[40];
    unsigned long long lease, token;
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    char *text = web_want(world, 200, "PUT /v1/quota/a/lease?ttl=1m&want=40", NULL);
    cr_assert_eq(sscanf(text, "{\"Lease\":%llu,\"Token\":%llu", &lease, &token), 2, "%s", text);
    cr_assert_eq(sscanf(strstr(text, "\"Session\":"), "\"Session\":\"%36s", session), 1, "%s", text);
    free(text);
    text = web_want(world, 200, "GET /v1/quota/a", NULL);
    snprintf(asked, sizeof asked, "%llu", token);
    cr_expect(strstr(text, session) && !strstr(text, asked), "%s", text);
    free(text);
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&spent=0", lease);
    expect(400, asked, NULL, "token");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&spent=0&token=%llu", lease, token ^ 1);
    expect(403, asked, NULL, "another token");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/lease?session=%s&want=0&lease=%llu", session, lease);
    expect(400, asked, NULL, "token");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/lease?session=%s&want=0&seq=1", session);
    expect(400, asked, NULL, "token");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/lease?session=%s&want=0&lease=%llu&token=%llu", session, lease,
             token ^ 1);
    expect(403, asked, NULL, "another token");
    cr_expect_eq(number("GET /v1/quota/a", "Leased"), 40, "nobody has given it back");
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&spent=40&token=%llu", lease, token);
    expect(200, asked, NULL, "");
}

Test(quota, a_renewal_says_what_was_spent_and_what_is_held) {
    char asked[300], session[40];
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    char *text = web_want(world, 200, "PUT /v1/session/create", "{\"Node\":\"n1\",\"Checks\":[]}");
    cr_assert_eq(sscanf(text, "{\"ID\":\"%36s", session), 1, "%s", text);
    free(text);
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/lease?session=%s&want=40&token=42", session);
    uint64_t lease = lease_of(asked, 40, 60);
    snprintf(asked, sizeof asked,
             "PUT /v1/quota/a/lease?session=%s&want=50&lease=%llu&token=42&spent=30&held=10&priority=9", session,
             (unsigned long long)lease);
    cr_expect_eq(lease_of(asked, 40, 20), lease);
    expect(400, "PUT /v1/quota/a/lease?want=1", NULL, "session");
    snprintf(asked, sizeof asked, "PUT /v1/quota/nowhere/lease?session=%s&want=40", session);
    expect(404, asked, NULL, "");
    expect(404, "PUT /v1/quota/a/lease?session=5e551000-0000-4000-8000-0000000000aa&want=40", NULL, "");
    expect(404, "PUT /v1/quota/nowhere/settle?lease=1&token=42&spent=0", NULL, "");
    free(web_want(world, 200, "DELETE /v1/quota/a", NULL));
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&token=42&spent=0", (unsigned long long)lease);
    expect(404, asked, NULL, "");
}

Test(quota, the_audit_trail_adds_up) {
    char asked[200];
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    uint64_t lease = lease_of("PUT /v1/quota/a/lease?ttl=1m&want=40&token=42", 40, 60);
    snprintf(asked, sizeof asked, "PUT /v1/quota/a/settle?lease=%llu&token=42&spent=25", (unsigned long long)lease);
    free(web_want(world, 200, asked, NULL));
    expect(200, "GET /v1/quota/a/audit", NULL, "\"Number\":1,");
    expect(200, "GET /v1/quota/a/audit", NULL, "\"Kind\":\"granted\"");
    expect(200, "GET /v1/quota/a/audit", NULL, "\"Amount\":25,\"Back\":15,\"Spent\":25,\"Stranded\":0,\"Leased\":0");
    char *text = web_want(world, 200, "GET /v1/quota/a/audit?from=3", NULL);
    cr_expect(!strstr(text, "\"Kind\":\"granted\"") && strstr(text, "\"Kind\":\"settled\""), "%s", text);
    free(text);
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

static struct web_answer take(int status, const char *asked, const char *body) {
    struct web_answer answer = web_ask(world, asked, body);
    cr_expect_eq(answer.status, status, "%s: %d %s", asked, answer.status, answer.body);
    return answer;
}

static void header_is(const struct web_answer *answer, const char *name, const char *wanted) {
    const char *got = web_header(answer, name);
    cr_expect(strstr(got, wanted) == got && (*wanted || !*got), "%s: %s, wanted %s", name, got, wanted);
}

Test(quota, takes_are_allowed_until_it_is_spent) {
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    struct web_answer answer = take(200, "PUT /v1/agent/quota/a/take?n=60", NULL);
    cr_expect_str_eq(answer.body, "{\"Allowed\":true,\"Source\":\"renewed\"}");
    header_is(&answer, "RateLimit-Policy", "\"a\";q=100;w=86400");
    header_is(&answer, "RateLimit", "\"a\";r=");
    header_is(&answer, "Retry-After", "");
    web_free(&answer);
    for (int i = 0; i < 40; i++) {
        answer = take(200, "PUT /v1/agent/quota/a/take", NULL);
        web_free(&answer);
    }
    answer = take(429, "PUT /v1/agent/quota/a/take", NULL);
    cr_expect(strstr(answer.body, "{\"Allowed\":false,\"Source\":"), "%s", answer.body);
    header_is(&answer, "RateLimit", "\"a\";r=0;t=");
    cr_expect(atoi(web_header(&answer, "Retry-After")) >= 1);
    web_free(&answer);
    answer = take(200, "PUT /v1/agent/quota/a/take?n=0", NULL);
    web_free(&answer);
    EVENTUALLY(web_metric(world, "coord_quota_takes_total{result=\"allowed\"}") == 41);
    EVENTUALLY(web_metric(world, "coord_quota_takes_total{result=\"refused\"}") >= 1);
    EVENTUALLY(web_metric(world, "coord_quota_asks_total") >= 1);
}

Test(quota, takes_that_can_never_be_are_refused_for_good) {
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    char *asked;
    expect(404, "PUT /v1/agent/quota/nowhere/take", NULL, "quota \"nowhere\": ");
    expect(400, "PUT /v1/agent/quota/a/take?n=1000000000000000000", NULL, "n: ");
    expect(400, "PUT /v1/agent/quota/a/take?n=101", NULL, "quota \"a\": ");
    expect(400, "PUT /v1/agent/quota/a/take?n=-1", NULL, "n: ");
    expect(400, "PUT /v1/agent/quota/a/take?n=1.5", NULL, "n: ");
    expect(400, "PUT /v1/agent/quota/a/take?N=1", NULL, "N");
    cr_expect_eq(number("GET /v1/quota/a", "Spent"), 0);
    for (int more = 0; more < 2; more++) {
        cr_assert(asprintf(&asked, "PUT /v1/agent/quota/a/take?key=%0*d", SPENDER_KEY_MOST + more, 7) > 0);
        free(web_want(world, more ? 400 : 200, asked, NULL));
        free(asked);
    }
}

Test(quota, several_takes_are_all_or_nothing) {
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    free(web_want(world, 200, "PUT /v1/quota/b", HUNDRED));
    struct web_answer answer =
        take(200, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"N\":30},{\"Name\":\"b\",\"Key\":\"k\",\"N\":90}]");
    header_is(&answer, "RateLimit-Policy", "\"a\";q=100;w=86400, \"b\";q=100;w=86400");
    web_free(&answer);
    answer = take(429, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"N\":30},{\"Name\":\"b\",\"N\":11}]");
    cr_expect(strstr(answer.body, "\"Refused\":\"b\""), "%s", answer.body);
    web_free(&answer);
    answer = take(200, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"N\":70},{\"Name\":\"b\",\"N\":10}]");
    web_free(&answer);
    expect(404, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"N\":0},{\"Name\":\"nowhere\"}]", "\"nowhere\"");
    static const struct {
        const char *body, *words;
    } table[] = {
        {"", "JSON"},
        {"{}", "array"},
        {"[]", "0 takes"},
        {"[7]", "[0]: an object is wanted"},
        {"[{\"N\":1}]", "[0]: Name"},
        {"[{\"Name\":7}]", "[0]: Name"},
        {"[{\"Name\":\"a\",\"N\":-1}]", "[0]: N"},
        {"[{\"Name\":\"a\",\"N\":1.5}]", "[0]: N"},
        {"[{\"Name\":\"a\",\"N\":1000000000000000000}]", "[0]: N"},
        {"[{\"Name\":\"a\",\"Kye\":\"x\"}]", "Kye"},
        {"[{\"Name\":\"a\"},{\"Name\":\"a\"}]", ""},
        {"[{\"Name\":\"a\",\"Name\":\"b\"}]", "Name"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        char *text = web_want(world, 400, "PUT /v1/agent/quota/take", table[i].body);
        cr_expect(strstr(text, table[i].words) && !strchr(text, '\n'), "%s\n  got    %s\n  wanted %s", table[i].body,
                  text, table[i].words);
        free(text);
    }
    struct buffer many = {0};
    for (int i = 0; i <= SPENDER_TAKES_MOST; i++) buffer_printf(&many, "%c{\"Name\":\"q%d\"}", i ? ',' : '[', i);
    buffer_append(&many, "]", 2);
    expect(400, "PUT /v1/agent/quota/take", many.data, "65 takes");
    buffer_free(&many);
}

/* -- owner mode --------------------------------------------------------------------------------------------------- */

#define OWNED "\"Refill\":{\"Window\":\"day\"},\"Mode\":\"owner\",\"Service\":\"gw\",\"LeaseTTL\":\"10s\""

static bool is_allowed(const char *asked) {
    struct web_answer answer = web_ask(world, asked, NULL);
    bool allowed = answer.status == 200;
    web_free(&answer);
    return allowed;
}

static void own(const char *name, const char *more) {
    char *asked, *body, *look;
    cr_assert(asprintf(&asked, "PUT /v1/quota/%s", name) > 0);
    cr_assert(asprintf(&body, "{\"Budget\":10," OWNED "%s}", more) > 0);
    cr_assert(asprintf(&look, "PUT /v1/agent/quota/%s/take?key=k&n=0", name) > 0);
    free(web_want(world, 200, asked, body));
    expect(200, "PUT /v1/catalog/register",
           "{\"Node\":\"n1\",\"Address\":\"1.2.3.4\",\"Service\":{\"ID\":\"gw\",\"Service\":\"gw\"}}", "true");
    EVENTUALLY(is_allowed(look));
    free(asked), free(body), free(look);
}

Test(quota, each_key_of_a_budget_with_owners_has_the_budget) {
    own("a", "");
    struct web_answer answer = take(200, "PUT /v1/agent/quota/a/take?n=7&key=one", NULL);
    cr_expect_str_eq(answer.body, "{\"Allowed\":true,\"Source\":\"local\"}");
    header_is(&answer, "RateLimit-Policy", "\"a\";q=10;w=86400");
    header_is(&answer, "RateLimit", "\"a\";r=3;t=");
    web_free(&answer);
    answer = take(429, "PUT /v1/agent/quota/a/take?n=4&key=one", NULL);
    header_is(&answer, "RateLimit", "\"a\";r=3;t=");
    cr_expect(atoi(web_header(&answer, "Retry-After")) >= 1);
    web_free(&answer);
    expect(200, "PUT /v1/agent/quota/a/take?n=10&key=two", NULL, "true");
    expect(200, "PUT /v1/agent/quota/a/take?n=0&key=two", NULL, "\"Allowed\":false");
    expect(400, "PUT /v1/agent/quota/a/take", NULL, "quota \"a\": each of its keys has a budget of its own");
    expect(400, "PUT /v1/agent/quota/a/take?n=11&key=two", NULL, "quota \"a\": ");
    expect(200, "GET /v1/agent/quota/a/owner?key=one", NULL, "\"Owner\":\"n1\",\"Counts\":true,\"Remaining\":3,");
    expect(400, "GET /v1/agent/quota/a/owner", NULL, "key");
    expect(404, "GET /v1/agent/quota/nowhere/owner?key=one", NULL, "nowhere");
    expect(200, "GET /v1/quota/a", NULL, "\"ActiveMembers\":[\"n1\"],\"Members\":[{\"Node\":\"n1\"");
    expect(200, "DELETE /v1/quota/a", NULL, "true");
    EVENTUALLY(!is_allowed("PUT /v1/agent/quota/a/take?n=0&key=one"));
    expect(404, "PUT /v1/agent/quota/a/take?key=one", NULL, "no such budget");
}

Test(quota, takes_of_all_modes_are_all_or_nothing) {
    own("a", "");
    free(web_want(world, 200, "PUT /v1/quota/b", HUNDRED));
    expect(200, "PUT /v1/agent/quota/take",
           "[{\"Name\":\"b\",\"N\":60},{\"Name\":\"a\",\"Key\":\"x\",\"N\":4},{\"Name\":\"a\",\"Key\":\"y\",\"N\":9}]",
           "true");
    static const char *const refused[] = {
        "[{\"Name\":\"b\",\"N\":10},{\"Name\":\"a\",\"Key\":\"x\",\"N\":1},{\"Name\":\"a\",\"Key\":\"y\",\"N\":2}]",
        "[{\"Name\":\"a\",\"Key\":\"x\",\"N\":1},{\"Name\":\"b\",\"N\":41}]"};
    expect(429, "PUT /v1/agent/quota/take", refused[0], "\"Refused\":\"a\"");
    expect(429, "PUT /v1/agent/quota/take", refused[1], "\"Refused\":\"b\"");
    expect(404, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"Key\":\"x\"},{\"Name\":\"nowhere\"}]", "nowhere");
    expect(400, "PUT /v1/agent/quota/take", "[{\"Name\":\"b\"},{\"Name\":\"a\",\"N\":1}]", "key= is needed");
    struct web_answer answer =
        take(200, "PUT /v1/agent/quota/take", "[{\"Name\":\"a\",\"Key\":\"x\",\"N\":6},{\"Name\":\"b\",\"N\":40}]");
    header_is(&answer, "RateLimit", "\"a\";r=0;t=");
    web_free(&answer);
}

Test(quota, budgets_change_their_mode) {
    own("a", "");
    expect(200, "PUT /v1/agent/quota/a/take?key=k", NULL, "local");
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    EVENTUALLY(is_allowed("PUT /v1/agent/quota/a/take"));
    own("a", "");
    EVENTUALLY(is_allowed("PUT /v1/agent/quota/a/take?key=k"));
}

Test(quota, without_servers_on_loss_decides) {
    free(web_want(world, 200, "PUT /v1/quota/closed", HUNDRED));
    free(web_want(
        world, 200, "PUT /v1/quota/open",
        "{\"Budget\":100,\"Refill\":{\"Tokens\":1,\"Every\":\"2s\"},\"MaxLeaseFraction\":0.1,\"OnLoss\":\"open\","
        "\"LocalCap\":3}"));
    struct web_answer answer = take(200, "PUT /v1/agent/quota/open/take?n=10", NULL);
    web_free(&answer);
    fake_rpc_leader(world_rpc(world), false);
    uint64_t took_ms = UINT64_MAX;
    for (int i = 0; i < 3 && took_ms >= 3000; i++) { /* again: the machine stood still */
        uint64_t began = clock_mono_ms();
        answer = take(503, "PUT /v1/agent/quota/closed/take", NULL);
        took_ms = clock_mono_ms() - began;
        cr_expect(strstr(answer.body, "quota \"closed\": "), "%s", answer.body);
        cr_expect(atoi(web_header(&answer, "Retry-After")) >= 1);
        web_free(&answer);
    }
    cr_expect_lt(took_ms, 3000, "a take does not wait for long");
    unsigned taken = 0;
    took_ms = UINT64_MAX;
    for (int i = 0; i < 5 && took_ms >= 1500; i++) { /* within a refill period: again where the machine stood still */
        uint64_t began = 0;
        EVENTUALLY(({ /* not in the first one */
                      began = clock_mono_ms();
                      answer = web_ask(world, "PUT /v1/agent/quota/open/take", NULL);
                      bool fine = answer.status == 200;
                      web_free(&answer);
                      fine;
        }));
        int status = 200;
        for (taken = 0; status == 200 && taken < 100; taken++) {
            answer = web_ask(world, "PUT /v1/agent/quota/open/take", NULL);
            status = answer.status;
            web_free(&answer);
        }
        cr_expect_eq(status, 429);
        took_ms = clock_mono_ms() - began;
    }
    cr_expect(took_ms >= 1500 || taken == 3, "%u taken", taken); /* with the first one, without the last */
    fake_rpc_leader(world_rpc(world), true);
    EVENTUALLY(({
        answer = web_ask(world, "PUT /v1/agent/quota/closed/take", NULL);
        bool fine = answer.status == 200;
        web_free(&answer);
        fine;
    }));
}

Test(quota, servers_that_do_not_answer_keep_no_take_waiting) {
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    fake_rpc_hold(world_rpc(world), true);
    uint64_t began = clock_mono_ms();
    int gone = web_dial(world), fd = web_dial(world);
    web_say(gone, "PUT /v1/agent/quota/a/take HTTP/1.1\r\nHost: x\r\n\r\n");
    web_say(fd, "PUT /v1/agent/quota/a/take?n=2 HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(web_metric(world, "coord_quota_asks_total") == 1);
    close(gone);
    struct web_answer answer = web_hear(fd);
    uint64_t took_ms = clock_mono_ms() - began;
    cr_expect(answer.status == 503 && strstr(answer.body, "no server answers"), "%d %s", answer.status, answer.body);
    web_free(&answer);
    close(fd);
    for (int i = 0; i < 2 && took_ms >= 3000; i++) { /* again: the machine stood still */
        began = clock_mono_ms();
        answer = take(503, "PUT /v1/agent/quota/a/take?n=2", NULL);
        took_ms = clock_mono_ms() - began;
        web_free(&answer);
    }
    cr_expect_lt(took_ms, 3000, "it waits for a second");
    fake_rpc_hold(world_rpc(world), false);
    EVENTUALLY(({
        answer = web_ask(world, "PUT /v1/agent/quota/a/take?n=100", NULL);
        bool fine = answer.status == 200;
        web_free(&answer);
        fine;
    }));
}

Test(quota, takes_that_wait_are_answered_when_the_server_stops) {
    free(web_want(world, 200, "PUT /v1/quota/a", HUNDRED));
    fake_rpc_hold(world_rpc(world), true);
    int fd = web_dial(world);
    web_say(fd, "PUT /v1/agent/quota/a/take HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(web_metric(world, "coord_quota_asks_total") == 1);
    world_hurry_spender(world);
    struct web_answer answer = web_hear(fd);
    cr_expect_eq(answer.status, 503, "%d %s", answer.status, answer.body);
    web_free(&answer);
    close(fd);
    fake_rpc_hold(world_rpc(world), false);
}

Test(quota, an_agent_without_a_part_in_it_says_so) {
    struct world *other = world_start(NULL);
    free(web_want(other, 503, "PUT /v1/agent/quota/a/take", NULL));
    world_stop(other);
}
