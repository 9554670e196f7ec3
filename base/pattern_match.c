/* Runs the program: keeps, character by character, the set of all instructions that the text so far leads to. */
#include <stdlib.h>

#include "base/check.h"
#include "base/pattern_inner.h"
#include "base/steps.h"
#include "base/text.h"

#define NO_CHARACTER UINT32_MAX /* before the text and behind it */

struct matching {
    const struct pattern *pattern;
    uint32_t before, next; /* the characters around the place in the text */
    unsigned round;        /* the number of that place, from 1 on */
    unsigned *seen;        /* per instruction: the last round that came to it */
    uint16_t *places;      /* instructions of this round that take a character */
    uint16_t *next_places; /* where the next round begins */
    uint16_t *stack;
    unsigned place_count, next_count, stack_count;
    uint64_t *steps;
};

static bool is_word(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool holds(const struct matching *m, enum operation operation) {
    switch (operation) {
        case OP_START: return m->before == NO_CHARACTER;
        case OP_END: return m->next == NO_CHARACTER;
        case OP_WORD_EDGE: return is_word(m->before) != is_word(m->next);
        default: return is_word(m->before) == is_word(m->next);
    }
}

static void push(struct matching *m, unsigned at) {
    if (m->seen[at] == m->round) return;
    m->seen[at] = m->round;
    m->stack[m->stack_count++] = (uint16_t)at;
}

/* Notes every instruction that can be reached from `start` without a character. True when OP_MATCH can be reached. */
static bool follow(struct matching *m, unsigned start) {
    push(m, start);
    while (m->stack_count) {
        unsigned at = m->stack[--m->stack_count];
        const struct instruction *instruction = &m->pattern->program[at];
        if (!steps_take(m->steps, 1)) return false;
        switch (instruction->operation) {
            case OP_MATCH: return true;
            case OP_CHARACTER:
            case OP_CLASS: m->places[m->place_count++] = (uint16_t)at; break;
            case OP_SPLIT: push(m, at + 1); /* fall through */
            case OP_JUMP: push(m, (unsigned)((int)at + instruction->to)); break;
            default:
                if (holds(m, instruction->operation)) push(m, at + 1);
        }
    }
    return false;
}

static bool in_class(struct matching *m, uint32_t number) {
    const struct class *class = &m->pattern->classes[number];
    steps_take(m->steps, class->count / 8);
    for (unsigned i = 0; i < class->count; i++) {
        const struct range *range = &m->pattern->ranges[class->first + i];
        if (m->next >= range->first && m->next <= range->last) return !class->negated;
    }
    return class->negated;
}

static void take_next(struct matching *m) {
    m->next_count = 0;
    for (unsigned i = 0; i < m->place_count; i++) {
        const struct instruction *instruction = &m->pattern->program[m->places[i]];
        bool taken =
            instruction->operation == OP_CLASS ? in_class(m, instruction->value) : instruction->value == m->next;
        if (taken) m->next_places[m->next_count++] = (uint16_t)(m->places[i] + 1);
    }
}

/* Can nothing match any more? A program that begins with ^ cannot begin anew behind the start of the text. */
static bool is_lost(const struct matching *m) {
    return m->next_count == 0 && m->round > 1 && m->pattern->program[0].operation == OP_START;
}

static bool run(struct matching *m, struct slice text) {
    m->before = NO_CHARACTER;
    for (m->round = 1; !is_lost(m); m->round++) {
        m->next = text.size ? utf8_take(&text) : NO_CHARACTER;
        m->place_count = m->stack_count = 0;
        for (unsigned i = 0; i < m->next_count; i++) {
            if (follow(m, m->next_places[i])) return true;
        }
        if (follow(m, 0)) return true;
        if (m->next == NO_CHARACTER || *m->steps == 0) return false;
        take_next(m);
        m->before = m->next;
    }
    return false;
}

bool pattern_match(const struct pattern *pattern, struct slice text, uint64_t *steps) {
    size_t count = pattern->count;
    struct matching m = {.pattern = pattern, .steps = steps};
    if (!steps_take(steps, count / 8)) return false; /* pays for clearing the memory below */
    m.seen = mem_zalloc(count * (sizeof *m.seen + 3 * sizeof *m.places));
    m.places = (uint16_t *)(m.seen + count);
    m.next_places = m.places + count;
    m.stack = m.next_places + count;
    bool matches = run(&m, text);
    free(m.seen);
    return matches;
}
