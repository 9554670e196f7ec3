/* Holds a lock, or leads an election, while a command runs: decides which request to send when, and the exit code. It
 * only decides: answers, signals and times are its arguments, orders its result. agent/hold_run.c carries them out;
 * another process makes sure that the command ends in time (agent/supervisor.h).
 *
 *     ASKING --a session--> WAITING --granted--> RUNNING --ended--> RELEASING --> OVER
 *      ^ ^                   | |  |                |                 ^ ^
 *      | '-the session ended-' |  '----time is up, a signal----------' |
 *      |                       '--granted long ago--> CONFIRMING       |
 *      '------the session has ended-------------------'  '--> RUNNING  '-- RUNNING --lost: kill, ended
 *
 * (1) The first request makes a session of its own, which only its TTL and its destruction end: one that is bound to
 *     the agent's node would end with the node's lease, before NotBefore. With the session it asks, and waits on the
 *     server, in rounds. So after a lost answer the next request finds the place that the session has, and after a
 *     signal the session leaves the queue. While it waits it renews the session.
 * (2) The session certainly lives from the sending of the newest request that made or renewed it, for the time that its
 *     answer states: the TTL, or NotBefore, which counts from the answer. When little of that time is left (this
 *     process was stopped), it renews before it starts the command.
 * (3) It renews at a third of the TTL. A renewal without an answer is given up after a sixth, and sent again.
 * (4) While the command runs it reads whether its session holds the name, and waits on the server for a change of that.
 *     Only an answer that the session no longer holds it ends the command; without an answer (a lost connection, no
 *     leader, an error) it reads again, and (2) and (3) limit the time of the command. It waits no longer than until
 *     the next renewal, and never during one, so that a holder needs one connection: an agent limits the connections of
 *     a host, and a renewal must not be refused because of that.
 * (5) After a second of waiting, or half of the time that it may wait, it asks once for the present holders, to tell
 *     people. No decision depends on that.
 *
 * Times are milliseconds of CLOCK_BOOTTIME. One thread. */
#ifndef COORD_AGENT_HOLD_H
#define COORD_AGENT_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/supervisor.h"

#define HOLD_FOREVER UINT64_MAX

enum hold_exit {
    HOLD_EXIT_ERROR = 1,         /* wrong arguments, or refused for good */
    HOLD_EXIT_NOT_OBTAINED = 75, /* EX_TEMPFAIL */
    HOLD_EXIT_LOST = 76,         /* the command was ended because the lock was lost, or was about to be */
    HOLD_EXIT_CANNOT_RUN = 126,
    HOLD_EXIT_NO_COMMAND = 127,
    HOLD_EXIT_SIGNAL = 128 /* plus the signal's number */
};

enum hold_act {
    HOLD_NOTHING,
    HOLD_ASK,           /* for a session */
    HOLD_WAIT,          /* for the grant, with the session, for `wait_ms`; 0: no place in the queue */
    HOLD_RENEW_SESSION, /* while it waits for the grant */
    HOLD_RENEW,         /* the session that holds */
    HOLD_LOOK,          /* at the held name: (4); waits `wait_ms` for a change after `index` */
    HOLD_PEEK,          /* at the present holders: (5) */
    HOLD_RELEASE,       /* the name, or its place in the queue; waits for `wait_ms` */
    HOLD_START,         /* the command, with the deadline */
    HOLD_TELL,          /* the supervisor of another deadline */
    HOLD_KILL,          /* the command, at once */
    HOLD_FORWARD,       /* `number`, a signal, to the command */
    HOLD_EXIT           /* with the code `number` */
};

/* Each request belongs to one of three lines. One is under way on each line: a new one ends the one before. */
enum hold_line {
    HOLD_GRANT,   /* HOLD_ASK, HOLD_WAIT, HOLD_RELEASE */
    HOLD_RENEWAL, /* HOLD_RENEW_SESSION, HOLD_RENEW */
    HOLD_LOOKING, /* HOLD_LOOK, HOLD_PEEK */
    HOLD_LINES
};

struct hold_order {
    enum hold_act act;
    uint64_t until_ms;   /* of HOLD_NOTHING: call hold_next again then, or after an event */
    uint64_t timeout_ms; /* of requests: without an answer by then, report one of status 0 */
    uint64_t wait_ms;
    uint64_t index;
    int number;
};

/* The outcome of a request. */
struct hold_answer {
    long status;            /* of HTTP; 0: no answer came */
    const char *text;       /* of a refusal, or the reason of status 0: one line */
    bool unreachable;       /* of status 0: nobody listens there */
    bool held;              /* of HOLD_RELEASE: there is nothing to wait for any more */
    bool shared;            /* held with others: acquiring again gives the session another token */
    bool told;              /* of HOLD_LOOK: the answer says whether the name is held */
    bool leaderless;        /* of HOLD_PEEK: the agent knows of no leader */
    uint64_t index;         /* of HOLD_LOOK: of this state; 0: not known */
    const char *session;    /* of HOLD_ASK */
    uint64_t token;         /* of the grant */
    uint64_t not_before_ms; /* 0: not in the answer */
};

struct hold_rules {
    const char *what; /* "lock \"nightly\"", for messages */
    const char *late,
        *not_free; /* texts for a time-out, and for a refusal without waiting: "was not obtained in time" */
    uint64_t ttl_ms;
    uint64_t wait_ms;  /* for the grant; HOLD_FOREVER */
    uint64_t leave_ms; /* HOLD_RELEASE waits so long for others; 0: not at all */
    bool unbounded;    /* the command may outlive the grant: no deadline ends it */
    bool watched;      /* (4) */
};

struct hold {
    struct hold_rules rules;
    enum hold_state {
        HOLD_ASKING,
        HOLD_WAITING,
        HOLD_CONFIRMING,
        HOLD_STARTING,
        HOLD_RUNNING,
        HOLD_RELEASING,
        HOLD_OVER
    } state;
    char session[40]; /* "": none */
    uint64_t token;
    uint64_t sent_ms, not_before_ms; /* (2), of HOLD_START and HOLD_TELL */
    char say[400];                   /* a line for people; whoever prints it empties it */
    /* Used by hold.c only. */
    uint64_t wait_end_ms, give_up_ms, seen_index;
    uint64_t ask_end_ms; /* the answer to HOLD_ASK is waited for until then */
    struct hold_request {
        enum hold_act act;
        bool under_way;            /* if not, an answer is ignored */
        uint64_t sent_ms, next_ms; /* the next one is due */
    } requests[HOLD_LINES];
    bool answered, tried, complained, interrupted, lost;
    bool peeked, told_leaderless;
    bool to_tell, to_kill;
    int to_forward, code;
};

/* The texts of the rules must outlive the hold. */
void hold_begin(struct hold *hold, const struct hold_rules *rules, uint64_t now_ms);
/* The next order. Call it again until it returns HOLD_NOTHING or HOLD_EXIT. An order counts as carried out once it is
 * returned. */
struct hold_order hold_next(struct hold *hold, uint64_t now_ms);

void hold_answered(struct hold *hold, enum hold_line line, const struct hold_answer *answer, uint64_t now_ms);
void hold_signalled(struct hold *hold, int signal, uint64_t now_ms);
void hold_ended(struct hold *hold, const struct supervisor_end *end, uint64_t now_ms);

#endif
