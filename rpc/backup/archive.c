#include "rpc/backup/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/file_in.h"
#include "base/json_in.h"
#include "base/lazy_unlink.h"
#include "base/memory.h"
#include "base/tar.h"
#include "rpc/backup/foreign.h"

#define BLOCK     (64 * 1024)
#define SMALL_MAX (64 * 1024) /* meta.json, SHA256SUMS */
#define SUM_BYTES 32
#define SUM_TEXT  (2 * SUM_BYTES + 1)

static void sum_text(const uint8_t sum[SUM_BYTES], char text[SUM_TEXT]) {
    for (int i = 0; i < SUM_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
}

static int io_fault(struct fault *fault, const char *what) {
    int error = co_from_errno(errno);
    return fault_set(fault, error, "a backup cannot be %s: %s", what, strerror(errno));
}

int archive_temporary(const char *folder, struct fault *fault) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/backup-XXXXXX", folder);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) unlink(path);
    }
    if (fd >= 0) file_in_opened(fd), lazy_unlink_when_closed(fd);
    else fault_set(fault, co_from_errno(errno), "%s: no temporary file: %s", folder, strerror(errno));
    return fd;
}

/* -- writing ------------------------------------------------------------------------------------------------------ */
struct out {
    int fd;
    z_stream z;
    struct fault *fault;
    char block[BLOCK];
};

static int out_write(struct out *out, const void *data, size_t size, int flush) {
    out->z.next_in = (Bytef *)(uintptr_t)data;
    out->z.avail_in = (uInt)size;
    int rc;
    do {
        out->z.next_out = (Bytef *)out->block;
        out->z.avail_out = BLOCK;
        rc = deflate(&out->z, flush);
        CHECK(rc != Z_STREAM_ERROR);
        size_t have = BLOCK - out->z.avail_out;
        for (size_t at = 0; at < have;) {
            ssize_t n = write(out->fd, out->block + at, have - at);
            if (n >= 0) at += (size_t)n;
            else if (errno != EINTR) return io_fault(out->fault, "written");
        }
    } while (out->z.avail_out == 0 || (flush == Z_FINISH && rc != Z_STREAM_END));
    return CO_OK;
}

static int out_head(struct out *out, const char *name, uint64_t size) {
    struct tar_file file = {.size = size};
    snprintf(file.name, sizeof file.name, "%s", name);
    char head[TAR_BLOCK];
    tar_head_encode(&file, (uint64_t)time(NULL), head);
    return out_write(out, head, sizeof head, Z_NO_FLUSH);
}

static int out_padding(struct out *out, uint64_t size) {
    static const char zeros[TAR_BLOCK];
    return out_write(out, zeros, tar_padding(size), Z_NO_FLUSH);
}

static int out_small(struct out *out, const char *name, struct slice content) {
    int rv = out_head(out, name, content.size);
    if (rv == CO_OK) rv = out_write(out, content.data, content.size, Z_NO_FLUSH);
    return rv == CO_OK ? out_padding(out, content.size) : rv;
}

uint64_t archive_room(int fd) {
    struct statvfs disk;
    return fstatvfs(fd, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
}

#define ROOM_LOOK_BYTES (16 * BLOCK)
static int out_state(struct out *out, int state, uint64_t size, uint8_t sum[SUM_BYTES]) {
    gnutls_hash_hd_t hash;
    CHECK(gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) == 0);
    char *block = mem_alloc(BLOCK);
    int rv = out_head(out, "state.bin", size);
    for (uint64_t at = 0; rv == CO_OK && at < size;) {
        if (at % ROOM_LOOK_BYTES == 0 && archive_room(out->fd) < ARCHIVE_ROOM_LEFT)
            rv = fault_set(out->fault, CO_DISKFULL, "disk full: no room for a backup");
        if (rv != CO_OK) break;
        size_t want = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        rv = file_in_all(state, at, block, want);
        if (rv != CO_OK) {
            fault_set(out->fault, rv, "a backup's file cannot be read");
            break;
        }
        gnutls_hash(hash, block, want);
        rv = out_write(out, block, want, Z_NO_FLUSH);
        at += want;
    }
    gnutls_hash_deinit(hash, sum);
    free(block);
    return rv == CO_OK ? out_padding(out, size) : rv;
}

static int out_all(struct out *out, const struct archive_meta *meta, int state) {
    static const char end[2 * TAR_BLOCK];
    char json[512], sums[256], text[2][SUM_TEXT];
    int size = snprintf(
        json, sizeof json,
        "{\"Version\":%" PRIu64 ",\"ID\":\"%s\",\"Index\":%" PRIu64 ",\"Term\":%" PRIu64
        ",\"Peers\":null,\"Configuration\":{\"Servers\":null},\"ConfigurationIndex\":0,\"Size\":%" PRIu64 "}\n",
        meta->version, meta->id, meta->index, meta->term, meta->size);
    uint8_t sum[2][SUM_BYTES];
    CHECK(size > 0 && size < (int)sizeof json && gnutls_hash_fast(GNUTLS_DIG_SHA256, json, (size_t)size, sum[0]) == 0);
    int rv = out_small(out, "meta.json", slice_make(json, (size_t)size));
    if (rv == CO_OK) rv = out_state(out, state, meta->size, sum[1]);
    sum_text(sum[0], text[0]);
    sum_text(sum[1], text[1]);
    size = snprintf(sums, sizeof sums, "%s  meta.json\n%s  state.bin\n", text[0], text[1]);
    if (rv == CO_OK) rv = out_small(out, "SHA256SUMS", slice_make(sums, (size_t)size));
    return rv == CO_OK ? out_write(out, end, sizeof end, Z_FINISH) : rv;
}

int archive_write(int fd, const struct archive_meta *meta, int state, struct fault *fault) {
    if (meta->size > TAR_SIZE_MAX)
        return fault_set(fault, CO_TOOLARGE, "the state has %" PRIu64 " bytes, an archive holds less", meta->size);
    struct out *out = mem_zalloc(sizeof *out);
    out->fd = fd, out->fault = fault;
    CHECK(deflateInit2(&out->z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    int rv = out_all(out, meta, state);
    deflateEnd(&out->z);
    free(out);
    return rv;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
struct in {
    int fd, state;
    z_stream z;
    struct fault *fault;
    bool ended;     /* the gzip stream is over */
    uint64_t taken; /* bytes of the file */
    char block[BLOCK], plain[BLOCK];
    bool have_meta, have_state, have_sums;
    uint8_t meta_sum[SUM_BYTES], state_sum[SUM_BYTES];
    uint64_t state_size;
    char sums[SMALL_MAX + 1];
};

static int corrupt(struct in *in, const char *what) {
    return fault_set(in->fault, CO_CORRUPT, "not a backup, or damaged: %s", what);
}

static ssize_t next_block(struct in *in) {
    ssize_t n;
    while ((n = read(in->fd, in->block, BLOCK)) < 0 && errno == EINTR) continue;
    return n;
}

static int cut(struct in *in) {
    return fault_set(in->fault, CO_CORRUPT,
                     "the backup is cut off: it ends after %" PRIu64
                     " bytes, before its own end; copy it once more, or take "
                     "another one",
                     in->taken);
}

static int fill(struct in *in) {
    ssize_t n = next_block(in);
    if (n < 0) return io_fault(in->fault, "read");
    in->z.next_in = (Bytef *)in->block, in->z.avail_in = (uInt)n;
    in->taken += (uint64_t)n;
    return n > 0 ? CO_OK : cut(in);
}

/* The beginning: FOREIGN_BYTES of it at least, unless the file has less. */
static int begin(struct in *in) {
    size_t size = 0;
    while (size < FOREIGN_BYTES) {
        ssize_t n = read(in->fd, in->block + size, BLOCK - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return io_fault(in->fault, "read");
        if (n == 0) break;
        size += (size_t)n;
    }
    in->z.next_in = (Bytef *)in->block, in->z.avail_in = (uInt)size;
    in->taken = size;
    bool gzip = size >= 2 && in->block[0] == '\x1f' && in->block[1] == '\x8b';
    return gzip ? CO_OK : foreign_file(slice_make(in->block, size), false, in->fault);
}

/* Reads so many bytes of the tar archive, or less at its end. */
static int in_some(struct in *in, void *data, size_t size, size_t *got) {
    in->z.next_out = data, in->z.avail_out = (uInt)size;
    *got = 0;
    while (in->z.avail_out > 0 && !in->ended) {
        int rv = in->z.avail_in == 0 ? fill(in) : CO_OK;
        if (rv != CO_OK) return rv;
        int rc = inflate(&in->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) in->ended = true;
        else if (rc != Z_OK && rc != Z_BUF_ERROR) return corrupt(in, "its compression does not fit");
        *got = size - in->z.avail_out;
    }
    return CO_OK;
}

/* Reads exactly so many bytes. */
static int in_read(struct in *in, void *data, size_t size) {
    size_t got;
    int rv = in_some(in, data, size, &got);
    return rv == CO_OK && got < size ? corrupt(in, "what is compressed in it ends too early") : rv;
}

static int in_padding(struct in *in, uint64_t size) {
    char zeros[TAR_BLOCK];
    return in_read(in, zeros, tar_padding(size));
}

static int in_small(struct in *in, uint64_t size, char text[SMALL_MAX + 1]) {
    if (size > SMALL_MAX) return corrupt(in, "a small file in it is large");
    int rv = in_read(in, text, (size_t)size);
    text[rv == CO_OK ? size : 0] = '\0';
    return rv == CO_OK ? in_padding(in, size) : rv;
}

static int in_meta(struct in *in, uint64_t size, struct archive_meta *meta) {
    char *text = mem_alloc(SMALL_MAX + 1);
    int rv = in_small(in, size, text);
    if (rv == CO_OK) {
        CHECK(gnutls_hash_fast(GNUTLS_DIG_SHA256, text, (size_t)size, in->meta_sum) == 0);
        struct fault inner = {0};
        struct json_object *json = json_parse(slice_make(text, (size_t)size), &inner);
        const char *id = "";
        json_get_u64(json, "Version", UINT64_MAX, &meta->version, &inner);
        json_get_u64(json, "Index", UINT64_MAX, &meta->index, &inner);
        json_get_u64(json, "Term", UINT64_MAX, &meta->term, &inner);
        json_get_u64(json, "Size", UINT64_MAX, &meta->size, &inner);
        json_get_string(json, "ID", &id, &inner);
        snprintf(meta->id, sizeof meta->id, "%s", id);
        if (json) json_object_put(json);
        if (inner.code != CO_OK)
            rv = fault_set(in->fault, CO_CORRUPT, "not a backup, or damaged: meta.json: %s", inner.text);
        else if (meta->version > 1)
            rv =
                fault_set(in->fault, CO_UNSUPPORTED, "the backup has format %llu, this version of coord knows format 1",
                          (unsigned long long)meta->version);
    }
    free(text);
    return rv;
}

static int put_state(struct in *in, size_t size) {
    for (size_t at = 0; in->state >= 0 && at < size;) {
        ssize_t n = write(in->state, in->plain + at, size - at);
        if (n >= 0) at += (size_t)n;
        else if (errno != EINTR) return io_fault(in->fault, "unpacked");
    }
    return CO_OK;
}

static int in_state(struct in *in, uint64_t size) {
    gnutls_hash_hd_t hash;
    CHECK(gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) == 0);
    int rv = CO_OK;
    for (uint64_t left = size; left > 0 && rv == CO_OK;) {
        size_t part = left < BLOCK ? (size_t)left : BLOCK;
        rv = in_read(in, in->plain, part);
        if (rv != CO_OK) break;
        gnutls_hash(hash, in->plain, part);
        if (left == size) rv = foreign_state(slice_make(in->plain, part), in->fault);
        if (rv == CO_OK) rv = put_state(in, part);
        left -= part;
    }
    gnutls_hash_deinit(hash, in->state_sum);
    in->state_size = size;
    return rv == CO_OK ? in_padding(in, size) : rv;
}

static int in_file(struct in *in, const struct tar_file *file, uint64_t state_max, struct archive_meta *meta) {
    bool is_meta = strcmp(file->name, "meta.json") == 0, is_state = strcmp(file->name, "state.bin") == 0;
    bool is_sums = strcmp(file->name, "SHA256SUMS") == 0;
    bool *have = is_meta ? &in->have_meta : is_state ? &in->have_state : is_sums ? &in->have_sums : NULL;
    if (!have) return corrupt(in, "a file in it has an unexpected name");
    if (*have) return corrupt(in, "a file is in it twice");
    *have = true;
    if (is_meta) return in_meta(in, file->size, meta);
    if (is_sums) return in_small(in, file->size, in->sums);
    if (file->size > state_max)
        return fault_set(in->fault, CO_TOOLARGE,
                         "the backup holds %" PRIu64 " bytes, there is room for one of %" PRIu64
                         " (a quarter of what is free: it is kept in the log, "
                         "aside and as the new state at once)",
                         file->size, state_max);
    return in_state(in, file->size);
}

/* Is there a line "SUM  name"? */
static bool sum_fits(const char *sums, const uint8_t sum[SUM_BYTES], const char *name) {
    char line[SUM_TEXT + 32], text[SUM_TEXT];
    sum_text(sum, text);
    size_t size = (size_t)snprintf(line, sizeof line, "%s  %s", text, name);
    for (const char *at = sums; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncasecmp(at, line, size) == 0 && (at[size] == '\n' || at[size] == '\0')) return true;
    }
    return false;
}

static int in_check(struct in *in, const struct archive_meta *meta) {
    if (!in->have_meta || !in->have_state || !in->have_sums) return corrupt(in, "a file is missing in it");
    if (!sum_fits(in->sums, in->meta_sum, "meta.json")) return corrupt(in, "the sum of meta.json is wrong");
    if (!sum_fits(in->sums, in->state_sum, "state.bin")) return corrupt(in, "the sum of state.bin is wrong");
    if (meta->size != in->state_size) return corrupt(in, "meta.json names another size of state.bin");
    return CO_OK;
}

/* Reads to the end of the stream, so that its own checksum is compared. A little padding of the tar archive may
 * follow. */
static int in_rest(struct in *in) {
    for (uint64_t total = 0; !in->ended;) {
        in->z.next_out = (Bytef *)in->plain, in->z.avail_out = BLOCK;
        int rv = in->z.avail_in == 0 ? fill(in) : CO_OK;
        if (rv != CO_OK) return rv;
        int rc = inflate(&in->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) in->ended = true;
        else if (rc != Z_OK && rc != Z_BUF_ERROR) return corrupt(in, "its compression does not fit");
        total += BLOCK - in->z.avail_out;
        if (total > 1 << 20) return corrupt(in, "bytes after its end");
    }
    ssize_t more = in->z.avail_in > 0 ? 1 : next_block(in);
    if (more < 0) return io_fault(in->fault, "read");
    return more == 0 ? CO_OK : corrupt(in, "bytes after its end");
}

static int in_all(struct in *in, uint64_t state_max, struct archive_meta *meta) {
    int rv = begin(in);
    if (rv != CO_OK) return rv;
    for (bool first = true;; first = false) {
        char head[TAR_BLOCK];
        struct tar_file file;
        size_t got;
        rv = in_some(in, head, sizeof head, &got);
        if (rv != CO_OK) return rv;
        rv = got == sizeof head ? tar_head_decode(head, &file) : CO_CORRUPT;
        if (first && rv != CO_OK) return foreign_file(slice_make(head, got), true, in->fault);
        if (got < sizeof head) return corrupt(in, "what is compressed in it ends too early");
        if (rv == CO_NOTFOUND) break;
        if (rv != CO_OK) return corrupt(in, "a head in it is none of a plain file");
        rv = in_file(in, &file, state_max, meta);
        if (rv != CO_OK) return rv;
    }
    rv = in_rest(in);
    return rv == CO_OK ? in_check(in, meta) : rv;
}

int archive_read(int fd, int state, uint64_t state_max, struct archive_meta *meta, struct fault *fault) {
    *meta = (struct archive_meta){0};
    struct in *in = mem_zalloc(sizeof *in);
    in->fd = fd, in->state = state, in->fault = fault;
    CHECK(inflateInit2(&in->z, 15 + 16) == Z_OK);
    int rv = in_all(in, state_max, meta);
    inflateEnd(&in->z);
    free(in);
    return rv;
}
