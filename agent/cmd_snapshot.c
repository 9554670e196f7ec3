/* coord snapshot save | restore | inspect */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/modules.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/tar.h"
#include "registry/machine.h"
#include "rpc/backup/archive.h"

/* -- would a server take this backup? ----------------------------------------------------------------------------- */
struct unpacking {
    int fd, state;
    struct archive_meta *meta;
    struct fault *fault;
};

static void *unpack(void *arg) {
    struct unpacking *unpacking = arg;
    (void)archive_read(unpacking->fd, unpacking->state, TAR_SIZE_MAX, unpacking->meta, unpacking->fault);
    close(unpacking->state);
    return NULL;
}

static int state_check(int state, struct fault *fault) {
    struct machine_config config = {.modules = agent_modules};
    struct machine *machine;
    bool there, trusted;
    uint64_t applied;
    int rv = machine_look(&config, &machine, &there, &trusted, fault);
    if (rv != CO_OK) return rv;
    rv = machine_copy_look(machine, state, 0, &applied, fault);
    machine_close(machine);
    return rv;
}

/* Checks the archive's sums, and every record of its state. A fault of the archive is preferred, because damage of the
 * archive causes faults of the state. */
static int backup_check(int fd, struct archive_meta *meta, struct fault *fault) {
    int ends[2];
    struct fault content = {0};
    if (pipe2(ends, O_CLOEXEC) != 0) return fault_set(fault, CO_IO, "no pipe: %s", strerror(errno));
    struct unpacking unpacking = {.fd = fd, .state = ends[1], .meta = meta, .fault = fault};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, unpack, &unpacking) == 0);
    (void)state_check(ends[0], &content);
    char rest[64 * 1024];
    while (read(ends[0], rest, sizeof rest) > 0) continue;
    pthread_join(thread, NULL);
    close(ends[0]);
    if (fault->code == CO_OK && content.code != CO_OK) fault_set(fault, content.code, "state.bin: %s", content.text);
    return fault->code;
}

/* An agent's answer about a file (400) is shown as it is, because it is a sentence; any other failure is shown with its
 * status, as Consul does. */
static int answered(const struct client_answer *answer, struct fault *fault) {
    struct slice text = buffer_slice(&answer->body);
    while (text.size && text.data[text.size - 1] == '\n') text.size--;
    if (answer->status == 400 && text.size)
        return fault_set(fault, CO_INVALID, "%.*s", (int)(text.size < 255 ? text.size : 255), text.data);
    return client_refused(answer, fault);
}

/* -- save --------------------------------------------------------------------------------------------------------- */
static bool sync_folder_of(const char *path) {
    char *copy = mem_strdup(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    free(copy);
    return done;
}

/* Reads and checks the file, which was written beside the target, then renames it: so a file at `path` is always
 * whole. */
static int save_checked(int fd, const char *aside, const char *path, struct fault *fault) {
    struct archive_meta meta;
    if (lseek(fd, 0, SEEK_SET) != 0) return fault_set(fault, CO_IO, "%s: %s", aside, strerror(errno));
    int rv = backup_check(fd, &meta, fault);
    if (rv != CO_OK) return rv;
    if (fsync(fd) != 0 || rename(aside, path) != 0 || !sync_folder_of(path))
        return fault_set(fault, CO_IO, "%s: %s", path, strerror(errno));
    printf("Saved and verified snapshot to index %llu\n", (unsigned long long)meta.index);
    return CO_OK;
}

static int save_to(const struct client *client, const char *path, struct fault *fault) {
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return fault_set(fault, CO_INVALID, "%s is there, and no regular file", path);
    struct buffer aside = {0};
    buffer_printf(&aside, "%s.unverified", path);
    buffer_append_byte(&aside, '\0');
    int fd = open(aside.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0600); /* it has all keys, so others must not read it */
    FILE *file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    if (!file) {
        fault_set(fault, CO_IO, "%s: %s", aside.data, strerror(errno));
        buffer_free(&aside);
        return CO_IO;
    }
    struct client_answer answer = {0};
    int rv = client_ask(client, "GET", "/v1/snapshot", NULL, NULL, file, &answer, fault);
    if (rv == CO_OK && answer.status != 200) rv = answered(&answer, fault);
    if (rv == CO_OK && fflush(file) != 0) rv = fault_set(fault, CO_IO, "%s: %s", aside.data, strerror(errno));
    if (rv == CO_OK) rv = save_checked(fileno(file), aside.data, path, fault);
    fclose(file);
    if (rv != CO_OK) unlink(aside.data);
    client_answer_free(&answer);
    buffer_free(&aside);
    return rv;
}

static int snapshot_save(int argc, char **argv) {
    static const char usage[] = "coord snapshot save [FLAGS] FILE";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "FILE is wanted, and flags before it");
    struct fault fault = {0};
    return save_to(&client, rest[0], &fault) == CO_OK ? 0 : cmd_failed("saving snapshot", &fault);
}

/* -- restore ------------------------------------------------------------------------------------------------------ */
static int snapshot_restore(int argc, char **argv) {
    static const char usage[] = "coord snapshot restore [FLAGS] FILE";
    struct client client = {0};
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "FILE is wanted, and flags before it");
    struct fault fault = {0};
    struct client_answer answer = {0};
    FILE *file = fopen(rest[0], "rb");
    int rv = file ? client_ask(&client, "PUT", "/v1/snapshot", NULL, file, NULL, &answer, &fault)
                  : fault_set(&fault, CO_IO, "%s: %s", rest[0], strerror(errno));
    if (rv == CO_OK && answer.status != 200) answered(&answer, &fault);
    if (file) fclose(file);
    client_answer_free(&answer);
    if (fault.code) return cmd_failed("restoring snapshot", &fault);
    puts("Restored snapshot");
    return 0;
}

/* -- inspect ------------------------------------------------------------------------------------------------------ */
static int snapshot_inspect(int argc, char **argv) {
    static const char usage[] = "coord snapshot inspect FILE";
    char **rest;
    int code = cmd_flags(argc, argv, NULL, 0, NULL, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1]) return cmd_wrong(usage, "FILE is wanted");
    struct fault fault = {0};
    struct archive_meta meta;
    int fd = open(rest[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fault_set(&fault, CO_IO, "%s: %s", rest[0], strerror(errno));
        return cmd_failed("opening snapshot file", &fault);
    }
    int rv = backup_check(fd, &meta, &fault);
    close(fd);
    if (rv != CO_OK) return cmd_failed("verifying snapshot", &fault);
    printf("ID           %s\nSize         %llu\nIndex        %llu\nTerm         %llu\nVersion      %llu\n", meta.id,
           (unsigned long long)meta.size, (unsigned long long)meta.index, (unsigned long long)meta.term,
           (unsigned long long)meta.version);
    return 0;
}

int cmd_snapshot(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"save", "write a backup of the whole state to a file", snapshot_save},
        {"restore", "replace the whole state by a backup", snapshot_restore},
        {"inspect", "check a backup, and print its description", snapshot_inspect},
    };
    return cmd_sub(commands, ARRAY_COUNT(commands), "snapshot", argc, argv);
}
