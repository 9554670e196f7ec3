/* Phasers in the replicated state, for the tests of this folder: commands with what they answer, and what is there. */
#ifndef COORD_TESTS_KV_PHASERS_H
#define COORD_TESTS_KV_PHASERS_H

#include "commands.h"
#include "kv/phaser/phaser.h"

#define SIGNAL_WAIT PB__PHASER_MODE__PHASER_SIGNAL_WAIT
#define SIGNAL      PB__PHASER_MODE__PHASER_SIGNAL
#define WAIT        PB__PHASER_MODE__PHASER_WAIT
#define SESSIONS    1100

extern struct fixture world;
extern char id[SESSIONS][UUID_TEXT_SIZE + 1]; /* of sessions; the first 8 are made */
void phasers_setup(void);
void phasers_teardown(void);
static inline char *text(const char *constant) { return (char *)(uintptr_t)constant; }

/* -- commands, with what they answer ------------------------------------------------------------------------------ */

struct answer {
    int error;
    bool yes;
    uint64_t index, phase, now;
    uint32_t arrived, registered;
    bool advanced;
    Pb__PhaserMode mode;
    char text[400];
};
struct answer phaser_command(uint8_t type, const ProtobufCMessage *message);
/* `made`: NULL, or the id of a session that is made. */
struct answer join_with(const char *name, const char *session, const char *made, Pb__PhaserMode mode,
                        const char *parent);
struct answer join_as(const char *name, unsigned session, Pb__PhaserMode mode);
struct answer join(const char *name, unsigned session); /* signal-wait */
struct answer join_below(const char *name, unsigned session, const char *parent);
Pb__PhaserArriveCommand arrival(const char *name, unsigned session);
struct answer arrive(const char *name, unsigned session);
struct answer arrive_in(const char *name, unsigned session, uint64_t phase);
struct answer leave(const char *name, unsigned session);

/* -- what is there, until the next look --------------------------------------------------------------------------- */

struct query_result ask(const char *name);
const Pb__PhaserState *state(const char *name); /* it has to be there */
uint64_t phase(const char *name);
void expect_counts(const char *name, uint64_t at, uint32_t arrived, uint32_t registered);
Pb__PhaserAwaitRequest waiter_of(const char *name, unsigned session); /* until the next one */
struct query_result wait_look(const char *name, unsigned session);

/* -- who is woken, how often -------------------------------------------------------------------------------------- */

struct counter {
    struct watch_waiter waiter;
    unsigned fired;
};
void watch(struct counter *counter, struct watch_key watched);
void watch_name(struct counter *counter, uint8_t space, const char *name);
void unwatch(struct counter *counter);

#endif
