#include "base/tar.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"

enum {
    AT_NAME = 0,
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_TIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345
};
enum { SIZE_NUMBER = 8, SIZE_LONG = 12, SIZE_SUM = 8, SIZE_PREFIX = 155 };

static void octal(char *to, unsigned size, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%0*llo", (int)size - 1, (unsigned long long)value);
    memcpy(to, text, size);
}

#define OCTAL_MOST 077777777777ull /* of eleven digits */

/* Octal digits, or, when these are too few, 0x80 and the number in big-endian. */
static void long_number(char to[SIZE_LONG], uint64_t value) {
    if (value <= OCTAL_MOST) {
        octal(to, SIZE_LONG, value);
        return;
    }
    memset(to, 0, SIZE_LONG);
    to[0] = (char)0x80;
    put_be64(to + SIZE_LONG - 8, value);
}

/* The sum of all bytes, those of the sum itself counted as blanks. */
static unsigned head_sum(const char head[TAR_BLOCK]) {
    unsigned sum = 0;
    for (unsigned i = 0; i < TAR_BLOCK; i++) sum += i >= AT_SUM && i < AT_SUM + SIZE_SUM ? ' ' : (unsigned char)head[i];
    return sum;
}

void tar_head_encode(const struct tar_file *file, uint64_t unix_time, char head[TAR_BLOCK]) {
    size_t size = strlen(file->name);
    CHECK(size > 0 && size <= TAR_NAME_MAX && file->size <= TAR_SIZE_MAX);
    memset(head, 0, TAR_BLOCK);
    memcpy(head + AT_NAME, file->name, size);
    octal(head + AT_MODE, SIZE_NUMBER, 0600);
    octal(head + AT_UID, SIZE_NUMBER, 0);
    octal(head + AT_GID, SIZE_NUMBER, 0);
    long_number(head + AT_SIZE, file->size);
    octal(head + AT_TIME, SIZE_LONG, unix_time <= OCTAL_MOST ? unix_time : OCTAL_MOST);
    head[AT_TYPE] = '0';
    memcpy(head + AT_MAGIC, "ustar\00000", 8);
    octal(head + AT_SUM, SIZE_SUM - 1, head_sum(head));
    head[AT_SUM + SIZE_SUM - 1] = ' ';
}

static bool all_zero(const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return false;
    return true;
}

/* Octal digits after blanks, ended by a blank, NUL or the end of the field; or in base 256. */
static int number(const char *from, unsigned size, uint64_t *value) {
    unsigned i = 0, digits = 0;
    if ((unsigned char)from[0] & 0x80) {
        /* negative, or beyond 64 bits */
        if (size < SIZE_LONG || from[0] != (char)0x80 || !all_zero(from + 1, size - 9)) return CO_UNSUPPORTED;
        *value = get_be64(from + size - 8);
        return *value <= TAR_SIZE_MAX ? CO_OK : CO_UNSUPPORTED;
    }
    while (i < size && from[i] == ' ') i++;
    for (*value = 0; i < size && from[i] >= '0' && from[i] <= '7'; i++, digits++)
        *value = *value * 8 + (uint64_t)(from[i] - '0');
    for (; i < size; i++)
        if (from[i] != ' ' && from[i] != '\0') return CO_CORRUPT;
    return digits > 0 ? CO_OK : CO_CORRUPT;
}

int tar_head_decode(const char head[TAR_BLOCK], struct tar_file *file) {
    uint64_t sum;
    if (all_zero(head, TAR_BLOCK)) return CO_NOTFOUND;
    if (number(head + AT_SUM, SIZE_SUM, &sum) != CO_OK || sum != head_sum(head)) return CO_CORRUPT;
    if (memcmp(head + AT_MAGIC, "ustar", 5) != 0) return CO_UNSUPPORTED;
    if (head[AT_TYPE] != '0' && head[AT_TYPE] != '\0') return CO_UNSUPPORTED;
    if (!all_zero(head + AT_PREFIX, SIZE_PREFIX) && head[AT_MAGIC + 5] == '\0') return CO_UNSUPPORTED;
    size_t size = strnlen(head + AT_NAME, TAR_NAME_MAX);
    if (size == 0) return CO_CORRUPT;
    memcpy(file->name, head + AT_NAME, size);
    file->name[size] = '\0';
    return number(head + AT_SIZE, SIZE_LONG, &file->size);
}
