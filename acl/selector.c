#include "acl/selector.h"

#include <ctype.h>
#include <regex.h>
#include <string.h>

#define TEXT_MOST 1024 /* bytes of a text in a selector */

struct reader {
    struct slice text;
    size_t at;
    const struct selector_names *names;
    const struct jwt_variables *variables;
    unsigned depth;
    struct fault *fault;
};

/* -- words ------------------------------------------------------------------------------------------------------------ */
enum token { TOKEN_END, TOKEN_WORD, TOKEN_TEXT, TOKEN_EQUAL, TOKEN_UNEQUAL, TOKEN_OPEN, TOKEN_CLOSE, TOKEN_WRONG };
struct piece {
    enum token token;
    char text[TEXT_MOST + 1];
    size_t size;
};

static bool wrong(struct reader *reader, const char *what) {
    fault_set(reader->fault, CO_INVALID, "selector: %s at byte %zu", what, reader->at + 1);
    return false;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static void take_word(struct reader *reader, struct piece *piece) {
    piece->token = TOKEN_WORD;
    while (reader->at < reader->text.size && is_word(reader->text.data[reader->at]) && piece->size < TEXT_MOST)
        piece->text[piece->size++] = reader->text.data[reader->at++];
}

static bool take_escape(struct reader *reader, char *c) {
    static const char from[] = "\"\\nt", to[] = "\"\\\n\t";
    const char *found = reader->at < reader->text.size ? strchr(from, reader->text.data[reader->at]) : NULL;
    if (!found || !*found) return wrong(reader, "unknown escape");
    *c = to[found - from];
    return true;
}

static void take_text(struct reader *reader, struct piece *piece, char quote) {
    reader->at++;
    while (reader->at < reader->text.size && reader->text.data[reader->at] != quote) {
        char c = reader->text.data[reader->at++];
        if (quote == '"' && c == '\\') {
            if (!take_escape(reader, &c)) return;
            reader->at++;
        }
        if (piece->size == TEXT_MOST) {
            (void)wrong(reader, "a text is too long");
            return;
        }
        piece->text[piece->size++] = c;
    }
    if (reader->at == reader->text.size) {
        (void)wrong(reader, "a text without an end");
        return;
    }
    reader->at++;
    piece->token = TOKEN_TEXT;
}

static bool starts(const struct reader *reader, const char *with) {
    size_t size = strlen(with);
    return reader->text.size - reader->at >= size && memcmp(reader->text.data + reader->at, with, size) == 0;
}

static struct piece take(struct reader *reader) {
    struct piece piece = {.token = TOKEN_WRONG};
    while (reader->at < reader->text.size && strchr(" \t\r\n", reader->text.data[reader->at])) reader->at++;
    if (reader->at == reader->text.size) piece.token = TOKEN_END;
    else if (starts(reader, "==")) piece.token = TOKEN_EQUAL, reader->at += 2;
    else if (starts(reader, "!=")) piece.token = TOKEN_UNEQUAL, reader->at += 2;
    else if (starts(reader, "(")) piece.token = TOKEN_OPEN, reader->at++;
    else if (starts(reader, ")")) piece.token = TOKEN_CLOSE, reader->at++;
    else if (starts(reader, "\"")) take_text(reader, &piece, '"');
    else if (starts(reader, "`")) take_text(reader, &piece, '`');
    else if (is_word(reader->text.data[reader->at])) take_word(reader, &piece);
    else (void)wrong(reader, "an unknown character");
    piece.text[piece.size] = '\0';
    return piece;
}

static bool is(const struct piece *piece, const char *word) {
    return piece->token == TOKEN_WORD && strcmp(piece->text, word) == 0;
}

/* Takes the word if it comes next. */
static bool took(struct reader *reader, const char *word) {
    size_t before = reader->at;
    struct piece next = take(reader);
    if (is(&next, word)) return true;
    reader->at = before;
    return false;
}

/* -- names ------------------------------------------------------------------------------------------------------------ */
struct subject {
    bool list;
    struct slice text;         /* of a value */
    const struct slice *items; /* of a list */
    size_t count;
};

static bool has_name(const struct jwt_mapping *mappings, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(mappings[i].name, name) == 0) return true;
    return false;
}

static void value_of(const struct jwt_variables *variables, const char *name, struct subject *subject) {
    for (size_t i = 0; variables && i < variables->value_count; i++)
        if (strcmp(variables->values[i].name, name) == 0) subject->text = variables->values[i].text;
}

static void list_of(const struct jwt_variables *variables, const char *name, struct subject *subject) {
    for (size_t i = 0; variables && i < variables->list_count; i++)
        if (strcmp(variables->lists[i].name, name) == 0)
            subject->items = variables->lists[i].items, subject->count = variables->lists[i].count;
}

static bool find(struct reader *reader, const struct piece *piece, struct subject *subject) {
    const struct selector_names *names = reader->names;
    *subject = (struct subject){.text = slice_make("", 0)};
    if (piece->token == TOKEN_WORD && strncmp(piece->text, "value.", 6) == 0 &&
        has_name(names->values, names->value_count, piece->text + 6)) {
        value_of(reader->variables, piece->text + 6, subject);
        return true;
    }
    subject->list = true;
    if (piece->token == TOKEN_WORD && strncmp(piece->text, "list.", 5) == 0 &&
        has_name(names->lists, names->list_count, piece->text + 5)) {
        list_of(reader->variables, piece->text + 5, subject);
        return true;
    }
    fault_set(reader->fault, CO_INVALID, "selector: \"%.80s\" is no name of this auth method's claims", piece->text);
    return false;
}

/* -- comparisons ------------------------------------------------------------------------------------------------------ */
static bool holds_text(const struct subject *subject, struct slice text) {
    if (!subject->list)
        return !text.size ||
               (subject->text.size && memmem(subject->text.data, subject->text.size, text.data, text.size));
    for (size_t i = 0; i < subject->count; i++)
        if (slice_equal(subject->items[i], text)) return true;
    return false;
}

static bool matches(struct reader *reader, const struct subject *subject, const char *pattern, bool *yes) {
    regex_t regex;
    char text[TEXT_MOST + 1];
    if (subject->list) return wrong(reader, "a list does not match, it contains");
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0) return wrong(reader, "a bad regular expression");
    size_t size = subject->text.size < TEXT_MOST ? subject->text.size : TEXT_MOST;
    memcpy(text, subject->text.data, size);
    text[size] = '\0';
    *yes = subject->text.size <= TEXT_MOST && regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return true;
}

static bool is_text(const struct piece *piece) { return piece->token == TOKEN_TEXT || piece->token == TOKEN_WORD; }
static struct slice text_of(const struct piece *piece) { return slice_make(piece->text, piece->size); }

/* After a text: `in NAME`. */
static bool parse_in(struct reader *reader, const struct piece *text, bool *yes) {
    struct subject subject;
    bool negative = took(reader, "not");
    if (!took(reader, "in")) return wrong(reader, "==, !=, in, contains, matches or is is wanted");
    struct piece name = take(reader);
    if (!find(reader, &name, &subject)) return false;
    *yes = holds_text(&subject, text_of(text)) != negative;
    return true;
}

static bool parse_is(struct reader *reader, const struct subject *subject, bool *yes) {
    bool negative = took(reader, "not");
    if (!took(reader, "empty")) return wrong(reader, "\"empty\" is wanted");
    if (!subject->list) return wrong(reader, "only a list is empty; compare a value with \"\"");
    *yes = (subject->count == 0) != negative;
    return true;
}

static bool parse_operator(struct reader *reader, const struct subject *subject, bool *yes) {
    struct piece operator= take(reader);
    bool negative = is(&operator, "not");
    if (is(&operator, "is")) return parse_is(reader, subject, yes);
    if (negative) operator= take(reader);
    bool equal = operator.token == TOKEN_EQUAL || operator.token == TOKEN_UNEQUAL;
    if (equal && subject->list) return wrong(reader, "a list is not compared, it contains");
    if ((!equal || negative) && !is(&operator, "contains") && !is(&operator, "matches"))
        return wrong(reader, "==, !=, in, contains, matches or is is wanted");
    struct piece text = take(reader);
    if (!is_text(&text)) return wrong(reader, "a text is wanted");
    if (is(&operator, "matches")) {
        if (!matches(reader, subject, text.text, yes)) return false;
    } else {
        *yes = equal ? slice_equal(subject->text, text_of(&text)) : holds_text(subject, text_of(&text));
    }
    if (negative || operator.token == TOKEN_UNEQUAL) *yes = !*yes;
    return true;
}

static bool parse_or(struct reader *reader, bool *yes);

static bool parse_one(struct reader *reader, bool *yes) {
    if (took(reader, "not")) {
        if (++reader->depth > SELECTOR_DEPTH_MOST) return wrong(reader, "it is nested too deeply");
        if (!parse_one(reader, yes)) return false;
        reader->depth--;
        *yes = !*yes;
        return true;
    }
    struct piece first = take(reader);
    if (first.token == TOKEN_OPEN) {
        if (++reader->depth > SELECTOR_DEPTH_MOST) return wrong(reader, "it is nested too deeply");
        if (!parse_or(reader, yes)) return false;
        reader->depth--;
        struct piece last = take(reader);
        return last.token == TOKEN_CLOSE || wrong(reader, "\")\" is wanted");
    }
    if (!is_text(&first)) return wrong(reader, "a name, a text or \"(\" is wanted");
    bool name =
        first.token == TOKEN_WORD && (strncmp(first.text, "value.", 6) == 0 || strncmp(first.text, "list.", 5) == 0);
    if (!name) return parse_in(reader, &first, yes);
    struct subject subject;
    return find(reader, &first, &subject) && parse_operator(reader, &subject, yes);
}

static bool parse_and(struct reader *reader, bool *yes) {
    if (!parse_one(reader, yes)) return false;
    while (took(reader, "and")) {
        bool other;
        if (!parse_one(reader, &other)) return false;
        *yes = *yes && other;
    }
    return true;
}

static bool parse_or(struct reader *reader, bool *yes) {
    if (!parse_and(reader, yes)) return false;
    while (took(reader, "or")) {
        bool other;
        if (!parse_and(reader, &other)) return false;
        *yes = *yes || other;
    }
    return true;
}

int selector_fits(struct slice text, const struct selector_names *names, const struct jwt_variables *variables,
                  bool *fits, struct fault *fault) {
    struct fault first = {0};
    struct reader reader = {.text = text, .names = names, .variables = variables, .fault = &first};
    *fits = true;
    if (!text.size) return CO_OK;
    if (parse_or(&reader, fits) && !first.code && take(&reader).token != TOKEN_END)
        (void)wrong(&reader, "\"and\", \"or\" or the end is wanted");
    return first.code ? fault_set(fault, first.code, "%s", first.text) : CO_OK;
}
