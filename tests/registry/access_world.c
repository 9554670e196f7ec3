#include "access_world.h"

#include "base/check.h"

struct fixture f;
struct arena arena;

void access_world_open(void) {
    arena = (struct arena){0};
    fixture_open(&f);
    fixture_found(&f);
}

void access_world_close(void) {
    fixture_close(&f);
    arena_free(&arena);
}

void register_spec(const char *spec) {
    struct outcome outcome = fixture_register(&f, spec);
    CHECK(outcome.error == CO_OK);
}

struct outcome grant(const char *id, const char *node, const char *node_id) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    lease.id = TEXT(id), lease.ttl_ns = 1000000000, lease.node = TEXT(node), lease.node_id = TEXT(node_id);
    command.lease = &lease;
    return fixture_apply(&f, LEASE_GRANT, &command.base);
}

void lease_ends(const char *id, bool expired, bool leave) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = TEXT(id), command.term = expired ? f.term : 0, command.leave = leave;
    CHECK(fixture_apply(&f, LEASE_END, &command.base).yes);
}

const char *seen(const char *rules, const struct query_type *type, const ProtobufCMessage *request) {
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    struct buffer missing = {0};
    int error = fixture_ask_as(&f, access, type, request, &result, &check);
    const char *text = "-";
    if (error) {
        CHECK(error == CO_DENIED);
        access_missing_print(&check.missing, &missing);
        text = arena_printf(&arena, "[%.*s]", (int)missing.size, missing.data);
    } else if (result.found) {
        text = rows_text(&arena, result.message);
    }
    buffer_free(&missing);
    access_release(access);
    return text;
}

const char *may(const char *rules, uint8_t type, const ProtobufCMessage *command) {
    static char missing[256];
    struct access *access = access_of(rules);
    int error = fixture_may(&f, access, type, command, missing);
    access_release(access);
    return error ? missing : "yes";
}
