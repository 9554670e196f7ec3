#include "base/text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- durations ---- */

static const struct unit {
    const char *name;
    uint64_t nanoseconds;
} units[] = {
    {"ns", 1},       {"us", 1000},      {"\u00b5s", 1000},  {"\u03bcs", 1000},
    {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
};

/* The unit is everything up to the next digit or point. */
static uint64_t take_unit(struct slice *text) {
    size_t size = 0;
    while (size < text->size && !is_digit(text->data[size]) && text->data[size] != '.') size++;
    struct slice name = slice_make(text->data, size);
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        if (!slice_is(name, units[i].name)) continue;
        *text = slice_make(text->data + size, text->size - size);
        return units[i].nanoseconds;
    }
    return 0;
}

static int take_digits(struct slice *text, uint64_t *value, size_t *digits) {
    *value = 0;
    for (*digits = 0; *digits < text->size && is_digit(text->data[*digits]); ++*digits) {
        uint64_t digit = (uint64_t)(text->data[*digits] - '0');
        if (*value > ((uint64_t)INT64_MAX - digit) / 10) return CO_TOOLARGE;
        *value = *value * 10 + digit;
    }
    *text = slice_make(text->data + *digits, text->size - *digits);
    return CO_OK;
}

/* Digits behind the point; those that cannot change a nanosecond any more are read and forgotten. */
static size_t take_fraction(struct slice *text, uint64_t *value, uint64_t *scale) {
    *value = 0;
    *scale = 1;
    size_t digits = 0;
    for (; digits < text->size && is_digit(text->data[digits]); digits++) {
        if (*scale >= 1000000000000000000u) continue;
        *value = *value * 10 + (uint64_t)(text->data[digits] - '0');
        *scale *= 10;
    }
    *text = slice_make(text->data + digits, text->size - digits);
    return digits;
}

/* One "1.5h". */
static int take_part(struct slice *text, uint64_t *nanoseconds) {
    uint64_t whole, fraction = 0, scale = 1;
    size_t digits, behind = 0;
    int error = take_digits(text, &whole, &digits);
    if (error) return error;
    if (text->size > 0 && text->data[0] == '.') {
        *text = slice_make(text->data + 1, text->size - 1);
        behind = take_fraction(text, &fraction, &scale);
    }
    if (digits == 0 && behind == 0) return CO_INVALID;
    uint64_t unit = take_unit(text);
    if (!unit) return CO_INVALID;
    unsigned __int128 total = (unsigned __int128)whole * unit + (unsigned __int128)fraction * unit / scale;
    if (total > INT64_MAX) return CO_TOOLARGE;
    *nanoseconds = (uint64_t)total;
    return CO_OK;
}

int duration_parse(struct slice text, int64_t *nanoseconds) {
    bool negative = text.size > 0 && text.data[0] == '-';
    if (negative || (text.size > 0 && text.data[0] == '+')) text = slice_make(text.data + 1, text.size - 1);
    if (text.size == 0) return CO_INVALID;
    uint64_t total = 0;
    if (!slice_is(text, "0")) {
        while (text.size > 0) {
            uint64_t part;
            int error = take_part(&text, &part);
            if (error) return error;
            if (part > (uint64_t)INT64_MAX - total) return CO_TOOLARGE;
            total += part;
        }
    }
    *nanoseconds = negative ? -(int64_t)total : (int64_t)total;
    return CO_OK;
}

/* `value / scale` with as many decimals as are not zero. */
static void append_decimal(struct buffer *out, uint64_t value, uint64_t scale) {
    buffer_append_u64(out, value / scale);
    uint64_t rest = value % scale;
    if (rest == 0) return;
    buffer_append_byte(out, '.');
    while (rest > 0) {
        scale /= 10;
        buffer_append_byte(out, (char)('0' + rest / scale));
        rest %= scale;
    }
}

void duration_format(struct buffer *out, int64_t nanoseconds) {
    uint64_t left = nanoseconds < 0 ? -(uint64_t)nanoseconds : (uint64_t)nanoseconds;
    if (nanoseconds < 0) buffer_append_byte(out, '-');
    if (left == 0) {
        buffer_append_text(out, "0s");
    } else if (left < 1000) {
        append_decimal(out, left, 1);
        buffer_append_text(out, "ns");
    } else if (left < 1000000) {
        append_decimal(out, left, 1000);
        buffer_append_text(out, "\u00b5s");
    } else if (left < 1000000000) {
        append_decimal(out, left, 1000000);
        buffer_append_text(out, "ms");
    } else {
        uint64_t minutes = left / 60000000000u;
        if (minutes >= 60) {
            buffer_append_u64(out, minutes / 60);
            buffer_append_byte(out, 'h');
        }
        if (minutes > 0) {
            buffer_append_u64(out, minutes % 60);
            buffer_append_byte(out, 'm');
        }
        append_decimal(out, left % 60000000000u, 1000000000);
        buffer_append_byte(out, 's');
    }
}

/* ---- numbers ---- */

int u64_parse(struct slice text, uint64_t most, uint64_t *value) {
    if (text.size == 0) return CO_INVALID;
    uint64_t result = 0;
    bool over = false;
    for (size_t i = 0; i < text.size; i++) {
        if (!is_digit(text.data[i])) return CO_INVALID;
        over = over || __builtin_mul_overflow(result, (uint64_t)10, &result) ||
               __builtin_add_overflow(result, (uint64_t)(text.data[i] - '0'), &result);
    }
    if (over || result > most) return CO_TOOLARGE;
    *value = result;
    return CO_OK;
}

int decimal_parse(struct slice text, double *value) {
    char copy[64], *end;
    if (text.size == 0 || text.size >= sizeof copy) return CO_INVALID;
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    if (strspn(copy, "+-.0123456789eE") != text.size) return CO_INVALID; /* strtod takes "inf", "nan" and "0x1p3" too */
    double result = strtod(copy, &end);
    if (*end || !isfinite(result)) return CO_INVALID;
    *value = result;
    return CO_OK;
}

/* ---- floating point ---- */

void double_shortest(double value, char *text, size_t room) {
    for (int decimals = 0; decimals < 17; decimals++) {
        snprintf(text, room, "%.*e", decimals, value);
        if (strtod(text, NULL) == value) return;
    }
}

/* ---- base64 ---- */

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct buffer *out, const void *data, size_t size) {
    if (size == 0) return;
    CHECK(size <= SIZE_MAX / 8);
    buffer_reserve(out, (size + 2) / 3 * 4);
    const unsigned char *from = data;
    char *to = out->data + out->size;
    for (; size >= 3; size -= 3, from += 3, to += 4) {
        to[0] = base64_digits[from[0] >> 2];
        to[1] = base64_digits[(from[0] & 3) << 4 | from[1] >> 4];
        to[2] = base64_digits[(from[1] & 15) << 2 | from[2] >> 6];
        to[3] = base64_digits[from[2] & 63];
    }
    if (size > 0) {
        unsigned second = size == 2 ? from[1] : 0;
        to[0] = base64_digits[from[0] >> 2];
        to[1] = base64_digits[(from[0] & 3u) << 4 | second >> 4];
        to[2] = size == 2 ? base64_digits[(second & 15) << 2] : '=';
        to[3] = '=';
        to += 4;
    }
    out->size = (size_t)(to - out->data);
}

static int base64_value(char c, bool url) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (is_digit(c)) return c - '0' + 52;
    return c == (url ? '-' : '+') ? 62 : c == (url ? '_' : '/') ? 63 : -1;
}

/* `digits`: without padding. */
static int base64_digits_decode(struct buffer *out, struct slice digits, bool url) {
    size_t before = out->size;
    buffer_reserve(out, digits.size / 4 * 3 + 2);
    for (size_t at = 0; at < digits.size; at += 4) {
        size_t count = digits.size - at < 4 ? digits.size - at : 4, bytes = count * 6 / 8;
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) {
            int value = i < count ? base64_value(digits.data[at + i], url) : 0;
            if (value < 0) goto invalid;
            bits = bits << 6 | (uint32_t)value;
        }
        /* Bits below the last byte must be zero, else two texts would mean the same bytes. */
        if (count == 1 || (bits & ((1u << 8 * (3 - bytes)) - 1))) goto invalid;
        for (size_t i = 0; i < bytes; i++) out->data[out->size++] = (char)(bits >> (16 - 8 * i));
    }
    return CO_OK;
invalid:
    out->size = before;
    return CO_INVALID;
}

int base64_decode(struct buffer *out, struct slice text) {
    if (text.size % 4 != 0) return CO_INVALID;
    for (size_t i = 0; i < 2 && text.size && text.data[text.size - 1] == '='; i++) text.size--;
    return base64_digits_decode(out, text, false);
}

int base64url_decode(struct buffer *out, struct slice text) { return base64_digits_decode(out, text, true); }

/* ---- percent-encoding ---- */

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int percent_decode(struct slice text, bool plus, char *out, size_t *size) {
    size_t length = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (c == '%') {
            if (text.size - i < 3) return CO_INVALID;
            int high = hex_value(text.data[i + 1]), low = hex_value(text.data[i + 2]);
            if (high < 0 || low < 0) return CO_INVALID;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == '\0') return CO_INVALID;
        out[length++] = c;
    }
    *size = length;
    return CO_OK;
}

/* ---- UTF-8 ---- */

/* Length of the sequence at `at` (RFC 3629: shortest form, no surrogates, up to U+10FFFF); 0 when it is not one. */
static size_t utf8_sequence(const unsigned char *at, size_t left) {
    unsigned char first = at[0], least = 0x80, most = 0xbf;
    size_t length;
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        if (first == 0xe0) least = 0xa0;
        if (first == 0xed) most = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        if (first == 0xf0) least = 0x90;
        if (first == 0xf4) most = 0x8f;
    } else {
        return 0;
    }
    if (left < length || at[1] < least || at[1] > most) return 0;
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    return length;
}

size_t utf8_next(struct slice text) {
    return text.size == 0 ? 0 : utf8_sequence((const unsigned char *)text.data, text.size);
}

bool utf8_valid(struct slice text) {
    const unsigned char *at = (const unsigned char *)text.data;
    for (size_t left = text.size; left > 0;) {
        uint64_t word;
        if (left >= 8 && (memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0)) {
            at += 8;
            left -= 8;
            continue;
        }
        size_t length = utf8_sequence(at, left);
        if (length == 0) return false;
        at += length;
        left -= length;
    }
    return true;
}

uint32_t utf8_take(struct slice *text) {
    size_t length = utf8_next(*text);
    const unsigned char *at = (const unsigned char *)text->data;
    *text = slice_make(text->data + (length ? length : 1), text->size - (length ? length : 1));
    switch (length) {
        case 0: return 0xfffd;
        case 1: return at[0];
        case 2: return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
        case 3: return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
        default: return (at[0] & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
    }
}

struct slice utf8_cut(struct slice text, size_t most) {
    if (text.size <= most) return text;
    while (most > 0 && (text.data[most] & 0xc0) == 0x80) most--;
    return slice_make(text.data, most);
}

/* ---- UUIDs ---- */

static bool uuid_hyphen(size_t at) { return at == 8 || at == 13 || at == 18 || at == 23; }

void uuid_format(const uint8_t bytes[16], char text[UUID_TEXT_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    for (size_t i = 0; i < 16; i++) {
        if (uuid_hyphen(at)) text[at++] = '-';
        text[at++] = digits[bytes[i] >> 4];
        text[at++] = digits[bytes[i] & 15];
    }
}

bool uuid_valid(struct slice text) {
    if (text.size != UUID_TEXT_SIZE) return false;
    for (size_t i = 0; i < text.size; i++) {
        if (uuid_hyphen(i) ? text.data[i] != '-' : hex_value(text.data[i]) < 0) return false;
    }
    return true;
}

void uuid_parse(struct slice text, uint8_t bytes[16]) {
    CHECK(uuid_valid(text));
    for (size_t i = 0, at = 0; i < 16; i++) {
        if (uuid_hyphen(at)) at++;
        bytes[i] = (uint8_t)(hex_value(text.data[at]) << 4 | hex_value(text.data[at + 1]));
        at += 2;
    }
}

/* ---- places ---- */

void text_place(struct slice text, size_t at, size_t *line, size_t *column) {
    *line = *column = 1;
    for (size_t i = 0; i < at && i < text.size; i++) {
        bool inside = ((unsigned char)text.data[i] & 0xc0) == 0x80; /* in the middle of a character */
        if (text.data[i] == '\n') ++*line, *column = 1;
        else if (!inside) ++*column;
    }
}

/* ---- edit distance ---- */

#define EDIT_MOST 64

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

/* Optimal string alignment: insertions, deletions, replacements, and swaps of two neighbours cost 1 each. */
unsigned edit_distance(struct slice a, struct slice b) {
    size_t a_size = a.size < EDIT_MOST ? a.size : EDIT_MOST;
    size_t b_size = b.size < EDIT_MOST ? b.size : EDIT_MOST;
    unsigned rows[3][EDIT_MOST + 1];
    for (unsigned j = 0; j <= b_size; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i - 1) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            unsigned replaced = above[j - 1] + (a.data[i - 1] != b.data[j - 1]);
            row[j] = least(replaced, least(above[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1];
            if (swapped) row[j] = least(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}
