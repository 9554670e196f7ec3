#include "base/timestamp.h"

#include <stdio.h>
#include <time.h>

#include "base/error.h"

void timestamp_format(uint64_t unix_ms, char text[TIMESTAMP_ROOM]) {
    if (unix_ms > TIMESTAMP_MOST_MS) unix_ms = TIMESTAMP_MOST_MS;
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t size = strftime(text, TIMESTAMP_ROOM, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + size, TIMESTAMP_ROOM - size, ".%03uZ", (unsigned)(unix_ms % 1000));
}

/* Takes a number of exactly so many digits. */
static bool take_number(struct slice *text, size_t digits, int least, int most, int *number) {
    if (text->size < digits) return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = text->data[i];
        if (c < '0' || c > '9') return false;
        *number = *number * 10 + (c - '0');
    }
    *text = slice_make(text->data + digits, text->size - digits);
    return *number >= least && *number <= most;
}

/* Takes one of these bytes. */
static bool take_one(struct slice *text, const char *any, char *which) {
    if (text->size == 0 || !strchr(any, text->data[0]) || !text->data[0]) return false;
    *which = text->data[0];
    *text = slice_make(text->data + 1, text->size - 1);
    return true;
}

static bool take_day(struct slice *text, struct tm *utc) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    char sign;
    if (!take_number(text, 4, 0, 9999, &utc->tm_year) || !take_one(text, "-", &sign)) return false;
    if (!take_number(text, 2, 1, 12, &utc->tm_mon) || !take_one(text, "-", &sign)) return false;
    bool leap = utc->tm_year % 4 == 0 && (utc->tm_year % 100 != 0 || utc->tm_year % 400 == 0);
    int most = days[utc->tm_mon - 1] + (leap && utc->tm_mon == 2);
    utc->tm_year -= 1900, utc->tm_mon--;
    return take_number(text, 2, 1, most, &utc->tm_mday);
}

static bool take_clock(struct slice *text, struct tm *utc, int *milliseconds) {
    char sign;
    *milliseconds = 0;
    if (!take_number(text, 2, 0, 23, &utc->tm_hour) || !take_one(text, ":", &sign)) return false;
    if (!take_number(text, 2, 0, 59, &utc->tm_min) || !take_one(text, ":", &sign)) return false;
    if (!take_number(text, 2, 0, 60, &utc->tm_sec)) return false;
    if (!take_one(text, ".", &sign)) return true;
    int scale = 100, digit;
    if (!take_number(text, 1, 0, 9, &digit)) return false;
    do {
        *milliseconds += digit * scale;
        scale /= 10;
    } while (take_number(text, 1, 0, 9, &digit));
    return true;
}

/* The minutes to subtract to get UTC. */
static bool take_zone(struct slice *text, int *minutes) {
    char sign;
    int hours, rest;
    *minutes = 0;
    if (take_one(text, "Zz", &sign)) return true;
    if (!take_one(text, "+-", &sign) || !take_number(text, 2, 0, 23, &hours)) return false;
    char colon;
    if (!take_one(text, ":", &colon) || !take_number(text, 2, 0, 59, &rest)) return false;
    *minutes = (hours * 60 + rest) * (sign == '-' ? -1 : 1);
    return true;
}

int timestamp_parse(struct slice text, uint64_t *unix_ms) {
    struct tm utc = {0};
    int milliseconds, minutes;
    char separator;
    bool good = take_day(&text, &utc) && take_one(&text, "Tt", &separator) && take_clock(&text, &utc, &milliseconds) &&
                take_zone(&text, &minutes) && text.size == 0;
    if (!good) return CO_INVALID;
    int64_t seconds = (int64_t)timegm(&utc) - (int64_t)minutes * 60;
    if (seconds < 0 || (uint64_t)seconds > TIMESTAMP_MOST_MS / 1000) return CO_INVALID;
    *unix_ms = (uint64_t)seconds * 1000 + (uint64_t)milliseconds;
    return CO_OK;
}
