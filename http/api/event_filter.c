#include "http/api/event_filter.h"

#include <stdlib.h>
#include <string.h>

#include "kv/event/event.h"

#define ANCHORS_MAX 8
#define TOO_LARGE   (EVENT_FILTER_WRITTEN + 1)

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* The end of the bracket expression that begins at `at`: "[]a]", "[^]a]", "[[:alpha:]x]". */
static const char *behind_bracket(const char *at) {
    at++;
    if (*at == '^') at++;
    if (*at == ']') at++;
    while (*at && *at != ']') {
        if (*at == '[' && at[1] && strchr(":.=", at[1])) {
            char kind = at[1];
            for (at += 2; *at && !(*at == kind && at[1] == ']');) at++;
            if (*at) at++;
        }
        if (*at) at++;
    }
    return *at ? at + 1 : at;
}

/* The number of copies that the C library writes out for "{2,5}", "{2,}", "{,5}". */
static unsigned copies(const char *at, const char **end) {
    unsigned long from = strtoul(at + 1, (char **)(uintptr_t)end, 10), to = from;
    if (**end == ',') {
        to = strtoul(*end + 1, (char **)(uintptr_t)end, 10);
        if (to == 0) to = from < TOO_LARGE ? from + 1 : from;
    }
    unsigned long most = from > to ? from : to;
    if (**end == '}') ++*end;
    return most == 0 ? 1 : most < TOO_LARGE ? (unsigned)most : TOO_LARGE;
}

struct part {
    unsigned places; /* in the written-out form */
    bool empty;      /* it matches the empty text, too */
};

/* Measures the part that begins at *at, up to an unmatched ")" or the end. A repetition of something that may be empty
 * counts as too large. */
static struct part part_of(const char **at) {
    struct part all = {0, true}, last = {0, true};
    bool other = false; /* an alternative may be empty */
    while (**at && **at != ')') {
        unsigned times = 0;
        const char *next = *at + 1;
        bool none = **at == '*' || **at == '?';
        if (**at == '{')
            times = copies(*at, &next),
            none = next - *at > 1 && (*at)[1] != ',' ? strtoul(*at + 1, NULL, 10) == 0 : true;
        else if (**at == '+') times = 2;
        else if (none) times = 1;
        if (times > 0) { /* repeats the item before it, also again and again: "a++" */
            last.places = last.empty ? TOO_LARGE : least(last.places * times + 1, TOO_LARGE);
            last.empty |= none;
            *at = next;
            continue;
        }
        all = (struct part){least(all.places + last.places, TOO_LARGE), all.empty && last.empty};
        last = (struct part){1, **at == '^' || **at == '$'};
        if (**at == '[') next = behind_bracket(*at);
        else if (**at == '\\' && next[0]) next++;
        else if (**at == '|') other |= all.empty, all.empty = last.empty = true;
        else if (**at == '(') {
            *at = next;
            last = part_of(at);
            last.places = least(last.places + 1, TOO_LARGE);
            next = **at ? *at + 1 : *at;
        }
        *at = next;
    }
    return (struct part){least(all.places + last.places, TOO_LARGE), other || (all.empty && last.empty)};
}

/* Looks outside of bracket expressions. POSIX defines a backslash only before a special character: "\\1" is a
 * back-reference. Of the C library's own escapes only the classes are allowed, because its assertions ("\\b") inside
 * repetitions make it copy without end. */
static const char *look_for_costly(const char *filter) {
    unsigned anchors = 0;
    while (*filter) {
        if (*filter == '[') {
            filter = behind_bracket(filter);
            continue;
        }
        if (*filter == '^' || *filter == '$') anchors++;
        if (*filter == '\\' && filter[1]) {
            filter++;
            if (*filter >= '1' && *filter <= '9') return "it has a back-reference";
            if (!strchr("wWsS.[]{}()\\*+?|^$/-_", *filter)) return "it has an escape that is not POSIX's";
        }
        filter++;
    }
    return anchors > ANCHORS_MAX ? "it has too many anchors" : NULL;
}

const char *event_filter_costly(const char *filter) {
    if (strlen(filter) > EVENT_FILTER_MAX) return "it is longer than 128 bytes"; /* EVENT_FILTER_MAX */
    const char *costly = look_for_costly(filter);
    if (costly) return costly;
    for (unsigned all = 0; *filter; filter += *filter == ')') { /* an unmatched ")" is a literal, or is refused later */
        all += part_of(&filter).places + 1;
        if (all > EVENT_FILTER_WRITTEN) return "its repetitions are too large";
    }
    return NULL;
}

int event_filter_compile(const char *filter, regex_t *regex, struct fault *fault) {
    char why[100];
    const char *costly = event_filter_costly(filter);
    if (costly)
        return fault_set(fault, CO_INVALID, "error parsing regexp: %s: `%.*s`", costly, EVENT_FILTER_MAX, filter);
    int rv = regcomp(regex, filter, REG_EXTENDED | REG_NOSUB);
    if (rv == 0) return CO_OK;
    regerror(rv, regex, why, sizeof why);
    return fault_set(fault, CO_INVALID, "error parsing regexp: %s: `%s`", why, filter);
}

bool event_filter_takes(const regex_t *regex, const char *text) {
    return strnlen(text, EVENT_FILTER_TEXT + 1) <= EVENT_FILTER_TEXT && regexec(regex, text, 0, NULL, 0) == 0;
}
