#include "health/store_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "health/disk_file.h"

#define HEAD       "coord definitions 1\n"
#define SUM_DIGITS 16
#define KEY_DIGITS 32
#define LINE_LEAST (SUM_DIGITS + 3 + KEY_DIGITS + 2) /* "SUM K KEY J" */
#define GROWN_BY   (1u << 20)

/* -- lines -------------------------------------------------------------------------------------------------------- */
static uint64_t sum_of(struct slice rest) { return hash64(rest.data, rest.size); }

void store_log_line(struct buffer *lines, bool is_check, const char *id, struct slice json) {
    uint8_t hash[16];
    size_t begin = lines->size;
    hash128(id, strlen(id), hash);
    buffer_printf(lines, "%0*d %c ", SUM_DIGITS, 0, is_check ? 'c' : 's');
    for (size_t i = 0; i < sizeof hash; i++) buffer_printf(lines, "%02x", hash[i]);
    buffer_append_byte(lines, ' ');
    if (json.size) buffer_append(lines, json.data, json.size);
    else buffer_append_byte(lines, '-');
    char sum[SUM_DIGITS + 1];
    size_t rest = begin + SUM_DIGITS + 1;
    snprintf(sum, sizeof sum, "%016llx",
             (unsigned long long)sum_of(slice_make(lines->data + rest, lines->size - rest)));
    memcpy(lines->data + begin, sum, SUM_DIGITS);
    buffer_append_byte(lines, '\n');
}

static bool line_read(struct slice line, struct store_record *record) {
    if (line.size < LINE_LEAST) return false;
    char sum[SUM_DIGITS + 1], *end;
    memcpy(sum, line.data, SUM_DIGITS);
    sum[SUM_DIGITS] = 0;
    struct slice rest = slice_make(line.data + SUM_DIGITS + 1, line.size - SUM_DIGITS - 1);
    if (strtoull(sum, &end, 16) != sum_of(rest) || *end || line.data[SUM_DIGITS] != ' ') return false;
    if ((rest.data[0] != 's' && rest.data[0] != 'c') || rest.data[1] != ' ' || rest.data[2 + KEY_DIGITS] != ' ')
        return false;
    record->is_check = rest.data[0] == 'c';
    record->key = slice_make(rest.data + 2, KEY_DIGITS);
    record->json = slice_make(rest.data + 3 + KEY_DIGITS, rest.size - 3 - KEY_DIGITS);
    return true;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static int by_key(const void *a, const void *b) {
    const struct store_record *one = a, *other = b;
    if (one->is_check != other->is_check) return one->is_check ? 1 : -1;
    int order = memcmp(one->key.data, other->key.data, KEY_DIGITS);
    return order ? order : one->number < other->number ? -1 : 1;
}

static int by_number(const void *a, const void *b) {
    const struct store_record *one = a, *other = b;
    if (one->is_check != other->is_check) return one->is_check ? 1 : -1;
    return one->number < other->number ? -1 : one->number > other->number;
}

/* The last of each key, if that is a definition. */
static size_t last_ones(struct store_record *records, size_t count) {
    size_t kept = 0;
    if (count) qsort(records, count, sizeof *records, by_key);
    for (size_t i = 0; i < count; i++) {
        bool last = i + 1 == count || records[i].is_check != records[i + 1].is_check ||
                    !slice_equal(records[i].key, records[i + 1].key);
        if (last && !slice_is(records[i].json, "-")) records[kept++] = records[i];
    }
    if (kept) qsort(records, kept, sizeof *records, by_number);
    return kept;
}

static size_t lines_in(struct slice text) {
    size_t count = 0;
    for (const char *at = text.data, *end = at + text.size; at < end && (at = memchr(at, '\n', (size_t)(end - at)));
         at++)
        count++;
    return count;
}

static void parse(struct store_log *log, struct slice text, struct store_record **records, size_t *count) {
    static const struct slice head = SLICE_LITERAL(HEAD);
    if (text.size < head.size || memcmp(text.data, head.data, head.size) != 0) {
        log_error("health",
                  "saved definitions are left out: not a file of definitions that this version of coord reads file=%s",
                  log->path);
        store_log_keep(log);
        log->broken = true;
        return;
    }
    *records = mem_alloc((lines_in(text) + 1) * sizeof **records);
    const char *at = text.data + head.size, *end = text.data + text.size;
    size_t read = 0, number = 2;
    for (const char *stop; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1, number++) {
        struct store_record *record = &(*records)[read];
        record->number = number;
        if (line_read(slice_make(at, (size_t)(stop - at)), record)) {
            read++;
            continue;
        }
        log_error("health", "saved definition left out: its checksum is wrong file=%s line=%zu", log->path, number);
        store_log_keep(log);
        log->broken = true;
    }
    if (at < end) log->broken = true; /* torn */
    *count = last_ones(*records, read);
}

static char *path_of(const char *folder, const char *name) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/%s%c", folder, name, '\0');
    return buffer_take(&path, NULL);
}

int store_log_open(struct store_log *log, const char *data_folder, struct buffer *text, struct store_record **records,
                   size_t *count, struct fault *fault) {
    *log = (struct store_log){.folder = path_of(data_folder, "local")};
    log->path = path_of(log->folder, "definitions");
    log->aside = path_of(log->folder, "definitions.new");
    log->kept = path_of(log->folder, "definitions.left-out");
    *records = NULL, *count = 0;
    if (mkdir(log->folder, 0700) != 0 && errno != EEXIST)
        return fault_set(fault, co_from_errno(errno), "%s: %s", log->folder, strerror(errno));
    unlink(log->aside); /* of a crash; the file itself is whole */
    int error = disk_file_read(log->path, text);
    if (error == ENOENT) {
        log->broken = true;
        return CO_OK;
    }
    if (error) return fault_set(fault, co_from_errno(error), "%s: %s", log->path, strerror(error));
    log->size = log->rewritten = text->size;
    parse(log, buffer_slice(text), records, count);
    return CO_OK;
}

void store_log_free(struct store_log *log) { free(log->folder), free(log->path), free(log->aside), free(log->kept); }

void store_log_keep(const struct store_log *log) {
    if (link(log->path, log->kept) == 0)
        log_warn("health", "the file of definitions as it was is kept file=%s", log->kept);
    else if (errno != EEXIST)
        log_error("health", "the file of definitions cannot be kept as it was: %s file=%s", strerror(errno), log->kept);
}

/* -- writing ------------------------------------------------------------------------------------------------------ */
static int close_synced(int fd, int error) {
    if (error == 0 && fdatasync(fd) != 0) error = errno;
    if (close(fd) != 0 && error == 0) error = errno;
    return error;
}

static int sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return error;
}

bool store_log_anew(const struct store_log *log) { return log->broken || log->size > 2 * log->rewritten + GROWN_BY; }

int store_log_append(struct store_log *log, struct slice lines) {
    int fd = open(log->path, O_WRONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : close_synced(fd, disk_file_write(fd, lines, log->size));
    if (error == 0) log->size += lines.size;
    else log->broken = true; /* what is there now is not known */
    return error;
}

int store_log_rewrite(struct store_log *log, struct slice lines) {
    static const struct slice head = SLICE_LITERAL(HEAD);
    log->broken = true;
    int fd = open(log->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = disk_file_write(fd, head, 0);
    if (error == 0) error = disk_file_write(fd, lines, head.size);
    error = close_synced(fd, error);
    if (error == 0 && rename(log->aside, log->path) != 0) error = errno;
    if (error == 0) error = sync_folder(log->folder);
    if (error != 0) {
        unlink(log->aside);
        return error;
    }
    log->size = log->rewritten = head.size + lines.size;
    log->broken = false;
    return 0;
}
