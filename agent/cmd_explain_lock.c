/* coord explain lock */
#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

#define HOLDERS_SHOWN 20

void lock_reason(const struct lock_standing *of, struct buffer *out) {
    bool exclusive = strcmp(of->mode, "exclusive") == 0, wants_shared = strcmp(of->wanted, "shared") == 0;
    if (of->delays) buffer_append_text(out, "the session of a holder has ended, and its lock-delay is under way");
    else if (of->holders && exclusive) buffer_printf(out, "it is held exclusively by %s", of->holder);
    else if (of->holders && !wants_shared)
        buffer_printf(out, "it wants to hold it exclusively, and %llu hold it shared", (unsigned long long)of->holders);
    else if (of->holders && of->limit && of->holders >= of->limit)
        buffer_printf(out, "the limit of %llu shared holders is reached", (unsigned long long)of->limit);
    else buffer_append_text(out, "its turn is coming just now");
}

/* -- what is printed ---------------------------------------------------------------------------------------------- */

/* "SESSION on NODE, \"its name\"" */
static void print_session(const struct client *client, const char *id) {
    struct fault fault = {0};
    struct buffer path = {0};
    buffer_append_text(&path, "/v1/session/info/");
    client_encode(&path, id, false);
    buffer_append_byte(&path, '\0');
    struct json_object *list = cmd_json_get(client, path.data, &fault);
    struct json_object *session = cmd_json_length(list) ? json_object_array_get_idx(list, 0) : NULL;
    printf("%s", id);
    if (session) cmd_print_words(" on ", cmd_json_text(session, "Node"), "");
    else printf(" (%s)", fault.code ? fault.text : "it has just ended");
    if (session && cmd_json_text(session, "Name")[0]) cmd_print_words(", \"", cmd_json_text(session, "Name"), "\"");
    if (list) json_object_put(list);
    buffer_free(&path);
}

static void print_age(uint64_t since_unix_ms) {
    struct buffer text = {0};
    int64_t age_ms = clock_wall_ns() / 1000000 - (int64_t)since_unix_ms;
    if (!since_unix_ms) return;
    duration_format(&text, (age_ms > 0 ? age_ms / 1000 : 0) * 1000000000);
    printf(", for %.*s", (int)text.size, text.data);
    buffer_free(&text);
}

static void print_holders(const struct client *client, struct json_object *lock, struct json_object *holders) {
    size_t count = cmd_json_length(holders);
    uint64_t limit = cmd_json_number(lock, "Limit");
    if (count == 0) printf("Nobody holds it.\n");
    else if (limit)
        printf("%zu hold it, %s; at most %llu may.\n", count, cmd_json_text(lock, "Mode"), (unsigned long long)limit);
    else printf("%zu %s it, %s.\n", count, count == 1 ? "holds" : "hold", cmd_json_text(lock, "Mode"));
    for (size_t i = 0; i < count && i < HOLDERS_SHOWN; i++) {
        struct json_object *holder = json_object_array_get_idx(holders, i);
        const char *note = cmd_json_text(holder, "Note");
        printf("  holder   ");
        print_session(client, cmd_json_text(holder, "Session"));
        print_age(cmd_json_number(holder, "Since"));
        printf(", token %llu\n", (unsigned long long)cmd_json_number(holder, "FencingToken"));
        if (note[0]) cmd_print_words("           ", note, "\n");
    }
    if (count > HOLDERS_SHOWN) printf("  ... and %zu more\n", count - HOLDERS_SHOWN);
}

static void print_waiters(const struct client *client, struct json_object *lock, struct json_object *queue,
                          struct json_object *holders) {
    uint64_t waiters = cmd_json_number(lock, "Waiters");
    struct json_object *first = cmd_json_length(queue) ? json_object_array_get_idx(queue, 0) : NULL;
    if (!first) {
        if (cmd_json_number(lock, "Delays")) printf("Nobody waits for it; a lock-delay is under way.\n");
        else printf("Nobody waits for it.\n");
        return;
    }
    struct buffer reason = {0};
    const struct lock_standing standing = {
        .mode = cmd_json_text(lock, "Mode"),
        .holder = cmd_json_length(holders) ? cmd_json_text(json_object_array_get_idx(holders, 0), "Session") : "",
        .holders = cmd_json_length(holders),
        .limit = cmd_json_number(lock, "Limit"),
        .delays = cmd_json_number(lock, "Delays"),
        .wanted = cmd_json_text(first, "Mode")};
    lock_reason(&standing, &reason);
    printf("%llu %s for it.\n  first    ", (unsigned long long)waiters, waiters == 1 ? "waits" : "wait");
    print_session(client, cmd_json_text(first, "Session"));
    printf(", wants it %s\n  because  %.*s\n", cmd_json_text(first, "Mode"), (int)reason.size, reason.data);
    buffer_free(&reason);
}

static void print_transitions(struct json_object *transitions) {
    struct cmd_table table = {.columns = 3};
    if (!cmd_json_length(transitions)) return;
    printf("The last transitions, the newest last:\n");
    cmd_cell(&table, "  INDEX"), cmd_cell(&table, "CAUSE"), cmd_cell(&table, "SESSION");
    for (size_t i = 0; i < cmd_json_length(transitions); i++) {
        struct json_object *at = json_object_array_get_idx(transitions, i);
        char index[32];
        snprintf(index, sizeof index, "  %llu", (unsigned long long)cmd_json_number(at, "Index"));
        cmd_cell(&table, index), cmd_cell(&table, cmd_json_text(at, "Cause"));
        cmd_cell(&table, cmd_json_text(at, "Session")[0] ? cmd_json_text(at, "Session") : "-");
    }
    cmd_table_print(&table);
}

int explain_lock(int argc, char **argv) {
    static const char usage[] = "coord explain lock [FLAGS] NAME";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[0][0] || rest[1]) return cmd_wrong(usage, "one NAME is wanted, and flags before it");
    struct buffer path = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/lock/");
    client_encode(&path, rest[0], true);
    client_parameter(&path, "transitions", NULL);
    buffer_append_byte(&path, '\0');
    struct json_object *lock = cmd_json_get(&client, path.data, &fault);
    if (lock) {
        struct json_object *holders = json_get_array(lock, "Holders", NULL),
                           *queue = json_get_array(lock, "Queue", NULL);
        print_holders(&client, lock, holders);
        print_waiters(&client, lock, queue, holders);
        print_transitions(json_get_array(lock, "Transitions", NULL));
        json_object_put(lock);
    }
    buffer_free(&path);
    return fault.code ? cmd_failed("asking for the lock", &fault) : 0;
}
