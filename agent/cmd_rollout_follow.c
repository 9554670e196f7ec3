/* coord rollout get, diff and follow: documents on the command line, and in files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd_rollout.h"
#include "base/check.h"
#include "base/json_in.h"

#define AGAIN_MS 1000 /* pause after a request that nobody answered */

/* -- documents ---------------------------------------------------------------------------------------------------- */

/* Reads the document as it was published, byte for byte. Versions never change, so a separate request may read it. */
static int document_read(const struct client *client, const char *name, const char *version, struct buffer *out,
                         struct fault *fault) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    if (strcmp(version, "current") == 0)
        return fault_set(fault, CO_NOTFOUND, "\"current\" is no version: `coord rollout status %s` says which one is",
                         name);
    buffer_append_text(&path, "/v1/kv/config/");
    client_encode(&path, name, false);
    buffer_append_byte(&path, '/');
    client_encode(&path, version, false);
    buffer_append_text(&path, "?raw");
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "GET", path.data, NULL, true, &answer, fault);
    if (rv == CO_OK && answer.status == 404) rv = fault_set(fault, CO_NOTFOUND, "there is no version \"%s\"", version);
    if (rv == CO_OK) buffer_append(out, answer.body.data, answer.body.size);
    client_answer_free(&answer);
    buffer_free(&path);
    return rv;
}

/* Reads the version that this caller gets. When *index is not 0, waits for a change after it, up to `wait`. Sets *index
 * to that of the answer. The caller frees *version; NULL: no version is current. */
static int version_read(const struct client *client, const char *name, const struct rollout_identity *who,
                        const char *wait, uint64_t *index, char **version, struct fault *fault) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    const char *text = "";
    *version = NULL;
    rollout_path(&path, name, "");
    rollout_parameters(&path, who);
    if (*index) buffer_printf(&path, "&wait=%s&index=%llu", wait, (unsigned long long)*index);
    buffer_append_byte(&path, '\0');
    int rv = client_want(client, "GET", path.data, NULL, true, &answer, fault);
    if (rv == CO_OK) *index = answer.index;
    struct json_object *json =
        rv == CO_OK && answer.status == 200 ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    if (json) json_get_string(json, "Version", &text, fault);
    if (text[0]) *version = strdup(text);
    json_object_put(json);
    client_answer_free(&answer);
    buffer_free(&path);
    return fault->code;
}

/* -- get ---------------------------------------------------------------------------------------------------------- */

#define IDENTITY_FLAGS(who)                                                                           \
    {"id", CMD_TEXT, &(who).id, "the caller's id"}, {"node", CMD_TEXT, &(who).node, "where it runs"}, \
        {"region", CMD_TEXT, &(who).region, "where it is (default: the datacenter)"}, {               \
        "tag", CMD_LIST, &(who).tags, "that it has"                                                   \
    }

int cmd_rollout_get(int argc, char **argv) {
    static const char usage[] = "coord rollout get [FLAGS] -id ID NAME";
    struct client client = {0};
    struct rollout_identity who = {0};
    bool only_version = false;
    const struct cmd_flag flags[] = {IDENTITY_FLAGS(who),
                                     {"version", CMD_BOOL, &only_version, "the version's name instead"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1] || !who.id) return cmd_wrong(usage, "-id and NAME are wanted");
    struct buffer document = {0};
    struct fault fault = {0};
    uint64_t index = 0;
    char *version;
    int rv = version_read(&client, rest[0], &who, "0s", &index, &version, &fault);
    if (rv == CO_OK && !version) rv = fault_set(&fault, CO_NOTFOUND, "\"%s\" has no current version", rest[0]);
    if (rv == CO_OK && only_version) puts(version);
    else if (rv == CO_OK && document_read(&client, rest[0], version, &document, &fault) == CO_OK)
        (void)fwrite(document.data, 1, document.size, stdout);
    free(version);
    buffer_free(&document);
    return fault.code ? cmd_failed("reading the rollout", &fault) : 0;
}

/* -- diff --------------------------------------------------------------------------------------------------------- */

/* A file without a name, which a child reads as /dev/fd/N. */
static int spooled(const struct buffer *text, struct fault *fault) {
    FILE *file = tmpfile();
    int fd = file ? dup(fileno(file)) : -1;
    bool done = fd >= 0 && (!text->size || fwrite(text->data, 1, text->size, file) == text->size) && fflush(file) == 0;
    if (!done) fault_set(fault, co_from_errno(errno), "a temporary file: %s", strerror(errno));
    if (file) fclose(file);
    if (done && lseek(fd, 0, SEEK_SET) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int cmd_rollout_diff(int argc, char **argv) {
    static const char usage[] = "coord rollout diff [FLAGS] NAME VERSION VERSION";
    struct client client = {0};
    char **rest, files[2][32];
    int code = cmd_flags(argc, argv, NULL, 0, &client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || !rest[1] || !rest[2] || rest[3]) return cmd_wrong(usage, "NAME and two VERSIONs are wanted");
    struct fault fault = {0};
    for (int i = 0; i < 2 && !fault.code; i++) {
        struct buffer document = {0};
        if (document_read(&client, rest[0], rest[1 + i], &document, &fault) == CO_OK)
            snprintf(files[i], sizeof files[i], "/dev/fd/%d", spooled(&document, &fault));
        buffer_free(&document);
    }
    if (fault.code) return cmd_failed("reading the versions", &fault);
    char *const words[] = {"diff", "-u", "--label", rest[1], "--label", rest[2], files[0], files[1], NULL};
    execvp("diff", words);
    fault_set(&fault, CO_IO, "diff: %s", strerror(errno));
    return cmd_failed("comparing", &fault);
}

/* -- follow ------------------------------------------------------------------------------------------------------- */

struct follow {
    struct client client;
    struct rollout_identity who;
    const char *name, *out, *command;
    bool once, quiet;
    char *version;  /* the version in the file; NULL: none yet */
    uint64_t index; /* of the answer that gave it */
    int exit_code;  /* of the command, for this version */
    bool owed;      /* no server has taken the acknowledgement yet */
};

/* Gives the new file the mode of the old one and, when this process is allowed to, its owner, so that the same users
 * can read it. */
static bool mode_keep(const char *path, int fd) {
    struct stat old;
    if (stat(path, &old) != 0) return errno == ENOENT;
    bool given = fchown(fd, old.st_uid, old.st_gid) == 0;
    return fchmod(fd, old.st_mode & (given ? 07777 : 0777)) == 0;
}

/* Replaces the file as a whole: a new file is renamed over the old one. */
static int file_replace(const char *path, const struct buffer *text, struct fault *fault) {
    struct buffer aside = {0};
    buffer_printf(&aside, "%s.%d.new", path, (int)getpid());
    buffer_append_byte(&aside, '\0');
    int fd = open(aside.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool done = fd >= 0 && mode_keep(path, fd);
    for (size_t at = 0; done && at < text->size;) {
        ssize_t put = write(fd, text->data + at, text->size - at);
        done = put > 0;
        if (done) at += (size_t)put;
    }
    done = done && fsync(fd) == 0;
    if (fd >= 0) done = close(fd) == 0 && done;
    done = done && rename(aside.data, path) == 0;
    if (!done) fault_set(fault, co_from_errno(errno), "%s: %s", path, strerror(errno));
    if (!done && fd >= 0) (void)unlink(aside.data);
    buffer_free(&aside);
    return fault->code;
}

/* Returns the exit code of the command; 128 and the number of the signal that ended it; 0 without a command. */
static int run_command(const struct follow *follow, const char *version) {
    if (!follow->command) return 0;
    setenv("COORD_ROLLOUT", follow->name, 1), setenv("COORD_ROLLOUT_VERSION", version, 1);
    fflush(stdout);
    int status = system(follow->command);
    return status == -1 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Sends the acknowledgement. It is owed until a server takes it, or refuses it for good. */
static void acknowledge(struct follow *follow) {
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    char reason[64];
    snprintf(reason, sizeof reason, "the command ended with %d", follow->exit_code);
    rollout_path(&path, follow->name, "/ack");
    client_parameter(&path, "id", follow->who.id);
    if (follow->who.node) client_parameter(&path, "node", follow->who.node);
    client_parameter(&path, "version", follow->version);
    client_parameter(&path, "ok", follow->exit_code ? "false" : "true");
    if (follow->exit_code) client_parameter(&path, "reason", reason);
    buffer_append_byte(&path, '\0');
    bool failed = client_want(&follow->client, "PUT", path.data, NULL, false, &answer, &fault) != CO_OK;
    bool wrong = answer.status >= 400 && answer.status < 500 && answer.status != 429;
    if (failed && (wrong || !follow->owed)) (void)cmd_failed("acknowledging", &fault);
    follow->owed = failed && !wrong;
    client_answer_free(&answer);
    buffer_free(&path);
}

/* Takes a version over, if it is a new one. The same version with a new index was withdrawn and given again meanwhile:
 * it is acknowledged again, because the earlier acknowledgement does not count for the present stage. */
static int take(struct follow *follow, const char *version, uint64_t index, struct fault *fault) {
    struct buffer document = {0};
    if (follow->version && strcmp(follow->version, version) == 0) {
        if (follow->index != index) acknowledge(follow);
        follow->index = index;
        return CO_OK;
    }
    int rv = document_read(&follow->client, follow->name, version, &document, fault);
    if (rv == CO_OK) rv = file_replace(follow->out, &document, fault);
    buffer_free(&document);
    if (rv != CO_OK) return rv;
    free(follow->version);
    follow->version = strdup(version), follow->index = index;
    if (!follow->quiet) printf("%s %s\n", follow->name, version), fflush(stdout);
    follow->exit_code = run_command(follow, version);
    acknowledge(follow);
    return CO_OK;
}

static void rest_a_while(void) {
    struct timespec pause = {AGAIN_MS / 1000, AGAIN_MS % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Follows until it is ended, or once. While no server answers, the file stays as it is. */
static int follow_for_ever(struct follow *follow) {
    uint64_t index = 0;
    bool said = false;
    for (;;) {
        struct fault fault = {0};
        char *version;
        int rv = version_read(&follow->client, follow->name, &follow->who, follow->owed ? "1s" : "5m", &index, &version,
                              &fault);
        if (rv == CO_OK && follow->owed) acknowledge(follow);
        if (rv == CO_OK && version) rv = take(follow, version, index, &fault);
        bool had = version != NULL;
        free(version);
        if (rv != CO_OK && (!said || follow->once)) (void)cmd_failed("following (it goes on)", &fault);
        said = rv != CO_OK;
        if (rv != CO_OK) index = 0;
        if (follow->once && (rv != CO_OK || had))
            return rv != CO_OK ? cmd_exit_of(&fault) : follow->exit_code ? CMD_EXIT_REFUSED : 0;
        if (rv != CO_OK || (!had && !index)) rest_a_while();
    }
}

int cmd_rollout_follow(int argc, char **argv) {
    static const char usage[] = "coord rollout follow [FLAGS] -id ID -out FILE NAME";
    struct follow follow = {0};
    const struct cmd_flag flags[] = {
        IDENTITY_FLAGS(follow.who),
        {"out", CMD_TEXT, &follow.out, "the file, replaced whole when there is another version"},
        {"exec", CMD_TEXT, &follow.command,
         "a command for the shell, run afterwards; when it fails, the version is refused"},
        {"once", CMD_BOOL, &follow.once, "ends when the file is as it should be"},
        {"quiet", CMD_BOOL, &follow.quiet, "says nothing of versions"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &follow.client, usage, &rest);
    if (code >= 0) return code;
    if (!rest[0] || rest[1] || !follow.who.id || !follow.out) return cmd_wrong(usage, "-id, -out and NAME are wanted");
    follow.name = rest[0];
    code = follow_for_ever(&follow);
    free(follow.version);
    return code;
}
