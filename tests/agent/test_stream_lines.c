/* Events of a stream, however the bytes are cut. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "agent/stream_lines.h"
#include "base/memory.h"

static void note(void *data, const struct stream_lines *lines) {
    struct buffer *said = data;
    buffer_printf(said, "[%.*s|%.*s|%.*s]", (int)lines->event.size, lines->event.data, (int)lines->id.size,
                  lines->id.data, (int)lines->data.size, lines->data.data);
}

static bool is(const struct buffer *buffer, const char *text) { return slice_is(buffer_slice(buffer), text); }

static const char text[] =
    ": cluster 0123\n: index 41\n\n"
    "event: kv\nid: 42.1.3\ndata: {\"a\": 1}\n\n"
    ": index 50\n\n"
    "event:kv\r\nretry: 5\r\nid:51\r\ndata:x: y\r\n\r\n"
    "data: a\ndata:  b\nid: 52\nevent: other\nnothing\n\n";
static const char events[] = "[kv|42.1.3|{\"a\": 1}][kv|51|x: y][other|52|a\n b]";

Test(stream_lines, are_put_together_from_any_pieces) {
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        struct stream_lines lines = {0};
        struct buffer said = {0};
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t left = sizeof text - 1 - at;
            stream_lines_feed(&lines, slice_make(text + at, piece < left ? piece : left), note, &said);
        }
        cr_assert(is(&said, events), "pieces of %zu: %.*s", piece, (int)said.size, said.data);
        cr_assert(is(&lines.position, "52") && is(&lines.cluster, "0123"));
        stream_lines_free(&lines);
        buffer_free(&said);
    }
}

/* An incomplete event has not been handled: a client that goes on asks for it again. */
Test(stream_lines, positions_are_those_of_complete_events) {
    for (size_t size = 0; size < sizeof text; size++) {
        struct stream_lines lines = {0};
        struct buffer said = {0};
        stream_lines_feed(&lines, slice_make(text, size), note, &said);
        stream_lines_cut(&lines);
        size_t events_seen = 0;
        for (size_t i = 0; i < said.size; i++) events_seen += said.data[i] == ']';
        const char *position = events_seen == 0 ? "41" : events_seen == 1 ? "42.1.3" : events_seen == 2 ? "51" : "52";
        bool comment = events_seen == 1 && is(&lines.position, "50");
        bool early = events_seen == 0 && lines.position.size == 0;
        cr_assert(is(&lines.position, position) || comment || early, "after %zu bytes: %.*s", size,
                  (int)lines.position.size, lines.position.data);
        stream_lines_feed(&lines, slice_text("data: z\nid: 60\n\n"), note, &said);
        cr_assert(is(&lines.position, "60"), "what was cut off is forgotten");
        stream_lines_anew(&lines);
        cr_assert(lines.position.size == 0 && lines.cluster.size == 0);
        stream_lines_free(&lines);
        buffer_free(&said);
    }
}
