#include "base/suggest.h"

#include <limits.h>

#include "base/text.h"

#define SAME      0
#define BEGINNING 1   /* plus one for each letter that is missing */
#define TYPO      100 /* plus one for each error */
#define WORD_MOST 64

static char folded(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c + ('a' - 'A'));
    return c == '-' ? '_' : c;
}

static struct slice fold(struct slice text, char room[WORD_MOST]) {
    size_t size = text.size < WORD_MOST ? text.size : WORD_MOST;
    for (size_t i = 0; i < size; i++) room[i] = folded(text.data[i]);
    return slice_make(room, size);
}

/* The number of errors that a word of this length may have and still be suggested. */
static unsigned errors_most(size_t size) {
    unsigned most = (unsigned)(size + 2) / 3;
    if (size < 2) return 0;
    return most > 4 ? 4 : most;
}

unsigned suggest_rank(struct slice word, struct slice known) {
    char word_room[WORD_MOST], known_room[WORD_MOST];
    struct slice a = fold(word, word_room), b = fold(known, known_room);
    if (slice_equal(a, b)) return SAME;
    if (a.size >= 2 && a.size < b.size && slice_starts(b, a)) return BEGINNING + (unsigned)(b.size - a.size);
    unsigned distance = edit_distance(a, b);
    return distance <= errors_most(a.size) ? TYPO + distance : UINT_MAX;
}

void suggest_try(struct suggest *suggest, struct slice known) {
    unsigned rank = suggest_rank(suggest->word, known);
    if (rank == UINT_MAX) return;
    /* All found words are equally likely: all of them begin with the word, or all have the same number of errors. */
    bool beginnings = rank > SAME && rank < TYPO;
    unsigned best = suggest->count ? suggest->ranks[0] : UINT_MAX;
    if (suggest->count && rank != best && !(beginnings && best > SAME && best < TYPO)) {
        if (rank > best) return;
        suggest->count = 0;
    }
    unsigned at = suggest->count;
    while (at > 0 && suggest->ranks[at - 1] > rank) at--;
    if (at == SUGGEST_MOST) return;
    if (suggest->count < SUGGEST_MOST) suggest->count++;
    for (unsigned i = suggest->count - 1; i > at; i--) {
        suggest->found[i] = suggest->found[i - 1];
        suggest->ranks[i] = suggest->ranks[i - 1];
    }
    suggest->found[at] = known;
    suggest->ranks[at] = rank;
}

static void print(struct buffer *out, const struct suggest *suggest, const char *before, const char *behind) {
    for (unsigned i = 0; i < suggest->count; i++) {
        const char *between = i == 0 ? "" : i + 1 == suggest->count ? " or " : ", ";
        buffer_printf(out, "%s%s%.*s%s", between, before, (int)suggest->found[i].size, suggest->found[i].data, behind);
    }
}

void suggest_print(struct buffer *out, const struct suggest *suggest) { print(out, suggest, "\"", "\""); }

void suggest_print_bare(struct buffer *out, const struct suggest *suggest, const char *before) {
    print(out, suggest, before, "");
}
