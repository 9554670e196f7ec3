/* ?at=: a moment of the past, as an index or as a time. */
#include <stdio.h>

#include "base/clock.h"
#include "base/message.h"
#include "base/text.h"
#include "base/timestamp.h"
#include "http/api/kv_views.h"
#include "http/http.h"

/* The '+' of "+01:00" has become a blank in the query unless it was escaped. */
static int time_parse(struct slice text, uint64_t *unix_ms) {
    char room[64];
    if (text.size > sizeof room) return CO_INVALID;
    for (size_t i = 0; i < text.size; i++) room[i] = text.data[i] == ' ' ? '+' : text.data[i];
    return timestamp_parse(slice_make(room, text.size), unix_ms);
}

static int moment_parse(struct slice text, Pb__KvMoment *moment) {
    int64_t ago_ns;
    if (u64_parse(text, UINT64_MAX, &moment->index) == CO_OK) return moment->index ? CO_OK : CO_INVALID;
    if (time_parse(text, &moment->unix_ms) == CO_OK) return CO_OK;
    if (!slice_starts(text, slice_text("-")) || duration_parse(text, &ago_ns) != CO_OK) return CO_INVALID;
    uint64_t ago_ms = (uint64_t)(-ago_ns) / 1000000;
    moment->unix_ms = moment->now_unix_ms > ago_ms ? moment->now_unix_ms - ago_ms : 0;
    return CO_OK;
}

Pb__KvMoment *http_kv_moment(struct http_request *request) {
    Pb__KvMoment *moment = arena_alloc(http_arena(request), sizeof *moment);
    pb__kv_moment__init(moment);
    int64_t now_ms = clock_wall_ns() / 1000000;
    moment->now_unix_ms = now_ms > 0 ? (uint64_t)now_ms : 0;
    if (moment_parse(http_parameter(request, "at"), moment) == CO_OK) return moment;
    http_reply_text(request, 400,
                    "at: wanted: an index above 0, a time such as 2026-11-26T10:00:00Z, or how long ago, such as -5m");
    return NULL;
}

struct place {
    char text[TIMESTAMP_ROOM + 32];
};

/* "17 (2026-11-26T10:00:00.250Z)" */
static struct place place_text(uint64_t index, uint64_t unix_ms) {
    char time[TIMESTAMP_ROOM];
    struct place place;
    timestamp_format(unix_ms, time);
    if (unix_ms) snprintf(place.text, sizeof place.text, "%llu (%s)", (unsigned long long)index, time);
    else snprintf(place.text, sizeof place.text, "%llu", (unsigned long long)index);
    return place;
}

int http_kv_moment_refused(const struct http_kv_window *window, struct slice at, char *text, size_t room) {
    struct place floor = place_text(window->floor, window->floor_unix_ms);
    struct place now = place_text(window->index, window->unix_ms);
    if (window->off) snprintf(text, room, "no history is kept here: the setting coord.history_changes is 0");
    else if (window->verdict == PB__KV_MOMENT_VERDICT__MOMENT_GONE)
        snprintf(text, room, "at: %.*s is no longer kept: the history reaches back to %s", (int)at.size, at.data,
                 floor.text);
    else if (window->verdict == PB__KV_MOMENT_VERDICT__MOMENT_TO_COME)
        snprintf(text, room, "at: %.*s is not there yet: the index is %s", (int)at.size, at.data, now.text);
    else return 0;
    return !window->off && window->verdict == PB__KV_MOMENT_VERDICT__MOMENT_GONE ? 410 : 400;
}

void http_kv_time(struct json_out *json, uint64_t unix_ms) {
    char time[TIMESTAMP_ROOM];
    if (!unix_ms) return; /* an entry that an operator's tool wrote has none */
    timestamp_format(unix_ms, time);
    json_key(json, "Time");
    json_string(json, time);
}
