#include "rollouts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"

#define TEXT(text) ((char *)(uintptr_t)((text) ? (text) : ""))

struct outcome rollout_publish(struct fixture *world, const char *name, const char *version, const char *document) {
    Pb__RolloutPublishCommand command = PB__ROLLOUT_PUBLISH_COMMAND__INIT;
    command.name = TEXT(name), command.version = TEXT(version), command.by = TEXT("node n1");
    command.document = message_bytes(slice_text(document));
    return fixture_apply(world, ROLLOUT_PUBLISH, &command.base);
}

static size_t steps_parse(const char *text, Pb__RolloutStep *steps) {
    size_t count = 0;
    for (char *end; text && *text; text = end) {
        pb__rollout_step__init(&steps[count]);
        steps[count].percent = strtod(text, &end);
        if (*end == ':') steps[count].hold_ns = strtoll(end + 1, &end, 10) * 1000000000;
        count++;
        while (*end == ' ') end++;
    }
    return count;
}

struct outcome rollout_set(struct fixture *world, const char *name, const char *version,
                           const struct stage_plan *plan) {
    Pb__RolloutSetCommand command = PB__ROLLOUT_SET_COMMAND__INIT;
    Pb__RolloutMatch match = PB__ROLLOUT_MATCH__INIT;
    Pb__RolloutGuard guard = PB__ROLLOUT_GUARD__INIT;
    Pb__RolloutStep steps[ROLLOUT_STEPS_MOST + 1], *list[ROLLOUT_STEPS_MOST + 1];
    char *node = TEXT(plan->node), *tag = TEXT(plan->tag), *region = TEXT(plan->region);
    for (size_t i = 0; i < ROLLOUT_STEPS_MOST + 1; i++) list[i] = &steps[i];
    command.name = TEXT(name), command.version = TEXT(version), command.comment = TEXT(plan->comment);
    command.by = TEXT("node n1"), command.now_unix_ms = 1000;
    command.percent = plan->percent, command.percent_given = plan->percent >= 0 || plan->percent != plan->percent;
    match.nodes = &node, match.n_nodes = plan->node != NULL, match.tags = &tag, match.n_tags = plan->tag != NULL;
    match.regions = &region, match.n_regions = plan->region != NULL;
    if (plan->node || plan->tag || plan->region) command.match = &match;
    command.n_steps = steps_parse(plan->steps, steps), command.steps = list;
    guard.service = TEXT(plan->service), guard.max_failing = plan->max_failing, guard.min_samples = plan->min_samples;
    guard.on_fail =
        plan->rollback ? PB__ROLLOUT_ON_FAIL__ROLLOUT_ON_FAIL_ROLLBACK : PB__ROLLOUT_ON_FAIL__ROLLOUT_ON_FAIL_PAUSE;
    if (plan->guard) command.guard = &guard;
    command.cas = plan->cas, command.cas_given = plan->cas_given;
    return fixture_apply(world, ROLLOUT_SET, &command.base);
}

struct outcome rollout_do(struct fixture *world, uint8_t number, const char *name) {
    Pb__RolloutChangeCommand command = PB__ROLLOUT_CHANGE_COMMAND__INIT;
    command.name = TEXT(name), command.by = TEXT("node n1"), command.comment = TEXT("since");
    return fixture_apply(world, number, &command.base);
}

struct outcome rollout_delete(struct fixture *world, const char *name, bool with_keys) {
    Pb__RolloutDeleteCommand command = PB__ROLLOUT_DELETE_COMMAND__INIT;
    command.name = TEXT(name), command.with_keys = with_keys;
    return fixture_apply(world, ROLLOUT_DELETE, &command.base);
}

struct outcome rollout_ack(struct fixture *world, const char *name, const char *id, const char *version, bool ok,
                           const char *node) {
    Pb__RolloutAckCommand command = PB__ROLLOUT_ACK_COMMAND__INIT;
    command.name = TEXT(name), command.id = TEXT(id), command.version = TEXT(version), command.node = TEXT(node);
    command.ok = ok ? PB__ROLLOUT_VERDICT__ROLLOUT_VERDICT_TRUE : PB__ROLLOUT_VERDICT__ROLLOUT_VERDICT_FALSE;
    command.reason = TEXT(ok ? "" : "cannot");
    return fixture_apply(world, ROLLOUT_ACK, &command.base);
}

/* -- what counts ------------------------------------------------------------------------------------------------- */

/* The index that a hold of this name began with last, by the updates that the machine gave out. */
static uint64_t armed_index(struct fixture *world, const char *name) {
    static struct {
        char name[ROLLOUT_NAME_MOST + 1];
        uint64_t index;
    } known[8];
    size_t at = 0;
    for (struct expiry_update *update = expiry_updates_take(world->updates), *next; update; update = next) {
        next = update->next;
        for (at = 0; known[at].name[0] && strcmp(known[at].name, update->name) != 0; at++) continue;
        cr_assert(at < 7);
        snprintf(known[at].name, sizeof known[at].name, "%s", update->name);
        if (update->kind == &rollout_hold_expiry) known[at].index = update->ended ? 0 : update->index;
        free(update);
    }
    for (at = 0; at < 7 && strcmp(known[at].name, name) != 0; at++) continue;
    return known[at].index;
}

struct outcome rollout_due(struct fixture *world, uint8_t number, const char *name, uint64_t index) {
    Pb__RolloutDueCommand command = PB__ROLLOUT_DUE_COMMAND__INIT;
    command.name = TEXT(name), command.term = world->term;
    command.index = index ? index : armed_index(world, name);
    return fixture_apply(world, number, &command.base);
}

/* -- looking ------------------------------------------------------------------------------------------------------ */

static void caller_fill(Pb__RolloutCaller *out, const char *name, const struct caller *caller, char **tag) {
    pb__rollout_caller__init(out);
    out->name = TEXT(name), out->id = TEXT(caller->id), out->node = TEXT(caller->node);
    out->region = TEXT(caller->region), *tag = TEXT(caller->tag);
    out->tags = tag, out->n_tags = caller->tag != NULL;
}

const Pb__RolloutResolution *rollout_ask(struct fixture *world, const char *name, const struct caller *caller) {
    Pb__RolloutCaller request;
    char *tag;
    caller_fill(&request, name, caller, &tag);
    struct query_result result = fixture_ask(world, &query_rollout, &request.base);
    const Pb__RolloutResolution *out = (const Pb__RolloutResolution *)result.message;
    cr_assert(!result.found || result.index == out->index);
    return result.found ? out : NULL;
}

const char *rollout_version(struct fixture *world, const char *name, const struct caller *caller, uint64_t *index) {
    static char version[ROLLOUT_NAME_MOST + 1];
    const Pb__RolloutResolution *found = rollout_ask(world, name, caller);
    if (index) *index = found ? found->index : 0;
    snprintf(version, sizeof version, "%s", found ? found->version : "");
    return version;
}

const Pb__RolloutState *rollout_look(struct fixture *world, const char *name) {
    Pb__RolloutRequest request = PB__ROLLOUT_REQUEST__INIT;
    request.name = TEXT(name);
    struct query_result result = fixture_ask(world, &query_rollout_state, &request.base);
    cr_assert(result.found);
    return (const Pb__RolloutState *)result.message;
}

const char *rollout_story(struct fixture *world, const char *name) {
    static const char *const kinds[] = {"publish", "schema",   "flip",  "stage", "advance",
                                        "promote", "rollback", "pause", "resume"};
    static struct buffer text;
    Pb__RolloutHistoryRequest request = PB__ROLLOUT_HISTORY_REQUEST__INIT;
    request.name = TEXT(name);
    struct query_result result = fixture_ask(world, &query_rollout_history, &request.base);
    const Pb__RolloutHistory *all = (const Pb__RolloutHistory *)result.message;
    buffer_reset(&text);
    for (size_t i = result.found ? all->n_changes : 0; i-- > 0;) {
        const Pb__RolloutChange *change = all->changes[i];
        cr_expect(i == 0 || all->changes[i - 1]->number == change->number + 1);
        if (change->kind == PB__ROLLOUT_DID__ROLLOUT_DID_PUBLISH) continue;
        bool guard = strcmp(change->by, "guard") == 0, step = strcmp(change->by, "step") == 0;
        buffer_printf(&text, "%s%s:%s>%s@%g ",
                      guard  ? "guard-"
                      : step ? "step-"
                             : "",
                      kinds[change->kind], change->from, change->to, change->percent);
    }
    buffer_append_byte(&text, '\0');
    return text.data;
}

void rollout_watch_begin(struct rollout_watch *watch, struct fixture *world, const char *name,
                         const struct caller *caller) {
    Pb__RolloutCaller request;
    struct arena arena = {0};
    char *tag;
    caller_fill(&request, name, caller, &tag);
    rollout_caller_keys(&request, &arena);
    watch->count = 1;
    watcher_begin(&watch->watchers[0], world, &query_rollout, &request.base);
    for (struct watch_key own; (own = query_rollout.own(&request.base, watch->count - 1)).space; watch->count++)
        watcher_begin_at(&watch->watchers[watch->count], world, own);
    arena_free(&arena);
}

void rollout_watch_end(struct rollout_watch *watch, struct fixture *world) {
    for (size_t i = 0; i < watch->count; i++) watcher_end(&watch->watchers[i], world);
}

unsigned rollout_woken(struct rollout_watch *watch) {
    unsigned woken = 0;
    for (size_t i = 0; i < watch->count; i++) woken += watch->watchers[i].woken, watch->watchers[i].woken = 0;
    return woken;
}

/* -- worlds ------------------------------------------------------------------------------------------------------- */

void rollout_world(struct fixture *world) {
    fixture_open(world);
    fixture_found(world);
    cr_assert(rollout_publish(world, "web", "v1", "{\"a\":1}").yes);
    cr_assert(rollout_publish(world, "web", "v2", "{\"a\":2}").yes);
    cr_assert(rollout_publish(world, "web", "v3", "{\"a\":3}").yes);
    cr_assert(rollout_flip(world, "web", "v1").yes);
}

const char *rollout_pointer(struct fixture *world) {
    static char text[200];
    struct query_result result = kv_get(world, "config/web/current");
    cr_assert(result.found);
    ProtobufCBinaryData value = entry_of(&result)->value;
    snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
    return text;
}

char *rollout_caller_in(double from, double to) {
    for (unsigned i = 0;; i++) {
        char *id = NULL;
        cr_assert(asprintf(&id, "caller-%u", i) > 0);
        uint32_t bucket = rollout_bucket(SLICE_LITERAL("web"), slice_text(id));
        if (bucket >= from * 100 && bucket < to * 100) return id;
        free(id);
    }
}

void rollout_refused(struct outcome outcome, int error, const char *word) {
    cr_expect(outcome.error == error && strstr(outcome.text, word), "%s: %d %s", word, outcome.error, outcome.text);
}
