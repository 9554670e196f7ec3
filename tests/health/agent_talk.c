#include "agent_talk.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "health/definition.h"
#include "looks.h"

#define NODE FAKE_AGENT_NODE

int register_service_as(struct agent *agent, const char *text, bool replace, bool persist) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    CHECK(definition != NULL);
    json_object_put(json);
    return local_service_register(agent->local, definition, replace, persist, &fault);
}
void register_service(struct agent *agent, const char *text) {
    CHECK(register_service_as(agent, text, false, true) == CO_OK);
}
int register_check(struct agent *agent, const char *text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct check_definition *definition = json ? check_definition_parse(json, &fault) : NULL;
    CHECK(definition != NULL);
    json_object_put(json);
    return local_check_register(agent->local, definition, true, &fault);
}

bool has_service(struct agent *agent, const char *id) {
    struct arena arena = {0};
    bool has = look_service(agent->rpc, &arena, NODE, id) != NULL;
    arena_free(&arena);
    return has;
}
/* -1: no such check. */
int catalog_status(struct agent *agent, const char *id) {
    struct arena arena = {0};
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, id);
    int status = check ? (int)check->status : -1;
    arena_free(&arena);
    return status;
}
bool catalog_output_is(struct agent *agent, const char *id, const char *output) {
    struct arena arena = {0};
    const Pb__Check *check = look_check(agent->rpc, &arena, NODE, id);
    bool is = check && slice_is(slice_make(check->output.data, check->output.len), output);
    arena_free(&arena);
    return is;
}
Pb__Check *local_one(struct agent *agent, struct arena *arena, const char *id) {
    Pb__Check **checks;
    size_t count = local_checks(agent->local, arena, &checks);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(checks[i]->check_id, id) == 0) return checks[i];
    }
    return NULL;
}
int local_status(struct agent *agent, const char *id) {
    struct arena arena = {0};
    Pb__Check *check = local_one(agent, &arena, id);
    int status = check ? (int)check->status : -1;
    arena_free(&arena);
    return status;
}
bool update(struct agent *agent, const char *id, Pb__Status status, const char *output) {
    struct fault fault = {0};
    return local_check_update(agent->local, slice_text(id), status, slice_text(output), &fault) == CO_OK;
}

struct waited {
    struct local_waiter waiter;
    _Atomic int error; /* -1: not yet */
};
static void on_waited(struct local_waiter *waiter, int error) {
    CONTAINER_OF(waiter, struct waited, waiter)->error = error;
}
int wait_synced(struct agent *agent, uint64_t wait_ms) {
    struct waited waited = {.waiter.done = on_waited, .error = -1};
    local_on_synced(agent->local, &waited.waiter, wait_ms);
    for (uint64_t end_ms = clock_mono_ms() + wait_ms + UNTIL_MS; waited.error < 0; usleep(2000))
        CHECK(clock_mono_ms() < end_ms);
    return waited.error;
}

static void definitions_path(const struct agent *agent, char path[150]) {
    snprintf(path, 150, "%s/local/definitions", agent->folder);
}

unsigned saved(const struct agent *agent, char kind) {
    char path[150], keys[50][33], line[4096];
    bool there[50];
    unsigned count = 0, sum = 0;
    definitions_path(agent, path);
    FILE *file = fopen(path, "r");
    CHECK(file);
    CHECK(fgets(line, sizeof line, file));
    CHECK(strcmp(line, "coord definitions 1\n") == 0);
    while (fgets(line, sizeof line, file)) {
        CHECK(strlen(line) > 51 && count < 50);
        if (line[17] != kind) continue;
        snprintf(keys[count], sizeof keys[count], "%.32s", line + 19);
        unsigned at = 0;
        while (strcmp(keys[at], keys[count]) != 0) at++;
        there[at] = line[52] != '-';
        count += at == count;
    }
    fclose(file);
    for (unsigned i = 0; i < count; i++) sum += there[i];
    return sum;
}

void append_to_definitions(const struct agent *agent, const char *text) {
    char path[150];
    definitions_path(agent, path);
    FILE *file = fopen(path, "a");
    CHECK(file);
    fputs(text, file);
    fclose(file);
}
