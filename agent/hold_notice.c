#include "agent/hold_notice.h"

#include <string.h>

#include "agent/cmd_json.h"
#include "base/text.h"

#define WORDS_SHOWN 80 /* bytes of a note */

/* Appends the first line, cut between two characters. */
static void append_words(struct buffer *out, const char *words) {
    size_t size = strcspn(words, "\r\n"), shown = size;
    if (size > WORDS_SHOWN)
        for (shown = WORDS_SHOWN; shown && ((unsigned char)words[shown] & 0xc0) == 0x80;) shown--;
    for (size_t i = 0; i < shown; i++)
        buffer_append_byte(out, (unsigned char)words[i] < ' ' || words[i] == 0x7f ? '?' : words[i]);
    if (shown < strlen(words)) buffer_append_text(out, "...");
}

/* "web1 (backup.sh) for 5m2s" */
static void append_holder(struct buffer *out, struct json_object *holder, const char *note, int64_t now_unix_ms) {
    const char *node = cmd_json_text(holder, "Node"), *words = cmd_json_text(holder, note);
    int64_t since_ms = (int64_t)cmd_json_number(holder, "Since"), age_ms = now_unix_ms - since_ms;
    append_words(out, node[0] ? node : words[0] ? words : cmd_json_text(holder, "Session"));
    if (node[0] && words[0]) {
        buffer_append_text(out, " (");
        append_words(out, words);
        buffer_append_byte(out, ')');
    }
    if (!since_ms) return;
    buffer_append_text(out, " for ");
    duration_format(out, (age_ms > 0 ? age_ms / 1000 : 0) * 1000000000);
}

/* The position of a session in the queue, from 1; 0: it is not among the listed ones. */
static uint64_t position_of(struct json_object *queue, const char *session) {
    for (size_t i = 0; i < cmd_json_length(queue); i++) {
        struct json_object *waiter = json_object_array_get_idx(queue, i);
        if (strcmp(cmd_json_text(waiter, "Session"), session) == 0) return cmd_json_number(waiter, "Position");
    }
    return 0;
}

static void append_position(struct buffer *out, uint64_t position) {
    if (position == 1) buffer_append_text(out, ", you are next");
    else if (position) buffer_printf(out, ", %llu before you", (unsigned long long)position - 1);
}

static void of_queue(struct json_object *view, struct json_object *holders, struct json_object *leader,
                     const char *session, int64_t now_unix_ms, struct buffer *out) {
    size_t count = cmd_json_length(holders);
    uint64_t position = position_of(json_get_array(view, holders ? "Queue" : "Candidates", NULL), session);
    if (leader) {
        buffer_append_text(out, "is led by ");
        append_holder(out, leader, "Value", now_unix_ms);
    } else if (count) {
        buffer_append_text(out, "is held by ");
        append_holder(out, json_object_array_get_idx(holders, 0), "Note", now_unix_ms);
        if (count > 1) buffer_printf(out, " and %zu other%s", count - 1, count > 2 ? "s" : "");
    } else if (cmd_json_number(view, "Delays")) {
        buffer_append_text(out, "is free when a lock-delay is over");
    } else {
        return;
    }
    append_position(out, position);
}

static void of_barrier(struct json_object *view, struct json_object *entered, bool leaves, struct buffer *out) {
    size_t working = cmd_json_length(json_get_array(view, "Working", NULL));
    if (leaves && working) buffer_printf(out, "waits: %zu ha%s not left yet", working, working == 1 ? "s" : "ve");
    else if (!leaves && cmd_json_number(view, "Parties"))
        buffer_printf(out, "waits: %zu of %llu have entered", cmd_json_length(entered),
                      (unsigned long long)cmd_json_number(view, "Parties"));
}

void hold_notice(struct json_object *view, const char *session, bool leaves, int64_t now_unix_ms, struct buffer *out) {
    struct json_object *holders = json_get_array(view, "Holders", NULL),
                       *leader = json_get_object(view, "Leader", NULL),
                       *entered = json_get_array(view, "Entered", NULL);
    if (entered) of_barrier(view, entered, leaves, out);
    else of_queue(view, holders, leader, session, now_unix_ms, out);
}
