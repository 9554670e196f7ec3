/* Compiles a pattern to a program. Each part of the pattern becomes a piece of the program; an operator that follows it
 * (a star, a bar) copies or moves that piece. */
#include "base/pattern.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/pattern_inner.h"
#include "base/text.h"

#define RANGES_MOST  4096
#define CLASSES_MOST 1024
#define GROUPS_MOST  64 /* within one another */
#define LAST         0x10ffffu
#define COUNT_MOST   10000

struct reading {
    struct slice text, left;
    struct fault *fault;
    unsigned groups; /* groups that are open */
    unsigned count, range_count, class_count;
    struct instruction program[PATTERN_INSTRUCTIONS_MOST], piece[PATTERN_INSTRUCTIONS_MOST];
    struct range ranges[RANGES_MOST];
    struct class classes[CLASSES_MOST];
};

static bool refuse(struct reading *r, const char *what) {
    fault_set(r->fault, CO_INVALID, "%s, at byte %zu", what, r->text.size - r->left.size);
    return false;
}

static bool too_large(struct reading *r) {
    fault_set(r->fault, CO_TOOLARGE, "the pattern is too large (%d states at most)", PATTERN_INSTRUCTIONS_MOST);
    return false;
}

/* Is one of the characters of `any` next? */
static bool ahead_any(const struct reading *r, const char *any) {
    return r->left.size && r->left.data[0] && strchr(any, r->left.data[0]);
}

static bool ahead(const struct reading *r, const char *text) { return slice_starts(r->left, slice_text(text)); }

static void skip(struct reading *r, size_t bytes) { r->left = slice_make(r->left.data + bytes, r->left.size - bytes); }

static bool take(struct reading *r, const char *text) {
    if (!ahead(r, text)) return false;
    skip(r, strlen(text));
    return true;
}

/* ---- pieces of the program ---- */

static bool emit(struct reading *r, enum operation operation, unsigned to, uint32_t value) {
    if (r->count == PATTERN_INSTRUCTIONS_MOST - 1) return too_large(r); /* one is left for OP_MATCH */
    r->program[r->count] = (struct instruction){operation, (int16_t)(to - r->count), value};
    r->count++;
    return true;
}

static bool emit_piece(struct reading *r, unsigned size) {
    if (r->count + size >= PATTERN_INSTRUCTIONS_MOST) return too_large(r);
    memcpy(r->program + r->count, r->piece, size * sizeof *r->piece);
    r->count += size;
    return true;
}

/* Inserts an instruction before those from `start` on. */
static bool insert(struct reading *r, unsigned start, enum operation operation, unsigned to) {
    if (!emit(r, operation, r->count, 0)) return false;
    memmove(r->program + start + 1, r->program + start, (r->count - 1 - start) * sizeof *r->program);
    r->program[start] = (struct instruction){operation, (int16_t)(to - start), 0};
    return true;
}

static bool repeat_for_ever(struct reading *r, unsigned size, bool once_at_least) {
    unsigned start = r->count;
    if (once_at_least) return emit_piece(r, size) && emit(r, OP_SPLIT, start, 0);
    return emit(r, OP_SPLIT, start + size + 2, 0) && emit_piece(r, size) && emit(r, OP_JUMP, start, 0);
}

/* Repeats the program from `start` on `least` to `most` times (UINT32_MAX: any number of times). */
static bool repeat(struct reading *r, unsigned start, uint32_t least, uint32_t most) {
    unsigned size = r->count - start;
    if (size == 0) return true; /* nothing, however often */
    memcpy(r->piece, r->program + start, size * sizeof *r->piece);
    r->count = start;
    bool for_ever = most == UINT32_MAX;
    for (uint32_t i = for_ever; i < least; i++) {
        if (!emit_piece(r, size)) return false;
    }
    if (for_ever) return repeat_for_ever(r, size, least > 0);
    for (uint32_t i = least; i < most; i++) {
        if (!emit(r, OP_SPLIT, r->count + size + 1, 0) || !emit_piece(r, size)) return false;
    }
    return true;
}

/* ---- sets of characters ---- */

static const struct range digits[] = {{'0', '9'}};
static const struct range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* ECMA's WhiteSpace and LineTerminator. */
static const struct range blanks[] = {{9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680},
                                      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                      {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static bool add_range(struct reading *r, uint32_t first, uint32_t last) {
    if (r->range_count == RANGES_MOST) return too_large(r);
    r->ranges[r->range_count++] = (struct range){first, last};
    return true;
}

/* Adds a sorted set, or all characters that are not in it. */
static bool add_set(struct reading *r, const struct range *set, size_t count, bool all_else) {
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (!all_else && !add_range(r, set[i].first, set[i].last)) return false;
        if (all_else && set[i].first > next && !add_range(r, next, set[i].first - 1)) return false;
        next = set[i].last + 1;
    }
    return !all_else || add_range(r, next, LAST);
}

/* Adds the set that `letter` names: of \d, \D and so on. False, and *failed stays false, when it names none. */
static bool named_set(struct reading *r, char letter, bool *failed) {
    switch (letter) {
        case 'd':
        case 'D': *failed = !add_set(r, digits, ARRAY_COUNT(digits), letter == 'D'); return true;
        case 'w':
        case 'W': *failed = !add_set(r, word, ARRAY_COUNT(word), letter == 'W'); return true;
        case 's':
        case 'S': *failed = !add_set(r, blanks, ARRAY_COUNT(blanks), letter == 'S'); return true;
        default: return false;
    }
}

/* Makes a class of the ranges from `first` on, and emits an instruction that takes one character of it. */
static bool emit_class(struct reading *r, unsigned first, bool negated) {
    if (r->class_count == CLASSES_MOST) return too_large(r);
    r->classes[r->class_count] = (struct class){first, r->range_count - first, negated};
    return emit(r, OP_CLASS, r->count, r->class_count++);
}

/* ---- escapes ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `least` to `most` hexadecimal digits. */
static bool take_hex(struct reading *r, unsigned least, unsigned most, uint32_t *value) {
    unsigned count = 0;
    *value = 0;
    for (; count < most && r->left.size && hex_digit(r->left.data[0]) >= 0; count++, skip(r, 1)) {
        *value = *value << 4 | (uint32_t)hex_digit(r->left.data[0]);
    }
    return count >= least || refuse(r, "hexadecimal digits are wanted");
}

/* Behind "\u". A pair of surrogates is one character. */
static bool take_unicode(struct reading *r, uint32_t *value) {
    if (take(r, "{")) {
        if (!take_hex(r, 1, 6, value)) return false;
        return (*value <= LAST && take(r, "}")) || refuse(r, "\\u{...} is no character");
    }
    if (!take_hex(r, 4, 4, value)) return false;
    struct slice behind = r->left;
    uint32_t low;
    if (*value < 0xd800 || *value > 0xdbff || !take(r, "\\u")) return true;
    if (!ahead(r, "{") && take_hex(r, 4, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
        *value = 0x10000 + ((*value - 0xd800) << 10) + (low - 0xdc00);
        return true;
    }
    r->left = behind;
    return r->fault->code == CO_OK;
}

/* The character that an escape means; the reading is behind its letter. */
static bool take_escape(struct reading *r, char letter, uint32_t *value) {
    static const char letters[] = "tnvfr", meant[] = "\t\n\v\f\r";
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        *value = (unsigned char)meant[known - letters];
        return true;
    }
    if (letter == 'x') return take_hex(r, 2, 2, value);
    if (letter == 'u') return take_unicode(r, value);
    bool digit_follows = r->left.size && r->left.data[0] >= '0' && r->left.data[0] <= '9';
    if (letter == '0' && !digit_follows) {
        *value = 0;
        return true;
    }
    if (letter == 'c' && r->left.size && ((r->left.data[0] | 32) >= 'a' && (r->left.data[0] | 32) <= 'z')) {
        *value = r->left.data[0] & 31;
        skip(r, 1);
        return true;
    }
    *value = (unsigned char)letter;
    bool is_letter = hex_digit(letter) >= 0 || ((letter | 32) >= 'a' && (letter | 32) <= 'z');
    if (letter > ' ' && letter < 0x7f && !is_letter) return true;
    char what[] = "\\? is not supported";
    if (letter > ' ' && letter < 0x7f) what[1] = letter;
    return refuse(r, what);
}

/* Behind a backslash: its letter. */
static bool take_letter(struct reading *r, char *letter) {
    if (r->left.size == 0) return refuse(r, "a backslash at the end");
    *letter = r->left.data[0];
    skip(r, 1);
    return true;
}

/* ---- [classes] ---- */

/* One member of a class: a character, or a set (*is_set), whose ranges are added. */
static bool take_member(struct reading *r, uint32_t *value, bool *is_set) {
    char letter = 0;
    bool failed = false;
    *is_set = false;
    if (r->left.size == 0) return refuse(r, "\"]\" is missing");
    if (!take(r, "\\")) {
        *value = utf8_take(&r->left);
        return true;
    }
    if (!take_letter(r, &letter)) return false;
    *is_set = named_set(r, letter, &failed);
    if (*is_set) return !failed;
    if (letter == 'b') {
        *value = '\b';
        return true;
    }
    return take_escape(r, letter, value);
}

/* A member, or a range of characters. */
static bool take_members(struct reading *r) {
    uint32_t first, last;
    bool is_set, last_is_set = false;
    if (!take_member(r, &first, &is_set)) return false;
    bool is_range = ahead(r, "-") && !ahead(r, "-]");
    if (!is_range) return is_set || add_range(r, first, first);
    skip(r, 1);
    if (!take_member(r, &last, &last_is_set)) return false;
    if (is_set || last_is_set) return refuse(r, "a range from or to a set");
    return last >= first ? add_range(r, first, last) : refuse(r, "a range that ends before it begins");
}

/* Behind "[". */
static bool read_class(struct reading *r) {
    unsigned first = r->range_count;
    bool negated = take(r, "^");
    while (!take(r, "]")) {
        if (!take_members(r)) return false;
    }
    return emit_class(r, first, negated);
}

/* ---- the grammar ---- */

static bool read_alternatives(struct reading *r);

/* Behind "(". */
static bool read_group(struct reading *r) {
    if (ahead(r, "?=") || ahead(r, "?!")) return refuse(r, "look-ahead is not supported");
    if (ahead(r, "?<=") || ahead(r, "?<!")) return refuse(r, "look-behind is not supported");
    if (take(r, "?<")) {
        while (r->left.size && !ahead(r, ">")) skip(r, 1);
        if (!take(r, ">")) return refuse(r, "a name of a group that does not end");
    } else if (!take(r, "?:") && ahead(r, "?")) {
        return refuse(r, "what \"(?\" begins is not supported");
    }
    if (r->groups == GROUPS_MOST) return too_large(r);
    r->groups++;
    if (!read_alternatives(r)) return false;
    r->groups--;
    return take(r, ")") || refuse(r, "\")\" is missing");
}

/* Behind a backslash, outside a class. */
static bool read_escape(struct reading *r, bool *repeats) {
    char letter = 0;
    uint32_t value;
    unsigned first = r->range_count;
    bool failed = false;
    if (!take_letter(r, &letter)) return false;
    *repeats = letter != 'b' && letter != 'B';
    if (letter == 'b') return emit(r, OP_WORD_EDGE, r->count, 0);
    if (letter == 'B') return emit(r, OP_NO_WORD_EDGE, r->count, 0);
    if (named_set(r, letter, &failed)) return !failed && emit_class(r, first, false);
    return take_escape(r, letter, &value) && emit(r, OP_CHARACTER, r->count, value);
}

/* Reads an atom, which a quantifier may follow; without *repeats, an edge, which none may follow. */
static bool read_atom(struct reading *r, bool *repeats) {
    unsigned first = r->range_count;
    *repeats = true;
    if (take(r, "(")) return read_group(r);
    if (take(r, "[")) return read_class(r);
    if (take(r, "\\")) return read_escape(r, repeats);
    if (take(r, ".")) return add_set(r, line_ends, ARRAY_COUNT(line_ends), false) && emit_class(r, first, true);
    *repeats = false;
    if (take(r, "^")) return emit(r, OP_START, r->count, 0);
    if (take(r, "$")) return emit(r, OP_END, r->count, 0);
    *repeats = true;
    if (ahead_any(r, "*+?")) return refuse(r, "nothing that could be repeated");
    if (ahead_any(r, "{}]")) return refuse(r, "a lone brace or bracket; write \\{ for a brace");
    return emit(r, OP_CHARACTER, r->count, utf8_take(&r->left));
}

static bool take_count(struct reading *r, uint32_t *count) {
    size_t size = 0;
    uint64_t value;
    while (size < r->left.size && r->left.data[size] >= '0' && r->left.data[size] <= '9') size++;
    if (size == 0) return refuse(r, "a lone brace or bracket; write \\{ for a brace");
    if (u64_parse(slice_make(r->left.data, size), COUNT_MOST, &value) != CO_OK) return too_large(r);
    *count = (uint32_t)value;
    skip(r, size);
    return true;
}

/* Behind "{". */
static bool take_counts(struct reading *r, uint32_t *least, uint32_t *most) {
    if (!take_count(r, least)) return false;
    *most = *least;
    if (take(r, ",")) {
        *most = UINT32_MAX;
        if (!ahead(r, "}") && !take_count(r, most)) return false;
    }
    if (!take(r, "}")) return refuse(r, "\"}\" is missing");
    return *most >= *least || refuse(r, "a count that ends before it begins");
}

/* Reads the quantifier of the piece from `start` on, if there is one. */
static bool read_quantifier(struct reading *r, unsigned start, bool repeats) {
    uint32_t least = 0, most = UINT32_MAX;
    if (!ahead_any(r, "*+?{")) return true;
    if (!repeats) return refuse(r, "nothing that could be repeated");
    if (take(r, "+")) {
        least = 1;
    } else if (take(r, "?")) {
        most = 1;
    } else if (!take(r, "*")) {
        skip(r, 1);
        if (!take_counts(r, &least, &most)) return false;
    }
    take(r, "?"); /* a lazy quantifier matches the same texts */
    return repeat(r, start, least, most);
}

static bool read_sequence(struct reading *r) {
    while (r->left.size && !ahead(r, "|") && !ahead(r, ")")) {
        unsigned start = r->count;
        bool repeats;
        if (!read_atom(r, &repeats) || !read_quantifier(r, start, repeats)) return false;
    }
    return true;
}

static bool read_alternatives(struct reading *r) {
    unsigned start = r->count;
    if (!read_sequence(r)) return false;
    while (take(r, "|")) {
        if (!insert(r, start, OP_SPLIT, r->count + 2)) return false;
        unsigned jump = r->count;
        if (!emit(r, OP_JUMP, 0, 0) || !read_sequence(r)) return false;
        r->program[jump].to = (int16_t)(r->count - jump);
    }
    return true;
}

static void *kept(struct pattern *pattern, struct arena *arena, const void *from, size_t size) {
    pattern->weight += size;
    return size ? memcpy(arena_alloc(arena, size), from, size) : NULL;
}

static struct pattern *finish(struct reading *r, struct arena *arena) {
    r->program[r->count++] = (struct instruction){.operation = OP_MATCH};
    struct pattern *pattern = arena_zalloc(arena, sizeof *pattern);
    pattern->count = r->count;
    pattern->weight = sizeof *pattern;
    pattern->program = kept(pattern, arena, r->program, r->count * sizeof *r->program);
    pattern->ranges = kept(pattern, arena, r->ranges, r->range_count * sizeof *r->ranges);
    pattern->classes = kept(pattern, arena, r->classes, r->class_count * sizeof *r->classes);
    return pattern;
}

struct pattern *pattern_compile(struct arena *arena, struct slice text, struct fault *fault) {
    struct fault own = {0};
    if (text.size > PATTERN_TEXT_MOST) {
        fault_set(fault, CO_TOOLARGE, "the pattern is too large (%d bytes at most)", PATTERN_TEXT_MOST);
        return NULL;
    }
    struct reading *r = mem_alloc(sizeof *r);
    r->text = r->left = text;
    r->fault = &own;
    r->groups = r->count = r->range_count = r->class_count = 0;
    bool fine = read_alternatives(r) && (r->left.size == 0 || refuse(r, "\")\" that nothing opens"));
    struct pattern *pattern = fine ? finish(r, arena) : NULL;
    if (!fine) fault_set(fault, own.code, "%s", own.text);
    free(r);
    return pattern;
}

size_t pattern_weight(const struct pattern *pattern) { return pattern->weight; }
