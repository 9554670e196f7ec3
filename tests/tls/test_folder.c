/* DATA/tls: modes, and a pair that is either the old one or the new one, whatever interrupts. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/lib/scratch.h"
#include "tests/tls/pki.h"
#include "tls/folder.h"

static const char *data;
static struct pair ca, old, fresh;

static void setup(void) {
    static const struct tls_life life = {NOW - DAY, NOW + WEEK};
    umask(022);
    data = scratch_folder();
    pki_ca(NULL, &ca);
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &old);
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &fresh);
    CHECK(tls_folder_make(data, NULL) == CO_OK);
}

static void teardown(void) {
    scratch_remove(data);
    pair_free(&ca);
    pair_free(&old);
    pair_free(&fresh);
}

TestSuite(folder, .init = setup, .fini = teardown);

static const char *path_of(const char *name) {
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/tls/%s", data, name);
    return path;
}

static unsigned mode_of(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 ? info.st_mode & 07777 : 0;
}

static bool is_there(const char *name) { return access(path_of(name), F_OK) == 0; }

static void put(const char *name, struct slice text, mode_t mode) {
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, mode);
    CHECK(fd >= 0 && write(fd, text.data, text.size) == (ssize_t)text.size && fchmod(fd, mode) == 0 && close(fd) == 0);
}

static bool file_is(enum tls_file file, struct slice text) {
    struct buffer content = {0};
    bool same = tls_folder_read(data, file, &content, NULL) == CO_OK && slice_equal(buffer_slice(&content), text);
    tls_wipe(&content);
    return same;
}

static bool pair_is(const struct pair *pair) {
    return file_is(TLS_FILE_KEY, buffer_slice(&pair->key)) && file_is(TLS_FILE_CERT, buffer_slice(&pair->chain));
}

static int write_pair(const struct pair *pair, struct fault *fault) {
    return tls_folder_write_pair(data, buffer_slice(&pair->chain), buffer_slice(&pair->key), fault);
}

static bool nothing_is_left(void) {
    for (enum tls_file file = 0; file < TLS_FILES; file++) {
        char name[32];
        snprintf(name, sizeof name, "%s.new", tls_file_name(file));
        if (is_there(name)) return false;
    }
    return true;
}

/* -- modes -------------------------------------------------------------------------------------------------------- */
Test(folder, modes_are_tight_whatever_the_umask) {
    char secret[TLS_SECRET_SIZE] = "x";
    static const mode_t masks[] = {0, 022, 0777};
    for (size_t i = 0; i < ARRAY_COUNT(masks); i++) {
        umask(masks[i]);
        cr_assert_eq(write_pair(&old, NULL), CO_OK);
        cr_assert_eq(tls_folder_write(data, TLS_FILE_CA, buffer_slice(&ca.chain), NULL), CO_OK);
        cr_assert_eq(tls_folder_write(data, TLS_FILE_CA_KEY, buffer_slice(&ca.key), NULL), CO_OK);
        cr_assert_eq(tls_folder_write(data, TLS_FILE_SECRET, slice_make(secret, sizeof secret), NULL), CO_OK);
        umask(022);
        cr_expect_eq(mode_of(path_of("")), 0700u);
        cr_expect_eq(mode_of(path_of("key.pem")), 0600u);
        cr_expect_eq(mode_of(path_of("ca.key")), 0600u);
        cr_expect_eq(mode_of(path_of("secret.key")), 0600u);
        cr_expect_eq(mode_of(path_of("cert.pem")), 0644u);
        cr_expect_eq(mode_of(path_of("ca.pem")), 0644u);
        cr_expect(pair_is(&old) && nothing_is_left());
    }
}

Test(folder, a_key_that_others_may_read_or_write_is_refused) {
    static const mode_t wrong[] = {0644, 0640, 0620, 0602, 0604, 0601, 0666}, right[] = {0600, 0400, 0700};
    static const enum tls_file files[] = {TLS_FILE_KEY, TLS_FILE_CA_KEY, TLS_FILE_SECRET};
    char wanted[400];
    for (size_t f = 0; f < ARRAY_COUNT(files); f++) {
        const char *name = tls_file_name(files[f]);
        put(name, SLICE_LITERAL("0123456789abcdef0123456789abcdef"), 0600);
        for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
            struct buffer content = {0};
            struct fault fault = {0};
            chmod(path_of(name), wrong[i]);
            cr_expect_eq(tls_folder_read(data, files[f], &content, &fault), CO_INVALID, "%o", wrong[i]);
            snprintf(wanted, sizeof wanted,
                     "%s/tls/%s: others than its owner may read or write it (mode %04o): chmod "
                     "600 %s/tls/%s",
                     data, name, wrong[i], data, name);
            cr_expect_str_eq(fault.text, wanted);
            cr_expect_eq(content.size, 0u);
            fault = (struct fault){0};
            cr_expect_eq(tls_key_file_read(path_of(name), &content, &fault), CO_INVALID);
            cr_expect_str_eq(fault.text, wanted);
        }
        for (size_t i = 0; i < ARRAY_COUNT(right); i++) {
            struct buffer content = {0};
            chmod(path_of(name), right[i]);
            cr_expect_eq(tls_folder_read(data, files[f], &content, NULL), CO_OK, "%o", right[i]);
            cr_expect_eq(content.size, 32u);
            tls_wipe(&content);
        }
    }
    put("cert.pem", SLICE_LITERAL("x"), 0666);
    struct buffer content = {0};
    cr_expect_eq(tls_folder_read(data, TLS_FILE_CERT, &content, NULL), CO_OK, "a certificate is no secret");
    buffer_free(&content);
}

Test(folder, a_folder_that_others_may_enter_is_refused) {
    struct fault fault = {0};
    chmod(path_of(""), 0750);
    cr_expect_eq(tls_folder_make(data, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "(mode 0750): chmod 700 "));
    chmod(path_of(""), 0700);
    cr_expect_eq(tls_folder_make(data, NULL), CO_OK, "again");
    fault = (struct fault){0};
    cr_expect_eq(tls_folder_make("/nonexistent/data", &fault), CO_NOTFOUND);
    cr_expect_str_eq(fault.text, "/nonexistent/data/tls: No such file or directory");
}

Test(folder, a_missing_file_is_no_fault) {
    struct buffer content = {0};
    struct fault fault = {0};
    for (enum tls_file file = 0; file < TLS_FILES; file++)
        cr_expect_eq(tls_folder_read(data, file, &content, &fault), CO_NOTFOUND);
    cr_expect(fault.code == CO_OK && fault.text[0] == '\0');
    cr_expect_eq(tls_key_file_read("/nonexistent/key", &content, &fault), CO_NOTFOUND);
    cr_expect_str_eq(fault.text, "/nonexistent/key: No such file or directory");
}

Test(folder, a_secret_of_another_size_is_damaged) {
    struct buffer content = {0};
    struct fault fault = {0};
    put("secret.key", SLICE_LITERAL("0123456789abcdef0123456789abcde"), 0600);
    cr_expect_eq(tls_folder_read(data, TLS_FILE_SECRET, &content, &fault), CO_CORRUPT);
    cr_expect_not_null(strstr(fault.text, "secret.key: it has 31 bytes instead of 32"));
    buffer_free(&content);
}

/* In the folder a link is refused: a renewal would replace it. A configuration may name one (Kubernetes does). */
Test(folder, links_are_told_apart) {
    struct buffer content = {0};
    struct fault fault = {0};
    char elsewhere[256];
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", data);
    put("../elsewhere", buffer_slice(&old.key), 0600);
    CHECK(symlink("../elsewhere", path_of("key.pem")) == 0);
    cr_expect_eq(tls_folder_read(data, TLS_FILE_KEY, &content, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "key.pem: it is a symbolic link; put the file itself there"), "%s",
                       fault.text);
    cr_expect_eq(tls_key_file_read(path_of("key.pem"), &content, NULL), CO_OK);
    cr_expect(slice_equal(buffer_slice(&content), buffer_slice(&old.key)));
    content.size = 0;
    fault = (struct fault){0};
    chmod(elsewhere, 0644);
    cr_expect_eq(tls_key_file_read(path_of("key.pem"), &content, &fault), CO_INVALID, "the mode of the file counts");
    /* A link in the place of NAME.new or of the file itself is replaced; the file that it names is not touched. */
    CHECK(symlink("../elsewhere", path_of("key.pem.new")) == 0);
    cr_assert_eq(write_pair(&fresh, NULL), CO_OK);
    cr_expect(pair_is(&fresh));
    cr_expect_eq(mode_of(path_of("key.pem")), 0600u);
    chmod(elsewhere, 0600);
    content.size = 0;
    cr_assert_eq(tls_key_file_read(elsewhere, &content, NULL), CO_OK);
    cr_expect(slice_equal(buffer_slice(&content), buffer_slice(&old.key)));
    tls_wipe(&content);
}

Test(folder, other_things_in_its_place_are_refused, .timeout = 30) {
    struct buffer content = {0};
    struct fault fault = {0};
    CHECK(mkfifo(path_of("key.pem"), 0600) == 0);
    cr_expect_eq(tls_folder_read(data, TLS_FILE_KEY, &content, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "no regular file"));
    fault = (struct fault){0};
    cr_expect_eq(tls_key_file_read(path_of(""), &content, &fault), CO_INVALID, "a folder");
    int fd = open(path_of("ca.pem"), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (1 << 20) + 1) == 0 && close(fd) == 0);
    cr_expect_eq(tls_folder_read(data, TLS_FILE_CA, &content, &fault), CO_INVALID, "too large");
    cr_expect_eq(content.size, 0u);
}

/* -- pairs -------------------------------------------------------------------------------------------------------- */
Test(folder, a_pair_that_does_not_fit_is_refused) {
    struct fault fault = {0};
    cr_assert_eq(write_pair(&old, NULL), CO_OK);
    int rv = tls_folder_write_pair(data, buffer_slice(&fresh.chain), buffer_slice(&ca.key), &fault);
    cr_expect_eq(rv, CO_INVALID);
    cr_expect_str_eq(fault.text, "the private key belongs to another certificate");
    cr_expect(pair_is(&old) && nothing_is_left());
}

static struct slice half(const struct buffer *whole) { return slice_make(whole->data, whole->size / 2); }

/* The state after each step, and how a start ends it. NULL: there is no such file. */
Test(folder, a_start_finishes_or_undoes_each_step) {
    struct pair renewed = {0}; /* a new certificate for the same key */
    buffer_append(&renewed.key, old.key.data, old.key.size);
    pki_node(&ca, TLS_ROLE_AGENT, "a", (struct tls_life){NOW, NOW + 2 * WEEK}, &renewed);
    const struct pair *const nexts[] = {&fresh, &renewed};
    for (size_t i = 0; i < ARRAY_COUNT(nexts); i++) {
        const struct pair *next = nexts[i];
        struct slice key = buffer_slice(&next->key), chain = buffer_slice(&next->chain), none = {0};
        const struct {
            struct slice new_key, new_chain;
            bool key_renamed, new_wins;
        } states[] = {
            {half(&next->key), none, false, false},
            {key, none, false, false},
            {key, half(&next->chain), false, false},
            {key, chain, false, false},
            {none, chain, true, true},
            {none, half(&next->chain), false, false},
        };
        for (size_t s = 0; s < ARRAY_COUNT(states); s++) {
            CHECK(write_pair(&old, NULL) == CO_OK);
            if (states[s].new_key.size) put("key.pem.new", states[s].new_key, 0600);
            if (states[s].new_chain.size) put("cert.pem.new", states[s].new_chain, 0644);
            if (states[s].key_renamed) put("key.pem", key, 0600);
            struct fault fault = {0};
            cr_expect_eq(tls_folder_recover(data, &fault), CO_OK, "%zu, state %zu: %s", i, s, fault.text);
            cr_expect(pair_is(states[s].new_wins ? next : &old), "%zu, state %zu", i, s);
            cr_expect(nothing_is_left());
            cr_expect_eq(tls_folder_recover(data, &fault), CO_OK, "again");
        }
    }
    pair_free(&renewed);
}

Test(folder, a_first_pair_is_finished_or_undone_too) {
    put("key.pem.new", buffer_slice(&fresh.key), 0600);
    put("cert.pem.new", buffer_slice(&fresh.chain), 0644);
    cr_expect_eq(tls_folder_recover(data, NULL), CO_OK);
    cr_expect(nothing_is_left() && !is_there("key.pem") && !is_there("cert.pem"));
    put("key.pem", buffer_slice(&fresh.key), 0600);
    put("cert.pem.new", buffer_slice(&fresh.chain), 0644);
    cr_expect_eq(tls_folder_recover(data, NULL), CO_OK);
    cr_expect(pair_is(&fresh) && nothing_is_left());
    CHECK(unlink(path_of("key.pem")) == 0 && unlink(path_of("cert.pem")) == 0);
    put("cert.pem.new", half(&fresh.chain), 0644);
    cr_expect_eq(tls_folder_recover(data, NULL), CO_OK, "a certificate that was cut, and no key");
    cr_expect(nothing_is_left());
}

/* Somebody changed files by hand: a start says so, and a pair that is written mends it. */
Test(folder, files_that_nobody_wrote_so_are_told) {
    struct fault fault = {0};
    CHECK(write_pair(&old, NULL) == CO_OK);
    put("key.pem", buffer_slice(&fresh.key), 0600);
    put("cert.pem.new", buffer_slice(&ca.chain), 0644);
    cr_expect_eq(tls_folder_recover(data, &fault), CO_CORRUPT);
    cr_expect_not_null(strstr(fault.text, "key.pem fits neither "), "%s", fault.text);
    cr_expect_eq(write_pair(&fresh, NULL), CO_OK);
    cr_expect(pair_is(&fresh) && nothing_is_left());
}

Test(folder, other_files_that_were_not_finished_are_thrown_away) {
    put("ca.pem.new", SLICE_LITERAL("x"), 0644);
    put("ca.key.new", SLICE_LITERAL("x"), 0600);
    put("secret.key.new", SLICE_LITERAL("x"), 0600);
    cr_expect_eq(tls_folder_recover(data, NULL), CO_OK);
    cr_expect(nothing_is_left());
    scratch_remove(path_of(""));
    cr_expect_eq(tls_folder_recover(data, NULL), CO_OK, "without a folder there is nothing to do");
}

/* -- a full disk -------------------------------------------------------------------------------------------------- */
/* In a process of its own, which can write no more than so many bytes to a file. Its result. */
static int write_within(size_t bytes, bool ca_alone) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit limit = {bytes, bytes};
        signal(SIGXFSZ, SIG_IGN);
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        _exit(ca_alone ? tls_folder_write(data, TLS_FILE_CA, buffer_slice(&fresh.chain), NULL)
                       : write_pair(&fresh, NULL));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

Test(folder, a_full_disk_leaves_the_old_pair) {
    CHECK(write_pair(&old, NULL) == CO_OK);
    /* It ends within the key, then within the certificate, which is longer. */
    cr_assert_lt(fresh.key.size + 200, fresh.chain.size);
    size_t sizes[] = {0, 1, fresh.key.size - 1, fresh.key.size, fresh.key.size + 100, fresh.chain.size - 1};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        cr_expect_eq(write_within(sizes[i], false), CO_DISKFULL, "%zu bytes", sizes[i]);
        cr_expect(pair_is(&old) && nothing_is_left(), "%zu bytes", sizes[i]);
    }
    cr_expect_eq(write_within(fresh.chain.size, false), CO_OK);
    cr_expect(pair_is(&fresh));
}

Test(folder, a_full_disk_leaves_the_old_file) {
    CHECK(tls_folder_write(data, TLS_FILE_CA, buffer_slice(&ca.chain), NULL) == CO_OK);
    size_t sizes[] = {0, 1, fresh.chain.size - 1};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        cr_expect_eq(write_within(sizes[i], true), CO_DISKFULL, "%zu bytes", sizes[i]);
        cr_expect(file_is(TLS_FILE_CA, buffer_slice(&ca.chain)) && nothing_is_left(), "%zu bytes", sizes[i]);
    }
    cr_expect_eq(write_within(fresh.chain.size, true), CO_OK);
    cr_expect(file_is(TLS_FILE_CA, buffer_slice(&fresh.chain)));
}

/* -- a kill ------------------------------------------------------------------------------------------------------- */
/* Runs the write in a process of its own, and kills it at its system call number `at`. False: it ended before. */
static bool killed_at(unsigned at) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        _exit(write_pair(&fresh, NULL));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    for (unsigned stops = 0; stops < at; stops++) { /* each call stops twice: before it and after it */
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status)) {
            cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == CO_OK);
            return false;
        }
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    return true;
}

/* A command that root runs must not shut the agent out of its own folder. */
Test(folder, a_file_of_root_belongs_to_the_owner_of_the_folder) {
    struct stat info;
    if (geteuid() != 0) cr_skip("only root writes for others");
    CHECK(chown(path_of("."), 12345, 12346) == 0);
    cr_assert_eq(tls_folder_write(data, TLS_FILE_CA_IMPORT, buffer_slice(&old.key), NULL), CO_OK);
    CHECK(stat(path_of("ca-import.key"), &info) == 0);
    cr_expect(info.st_uid == 12345 && info.st_gid == 12346, "%u %u", info.st_uid, info.st_gid);
    cr_expect_eq(mode_of(path_of("ca-import.key")), 0600u);
}

Test(folder, a_kill_at_any_moment_leaves_one_of_both, .timeout = 300) {
    unsigned olds = 0, news = 0;
    bool going = true;
    for (unsigned at = 1; going; at++) {
        CHECK(write_pair(&old, NULL) == CO_OK);
        going = killed_at(at);
        struct fault fault = {0};
        cr_assert_eq(tls_folder_recover(data, &fault), CO_OK, "stop %u: %s", at, fault.text);
        cr_assert(nothing_is_left());
        bool is_old = pair_is(&old), is_new = pair_is(&fresh);
        cr_assert(is_old != is_new, "stop %u", at);
        olds += is_old;
        news += is_new;
    }
    cr_expect_gt(olds, 10u);
    cr_expect_gt(news, 4u);
}
