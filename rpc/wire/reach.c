#include "rpc/wire/reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/error.h"
#include "rpc/wire/address.h"

void reach_note(struct reach *reach, enum reach_what what, int cause, const char *why) {
    reach->what = what, reach->cause = cause;
    snprintf(reach->why, sizeof reach->why, "%s", why ? why : "");
    for (char *at = reach->why; *at; at++)
        if ((unsigned char)*at < ' ' || *at == '"' || *at == 127) *at = '?';
}

void reach_ended(struct reach *reach, int error, int cause, bool stood) {
    if (error == CO_TOOLARGE || error == CO_CORRUPT) reach_note(reach, REACH_STRANGER, 0, NULL);
    else if (error == CO_TIMEOUT || (error == CO_CLOSED && !cause))
        reach_note(reach, stood ? REACH_SILENT : REACH_NO_ANSWER, 0, NULL);
    else if (cause == UV_ETIMEDOUT && !stood) reach_note(reach, REACH_NO_ANSWER, 0, NULL);
    else reach_note(reach, REACH_FAILED, cause, NULL);
}

bool reach_fails(const struct reach *reach) { return reach->what > REACH_SELF; }

const char *reach_end_text(int error, int cause) {
    if (cause == UV_EOF) return "closed by the other side";
    if (error == CO_CLOSED && !cause) return "closed by this side";
    return cause ? uv_strerror(cause) : co_strerror(error);
}

static void say_failed(const struct reach *reach, struct buffer *out) {
    if (reach->cause == UV_ECONNREFUSED) buffer_append_text(out, "refuses connections");
    else if (reach->cause == UV_EOF || reach->cause == UV_ECONNRESET)
        buffer_append_text(out, "closes the connection without a word");
    else buffer_printf(out, "cannot be reached: %s", reach_end_text(CO_IO, reach->cause));
}

static void say(const struct reach *reach, struct buffer *out) {
    switch (reach->what) {
        case REACH_UNTRIED: buffer_append_text(out, "is being tried"); break;
        case REACH_MET: buffer_append_text(out, "is reached"); break;
        case REACH_SELF: buffer_append_text(out, "is this server itself"); break;
        case REACH_UNRESOLVED:
            buffer_append_text(out, "does not resolve");
            if (reach->cause && reach->cause != UV_EAI_NONAME && reach->cause != UV_EAI_NODATA)
                buffer_printf(out, " (%s)", uv_strerror(reach->cause));
            break;
        case REACH_NO_ANSWER: buffer_append_text(out, "does not answer"); break;
        case REACH_FAILED: say_failed(reach, out); break;
        case REACH_SILENT: buffer_append_text(out, "takes connections and says nothing"); break;
        case REACH_STRANGER: buffer_append_text(out, "answers in another protocol"); break;
        case REACH_UNWANTED: buffer_printf(out, "is refused here: %s", reach->why); break;
        case REACH_REFUSES: buffer_printf(out, "refuses this process: %s", reach->why); break;
    }
}

/* May there be no server at the address? A process that refuses, or is refused, is one. */
static bool maybe_no_server(const struct reach *reach) {
    return reach->what >= REACH_NO_ANSWER && reach->what <= REACH_STRANGER;
}

void reach_say(const struct reach *reach, const char *address, uint16_t port, struct buffer *out) {
    char host[ADDRESS_MAX] = "", number[8] = "";
    bool split = address_split(address, host, number);
    buffer_printf(out, "%s ", split && reach->what == REACH_UNRESOLVED ? host : address);
    say(reach, out);
    if (split && maybe_no_server(reach) && atoi(number) != port) buffer_printf(out, " (%u is the servers' port)", port);
}
