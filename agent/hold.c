#include "agent/hold.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define REQUEST_MS     10000  /* an agent waits for a leader for up to 7 s */
#define ROUND_MS       600000 /* the server's longest wait */
#define LATE_MS        1000   /* the answer to a wait comes at most so much later, unless the server hangs */
#define ROUND_LATE_MS  10000
#define RETRY_MS       1000
#define RELEASE_MS     5000  /* releasing is tried for so long */
#define INTERRUPTED_MS 2000  /* after a signal, so long for the session's id, to release it */
#define LOOK_MS        60000 /* the longest that the server waits for a change of the held name */
#define LOOK_LATE_MS   50    /* of its answer; a server adds up to a sixteenth to the wait */
#define LOOK_LEAST_MS  100
#define LOOK_PAUSE_MS  10000 /* after a refusal, which will not change soon */
#define PEEK_MS        2000

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t later(uint64_t at_ms, uint64_t by_ms) {
    return by_ms > HOLD_FOREVER - at_ms ? HOLD_FOREVER : at_ms + by_ms;
}

static void __attribute__((format(printf, 2, 3))) say(struct hold *hold, const char *format, ...) {
    va_list arguments;
    int size = snprintf(hold->say, sizeof hold->say, "%s ", hold->rules.what);
    if (size < 0 || (size_t)size >= sizeof hold->say) return;
    va_start(arguments, format);
    vsnprintf(hold->say + size, sizeof hold->say - (size_t)size, format, arguments);
    va_end(arguments);
}

/* -- states ------------------------------------------------------------------------------------------------------- */

static void over(struct hold *hold, int code) {
    hold->state = HOLD_OVER;
    hold->code = code;
}

static void ask_anew(struct hold *hold, uint64_t now_ms) {
    say(hold, "is waited for anew, at the end of the queue, because its session has ended");
    hold->state = HOLD_ASKING;
    hold->session[0] = '\0';
    memset(hold->requests, 0, sizeof hold->requests);
    hold->requests[HOLD_GRANT].next_ms = now_ms + RETRY_MS / 4;
    hold->requests[HOLD_LOOKING].next_ms = now_ms + RETRY_MS;
}

/* Releases the session. Only after the command has run does it wait for others (leave_ms). */
static void leave(struct hold *hold, int code, uint64_t now_ms) {
    if (hold->state != HOLD_RUNNING) hold->rules.leave_ms = 0;
    hold->state = hold->session[0] ? HOLD_RELEASING : HOLD_OVER;
    hold->code = code;
    hold->give_up_ms = later(now_ms, hold->rules.leave_ms ? hold->rules.leave_ms : RELEASE_MS);
    hold->requests[HOLD_GRANT] = (struct hold_request){.next_ms = now_ms};
    hold->requests[HOLD_LOOKING] = (struct hold_request){.next_ms = now_ms + RETRY_MS};
    hold->peeked = !hold->rules.leave_ms;
}

static void time_is_up(struct hold *hold, uint64_t now_ms) {
    bool no_answer = hold->requests[HOLD_GRANT].under_way;
    if (no_answer) say(hold, "was not obtained: no answer in time");
    else say(hold, "%s", hold->rules.wait_ms ? hold->rules.late : hold->rules.not_free);
    leave(hold, HOLD_EXIT_NOT_OBTAINED, now_ms);
    if (no_answer)
        hold->give_up_ms = earlier(hold->give_up_ms, now_ms + LATE_MS); /* probably nobody answers the release either */
}

/* Is the session certain to hold the name for long enough to start the command? */
static bool is_certain(const struct hold *hold, uint64_t now_ms) {
    return now_ms < supervisor_times(hold->sent_ms, hold->not_before_ms).term_ms;
}

/* -- the next order ----------------------------------------------------------------------------------------------- */

static struct hold_order nothing(uint64_t until_ms) {
    return (struct hold_order){.act = HOLD_NOTHING, .until_ms = until_ms};
}

static struct hold_order request(struct hold *hold, enum hold_line line, enum hold_act act, uint64_t timeout_ms,
                                 uint64_t now_ms) {
    hold->requests[line].act = act;
    hold->requests[line].under_way = true;
    hold->requests[line].sent_ms = now_ms;
    return (struct hold_order){.act = act, .timeout_ms = timeout_ms};
}

static bool is_due(const struct hold_request *of, uint64_t now_ms) { return !of->under_way && now_ms >= of->next_ms; }
/* The time of the next request of this line; while one is under way, its answer comes first. */
static uint64_t next_of(const struct hold_request *of) { return of->under_way ? HOLD_FOREVER : of->next_ms; }

static struct hold_order renew(struct hold *hold, enum hold_act act, uint64_t now_ms) {
    return request(hold, HOLD_RENEWAL, act, hold->rules.ttl_ms / 6 + 1, now_ms);
}

static bool peek_is_due(const struct hold *hold, uint64_t now_ms) {
    return !hold->peeked && is_due(&hold->requests[HOLD_LOOKING], now_ms);
}
static uint64_t next_peek(const struct hold *hold) {
    return hold->peeked ? HOLD_FOREVER : next_of(&hold->requests[HOLD_LOOKING]);
}

/* Looks until the next renewal; the wait ends early enough for it. */
static struct hold_order look(struct hold *hold, uint64_t now_ms) {
    uint64_t left_ms = hold->requests[HOLD_RENEWAL].next_ms - now_ms,
             wait_ms = earlier((left_ms - LOOK_LATE_MS) / 17 * 16, LOOK_MS);
    struct hold_order order =
        request(hold, HOLD_LOOKING, HOLD_LOOK, earlier(left_ms, wait_ms + wait_ms / 16 + ROUND_LATE_MS), now_ms);
    order.wait_ms = wait_ms, order.index = hold->seen_index;
    return order;
}

/* The time of the next look; HOLD_FOREVER: after the renewal. */
static uint64_t next_look(const struct hold *hold, uint64_t now_ms) {
    const struct hold_request *looking = &hold->requests[HOLD_LOOKING], *renewal = &hold->requests[HOLD_RENEWAL];
    uint64_t at_ms = looking->next_ms > now_ms ? looking->next_ms : now_ms;
    bool may = hold->rules.watched && !renewal->under_way && later(at_ms, LOOK_LEAST_MS) < renewal->next_ms;
    return may ? next_of(looking) : HOLD_FOREVER;
}

static struct hold_order asking(struct hold *hold, uint64_t now_ms) {
    const struct hold_request *of = &hold->requests[HOLD_GRANT];
    if (hold->interrupted && (!of->under_way || now_ms >= hold->give_up_ms)) over(hold, hold->code);
    else if (hold->complained && !of->under_way && now_ms >= hold->wait_end_ms) over(hold, HOLD_EXIT_NOT_OBTAINED);
    else if (of->under_way && now_ms >= hold->ask_end_ms)
        time_is_up(hold, now_ms); /* if the request made a session, its TTL ends it */
    else if (is_due(of, now_ms)) return request(hold, HOLD_GRANT, HOLD_ASK, REQUEST_MS, now_ms);
    else if (peek_is_due(hold, now_ms)) return request(hold, HOLD_LOOKING, HOLD_PEEK, PEEK_MS, now_ms);
    else if (of->under_way)
        return nothing(earlier(hold->interrupted ? hold->give_up_ms : hold->ask_end_ms, next_peek(hold)));
    else return nothing(earlier(earlier(of->next_ms, hold->wait_end_ms), next_peek(hold)));
    return hold_next(hold, now_ms);
}

static struct hold_order waiting(struct hold *hold, uint64_t now_ms) {
    const struct hold_request *of = &hold->requests[HOLD_GRANT], *renewal = &hold->requests[HOLD_RENEWAL];
    uint64_t late_ms = hold->rules.wait_ms ? LATE_MS : REQUEST_MS;
    uint64_t end_ms = of->under_way ? later(hold->wait_end_ms, late_ms) : hold->wait_end_ms;
    if (hold->tried && now_ms >= end_ms) {
        time_is_up(hold, now_ms);
        return hold_next(hold, now_ms);
    }
    if (is_due(renewal, now_ms)) return renew(hold, HOLD_RENEW_SESSION, now_ms);
    if (is_due(of, now_ms)) {
        uint64_t left_ms = hold->wait_end_ms > now_ms ? earlier(hold->wait_end_ms - now_ms, ROUND_MS) : 0;
        hold->tried = true;
        struct hold_order order = request(hold, HOLD_GRANT, HOLD_WAIT, left_ms + ROUND_LATE_MS, now_ms);
        order.wait_ms = left_ms;
        return order;
    }
    if (peek_is_due(hold, now_ms)) return request(hold, HOLD_LOOKING, HOLD_PEEK, PEEK_MS, now_ms);
    return nothing(earlier(earlier(end_ms, next_peek(hold)), earlier(next_of(of), next_of(renewal))));
}

static struct hold_order confirming(struct hold *hold, uint64_t now_ms) {
    const struct hold_request *renewal = &hold->requests[HOLD_RENEWAL];
    if (hold->complained && now_ms >= hold->wait_end_ms) {
        time_is_up(hold, now_ms);
        return hold_next(hold, now_ms);
    }
    if (is_due(renewal, now_ms)) return renew(hold, HOLD_RENEW, now_ms);
    return nothing(next_of(renewal));
}

static struct hold_order running(struct hold *hold, uint64_t now_ms) {
    const struct hold_request *renewal = &hold->requests[HOLD_RENEWAL];
    struct hold_order order = {.act = HOLD_FORWARD, .number = hold->to_forward};
    if (hold->to_forward) hold->to_forward = 0;
    else if (hold->to_kill) order.act = HOLD_KILL, hold->to_kill = false;
    else if (hold->to_tell) order.act = HOLD_TELL, hold->to_tell = false;
    else if (hold->lost) order = nothing(HOLD_FOREVER);
    else if (is_due(renewal, now_ms)) {
        hold->requests[HOLD_LOOKING] = (struct hold_request){.next_ms = HOLD_FOREVER};
        order = renew(hold, hold->rules.unbounded ? HOLD_RENEW_SESSION : HOLD_RENEW, now_ms);
    } else if (next_look(hold, now_ms) <= now_ms) order = look(hold, now_ms);
    else order = nothing(earlier(next_of(renewal), next_look(hold, now_ms)));
    return order;
}

static struct hold_order releasing(struct hold *hold, uint64_t now_ms) {
    const struct hold_request *of = &hold->requests[HOLD_GRANT], *renewal = &hold->requests[HOLD_RENEWAL];
    if (now_ms >= hold->give_up_ms) {
        if (hold->rules.leave_ms && hold->code == 0) hold->code = HOLD_EXIT_NOT_OBTAINED;
        say(hold, hold->rules.leave_ms ? "was not left by all others in time"
                                       : "could not be released; it is free when its TTL is over");
        over(hold, hold->code);
        return hold_next(hold, now_ms);
    }
    if (hold->rules.leave_ms && is_due(renewal, now_ms)) return renew(hold, HOLD_RENEW_SESSION, now_ms);
    if (is_due(of, now_ms)) {
        uint64_t left_ms = earlier(hold->rules.leave_ms ? hold->give_up_ms - now_ms : 0, ROUND_MS);
        struct hold_order order =
            request(hold, HOLD_GRANT, HOLD_RELEASE, left_ms ? left_ms + ROUND_LATE_MS : RELEASE_MS, now_ms);
        order.wait_ms = left_ms;
        return order;
    }
    if (peek_is_due(hold, now_ms)) return request(hold, HOLD_LOOKING, HOLD_PEEK, PEEK_MS, now_ms);
    uint64_t renewal_ms = earlier(hold->rules.leave_ms ? next_of(renewal) : HOLD_FOREVER, next_peek(hold));
    return nothing(earlier(hold->give_up_ms, earlier(next_of(of), renewal_ms)));
}

struct hold_order hold_next(struct hold *hold, uint64_t now_ms) {
    switch (hold->state) {
        case HOLD_ASKING: return asking(hold, now_ms);
        case HOLD_WAITING: return waiting(hold, now_ms);
        case HOLD_CONFIRMING: return confirming(hold, now_ms);
        case HOLD_STARTING:
            hold->state = HOLD_RUNNING;
            hold->seen_index = hold->token;
            hold->requests[HOLD_LOOKING] = (struct hold_request){.next_ms = now_ms};
            if (hold->rules.unbounded) hold->not_before_ms = SUPERVISOR_NEVER;
            return (struct hold_order){.act = HOLD_START};
        case HOLD_RUNNING: return running(hold, now_ms);
        case HOLD_RELEASING: return releasing(hold, now_ms);
        case HOLD_OVER: break;
    }
    return (struct hold_order){.act = HOLD_EXIT, .number = hold->code};
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static bool may_come_back(const struct hold_answer *answer) { return answer->status == 0 || answer->status >= 500; }

/* Tells people of the trouble, once until there is an answer again. */
static void complain(struct hold *hold, const struct hold_answer *answer) {
    bool held = hold->state == HOLD_CONFIRMING || hold->state == HOLD_RUNNING, leaves = hold->state == HOLD_RELEASING;
    if (!hold->complained)
        say(hold,
            leaves ? "is not left yet, trying again: %s"
            : held ? "is not renewed yet, trying again: %s"
                   : "has no answer yet, trying again: %s",
            answer->text);
    hold->complained = true;
}

static void refused(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    bool perhaps_later = answer->status == 404 || answer->status == 409 || answer->status == 429;
    say(hold, "was refused: %s", answer->text);
    leave(hold, perhaps_later ? HOLD_EXIT_NOT_OBTAINED : HOLD_EXIT_ERROR, now_ms);
}

/* (2) */
static void certain_since(struct hold *hold, enum hold_line line, uint64_t not_before_ms) {
    hold->complained = false;
    hold->sent_ms = hold->requests[line].sent_ms;
    hold->not_before_ms = not_before_ms;
    hold->requests[HOLD_RENEWAL].next_ms = hold->sent_ms + hold->rules.ttl_ms / 3;
}

static void asked(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    hold->answered = hold->answered || !answer->unreachable;
    if (may_come_back(answer) && hold->answered) {
        hold->requests[HOLD_GRANT].next_ms = now_ms + RETRY_MS;
        complain(hold, answer);
    } else if (may_come_back(answer)) {
        say(hold, "was not obtained: %s", answer->text);
        over(hold, HOLD_EXIT_NOT_OBTAINED);
    } else if (answer->status != 200) {
        refused(hold, answer, now_ms);
    } else {
        snprintf(hold->session, sizeof hold->session, "%s", answer->session ? answer->session : "");
        certain_since(hold, HOLD_GRANT, hold->rules.ttl_ms);
        hold->state = HOLD_WAITING;
        if (hold->interrupted) leave(hold, hold->code, now_ms);
    }
}

static void granted(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    hold->token = answer->token;
    if (hold->rules.unbounded || is_certain(hold, now_ms)) {
        hold->state = HOLD_STARTING;
    } else {
        hold->state = HOLD_CONFIRMING;
        hold->requests[HOLD_RENEWAL] = (struct hold_request){.next_ms = now_ms};
    }
}

static void waited(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    struct hold_request *of = &hold->requests[HOLD_GRANT];
    of->next_ms = of->sent_ms + RETRY_MS > now_ms ? of->sent_ms + RETRY_MS : now_ms;
    if (may_come_back(answer)) {
        of->next_ms = now_ms + RETRY_MS;
        complain(hold, answer);
    } else if (answer->status == 404 && !is_certain(hold, now_ms)) {
        ask_anew(hold, now_ms);
    } else if (answer->status != 200) {
        refused(hold, answer, now_ms);
    } else if (answer->held) {
        granted(hold, answer, now_ms);
    } else {
        hold->complained = false;
        if (!hold->rules.wait_ms) time_is_up(hold, now_ms);
    }
}

static void released(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    bool again = may_come_back(answer) || (answer->status == 200 && hold->rules.leave_ms && !answer->held);
    if (again) hold->requests[HOLD_GRANT].next_ms = now_ms + RETRY_MS / 4;
    else over(hold, hold->code);
    if (again && hold->rules.leave_ms && answer->status != 200) complain(hold, answer);
}

static void lose(struct hold *hold) {
    if (hold->lost || (hold->rules.unbounded && !hold->rules.watched)) return;
    say(hold, "is lost, its command is ended: the session has ended, or somebody else released it");
    hold->lost = hold->to_kill = true;
}

static void let_look(struct hold *hold, uint64_t now_ms) {
    struct hold_request *looking = &hold->requests[HOLD_LOOKING];
    if (hold->state == HOLD_RUNNING && !looking->under_way && looking->next_ms == HOLD_FOREVER)
        looking->next_ms = now_ms;
}

static void renewed(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    struct hold_request *renewal = &hold->requests[HOLD_RENEWAL];
    bool done = answer->status == 200, gone = answer->status == 404;
    uint64_t not_before_ms = renewal->act == HOLD_RENEW ? answer->not_before_ms : hold->rules.ttl_ms;
    if (done || gone) let_look(hold, now_ms);
    renewal->next_ms = done || gone ? renewal->sent_ms + hold->rules.ttl_ms / 3 : now_ms + hold->rules.ttl_ms / 15 + 1;
    if ((hold->state == HOLD_WAITING || hold->state == HOLD_CONFIRMING) && gone) {
        ask_anew(hold, now_ms);
    } else if (hold->state == HOLD_WAITING && done) {
        certain_since(hold, HOLD_RENEWAL, not_before_ms);
    } else if (hold->state == HOLD_CONFIRMING && done) {
        certain_since(hold, HOLD_RENEWAL, not_before_ms);
        if (is_certain(hold, now_ms)) hold->state = HOLD_STARTING;
        else renewal->next_ms = renewal->sent_ms + RETRY_MS / 4;
    } else if (hold->state == HOLD_RUNNING && gone) {
        lose(hold);
    } else if (hold->state == HOLD_RUNNING && done && !hold->rules.unbounded) {
        certain_since(hold, HOLD_RENEWAL, not_before_ms);
        hold->to_tell = true;
    } else if (hold->state == HOLD_RUNNING && done) {
        hold->complained = false;
    } else if (!done && (hold->state == HOLD_CONFIRMING || hold->state == HOLD_RUNNING)) {
        complain(hold, answer);
    }
}

/* The token of a grant is its index, so an exclusive holder with another token has lost the lock in between. */
static void looked(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    struct hold_request *of = &hold->requests[HOLD_LOOKING];
    bool mine = answer->held && (answer->shared || answer->token == hold->token);
    if (answer->status == 200 && answer->told) {
        of->next_ms = of->sent_ms + RETRY_MS > now_ms ? of->sent_ms + RETRY_MS : now_ms;
        hold->seen_index = answer->index;
        if (!mine) lose(hold);
    } else {
        of->next_ms = now_ms + (may_come_back(answer) || answer->status == 200 ? RETRY_MS : LOOK_PAUSE_MS);
    }
}

static void peeked(struct hold *hold, const struct hold_answer *answer, uint64_t now_ms) {
    bool has_words = answer->text && answer->text[0];
    if (hold->state != HOLD_ASKING && hold->state != HOLD_WAITING && hold->state != HOLD_RELEASING) return;
    hold->requests[HOLD_LOOKING].next_ms = now_ms + PEEK_MS;
    if (!has_words || (answer->leaderless && hold->told_leaderless)) return;
    if (!answer->leaderless && answer->status != 200) return;
    say(hold, "%s", answer->text);
    if (answer->leaderless) hold->told_leaderless = true;
    else hold->peeked = true;
}

void hold_answered(struct hold *hold, enum hold_line line, const struct hold_answer *answer, uint64_t now_ms) {
    enum hold_act act = hold->requests[line].act;
    hold->requests[line].under_way = false;
    if (act == HOLD_PEEK) peeked(hold, answer, now_ms);
    else if (act == HOLD_LOOK && hold->state == HOLD_RUNNING) looked(hold, answer, now_ms);
    else if (line == HOLD_LOOKING) return; /* the answer belongs to a state that is over */
    else if (line == HOLD_RENEWAL) renewed(hold, answer, now_ms);
    else if (hold->state == HOLD_ASKING) asked(hold, answer, now_ms);
    else if (hold->state == HOLD_WAITING) waited(hold, answer, now_ms);
    else if (hold->state == HOLD_RELEASING) released(hold, answer, now_ms);
}

/* -- other events ------------------------------------------------------------------------------------------------- */

void hold_signalled(struct hold *hold, int signal, uint64_t now_ms) {
    int code = HOLD_EXIT_SIGNAL + signal;
    if (hold->state == HOLD_RUNNING) {
        hold->to_forward = signal;
    } else if (hold->state == HOLD_RELEASING) { /* releasing ends soon, unless it waits for others */
        if (hold->rules.leave_ms) over(hold, code);
        else if (hold->interrupted) over(hold, hold->code);
    } else if (hold->state == HOLD_ASKING && !hold->interrupted) {
        hold->interrupted = true; /* the answer has the id of the session to end */
        hold->code = code;
        hold->give_up_ms = now_ms + INTERRUPTED_MS;
    } else if (hold->state != HOLD_OVER) {
        hold->interrupted = true;
        leave(hold, code, now_ms);
    }
}

static int code_of(const struct hold *hold, const struct supervisor_end *end) {
    if (end->exec_errno) return end->exec_errno == ENOENT ? HOLD_EXIT_NO_COMMAND : HOLD_EXIT_CANNOT_RUN;
    if (WIFEXITED(end->status) && WEXITSTATUS(end->status) == 0) return 0;
    if (hold->lost || end->by_us) return HOLD_EXIT_LOST;
    return WIFEXITED(end->status) ? WEXITSTATUS(end->status) : HOLD_EXIT_SIGNAL + WTERMSIG(end->status);
}

void hold_ended(struct hold *hold, const struct supervisor_end *end, uint64_t now_ms) {
    int code = code_of(hold, end);
    if (end->by_us && !hold->lost) say(hold, "could not be renewed in time, so its command was ended");
    if (hold->lost) over(hold, code);
    else leave(hold, code, now_ms);
    if (end->by_us)
        hold->give_up_ms =
            earlier(hold->give_up_ms, now_ms + LATE_MS); /* no server answered, so releasing is not tried for long */
}

void hold_begin(struct hold *hold, const struct hold_rules *rules, uint64_t now_ms) {
    uint64_t wait_ms = rules->wait_ms, least_ms = wait_ms ? LATE_MS : REQUEST_MS;
    *hold = (struct hold){.rules = *rules,
                          .wait_end_ms = later(now_ms, wait_ms),
                          .ask_end_ms = later(now_ms, wait_ms > least_ms ? wait_ms : least_ms)};
    for (int i = 0; i < HOLD_LINES; i++) hold->requests[i].next_ms = now_ms;
    hold->requests[HOLD_LOOKING].next_ms = later(now_ms, earlier(RETRY_MS, wait_ms ? wait_ms / 2 : RETRY_MS));
}
