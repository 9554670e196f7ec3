#include "tls/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "tls/certificate.h"

#define FILE_SIZE_MOST (1 << 20)
#define NEW            ".new"

static const struct {
    const char *name;
    bool secret;
} files[] = {
    [TLS_FILE_CA] = {"ca.pem", false},        [TLS_FILE_CERT] = {"cert.pem", false},
    [TLS_FILE_KEY] = {"key.pem", true},       [TLS_FILE_CA_KEY] = {"ca.key", true},
    [TLS_FILE_SECRET] = {"secret.key", true}, [TLS_FILE_FIRST] = {"first", true},
    [TLS_FILE_MODE] = {"mode", false},        [TLS_FILE_CA_NEXT] = {"ca-next.key", true},
    [TLS_FILE_REGIONS] = {"regions", false},  [TLS_FILE_CA_IMPORT] = {"ca-import.key", true},
};

const char *tls_file_name(enum tls_file file) {
    CHECK((size_t)file < ARRAY_COUNT(files));
    return files[file].name;
}

static int file_fault(struct fault *fault, const char *path, int errnum) {
    return fault_set(fault, co_from_errno(errnum), "%s: %s", path, strerror(errnum));
}

/* -- paths -------------------------------------------------------------------------------------------------------- */
struct paths {
    char *folder, *now, *next; /* next: NAME.new */
};

static char *joined(const char *a, const char *b, const char *c) {
    struct buffer path = {0};
    buffer_printf(&path, "%s%s%s", a, b, c);
    buffer_append_byte(&path, '\0');
    return path.data;
}

static struct paths paths_of(const char *data_dir, enum tls_file file) {
    struct paths paths = {.folder = joined(data_dir, "/tls", "")};
    paths.now = joined(paths.folder, "/", tls_file_name(file));
    paths.next = joined(paths.now, NEW, "");
    return paths;
}

static void paths_free(struct paths *paths) {
    free(paths->folder);
    free(paths->now);
    free(paths->next);
}

static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* -- modes -------------------------------------------------------------------------------------------------------- */
static int check_secret_mode(const char *path, const struct stat *info, const char *wanted, struct fault *fault) {
    unsigned mode = info->st_mode & 07777;
    if ((mode & 077) == 0) return CO_OK;
    return fault_set(fault, CO_INVALID, "%s: others than its owner may read or write it (mode %04o): chmod %s %s", path,
                     mode, wanted, path);
}

static int sync_folder(const char *path, struct fault *fault) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rv = CO_OK;
    if (fd < 0 || fsync(fd) != 0) rv = file_fault(fault, path, errno);
    if (fd >= 0) close(fd);
    return rv;
}

/* Of the folder that holds this file or folder. */
static int sync_parent(const char *path, struct fault *fault) {
    char *parent = mem_strdup(path), *slash = strrchr(parent, '/');
    if (slash) *slash = '\0';
    int rv = sync_folder(slash == parent ? "/" : slash ? parent : ".", fault);
    free(parent);
    return rv;
}

int tls_secret_folder_make(const char *path, struct fault *fault) {
    struct stat info;
    bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST) return file_fault(fault, path, errno);
    if (stat(path, &info) != 0) return file_fault(fault, path, errno);
    if (!S_ISDIR(info.st_mode)) return fault_set(fault, CO_INVALID, "%s: it is no folder", path);
    int rv = check_secret_mode(path, &info, "700", fault);
    return rv == CO_OK && made ? sync_parent(path, fault) : rv;
}

int tls_folder_make(const char *data_dir, struct fault *fault) {
    struct paths paths = paths_of(data_dir, TLS_FILE_KEY);
    int rv = tls_secret_folder_make(paths.folder, fault);
    paths_free(&paths);
    return rv;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */
static int read_all(int fd, const char *path, size_t size, struct buffer *content, struct fault *fault) {
    size_t before = content->size;
    buffer_reserve(content, size + 1); /* once, so that no copy of a key is left where the buffer was before */
    for (;;) {
        size_t room = content->capacity - content->size;
        ssize_t got = room ? read(fd, content->data + content->size, room) : 0;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_fault(fault, path, errno);
        if (room == 0 || content->size + (size_t)got - before > size)
            return fault_set(fault, CO_IO, "%s: it grew while it was read", path);
        if (got == 0) return CO_OK;
        content->size += (size_t)got;
    }
}

static int read_checked(int fd, const char *path, bool secret, struct buffer *content, struct fault *fault) {
    struct stat info;
    if (fstat(fd, &info) != 0) return file_fault(fault, path, errno);
    if (!S_ISREG(info.st_mode)) return fault_set(fault, CO_INVALID, "%s: it is no regular file", path);
    if (info.st_size > FILE_SIZE_MOST)
        return fault_set(fault, CO_INVALID, "%s: it has more than %d bytes", path, FILE_SIZE_MOST);
    int rv = secret ? check_secret_mode(path, &info, "600", fault) : CO_OK;
    return rv == CO_OK ? read_all(fd, path, (size_t)info.st_size, content, fault) : rv;
}

/* CO_NOTFOUND leaves the fault alone. O_NONBLOCK: a pipe in this place must not make us wait. */
static int read_file(const char *path, int flags, bool secret, struct buffer *content, struct fault *fault) {
    size_t before = content->size;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (fd < 0 && errno == ENOENT) return CO_NOTFOUND;
    if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW))
        return fault_set(fault, CO_INVALID, "%s: it is a symbolic link; put the file itself there", path);
    if (fd < 0) return file_fault(fault, path, errno);
    int rv = read_checked(fd, path, secret, content, fault);
    close(fd);
    if (rv != CO_OK) content->size = before;
    return rv;
}

int tls_folder_read(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault) {
    struct paths paths = paths_of(data_dir, file);
    size_t before = content->size;
    int rv = read_file(paths.now, O_NOFOLLOW, files[file].secret, content, fault);
    if (rv == CO_OK && file == TLS_FILE_SECRET && content->size - before != TLS_SECRET_SIZE) {
        rv = fault_set(fault, CO_CORRUPT, "%s: it has %zu bytes instead of %d", paths.now, content->size - before,
                       TLS_SECRET_SIZE);
        content->size = before;
    }
    paths_free(&paths);
    return rv;
}

void tls_folder_remove(const char *data_dir, enum tls_file file) {
    struct paths paths = paths_of(data_dir, file);
    (void)unlink(paths.now);
    paths_free(&paths);
}

int tls_key_file_read(const char *path, struct buffer *key, struct fault *fault) {
    int rv = read_file(path, 0, true, key, fault);
    return rv == CO_NOTFOUND ? file_fault(fault, path, ENOENT) : rv;
}

/* -- writing ------------------------------------------------------------------------------------------------------ */
static int write_all(int fd, struct slice content) {
    while (content.size) {
        ssize_t done = write(fd, content.data, content.size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        content = slice_make(content.data + done, content.size - (size_t)done);
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* Writes NAME.new and syncs it. A file that is already there, or a link, is removed first, not followed. */
static int write_next(const struct paths *paths, mode_t mode, struct slice content, struct fault *fault) {
    (void)unlink(paths->next);
    int fd = open(paths->next, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) return file_fault(fault, paths->next, errno);
    int error = fchmod(fd, mode) == 0 ? write_all(fd, content) : errno; /* fchmod: the umask may take away too much */
    if (close(fd) != 0 && !error) error = errno;
    if (!error) return CO_OK;
    (void)unlink(paths->next);
    return file_fault(fault, paths->next, error);
}

static mode_t mode_of(enum tls_file file) { return files[file].secret ? 0600 : 0644; }

static int take_next(const struct paths *paths, struct fault *fault) {
    return rename(paths->next, paths->now) == 0 ? CO_OK : file_fault(fault, paths->now, errno);
}

static int give_to_owner(const struct paths *paths, struct fault *fault) {
    struct stat info;
    if (geteuid() != 0) return CO_OK;
    bool given = stat(paths->folder, &info) == 0 && lchown(paths->next, info.st_uid, info.st_gid) == 0;
    return given ? CO_OK : file_fault(fault, paths->next, errno);
}

int tls_folder_write(const char *data_dir, enum tls_file file, struct slice content, struct fault *fault) {
    CHECK(file != TLS_FILE_SECRET || content.size == TLS_SECRET_SIZE);
    struct paths paths = paths_of(data_dir, file);
    int rv = write_next(&paths, mode_of(file), content, fault);
    if (rv == CO_OK) {
        rv = give_to_owner(&paths, fault);
        if (rv == CO_OK) rv = take_next(&paths, fault);
        if (rv != CO_OK) (void)unlink(paths.next);
    }
    if (rv == CO_OK) rv = sync_folder(paths.folder, fault);
    paths_free(&paths);
    return rv;
}

int tls_key_file_write(const char *path, struct slice content, struct fault *fault) {
    struct paths paths = {joined(path, "", ""), joined(path, "", ""), joined(path, NEW, "")};
    int rv = write_next(&paths, 0600, content, fault);
    if (rv == CO_OK && (rv = take_next(&paths, fault)) != CO_OK) (void)unlink(paths.next);
    if (rv == CO_OK) rv = sync_parent(path, fault);
    paths_free(&paths);
    return rv;
}

/* -- pairs -------------------------------------------------------------------------------------------------------- */
/* In this order, each made durable before the next begins, so that a start knows where it stopped:
 *
 *   key.pem.new, then cert.pem.new are written     key.pem.new there: nothing is replaced yet, both are thrown away
 *   key.pem.new becomes key.pem                    only cert.pem.new there, and it fits key.pem: it becomes cert.pem
 *   cert.pem.new becomes cert.pem                  none there: done */
struct pair {
    struct paths key, chain;
};

static struct pair pair_of(const char *data_dir) {
    return (struct pair){paths_of(data_dir, TLS_FILE_KEY), paths_of(data_dir, TLS_FILE_CERT)};
}

static void pair_free(struct pair *pair) {
    paths_free(&pair->key);
    paths_free(&pair->chain);
}

/* The certificate first: left alone, it would look like a key that was replaced. */
static void throw_away(const struct pair *pair) {
    (void)unlink(pair->chain.next);
    (void)unlink(pair->key.next);
}

static int write_both_next(const struct pair *pair, struct slice chain, struct slice key, struct fault *fault) {
    int rv = write_next(&pair->key, 0600, key, fault);
    if (rv == CO_OK) rv = write_next(&pair->chain, 0644, chain, fault);
    if (rv == CO_OK) rv = sync_folder(pair->key.folder, fault);
    return rv;
}

int tls_folder_write_pair(const char *data_dir, struct slice chain, struct slice key, struct fault *fault) {
    int rv = tls_pair_check(key, chain, fault);
    if (rv != CO_OK) return rv;
    (void)tls_folder_recover(data_dir, NULL); /* if that cannot be mended, this pair replaces it */
    struct pair pair = pair_of(data_dir);
    rv = write_both_next(&pair, chain, key, fault);
    if (rv == CO_OK) rv = take_next(&pair.key, fault);
    if (rv != CO_OK) {
        throw_away(&pair);
    } else { /* from here on only forwards: recover finishes it if this cannot */
        rv = sync_folder(pair.key.folder, fault);
        if (rv == CO_OK) rv = take_next(&pair.chain, fault);
        if (rv == CO_OK) rv = sync_folder(pair.key.folder, fault);
    }
    pair_free(&pair);
    return rv;
}

/* CO_NOTFOUND: one of them is missing. */
static int check_files(const char *key_path, const char *chain_path, struct fault *fault) {
    struct buffer key = {0}, chain = {0};
    int rv = read_file(key_path, O_NOFOLLOW, true, &key, fault);
    if (rv == CO_OK) rv = read_file(chain_path, O_NOFOLLOW, false, &chain, fault);
    if (rv == CO_OK) rv = tls_pair_check(buffer_slice(&key), buffer_slice(&chain), fault);
    tls_wipe(&key);
    buffer_free(&chain);
    return rv;
}

static int recover_pair(const struct pair *pair, struct fault *fault) {
    if (is_there(pair->key.next)) {
        throw_away(pair);
        return CO_OK;
    }
    if (!is_there(pair->chain.next)) return CO_OK;
    struct fault of_new = {0}, of_old = {0};
    int rv = check_files(pair->key.now, pair->chain.next, &of_new);
    if (rv == CO_OK) return take_next(&pair->chain, fault);
    bool old_fits = check_files(pair->key.now, pair->chain.now, &of_old) == CO_OK;
    if (old_fits || rv == CO_NOTFOUND) { /* a write of the certificate alone, or of a first pair, that did not end */
        throw_away(pair);
        return CO_OK;
    }
    return fault_set(fault, CO_CORRUPT, "%s fits neither %s (%s) nor %s", pair->key.now, pair->chain.next, of_new.text,
                     pair->chain.now);
}

int tls_folder_recover(const char *data_dir, struct fault *fault) {
    struct pair pair = pair_of(data_dir);
    if (!is_there(pair.key.folder)) {
        pair_free(&pair);
        return CO_OK;
    }
    int rv = recover_pair(&pair, fault);
    for (enum tls_file file = 0; file < TLS_FILES; file++) {
        if (file == TLS_FILE_KEY || file == TLS_FILE_CERT) continue;
        struct paths paths = paths_of(data_dir, file);
        (void)unlink(paths.next);
        paths_free(&paths);
    }
    if (rv == CO_OK) rv = sync_folder(pair.key.folder, fault);
    pair_free(&pair);
    return rv;
}
