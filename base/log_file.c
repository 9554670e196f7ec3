#include "base/log_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

#define AGAIN_NS INT64_C(60000000000) /* after a rotation that failed */

void log_file_path(const char *file, struct buffer *out) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    struct stat status;
    bool folder = stat(file, &status) == 0 && S_ISDIR(status.st_mode);
    buffer_append_text(out, file);
    if (!*name || folder) buffer_append_text(out, *name ? "/coord.log" : "coord.log");
    else if (!strchr(name, '.')) buffer_append_text(out, ".log");
}

/* The time when the file was made; now, when the file system does not know it. */
static int64_t born(int fd, int64_t now_ns) {
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) != 0 || !(status.stx_mask & STATX_BTIME)) return now_ns;
    int64_t born_ns = (int64_t)status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec;
    return born_ns < now_ns ? born_ns : now_ns;
}

int log_file_open(struct log_file *file, int64_t now_ns) {
    struct stat status;
    int fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                  file->mode ? file->mode : 0640);
    if (fd < 0) return errno;
    if (fstat(fd, &status) < 0) {
        int error = errno;
        close(fd);
        return error;
    }
    file->fd = fd;
    file->regular = S_ISREG(status.st_mode);
    file->size = file->regular ? (uint64_t)status.st_size : 0;
    file->born_ns = file->size ? born(fd, now_ns) : now_ns;
    return 0;
}

int log_file_reopen(struct log_file *file, int64_t now_ns) {
    int before = file->fd, error = log_file_open(file, now_ns);
    if (!error) close(before);
    return error;
}

/* Where the name ends and the extension begins. */
static size_t stem(const char *path) {
    const char *slash = strrchr(path, '/'), *point = strrchr(slash ? slash : path, '.');
    return point ? (size_t)(point - path) : strlen(path);
}

/* -- rotated files ------------------------------------------------------------------------------------------------ */

struct aside {
    uint64_t *times;
    size_t count;
};

static int by_time(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/* Is `name` NAME-DIGITS.EXT of this file? */
static bool is_aside(const char *path, const char *name, uint64_t *time) {
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    size_t end = stem(path) - (size_t)(own - path), size = strlen(name), extension = strlen(own + end);
    if (size <= end + 1 + extension || strncmp(name, own, end) != 0 || name[end] != '-') return false;
    if (strcmp(name + size - extension, own + end) != 0) return false;
    return u64_parse(slice_make(name + end + 1, size - end - 1 - extension), UINT64_MAX, time) == CO_OK;
}

static void aside_path(const char *path, uint64_t time, struct buffer *out) {
    size_t end = stem(path);
    buffer_printf(out, "%.*s-%" PRIu64 "%s", (int)end, path, time, path + end);
    buffer_append_byte(out, '\0');
}

static void prune(const struct log_file *file) {
    struct aside aside = {0};
    const char *slash = strrchr(file->path, '/');
    if (file->rotate_files == 0) return;
    struct buffer folder = {0};
    buffer_append(&folder, slash ? file->path : ".", slash ? (size_t)(slash - file->path) + 1 : 1);
    buffer_append_byte(&folder, '\0');
    DIR *entries = opendir(folder.data);
    uint64_t time;
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        if (!is_aside(file->path, entry->d_name, &time)) continue;
        aside.times = mem_realloc(aside.times, (aside.count + 1) * sizeof *aside.times);
        aside.times[aside.count++] = time;
    }
    if (entries) closedir(entries);
    if (aside.count) qsort(aside.times, aside.count, sizeof *aside.times, by_time);
    size_t keep = file->rotate_files < 0 ? 0 : (size_t)file->rotate_files;
    for (size_t i = 0; i + keep < aside.count; i++) {
        struct buffer path = {0};
        aside_path(file->path, aside.times[i], &path);
        unlink(path.data);
        buffer_free(&path);
    }
    free(aside.times);
    buffer_free(&folder);
}

static bool is_due(const struct log_file *file, int64_t now_ns) {
    if (!file->regular || file->size == 0 || now_ns < file->again_ns) return false;
    return (file->rotate_bytes && file->size >= file->rotate_bytes) ||
           (file->rotate_ns && now_ns - file->born_ns >= file->rotate_ns);
}

static void rotate(struct log_file *file, int64_t now_ns) {
    struct buffer aside = {0};
    aside_path(file->path, (uint64_t)now_ns, &aside);
    bool moved = rename(file->path, aside.data) == 0;
    if (moved && log_file_reopen(file, now_ns) != 0) { /* the file that is open stays in use */
        rename(aside.data, file->path);
        moved = false;
    }
    if (moved) prune(file);
    else file->again_ns = now_ns + AGAIN_NS;
    buffer_free(&aside);
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

int log_file_write(struct log_file *file, const char *line, size_t size, int64_t now_ns) {
    if (is_due(file, now_ns)) rotate(file, now_ns);
    size_t done = 0;
    while (done < size) {
        ssize_t written = write(file->fd, line + done, size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            int error = written < 0 ? errno : EIO;
            if (done && file->regular && ftruncate(file->fd, (off_t)file->size) < 0) file->size += done;
            return error;
        }
        done += (size_t)written;
    }
    file->size += size;
    return 0;
}

void log_file_close(struct log_file *file) {
    if (file->path) close(file->fd);
    free(file->path);
    *file = (struct log_file){0};
}
