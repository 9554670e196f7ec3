/* Many connections to one server, from one thread: what the programs that measure fan-out share. Whatever goes wrong ends
 * the program with a line on stderr. */
#ifndef COORD_BENCH_CROWD_H
#define COORD_BENCH_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define CROWD_WAIT_MS 60000 /* for anything that has to come */

struct crowd_peer {
    int fd;
    uint32_t number;
    bool busy;          /* a writer: an answer is awaited */
    uint64_t begun_ns;  /* its request */
    struct buffer rest; /* what has come and is not complete yet */
};

/* "IP:PORT". `program` begins each line on stderr. */
void crowd_begin(const char *program, const char *address);
_Noreturn void crowd_fail(const char *what); /* with errno's words */
const char *crowd_host(void);
void crowd_open(struct crowd_peer *peer); /* connects; peer->number is the caller's */
void crowd_send(const struct crowd_peer *peer, const struct buffer *text);

/* Called with what a peer has sent; it takes what is complete out of peer->rest. */
typedef void (*crowd_read)(struct crowd_peer *peer, uint64_t now_ns);
/* Waits at most so long for something to come, and reads it. */
void crowd_step(int wait_ms, crowd_read read);
/* Until *counter is `value` or more. */
void crowd_wait(const uint64_t *counter, uint64_t value, const char *what, crowd_read read);
/* The first `size` bytes of peer->rest are dealt with. */
void crowd_taken(struct crowd_peer *peer, size_t size);

/* Tells whoever started the program that all is set up, and waits for his word. */
void crowd_ready(void);

struct crowd_times {
    double *ms;
    size_t count, room;
};
void crowd_note(struct crowd_times *times, uint64_t from_ns, uint64_t now_ns);
double crowd_part(struct crowd_times *times, double part); /* sorts them: 0.5 is the median, 0 the least, 1 the most */

#endif
