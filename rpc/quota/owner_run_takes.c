/* Requests with takes in owner mode. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "rpc/quota/spender_run_internal.h"

#define KEY_WANTED "each of its keys has a budget of its own, so key= is needed"
#define CHANGES    "its Mode is just being changed"

struct owned_one {
    struct owner_take take;
    bool owned;     /* else the spender decides the take */
    bool not_owned; /* `run->owner` does not know the budget in owner mode */
    bool spent, fallback;
    bool said; /* `remaining` is known */
    uint64_t remaining;
};
struct owned_request {
    struct spender_run_take *take;
    struct list link;      /* in run->waiting, or asking, or none */
    struct errand *errand; /* its take is on its way to the owner */
    bool parked;           /* it has waited for the spender */
    struct owned_one ones[];
};

/* -- a request ---------------------------------------------------------------------------------------------------- */

static struct owned_request *request_new(struct spender_run_take *take) {
    struct owned_request *request = mem_zalloc(sizeof *request + take->count * sizeof request->ones[0]);
    request->take = take;
    list_init(&request->link);
    take->owned = request;
    take->answer = (struct spender_answer){0};
    return request;
}

static void set_owned(struct owned_request *request, size_t i, uint64_t now_ns) {
    const struct spender_take *take = &request->take->takes[i];
    struct owned_one *one = &request->ones[i];
    one->owned = true;
    one->take = (struct owner_take){.name = take->name, .key = take->key, .n = take->n, .since_ns = now_ns};
}

struct owned_request *owned_request_of(struct spender_run *run, struct spender_run_take *take, uint64_t now_ns) {
    struct owned_request *request = NULL;
    if (take->count > SPENDER_TAKES_MOST) return NULL; /* the spender refuses it */
    for (size_t i = 0; i < take->count; i++) {
        if (!owner_knows(run->owner, take->takes[i].name)) continue;
        if (!request) request = request_new(take);
        set_owned(request, i, now_ns);
    }
    return request;
}

struct owned_request *owned_request_at(struct spender_run_take *take, size_t i, uint64_t now_ns) {
    struct owned_request *request = request_new(take);
    set_owned(request, i, now_ns);
    return request;
}

struct spender_run_take *owned_request_take(const struct owned_request *request) {
    return request->take;
}

/* -- its end ------------------------------------------------------------------------------------------------------ */

static void request_free(struct owned_request *request) {
    if (request->errand) request->errand->request = NULL;
    list_remove(&request->link);
    request->take->owned = NULL;
    free(request);
}

/* Gives the takes back that owners have counted, but not those that were admitted without them. */
static void give_back(struct spender_run *run, struct owned_request *request, struct owner_now now) {
    struct owner_answer answer;
    for (size_t i = 0; i < request->take->count; i++) {
        struct owned_one *one = &request->ones[i];
        if (!one->spent || one->fallback || !owner_back(run->owner, &one->take, now, &answer)) continue;
        struct errand *errand = errand_add(run, ERRAND_MESSAGE);
        errand->name = mem_strdup(answer.node);
        buffer_append(&errand->payload, answer.request.data, answer.request.size);
    }
}

static void rates_say(struct spender_run *run, const struct owned_request *request, struct owner_now now) {
    const struct spender_run_take *take = request->take;
    for (size_t i = 0; take->rates && i < take->count; i++) {
        const struct owned_one *one = &request->ones[i];
        struct slice name = take->takes[i].name;
        bool known = one->owned
                         ? one->said && owner_rate(run->owner, name, one->remaining, now.unix_s, &take->rates[i])
                         : spender_rate(run->spender, name, take->takes[i].key, now.ns, now.unix_s, &take->rates[i]);
        if (!known) take->rates[i].quota = 0;
    }
}

static bool decide(struct spender_run *run, struct owned_request *request, int error, struct owner_now now) {
    struct spender_run_take *take = request->take;
    take->error = error;
    if (error != CO_OK) give_back(run, request, now);
    rates_say(run, request, now);
    spender_run_decided(run, take);
    request_free(request);
    return true;
}

static bool refuse(struct spender_run *run, struct owned_request *request, size_t i, int error, const char *text,
                   struct owner_now now) {
    request->take->answer.failed = i;
    request->take->answer.text = text;
    return decide(run, request, error, now);
}

/* -- the owners' part ---------------------------------------------------------------------------------------------- */

static void send_on(struct spender_run *run, struct owned_request *request, const struct owner_answer *answer) {
    struct errand *errand = errand_add(run, ERRAND_TAKE);
    errand->name = mem_strdup(answer->node);
    buffer_append(&errand->payload, answer->request.data, answer->request.size);
    errand->request = request;
    request->errand = errand;
    list_append(&run->asking, &request->link);
    run->sent_on++;
}

/* Handles the answer of `run->owner` to a take. True: the request has its answer. *on: go on with the next take. */
static bool said(struct spender_run *run, struct owned_request *request, size_t i, int rv,
                 const struct owner_answer *answer, struct owner_now now, bool *on) {
    struct owned_one *one = &request->ones[i];
    struct spender_answer *sum = &request->take->answer;
    *on = false;
    if (rv == CO_AGAIN && run->hurry) return refuse(run, request, i, CO_CLOSED, NULL, now);
    if (rv == CO_AGAIN) {
        if (answer->node) send_on(run, request, answer);
        else list_append(&run->waiting, &request->link);
        return false;
    }
    if (rv == CO_NOTFOUND && !one->not_owned) { /* if there is such a budget, the spender has it */
        one->owned = false;
        one->not_owned = *on = true;
        return false;
    }
    one->remaining = answer->remaining;
    if (answer->source > sum->source) sum->source = answer->source;
    one->said = rv == CO_OK || rv == CO_BUSY;
    if (rv != CO_OK) {
        sum->retry_ms = answer->retry_ms;
        return refuse(run, request, i, rv, answer->text, now);
    }
    one->spent = *on = true;
    one->fallback = answer->source == SPENDER_FALLBACK;
    return false;
}

/* -- the spender's part -------------------------------------------------------------------------------------------- */

/* The spender cannot decide one of its takes, because its budget is in owner mode, or of a later version. */
static bool not_spenders(struct spender_run *run, struct owned_request *request, size_t i, const char *text,
                         struct owner_now now) {
    if (text != spender_owned) return refuse(run, request, i, CO_UNSUPPORTED, text, now);
    if (request->ones[i].not_owned) /* `run->owner` has heard of the one mode, the spender of the other */
        return refuse(run, request, i, CO_NOLEADER, CHANGES, now);
    set_owned(request, i, now.ns);
    return owned_try(run, request, now);
}

static bool try_others(struct spender_run *run, struct owned_request *request, bool last, struct owner_now now) {
    struct spender_run_take *take = request->take;
    struct spender_take others[SPENDER_TAKES_MOST];
    struct spender_answer answer = {0};
    size_t places[SPENDER_TAKES_MOST], count = 0;
    for (size_t i = 0; i < take->count; i++)
        if (!request->ones[i].owned) others[count] = take->takes[i], places[count++] = i;
    if (!count) return decide(run, request, CO_OK, now);
    int rv = spender_take(run->spender, others, count, request->parked, last || run->hurry, now.ns, &answer);
    if (rv == CO_AGAIN) {
        if (!request->parked) spender_run_park(run, take, now.ns);
        request->parked = true;
        return false;
    }
    if (request->parked) list_remove(&take->link);
    request->parked = false;
    if (rv == CO_UNSUPPORTED) return not_spenders(run, request, places[answer.failed], answer.text, now);
    if (rv != CO_OK) {
        take->answer.retry_ms = answer.retry_ms;
        return refuse(run, request, places[answer.failed], rv, answer.text, now);
    }
    if (answer.source > take->answer.source) take->answer.source = answer.source;
    return decide(run, request, CO_OK, now);
}

/* -- both --------------------------------------------------------------------------------------------------------- */

bool owned_try(struct spender_run *run, struct owned_request *request, struct owner_now now) {
    for (size_t i = 0; i < request->take->count; i++) {
        struct owned_one *one = &request->ones[i];
        struct owner_answer answer;
        bool on;
        if (!one->owned || one->spent) continue;
        if (!one->take.key.size) return refuse(run, request, i, CO_INVALID, KEY_WANTED, now);
        int rv = owner_take(run->owner, &one->take, now, &answer);
        bool over = said(run, request, i, rv, &answer, now, &on);
        if (!on) return over;
    }
    return try_others(run, request, false, now);
}

bool owned_try_parked(struct spender_run *run, struct spender_run_take *take, bool last, struct owner_now now) {
    if (run->leaving) {
        list_remove(&take->link);
        return refuse(run, take->owned, 0, CO_CLOSED, NULL, now);
    }
    return try_others(run, take->owned, last, now);
}

/* The first take in owner mode that is not spent is the one that was asked for. */
static size_t place_of(const struct owned_request *request) {
    size_t i = 0;
    while (!request->ones[i].owned || request->ones[i].spent) i++;
    CHECK(i < request->take->count);
    return i;
}

bool owned_served(struct spender_run *run, struct errand *errand, struct owner_now now) {
    struct owned_request *request = errand->request;
    struct owner_answer answer;
    size_t i = place_of(request);
    bool on;
    request->errand = NULL, errand->request = NULL;
    list_remove(&request->link);
    int rv =
        owner_served(run->owner, &request->ones[i].take, errand->reach, buffer_slice(&errand->record), now, &answer);
    if (rv == CO_AGAIN && errand->reach == OWNER_ANSWERED && !answer.node) run->stale++;
    bool over = said(run, request, i, rv, &answer, now, &on);
    return on ? owned_try(run, request, now) : over;
}

void owned_try_waiting(struct spender_run *run, bool end, struct owner_now now, struct list *answered) {
    struct list all;
    list_init(&all);
    list_splice(&all, &run->waiting);
    if (end) list_splice(&all, &run->asking);
    while (!list_empty(&all)) {
        struct owned_request *request = LIST_ENTRY(all.next, struct owned_request, link);
        struct spender_run_take *take = request->take;
        list_remove(&request->link);
        bool over = end ? refuse(run, request, place_of(request), CO_CLOSED, NULL, now) : owned_try(run, request, now);
        if (over) list_append(answered, &take->link);
    }
}
