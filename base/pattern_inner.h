/* The program of a pattern: pattern.c makes it, pattern_match.c runs it. */
#ifndef COORD_BASE_PATTERN_INNER_H
#define COORD_BASE_PATTERN_INNER_H

#include "base/pattern.h"

enum operation {
    OP_CHARACTER, /* takes the character `value` */
    OP_CLASS,     /* takes one of the class `value` */
    OP_SPLIT,     /* goes on at the next instruction, and also at `to` */
    OP_JUMP,      /* goes on at `to` */
    OP_START,     /* these four take nothing */
    OP_END,
    OP_WORD_EDGE,
    OP_NO_WORD_EDGE,
    OP_MATCH,
};

/* `to` counts from the instruction itself, so that instructions can be copied elsewhere. */
struct instruction {
    enum operation operation;
    int16_t to;
    uint32_t value;
};

struct range {
    uint32_t first, last;
};

struct class {
    unsigned first, count; /* of the ranges */
    bool negated;
};

struct pattern {
    struct instruction *program; /* its last is OP_MATCH */
    unsigned count;
    struct range *ranges;
    struct class *classes;
    size_t weight;
};

#endif
