/* A pattern becomes a tree, the tree a program of steps, and the program is run over the text with all its possible
 * positions at once (Thompson 1968), so that no pattern takes longer than another of its size. */
#include "base/pattern.h"

#include <limits.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"

#define STEPS_MOST 4096
#define DEPTH_MOST 100
#define TIMES_MOST 1000
#define TIMES_ANY  UINT_MAX

enum op { OP_SET, OP_ASSERT, OP_SPLIT, OP_JUMP, OP_DONE };
enum assertion { AT_START, AT_END, AT_WORD, AT_NO_WORD };

struct range {
    uint32_t from, to;
};
/* Characters: of these ranges, or of all others. */
struct set {
    struct range *ranges;
    size_t count;
    bool others;
};
struct step {
    enum op op;
    enum assertion assertion;
    const struct set *set;
    uint32_t to, other;
};
struct pattern {
    struct arena arena;
    struct step *steps;
    uint32_t count;
};

/* -- the tree ----------------------------------------------------------------------------------------------------- */

struct tree {
    enum { TREE_EMPTY, TREE_SET, TREE_ASSERT, TREE_BOTH, TREE_EITHER, TREE_TIMES } type;
    const struct set *set;
    enum assertion assertion;
    const struct tree *left, *right;
    unsigned least, most; /* of TREE_TIMES */
};

struct parser {
    struct arena *arena;
    const char *at, *end;
    unsigned depth;
    struct fault *fault;
};

static const struct tree *tree_new(struct parser *parser, struct tree tree) {
    struct tree *made = arena_alloc(parser->arena, sizeof *made);
    *made = tree;
    return made;
}

static const struct tree *fail(struct parser *parser, const char *what) {
    fault_set(parser->fault, CO_INVALID, "pattern: %s", what);
    parser->at = parser->end;
    return tree_new(parser, (struct tree){.type = TREE_EMPTY});
}

static bool take(struct parser *parser, char c) {
    if (parser->at == parser->end || *parser->at != c) return false;
    parser->at++;
    return true;
}

/* The next character, decoded. The text is UTF-8. */
static uint32_t decode(const char **at, const char *end) {
    const unsigned char *p = (const unsigned char *)*at;
    size_t size = utf8_next(slice_make(*at, (size_t)(end - *at)));
    CHECK(size >= 1 && size <= 4);
    *at += size;
    uint32_t c = size == 1 ? p[0] : p[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) c = c << 6 | (p[i] & 0x3f);
    return c;
}

/* -- sets --------------------------------------------------------------------------------------------------------- */

static void set_add(struct parser *parser, struct set *set, uint32_t from, uint32_t to) {
    struct range *wider = arena_alloc(parser->arena, (set->count + 1) * sizeof *wider);
    if (set->count) memcpy(wider, set->ranges, set->count * sizeof *wider);
    wider[set->count++] = (struct range){from, to};
    set->ranges = wider;
}

static bool set_has(const struct set *set, uint32_t c) {
    bool found = false;
    for (size_t i = 0; i < set->count && !found; i++) found = c >= set->ranges[i].from && c <= set->ranges[i].to;
    return found != set->others;
}

static const struct range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                          spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                      {0x3000, 0x3000}, {0xfeff, 0xfeff}};

/* Of \d, or with `others` of \D: what lies between the ranges, which are in order. */
static void class_add(struct parser *parser, struct set *set, const struct range *ranges, size_t count, bool others) {
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (!others) set_add(parser, set, ranges[i].from, ranges[i].to);
        else if (ranges[i].from > next) set_add(parser, set, next, ranges[i].from - 1);
        next = ranges[i].to + 1;
    }
    if (others) set_add(parser, set, next, 0x10ffff);
}

/* False: `c` is no class. */
static bool class_of(struct parser *parser, struct set *set, char c) {
    switch (c | 0x20) {
        case 'd': class_add(parser, set, digits, ARRAY_COUNT(digits), c == 'D'); return true;
        case 'w': class_add(parser, set, words, ARRAY_COUNT(words), c == 'W'); return true;
        case 's': class_add(parser, set, spaces, ARRAY_COUNT(spaces), c == 'S'); return true;
        default: return false;
    }
}

static bool hex(struct parser *parser, unsigned count, uint32_t *c) {
    *c = 0;
    for (unsigned i = 0; i < count; i++, parser->at++) {
        char digit = parser->at < parser->end ? *parser->at : ' ';
        unsigned value = digit >= '0' && digit <= '9' ? (unsigned)(digit - '0') : (unsigned)((digit | 0x20) - 'a' + 10);
        if (value > 15) return false;
        *c = *c << 4 | value;
    }
    return true;
}

/* After a backslash, what is no class: one character. */
static uint32_t escaped(struct parser *parser) {
    static const char letters[] = "nrtfv0", as[] = "\n\r\t\f\v\0";
    char c = *parser->at;
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t out = 0;
    if ((unsigned char)c >= 0x80) return decode(&parser->at, parser->end);
    parser->at++;
    if (letter) return (unsigned char)as[letter - letters];
    if (c == 'c' && parser->at < parser->end) return (uint32_t)*parser->at++ & 31;
    if (c == 'x' || c == 'u') {
        if (!hex(parser, c == 'x' ? 2 : 4, &out)) (void)fail(parser, "hexadecimal digits are wanted");
        return out;
    }
    bool alphabetic = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (alphabetic) (void)fail(parser, "back references and this escape are not supported");
    return (unsigned char)c;
}

/* One end of a range in brackets. False: it was a class. */
static bool bracket_end(struct parser *parser, struct set *set, uint32_t *c) {
    if (!take(parser, '\\')) {
        *c = decode(&parser->at, parser->end);
        return true;
    }
    if (parser->at == parser->end) {
        (void)fail(parser, "it ends with a backslash");
        return false;
    }
    if (class_of(parser, set, *parser->at)) {
        parser->at++;
        return false;
    }
    if (take(parser, 'b')) *c = '\b';
    else *c = escaped(parser);
    return true;
}

static const struct tree *bracket(struct parser *parser) {
    struct set *set = arena_zalloc(parser->arena, sizeof *set);
    set->others = take(parser, '^');
    while (parser->at < parser->end && *parser->at != ']') {
        uint32_t from, to;
        if (!bracket_end(parser, set, &from)) continue;
        to = from;
        bool range = parser->end - parser->at >= 2 && parser->at[0] == '-' && parser->at[1] != ']';
        if (range) {
            parser->at++;
            if (!bracket_end(parser, set, &to)) set_add(parser, set, '-', '-'), to = from;
        }
        if (to < from) return fail(parser, "a range in brackets goes backwards");
        set_add(parser, set, from, to);
    }
    if (!take(parser, ']')) return fail(parser, "']' is missing");
    return tree_new(parser, (struct tree){.type = TREE_SET, .set = set});
}

/* -- parsing ------------------------------------------------------------------------------------------------------ */

static const struct tree *either(struct parser *parser);

static const struct tree *one_char(struct parser *parser, uint32_t c) {
    struct set *set = arena_zalloc(parser->arena, sizeof *set);
    set_add(parser, set, c, c);
    return tree_new(parser, (struct tree){.type = TREE_SET, .set = set});
}

static const struct tree *assertion(struct parser *parser, enum assertion what) {
    return tree_new(parser, (struct tree){.type = TREE_ASSERT, .assertion = what});
}

static const struct tree *group(struct parser *parser) {
    if (take(parser, '?') && !take(parser, ':')) return fail(parser, "look-ahead and named groups are not supported");
    if (++parser->depth > DEPTH_MOST) return fail(parser, "its groups are too deep");
    const struct tree *inside = either(parser);
    parser->depth--;
    return take(parser, ')') ? inside : fail(parser, "')' is missing");
}

static const struct tree *backslash(struct parser *parser) {
    struct set *set = arena_zalloc(parser->arena, sizeof *set);
    if (parser->at == parser->end) return fail(parser, "it ends with a backslash");
    if (take(parser, 'b')) return assertion(parser, AT_WORD);
    if (take(parser, 'B')) return assertion(parser, AT_NO_WORD);
    if (!class_of(parser, set, *parser->at)) return one_char(parser, escaped(parser));
    parser->at++;
    return tree_new(parser, (struct tree){.type = TREE_SET, .set = set});
}

static const struct tree *atom(struct parser *parser) {
    static const struct range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    static const struct set any = {(struct range *)(uintptr_t)line_ends, ARRAY_COUNT(line_ends), true};
    if (take(parser, '(')) return group(parser);
    if (take(parser, '[')) return bracket(parser);
    if (take(parser, '\\')) return backslash(parser);
    if (take(parser, '^')) return assertion(parser, AT_START);
    if (take(parser, '$')) return assertion(parser, AT_END);
    if (take(parser, '.')) return tree_new(parser, (struct tree){.type = TREE_SET, .set = &any});
    if (strchr("*+?", *parser->at)) return fail(parser, "nothing to repeat");
    return one_char(parser, decode(&parser->at, parser->end));
}

static bool number(struct parser *parser, unsigned *out) {
    const char *start = parser->at;
    for (*out = 0; parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9'; parser->at++)
        *out = *out > TIMES_MOST ? *out : *out * 10 + (unsigned)(*parser->at - '0');
    return parser->at > start;
}

/* "{2,3}" after its brace; false: it is none, and a brace is a character. */
static bool times(struct parser *parser, struct tree *tree) {
    const char *start = parser->at;
    bool fine = number(parser, &tree->least);
    tree->most = tree->least;
    if (fine && take(parser, ',') && !number(parser, &tree->most)) tree->most = TIMES_ANY;
    if (fine && take(parser, '}')) {
        if (tree->most < tree->least) (void)fail(parser, "a repetition goes backwards");
        return true;
    }
    parser->at = start;
    return false;
}

static const struct tree *repeated(struct parser *parser) {
    const struct tree *inside = atom(parser);
    while (parser->at < parser->end) {
        struct tree tree = {.type = TREE_TIMES, .left = inside};
        if (take(parser, '*')) tree.most = TIMES_ANY;
        else if (take(parser, '+')) tree.least = 1, tree.most = TIMES_ANY;
        else if (take(parser, '?')) tree.most = 1;
        else if (*parser->at == '{') {
            parser->at++;
            if (!times(parser, &tree)) {
                parser->at--;
                break;
            }
        } else break;
        (void)take(parser, '?'); /* whether it is greedy makes no difference to what is found */
        if (tree.least > TIMES_MOST || (tree.most > TIMES_MOST && tree.most != TIMES_ANY))
            return fail(parser, "more than 1000 repetitions");
        inside = tree_new(parser, tree);
    }
    return inside;
}

static const struct tree *sequence(struct parser *parser) {
    const struct tree *all = tree_new(parser, (struct tree){.type = TREE_EMPTY});
    while (parser->at < parser->end && *parser->at != '|' && *parser->at != ')') {
        const char *before = parser->at;
        const struct tree *next = *parser->at == '{' ? one_char(parser, '{') : repeated(parser);
        if (parser->at == before) parser->at++; /* the brace */
        all = tree_new(parser, (struct tree){.type = TREE_BOTH, .left = all, .right = next});
    }
    return all;
}

static const struct tree *either(struct parser *parser) {
    const struct tree *all = sequence(parser);
    while (take(parser, '|'))
        all = tree_new(parser, (struct tree){.type = TREE_EITHER, .left = all, .right = sequence(parser)});
    return all;
}

/* -- the program -------------------------------------------------------------------------------------------------- */

static uint32_t emit(struct pattern *pattern, struct step step) {
    if (pattern->count < STEPS_MOST) pattern->steps[pattern->count] = step;
    return pattern->count < STEPS_MOST + 1 ? pattern->count++ : pattern->count;
}

static bool full(const struct pattern *pattern) { return pattern->count > STEPS_MOST; }

static void aim(struct pattern *pattern, uint32_t step, uint32_t to, uint32_t other) {
    if (step < STEPS_MOST) pattern->steps[step].to = to, pattern->steps[step].other = other;
}

static void compile(struct pattern *pattern, const struct tree *tree);

static void compile_times(struct pattern *pattern, const struct tree *tree) {
    uint32_t split;
    for (unsigned i = 0; i < tree->least && !full(pattern); i++) compile(pattern, tree->left);
    if (tree->most == TIMES_ANY) {
        split = emit(pattern, (struct step){.op = OP_SPLIT});
        compile(pattern, tree->left);
        (void)emit(pattern, (struct step){.op = OP_JUMP, .to = split});
        aim(pattern, split, split + 1, pattern->count);
        return;
    }
    for (unsigned i = tree->least; i < tree->most && !full(pattern); i++) {
        split = emit(pattern, (struct step){.op = OP_SPLIT});
        compile(pattern, tree->left);
        aim(pattern, split, split + 1, pattern->count);
    }
}

static void compile_either(struct pattern *pattern, const struct tree *tree) {
    uint32_t split = emit(pattern, (struct step){.op = OP_SPLIT});
    compile(pattern, tree->left);
    uint32_t jump = emit(pattern, (struct step){.op = OP_JUMP});
    aim(pattern, split, split + 1, pattern->count);
    compile(pattern, tree->right);
    aim(pattern, jump, pattern->count, 0);
}

static void compile(struct pattern *pattern, const struct tree *tree) {
    if (full(pattern)) return;
    switch (tree->type) {
        case TREE_EMPTY: break;
        case TREE_SET: (void)emit(pattern, (struct step){.op = OP_SET, .set = tree->set}); break;
        case TREE_ASSERT: (void)emit(pattern, (struct step){.op = OP_ASSERT, .assertion = tree->assertion}); break;
        case TREE_BOTH: compile(pattern, tree->left), compile(pattern, tree->right); break;
        case TREE_EITHER: compile_either(pattern, tree); break;
        case TREE_TIMES: compile_times(pattern, tree); break;
    }
}

int pattern_new(struct slice text, struct pattern **out, struct fault *fault) {
    struct fault wrong = {0};
    struct pattern *pattern = mem_zalloc(sizeof *pattern);
    struct parser parser = {&pattern->arena, text.data, text.data + text.size, 0, &wrong};
    *out = NULL;
    if (!utf8_valid(text)) fault_set(&wrong, CO_INVALID, "pattern: it is not UTF-8");
    if (text.size > STEPS_MOST) fault_set(&wrong, CO_TOOLARGE, "pattern: it has more than %d bytes", STEPS_MOST);
    const struct tree *tree = wrong.code ? NULL : either(&parser);
    if (!wrong.code && parser.at < parser.end) fault_set(&wrong, CO_INVALID, "pattern: a ')' too many");
    if (!wrong.code) {
        pattern->steps = arena_alloc(&pattern->arena, (STEPS_MOST + 1) * sizeof *pattern->steps);
        compile(pattern, tree);
        (void)emit(pattern, (struct step){.op = OP_DONE});
        if (full(pattern)) fault_set(&wrong, CO_TOOLARGE, "pattern: written out it has more than %d steps", STEPS_MOST);
    }
    if (wrong.code) {
        fault_set(fault, wrong.code, "%s", wrong.text);
        pattern_free(pattern);
        return wrong.code;
    }
    *out = pattern;
    return CO_OK;
}

void pattern_free(struct pattern *pattern) {
    if (!pattern) return;
    arena_free(&pattern->arena);
    free(pattern);
}

/* -- running it --------------------------------------------------------------------------------------------------- */

#define NO_CHARACTER UINT32_MAX

/* Positions in the program, each once. */
struct places {
    uint32_t *items;
    size_t count;
};
struct run {
    const struct pattern *pattern;
    uint32_t *stamp, turn, *stack;
    uint32_t before, next; /* the characters around the place in the text */
    bool done;
};

static bool is_word(uint32_t c) {
    static const struct set set = {(struct range *)(uintptr_t)words, ARRAY_COUNT(words), false};
    return c != NO_CHARACTER && set_has(&set, c);
}

static bool holds(const struct run *run, enum assertion what) {
    bool edge = is_word(run->before) != is_word(run->next);
    switch (what) {
        case AT_START: return run->before == NO_CHARACTER;
        case AT_END: return run->next == NO_CHARACTER;
        case AT_WORD: return edge;
        default: return !edge;
    }
}

/* All steps that want a character, reachable from this one. */
static void follow(struct run *run, struct places *places, uint32_t from) {
    size_t depth = 0;
    run->stack[depth++] = from;
    while (depth) {
        uint32_t at = run->stack[--depth];
        if (run->stamp[at] == run->turn) continue;
        run->stamp[at] = run->turn;
        const struct step *step = &run->pattern->steps[at];
        switch (step->op) {
            case OP_SET: places->items[places->count++] = at; break;
            case OP_DONE: run->done = true; break;
            case OP_JUMP: run->stack[depth++] = step->to; break;
            case OP_SPLIT:
                run->stack[depth++] = step->other;
                run->stack[depth++] = step->to;
                break;
            case OP_ASSERT:
                if (holds(run, step->assertion)) run->stack[depth++] = at + 1;
                break;
        }
    }
}

static bool run_text(struct run *run, struct slice text, struct places *now, struct places *then) {
    const char *at = text.data, *end = text.data + text.size;
    run->before = NO_CHARACTER;
    run->turn = 1;
    for (;;) {
        const char *after = at;
        run->next = at < end ? decode(&after, end) : NO_CHARACTER;
        follow(run, now, 0);
        if (run->done || at == end) return run->done;
        uint32_t c = run->next, peek = NO_CHARACTER;
        const char *look = after;
        if (after < end) peek = decode(&look, end);
        run->before = c, run->next = peek;
        run->turn++;
        then->count = 0;
        for (size_t i = 0; i < now->count; i++)
            if (set_has(run->pattern->steps[now->items[i]].set, c)) follow(run, then, now->items[i] + 1);
        struct places *swap = now;
        now = then, then = swap;
        at = after;
        if (run->done) return true;
    }
}

bool pattern_found(const struct pattern *pattern, struct slice text) {
    if (!utf8_valid(text)) return false;
    size_t count = pattern->count;
    uint32_t *room = mem_zalloc((3 * count + 2 * count + 2) * sizeof *room);
    struct places now = {room, 0}, then = {room + count, 0};
    struct run run = {.pattern = pattern, .stamp = room + 2 * count, .stack = room + 3 * count};
    bool found = run_text(&run, text, &now, &then);
    free(room);
    return found;
}
