/* The tokens of HCL. */
#include "base/hcl_inner.h"
#include "base/json_value.h"
#include "base/text.h"

/* ---- faults ---- */

int hcl_refuse_for(struct hcl_reader *r, int code, size_t at, const char *what, struct slice word) {
    size_t line, column;
    struct buffer shown = {0};
    text_place(r->text, at, &line, &column);
    if (word.data) {
        buffer_append_byte(&shown, ' ');
        json_text_show(&shown, word);
    }
    fault_set(r->fault, code, "HCL: %s%.*s at line %zu, column %zu", what, (int)shown.size,
              shown.size ? shown.data : "", line, column);
    buffer_free(&shown);
    r->token = HCL_WRONG;
    return code;
}

int hcl_refuse(struct hcl_reader *r, size_t at, const char *what) {
    return hcl_refuse_for(r, CO_INVALID, at, what, (struct slice){0});
}

struct slice hcl_token(const struct hcl_reader *r) {
    return slice_make(r->text.data + r->start, r->end - r->start);
}

/* The token is not what belongs here: "what" says what does. */
int hcl_refuse_token(struct hcl_reader *r, const char *what) {
    if (r->token == HCL_WRONG) return r->fault->code;
    if (r->token == HCL_END) return hcl_refuse(r, r->text.size, what);
    return hcl_refuse_for(r, CO_INVALID, r->start, what, hcl_token(r));
}

/* ---- characters ---- */

static char at(const struct hcl_reader *r, size_t place) { return place < r->text.size ? r->text.data[place] : '\0'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 16;
}

static size_t character_end(const struct hcl_reader *r, size_t place) {
    return place + utf8_next(slice_make(r->text.data + place, r->text.size - place));
}

static bool starts_at(const struct hcl_reader *r, size_t place, struct slice with) {
    return slice_starts(slice_make(r->text.data + place, r->text.size - place), with);
}

/* The end of the line, in front of its LF (or the end of the text). */
static size_t line_end(const struct hcl_reader *r, size_t place) {
    const char *end = place < r->text.size ? memchr(r->text.data + place, '\n', r->text.size - place) : NULL;
    return end ? (size_t)(end - r->text.data) : r->text.size;
}

/* Appends the bytes, CR LF as LF. */
static void append_lines(struct buffer *out, struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        bool cr = text.data[i] == '\r' && i + 1 < text.size && text.data[i + 1] == '\n';
        if (!cr) buffer_append_byte(out, text.data[i]);
    }
}

/* ---- quoted text ---- */

static void append_character(struct buffer *out, uint32_t c) {
    if (c < 0x80) {
        buffer_append_byte(out, (char)c);
        return;
    }
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char marks[] = {0, 0xc0, 0xe0, 0xf0};
    buffer_append_byte(out, (char)(marks[more] | c >> (6 * more)));
    while (more-- > 0) buffer_append_byte(out, (char)(0x80 | ((c >> (6 * more)) & 0x3f)));
}

/* Digits of an escape; false when there are fewer. */
static bool escape_digits(const struct hcl_reader *r, size_t place, size_t count, int base, uint32_t *value) {
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        int digit = hex_value(at(r, place + i));
        if (digit >= base) return false;
        *value = *value * (uint32_t)base + (uint32_t)digit;
    }
    return true;
}

/* An escape from its backslash on; appends what it stands for. Returns where it ends, 0 when it is none. */
static size_t escape(const struct hcl_reader *r, size_t place, struct buffer *out) {
    static const char letters[] = "abfnrtv\\\"", bytes[] = "\a\b\f\n\r\t\v\\\"";
    char c = at(r, place + 1);
    const char *known = c ? strchr(letters, c) : NULL;
    uint32_t value;
    if (known) {
        buffer_append_byte(out, bytes[known - letters]);
        return place + 2;
    }
    if (c >= '0' && c <= '7') {
        if (!escape_digits(r, place + 1, 3, 8, &value) || value > 0xff) return 0;
        buffer_append_byte(out, (char)value);
        return place + 4;
    }
    size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (count == 0 || !escape_digits(r, place + 2, count, 16, &value)) return 0;
    if (c == 'x') {
        buffer_append_byte(out, (char)value);
    } else {
        if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
        append_character(out, value);
    }
    return place + 2 + count;
}

static void refuse_escape(struct hcl_reader *r, size_t place) {
    size_t size = place + 1 < r->text.size ? character_end(r, place + 1) - place : 1;
    hcl_refuse_for(r, CO_INVALID, place, "unknown escape", slice_make(r->text.data + place, size));
}

/* From "${" on, appended as it is written. Returns where it ends; the fault is set when it does not. */
static size_t braces(struct hcl_reader *r, size_t place) {
    size_t start = place, depth = 0;
    struct buffer unused = {0};
    for (place++; place < r->text.size; place++) {
        char c = r->text.data[place];
        if (c == '{') depth++;
        if (c == '}' && --depth == 0) break;
        if (c != '\\') continue;
        size_t end = escape(r, place, &unused);
        if (!end) refuse_escape(r, place);
        if (!end) break;
        place = end - 1;
    }
    buffer_free(&unused);
    if (place == r->text.size) hcl_refuse(r, start, "\"${\" without its \"}\"");
    if (r->token == HCL_WRONG) return 0;
    append_lines(&r->string, slice_make(r->text.data + start, place + 1 - start));
    return place + 1;
}

static void read_quoted(struct hcl_reader *r) {
    size_t place = r->start + 1;
    bool plain = true;
    r->token = HCL_QUOTED;
    buffer_reset(&r->string);
    while (at(r, place) != '"') {
        if (place >= r->text.size || r->text.data[place] == '\n') {
            hcl_refuse(r, r->start, "text without a closing quote");
            return;
        }
        if (starts_at(r, place, SLICE_LITERAL("${"))) {
            place = braces(r, place);
            if (!place) return;
        } else if (r->text.data[place] == '\\') {
            size_t end = escape(r, place, &r->string);
            if (!end) refuse_escape(r, place);
            if (!end) return;
            place = end;
            plain = false;
        } else {
            buffer_append_byte(&r->string, r->text.data[place++]);
        }
    }
    r->end = place + 1;
    if (!plain && !utf8_valid(buffer_slice(&r->string))) hcl_refuse(r, r->start, "escapes that make no UTF-8");
}

/* ---- heredocs ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

/* Takes the indentation of the last line from each line, when all lines have it. */
static void unindent(struct buffer *lines, struct slice indentation) {
    struct slice text = buffer_slice(lines);
    for (size_t i = 0; i < text.size;) {
        if (!slice_starts(slice_make(text.data + i, text.size - i), indentation)) return;
        i = (size_t)((const char *)memchr(text.data + i, '\n', text.size - i) - text.data) + 1;
    }
    struct buffer out = {0};
    for (size_t i = 0; i < text.size;) {
        size_t end = (size_t)((const char *)memchr(text.data + i, '\n', text.size - i) - text.data) + 1;
        buffer_append(&out, text.data + i + indentation.size, end - i - indentation.size);
        i = end;
    }
    buffer_free(lines);
    *lines = out;
}

static void read_heredoc(struct hcl_reader *r) {
    bool indented = at(r, r->start + 2) == '-';
    size_t name_start = r->start + 2 + indented, name_end = name_start;
    while (is_letter(at(r, name_end)) || is_digit(at(r, name_end))) name_end++;
    struct slice name = slice_make(r->text.data + name_start, name_end - name_start);
    size_t line = name_end + (at(r, name_end) == '\r');
    if (at(r, r->start + 1) != '<' || name.size == 0 || at(r, line) != '\n') {
        hcl_refuse(r, r->start, "a heredoc begins with <<NAME and the end of the line");
        return;
    }
    for (size_t first = ++line; line < r->text.size;) {
        size_t end = line_end(r, line), from = line, to = end;
        while (from < end && is_blank(r->text.data[from])) from++;
        while (to > from && r->text.data[to - 1] == '\r') to--;
        if (slice_equal(slice_make(r->text.data + from, to - from), name)) {
            r->token = HCL_HEREDOC;
            r->end = end < r->text.size ? end + 1 : end;
            buffer_reset(&r->string);
            append_lines(&r->string, slice_make(r->text.data + first, line - first));
            if (indented && from > line) unindent(&r->string, slice_make(r->text.data + line, from - line));
            return;
        }
        line = end < r->text.size ? end + 1 : end;
    }
    hcl_refuse_for(r, CO_INVALID, r->start, "a heredoc without its last line", name);
}

/* ---- other tokens ---- */

/* Moves behind blanks and comments. */
static size_t skip(struct hcl_reader *r, size_t place) {
    for (;;) {
        while (place < r->text.size && strchr(" \t\r\n", r->text.data[place])) place++;
        if (at(r, place) == '#' || starts_at(r, place, SLICE_LITERAL("//"))) {
            place = line_end(r, place);
        } else if (starts_at(r, place, SLICE_LITERAL("/*"))) {
            const char *end = memmem(r->text.data + place + 2, r->text.size - place - 2, "*/", 2);
            if (!end) {
                hcl_refuse(r, place, "a comment without its end");
                return place;
            }
            place = (size_t)(end - r->text.data) + 2;
        } else {
            return place;
        }
    }
}

static void read_name(struct hcl_reader *r) {
    size_t end = r->start;
    while (is_letter(at(r, end)) || is_digit(at(r, end)) || at(r, end) == '-' || at(r, end) == '.') end++;
    r->token = HCL_NAME;
    r->end = end;
    buffer_reset(&r->string);
    buffer_append(&r->string, r->text.data + r->start, end - r->start);
}

/* Takes all that looks like a part of the number: number_value judges it. */
static void read_number(struct hcl_reader *r) {
    size_t end = r->start + 1;
    for (;; end++) {
        char c = at(r, end), before = at(r, end - 1);
        bool sign = (c == '-' || c == '+') && (before == 'e' || before == 'E');
        if (!is_digit(c) && !is_letter(c) && c != '.' && !sign) break;
    }
    r->token = HCL_NUMBER;
    r->end = end;
}

void hcl_advance(struct hcl_reader *r) {
    if (r->token == HCL_WRONG) return;
    r->start = skip(r, r->end);
    if (r->token == HCL_WRONG) return;
    char c = at(r, r->start), next = at(r, r->start + 1);
    r->end = r->start + 1;
    if (r->start == r->text.size) {
        r->token = HCL_END;
        r->end = r->start;
    } else if (starts_at(r, r->start, SLICE_LITERAL("\xef\xbb\xbf"))) {
        hcl_refuse(r, r->start, "a byte order mark");
    } else if (is_letter(c)) {
        read_name(r);
    } else if (c == '"') {
        read_quoted(r);
    } else if (c == '<') {
        read_heredoc(r);
    } else if (is_digit(c) || ((c == '-' || c == '.') && is_digit(next))) {
        read_number(r);
    } else if (strchr("{}[],=", c)) {
        r->token = HCL_SIGN;
    } else {
        hcl_refuse_for(r, CO_INVALID, r->start, c == ':' ? "a value stands behind \"=\", not" : "unexpected character",
                       slice_make(r->text.data + r->start, character_end(r, r->start) - r->start));
    }
}
