/* coord explain lock, coord explain election */
#include "agent/cmd.h"
#include "agent/cmd_explain.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

#define HOLDERS_SHOWN   20
#define CANDIDATES_MOST 1000 /* that the answer has */

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

/* -- printing ----------------------------------------------------------------------------------------------------- */

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

static void print_transitions(struct json_object *view) {
    struct json_object *transitions = json_get_array(view, "Transitions", NULL);
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

static void print_lock(const struct client *client, struct json_object *lock) {
    struct json_object *holders = json_get_array(lock, "Holders", NULL), *queue = json_get_array(lock, "Queue", NULL);
    print_holders(client, lock, holders);
    print_waiters(client, lock, queue, holders);
    print_transitions(lock);
}

/* -- elections ---------------------------------------------------------------------------------------------------- */

static void print_leader(const struct client *client, struct json_object *leader) {
    const char *value = cmd_json_text(leader, "Value");
    printf("Somebody leads it.\n  leader   ");
    print_session(client, cmd_json_text(leader, "Session"));
    print_age(cmd_json_number(leader, "Since"));
    printf(", term %llu\n", (unsigned long long)cmd_json_number(leader, "Term"));
    if (value[0]) cmd_print_words("  value    ", value, "\n");
    printf("  until    it resigns, or its session ends; a higher priority does not replace it\n");
}

static void print_candidates(const struct client *client, struct json_object *leader, struct json_object *candidates) {
    size_t count = cmd_json_length(candidates);
    struct json_object *first = count ? json_object_array_get_idx(candidates, 0) : NULL;
    uint64_t priority = cmd_json_number(first, "Priority");
    if (!first) {
        printf("No candidate waits.\n");
        return;
    }
    printf("%zu%s for it.\n  next     ", count,
           count == 1                ? " waits"
           : count < CANDIDATES_MOST ? " wait"
                                     : " or more wait");
    print_session(client, cmd_json_text(first, "Session"));
    if (priority) printf(", with priority %llu, the highest", (unsigned long long)priority);
    printf("\n  because  %s\n", leader ? "one leads at a time, until it resigns or its session ends"
                                       : "the session of the last leader has ended, and its lock-delay is under way");
}

static void print_election(const struct client *client, struct json_object *election) {
    struct json_object *leader = json_get_object(election, "Leader", NULL);
    if (leader) print_leader(client, leader);
    else printf("Nobody leads it.\n");
    print_candidates(client, leader, json_get_array(election, "Candidates", NULL));
    print_transitions(election);
}

/* -- both --------------------------------------------------------------------------------------------------------- */

static int explain(int argc, char **argv, const char *usage, const char *where, const char *doing,
                   void (*print)(const struct client *client, struct json_object *view)) {
    struct client client = {0};
    const char *name;
    int code = cmd_flags_and_one(argc, argv, NULL, 0, &client, usage, "NAME", &name);
    if (code >= 0) return code;
    struct buffer path = {0};
    buffer_append_text(&path, where);
    client_encode(&path, name, true);
    client_parameter(&path, "transitions", NULL);
    return cmd_show(&client, &path, false, doing, print);
}

int explain_lock(int argc, char **argv) {
    return explain(argc, argv, "coord explain lock [FLAGS] NAME", "/v1/lock/", "asking for the lock", print_lock);
}

int explain_election(int argc, char **argv) {
    return explain(argc, argv, "coord explain election [FLAGS] NAME", "/v1/election/", "asking for the election",
                   print_election);
}
