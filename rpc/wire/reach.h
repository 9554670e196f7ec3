/* The outcome of the last attempt to reach an address: one record for each address that a server or a client agent
 * dials, and its text for people. Pure. */
#ifndef COORD_RPC_REACH_H
#define COORD_RPC_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "rpc/wire/hello.h"

struct reach {
    enum reach_what {
        REACH_UNTRIED,    /* not tried yet, or the first attempt goes on */
        REACH_MET,        /* a server of this cluster, which said hello */
        REACH_SELF,       /* this server itself */
        REACH_UNRESOLVED, /* the name has no address; cause: libuv's */
        REACH_NO_ANSWER,  /* no connection came about in time */
        REACH_FAILED,     /* the connection, or the attempt at one, ended; cause: libuv's, or 0 */
        REACH_SILENT,     /* it accepts connections, but does not say hello */
        REACH_STRANGER,   /* something answers, but not in this protocol */
        REACH_UNWANTED,   /* this process refuses it; why */
        REACH_REFUSES,    /* it refuses this process; why */
    } what;
    int cause;
    char why[HELLO_WHY];
};

/* `why` may come from the other process and hold anything, so it is made a line. NULL: none. */
void reach_note(struct reach *reach, enum reach_what what, int cause, const char *why);
/* A connection ended before its hello, with `error` and `cause` (rpc/wire/link.h); `stood`: it had been established. */
void reach_ended(struct reach *reach, int error, int cause, bool stood);
bool reach_fails(const struct reach *reach); /* it was tried without success */
/* "10.0.0.2:8300 refuses connections". When it fails and names another port than `port`, the line names the servers'
 * port. */
void reach_say(const struct reach *reach, const char *address, uint16_t port, struct buffer *out);
/* Why a connection ended, in words: libuv's text, or "closed by the other side" (this side); the text of `error` when
 * there is no cause. */
const char *reach_end_text(int error, int cause);

#endif
