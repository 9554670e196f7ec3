/* Archives of backups: what is written is read, and bad ones are refused. */
#include <criterion/criterion.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/tar.h"
#include "rpc/backup/archive.h"

static int file_of(struct slice bytes) {
    struct fault fault = {0};
    int fd = archive_temporary("/tmp", &fault);
    cr_assert(fd >= 0, "%s", fault.text);
    for (size_t at = 0; at < bytes.size;) {
        ssize_t n = write(fd, bytes.data + at, bytes.size - at);
        cr_assert(n > 0);
        at += (size_t)n;
    }
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void content_of(int fd, struct buffer *out) {
    lseek(fd, 0, SEEK_SET);
    buffer_reserve(out, 1 << 20);
    for (ssize_t n; (n = read(fd, out->data + out->size, out->capacity - out->size)) > 0;)
        out->size += (size_t)n, buffer_reserve(out, 65536);
}

static int read_bytes(struct slice bytes, uint64_t most, struct fault *fault) {
    struct archive_meta meta;
    int fd = file_of(bytes);
    int rv = archive_read(fd, -1, most, &meta, fault);
    close(fd);
    return rv;
}

/* An archive of `size` bytes. */
static void good(struct buffer *out, size_t size) {
    struct buffer state = {0};
    for (size_t i = 0; i < size; i++) buffer_append_byte(&state, (char)(i * 7 + i / 1000));
    struct archive_meta meta = {.version = 1, .index = 77, .term = 3, .size = size, .id = "3-77-1"};
    struct fault fault = {0};
    int in = file_of(buffer_slice(&state)), fd = file_of(slice_make("", 0));
    cr_assert_eq(archive_write(fd, &meta, in, &fault), CO_OK, "%s", fault.text);
    content_of(fd, out);
    close(in);
    close(fd);
    buffer_free(&state);
}

Test(archive, what_is_written_is_read) {
    static const size_t sizes[] = {0, 1, 511, 512, 513, 65536, 300001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffer bytes = {0}, state = {0};
        struct archive_meta meta;
        struct fault fault = {0};
        good(&bytes, sizes[i]);
        int in = file_of(buffer_slice(&bytes)), out = file_of(slice_make("", 0));
        cr_assert_eq(archive_read(in, out, sizes[i], &meta, &fault), CO_OK, "%s", fault.text);
        content_of(out, &state);
        cr_assert(meta.version == 1 && meta.index == 77 && meta.term == 3 && meta.size == sizes[i] &&
                  strcmp(meta.id, "3-77-1") == 0);
        cr_assert_eq(state.size, sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) cr_assert_eq(state.data[k], (char)(k * 7 + k / 1000));
        close(in);
        close(out);
        buffer_free(&bytes);
        buffer_free(&state);
    }
}

/* Some bits of a compressed stream make no difference to what comes out. */
static bool refused_or_same(struct slice bytes, size_t size) {
    struct buffer state = {0};
    struct archive_meta meta;
    struct fault fault = {0};
    int in = file_of(bytes), out = file_of(slice_make("", 0));
    bool fine = archive_read(in, out, 1 << 20, &meta, &fault) != CO_OK;
    if (!fine) {
        content_of(out, &state);
        fine = state.size == size && meta.index == 77 && meta.size == size;
        for (size_t k = 0; k < size && fine; k++) fine = state.data[k] == (char)(k * 7 + k / 1000);
    }
    close(in);
    close(out);
    buffer_free(&state);
    return fine;
}

Test(archive, every_cut_and_every_flipped_byte_is_noticed) {
    struct buffer bytes = {0};
    good(&bytes, 3000);
    for (size_t size = 0; size < bytes.size; size += size < 64 ? 1 : 37) {
        struct fault fault = {0};
        cr_assert_eq(read_bytes(slice_make(bytes.data, size), 1 << 20, &fault), CO_CORRUPT, "cut at %zu", size);
        cr_assert(fault.text[0]);
    }
    for (size_t at = 10; at < bytes.size; at++) { /* before that: a head with a time and the like */
        bytes.data[at] ^= 0x10;
        cr_assert(refused_or_same(buffer_slice(&bytes), 3000), "byte %zu", at);
        bytes.data[at] ^= 0x10;
    }
    buffer_free(&bytes);
}

Test(archive, bytes_behind_it_are_noticed) {
    static const size_t more[] = {1, 100, 70000};
    struct buffer bytes = {0};
    good(&bytes, 300000);
    size_t size = bytes.size;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        struct fault fault = {0};
        while (bytes.size < size + more[i]) buffer_append_byte(&bytes, 'x');
        cr_assert_eq(read_bytes(buffer_slice(&bytes), 1 << 20, &fault), CO_CORRUPT, "%zu", more[i]);
        cr_assert(strstr(fault.text, "bytes after its end"), "%s", fault.text);
    }
    buffer_free(&bytes);
}

/* The archive ends with one read, what is behind it comes with the next. */
Test(archive, bytes_that_come_later_are_noticed) {
    for (int more = 0; more < 2; more++) {
        struct buffer bytes = {0};
        struct archive_meta meta;
        struct fault fault = {0};
        int ends[2], out = file_of(slice_make("", 0));
        good(&bytes, 3000);
        cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        cr_assert_eq(write(ends[1], bytes.data, bytes.size), (ssize_t)bytes.size);
        if (more) cr_assert_eq(write(ends[1], "x", 1), 1);
        close(ends[1]);
        cr_assert_eq(archive_read(ends[0], out, 1 << 20, &meta, &fault), more ? CO_CORRUPT : CO_OK, "%s", fault.text);
        close(ends[0]);
        close(out);
        buffer_free(&bytes);
    }
}

Test(archive, more_than_there_is_room_for) {
    struct buffer bytes = {0};
    struct fault fault = {0};
    good(&bytes, 5000);
    cr_assert_eq(read_bytes(buffer_slice(&bytes), 4999, &fault), CO_TOOLARGE);
    buffer_free(&bytes);
}

/* -- archives made by hand ---------------------------------------------------------------------------------------- */
static void add_file(struct buffer *tar, const char *name, uint64_t told, struct slice content) {
    struct tar_file file = {.size = told};
    char head[TAR_BLOCK];
    static const char zeros[TAR_BLOCK];
    snprintf(file.name, sizeof file.name, "%s", name);
    tar_head_encode(&file, 0, head);
    buffer_append(tar, head, sizeof head);
    buffer_append(tar, content.data, content.size);
    buffer_append(tar, zeros, tar_padding(content.size));
}

static void pack(const struct buffer *tar, struct buffer *out) {
    z_stream z = {0};
    cr_assert_eq(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    buffer_reserve(out, deflateBound(&z, tar->size) + 64);
    z.next_in = (Bytef *)tar->data, z.avail_in = (uInt)tar->size;
    z.next_out = (Bytef *)out->data, z.avail_out = (uInt)out->capacity;
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->size = out->capacity - z.avail_out;
    deflateEnd(&z);
}

static void sum_line(struct buffer *sums, struct slice content, const char *name) {
    uint8_t sum[32];
    gnutls_hash_fast(GNUTLS_DIG_SHA256, content.data, content.size, sum);
    for (int i = 0; i < 32; i++) buffer_printf(sums, "%02x", sum[i]);
    buffer_printf(sums, "  %s\n", name);
}

#define META "{\"Version\":1,\"ID\":\"x\",\"Index\":5,\"Term\":1,\"Size\":5}"

static int read_tar(const struct buffer *tar) {
    struct buffer packed = {0};
    struct fault fault = {0};
    pack(tar, &packed);
    int rv = read_bytes(buffer_slice(&packed), 1 << 20, &fault);
    buffer_free(&packed);
    return rv;
}

/* The usual three files, with these contents; ends in two blocks of zeros, `more` behind them. */
static int read_three(const char *meta, const char *state, const char *sums_or_null, const char *other, size_t more) {
    struct buffer tar = {0}, sums = {0};
    sum_line(&sums, slice_text(meta), "meta.json");
    sum_line(&sums, slice_text(state), "state.bin");
    add_file(&tar, "meta.json", strlen(meta), slice_text(meta));
    add_file(&tar, "state.bin", strlen(state), slice_text(state));
    if (other) add_file(&tar, other, 1, slice_text("x"));
    struct slice told = sums_or_null ? slice_text(sums_or_null) : buffer_slice(&sums);
    add_file(&tar, "SHA256SUMS", told.size, told);
    for (size_t i = 0; i < 2 * TAR_BLOCK + more; i++) buffer_append_byte(&tar, i < 2 * TAR_BLOCK ? '\0' : 'x');
    int rv = read_tar(&tar);
    buffer_free(&tar);
    buffer_free(&sums);
    return rv;
}

Test(archive, a_table_of_bad_ones) {
    cr_assert_eq(read_three(META, "state", NULL, NULL, 0), CO_OK);
    cr_assert_eq(read_three(META, "state", NULL, NULL, 10240), CO_OK, "padding to a record of 20 blocks is usual");
    static const struct {
        const char *meta, *state, *sums, *other, *what;
        size_t more;
    } table[] = {
        {META, "states", NULL, NULL, "another size than told", 0},
        {META, "state", "", NULL, "no sums", 0},
        {META, "state", "00  meta.json\n00  state.bin\n", NULL, "sums too short", 0},
        {META, "state", NULL, "meta.json", "a file twice", 0},
        {META, "state", NULL, "/etc/passwd", "a stranger's file", 0},
        {META, "state", NULL, "../state.bin", "a path", 0},
        {"", "state", NULL, NULL, "no JSON", 0},
        {"[]", "state", NULL, NULL, "JSON, but no object", 0},
        {"{\"Size\":-5}", "state", NULL, NULL, "a negative size", 0},
        {"{\"Size\":\"5\"}", "state", NULL, NULL, "a size in words", 0},
        {"{\"Size\":99999999999999999999999}", "state", NULL, NULL, "a size beyond all", 0},
        {META, "state", NULL, NULL, "very much behind its end", 2 << 20},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cr_assert_eq(read_three(table[i].meta, table[i].state, table[i].sums, table[i].other, table[i].more),
                     CO_CORRUPT, "%s", table[i].what);
    cr_assert_eq(read_three("{\"Version\":2,\"ID\":\"x\",\"Index\":5,\"Term\":1,\"Size\":5}", "state", NULL, NULL, 0),
                 CO_UNSUPPORTED, "a newer format");
}

Test(archive, missing_files_and_lies_about_sizes) {
    struct buffer tar = {0};
    static const char end[2 * TAR_BLOCK];
    buffer_append(&tar, end, sizeof end);
    cr_assert_eq(read_tar(&tar), CO_CORRUPT, "nothing in it");
    buffer_reset(&tar);
    add_file(&tar, "state.bin", 1000000, slice_text("short"));
    buffer_append(&tar, end, sizeof end);
    cr_assert_eq(read_tar(&tar), CO_CORRUPT, "shorter than it says");
    buffer_reset(&tar);
    add_file(&tar, "meta.json", TAR_SIZE_MAX, slice_text(META));
    cr_assert_eq(read_tar(&tar), CO_CORRUPT, "16 TiB of meta.json");
    buffer_reset(&tar);
    add_file(&tar, "state.bin", TAR_SIZE_MAX, slice_text("x"));
    cr_assert_eq(read_tar(&tar), CO_TOOLARGE, "16 TiB of state");
    buffer_free(&tar);
}

/* -- what somebody took for one ----------------------------------------------------------------------------------- */

static const char *told(struct slice bytes, bool compressed) {
    static struct fault fault;
    struct buffer plain = {0}, packed = {0};
    fault = (struct fault){0};
    buffer_append(&plain, bytes.data, bytes.size);
    if (compressed) pack(&plain, &packed);
    cr_assert_eq(read_bytes(buffer_slice(compressed ? &packed : &plain), 1 << 20, &fault), CO_CORRUPT, "%s",
                 fault.text);
    buffer_free(&plain);
    buffer_free(&packed);
    return fault.text;
}

/* Each says whose it is, or what is wrong, and what to do; none is cut by the room for it. */
Test(archive, files_of_others_are_named) {
    static const struct {
        struct slice bytes;
        const char *plain, *packed; /* what is said of it as it is, and of it compressed */
    } table[] = {
        {SLICE_LITERAL(""), "the file is empty", "nothing is compressed in this file"},
        {SLICE_LITERAL("No cluster leader\n"), "this is text, no backup: it begins \"No cluster leader\".",
         "what is compressed in it: this is text"},
        {SLICE_LITERAL("[\n\t{\n\t\t\"key\": \"a\"\n"), "this is JSON", "what is compressed in it: this is JSON"},
        {SLICE_LITERAL("ZKSN\0\0\0\2\0\0\0\0\0\0\0\0"), "this is a snapshot of ZooKeeper",
         "what is compressed in it: this is a snapshot of ZooKeeper"},
        {SLICE_LITERAL("ZKLG\0\0\0\2\0\0\0\0\0\0\0\0"), "this is a log of ZooKeeper", "a log of ZooKeeper"},
        {SLICE_LITERAL("\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\xed\xda\x0c\xed\2\0\0\0\0\x10\0\0"),
         "this is a snapshot of etcd", "what is compressed in it: this is a snapshot of etcd"},
        {SLICE_LITERAL("REDIS0011\xfa\tredis-ver"), "this is a dump of Redis", "a dump of Redis"},
        {SLICE_LITERAL("COORDST1\x01\0\0\0"), "this is state.bin out of a backup", "this is state.bin"},
        {SLICE_LITERAL("coordsnp\1\0\0\0"), "a server's own snapshot", "a server's own snapshot"},
        {SLICE_LITERAL("\x80\0\0\0\0\xff\xfe bytes of nobody"), "this is no backup of coord, nor of Consul",
         "something else is compressed in this file"},
        {SLICE_LITERAL("\x1f"), "this is no backup of coord", "something else is compressed in this file"},
        {SLICE_LITERAL("\x1f\x8b"), "the backup is cut off: it ends after 2 bytes", "something else is compressed"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int packed = 0; packed < 2; packed++) {
            const char *text = told(table[i].bytes, packed), *wanted = packed ? table[i].packed : table[i].plain;
            cr_assert(strstr(text, wanted), "%zu: \"%s\" and not \"%s\"", i, text, wanted);
            cr_assert_lt(strlen(text), sizeof((struct fault *)0)->text - 1, "%s", text);
            cr_assert_null(strstr(text, "damaged"), "%s", text);
        }
}

/* In the form of ours, with sums that fit: only what is in it tells. */
Test(archive, a_backup_of_consul_is_named) {
    struct buffer tar = {0}, sums = {0};
    static const char end[2 * TAR_BLOCK];
    struct slice meta = SLICE_LITERAL(
        "{\"Version\":1,\"ID\":\"2-13-1795757410282\",\"Index\":13,\"Term\":2,\"Size\":24,"
        "\"Peers\":\"ka8xMjcuMC4wLjE6MjgzMDA=\"}");
    struct slice state = SLICE_LITERAL(
        "\x81\xa9LastIndex\x0d\0\x8d\xa7"
        "Address\xa9");
    sum_line(&sums, meta, "meta.json"), sum_line(&sums, state, "state.bin");
    add_file(&tar, "meta.json", meta.size, meta), add_file(&tar, "state.bin", state.size, state);
    add_file(&tar, "SHA256SUMS", sums.size, buffer_slice(&sums));
    buffer_append(&tar, end, sizeof end);
    const char *text = told(buffer_slice(&tar), true);
    cr_assert(strstr(text, "a backup of Consul, not of coord") && strstr(text, "coord kv import @keys.json") &&
                  strlen(text) < sizeof((struct fault *)0)->text - 1,
              "%s", text);
    cr_assert(strstr(told(buffer_slice(&tar), false), "a tar archive that is not compressed"));
    buffer_free(&tar);
    buffer_free(&sums);
}

/* In any place: it says that it is cut, and where. */
Test(archive, one_that_is_cut_off_says_so) {
    struct buffer bytes = {0};
    good(&bytes, 3000);
    for (size_t size = 2; size < bytes.size; size += size < 64 ? 1 : 37) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "is cut off: it ends after %zu bytes", size);
        cr_assert(strstr(told(slice_make(bytes.data, size), false), wanted), "%zu", size);
    }
    buffer_free(&bytes);
}
