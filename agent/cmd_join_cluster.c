/* coord join with a token: brings this host into a closed cluster. Every step may be repeated: the key is made once, and
 * a token that was used up answers once more to the key that used it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd.h"
#include "agent/cmd_join_cluster.h"
#include "agent/identity.h"
#include "agent/joined.h"
#include "agent/start_unit.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/message.h"
#include "base/text.h"
#include "rpc/wire/address.h"
#include "rpc/wire/enrol.h"
#include "tls/authority.h"
#include "tls/folder.h"

#define SERVER_PORT 8300
#define ASK_MOST_MS 10000 /* one server */
#define AGAIN_MS    500
#define ADDRESSES   16
#define CREDENTIAL  "coord.join-token"

static const char usage[] = "coord join -data-dir=DIR [FLAGS] TOKEN ADDRESS ...";

struct joining {
    const char *data_dir, *bind, *node, *token_file, *timeout;
    bool start;
    char name[256];
    struct join_token token;
    char *const *addresses;
    uint64_t until_ms;
    struct buffer key, request;
    char told[256]; /* the last line about a server that does not answer */
};

bool cmd_is_join_token(const char *argument) {
    return strncmp(argument, "coord1", 6) == 0 && strchr(argument, '.') != NULL;
}

/* -- what is given ------------------------------------------------------------------------------------------------- */
/* The one of the service (systemd's LoadCredential), where there is one. systemd decides who may read it, so its mode
 * does not count. */
static const char *credential(char path[4096]) {
    struct stat info;
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (!folder || !folder[0]) return NULL;
    snprintf(path, 4096, "%s/" CREDENTIAL, folder);
    return stat(path, &info) == 0 || errno != ENOENT ? path : NULL;
}

static int token_of_file(const char *path, struct join_token *token, struct fault *fault) {
    struct buffer content = {0};
    struct fault of_token = {0};
    int error = cmd_read_file(path, &content, fault);
    if (!error && content.size == 0) error = fault_set(fault, CO_INVALID, "%s: it is empty, and no join token", path);
    if (!error && (error = join_token_read(buffer_slice(&content), token, &of_token)) != CO_OK)
        fault_set(fault, error, "%s: %s", path, of_token.text);
    tls_wipe(&content);
    return error;
}

/* From a file, the first argument, the environment, or the credential of the service, in this order. */
static int read_token(struct joining *joining, char ***rest, struct fault *fault) {
    char room[4096];
    const char *variable = getenv("COORD_JOIN_TOKEN");
    const char *file = variable ? NULL : credential(room);
    if (joining->token_file) return token_of_file(joining->token_file, &joining->token, fault);
    bool given = **rest && (cmd_is_join_token(**rest) || (!variable && !file));
    if (!given && file) return token_of_file(file, &joining->token, fault);
    const char *text = given ? *(*rest)++ : variable ? variable : "";
    return join_token_read(slice_text(text), &joining->token, fault);
}

static const char *complete(struct joining *joining, char **rest) {
    struct sockaddr_storage at;
    int64_t timeout_ns = 0;
    size_t count = 0;
    if (joining->bind && !address_ip(joining->bind, "0", &at)) return "-bind is an IP address";
    if (joining->node && strlen(joining->node) > TLS_NODE_MAX) return "-node has at most 255 bytes";
    if (joining->node) snprintf(joining->name, sizeof joining->name, "%s", joining->node);
    else identity_host_name(joining->name);
    if (duration_parse(slice_text(joining->timeout), &timeout_ns) != CO_OK || timeout_ns <= 0)
        return "-timeout is a duration, as 60s";
    while (rest[count]) count++;
    if (count == 0) return "the address of a server is wanted, after the token";
    if (count > ADDRESSES) return "at most 16 addresses are taken";
    for (size_t i = 0; i < count; i++)
        if (address_refused(rest[i])) return "an address is HOST or HOST:PORT";
    joining->addresses = rest;
    joining->until_ms = clock_mono_ms() + (uint64_t)timeout_ns / 1000000;
    return NULL;
}

/* -- asking -------------------------------------------------------------------------------------------------------- */
/* The key that is there, from an earlier attempt, or a new one. */
static int make_key(struct joining *joining, struct fault *fault) {
    int error = tls_folder_make(joining->data_dir, fault);
    if (!error) error = tls_folder_read(joining->data_dir, TLS_FILE_KEY, &joining->key, fault);
    if (error == CO_NOTFOUND) {
        error = tls_key_make(&joining->key, fault);
        if (!error) error = tls_folder_write(joining->data_dir, TLS_FILE_KEY, buffer_slice(&joining->key), fault);
    }
    return error ? error : tls_request_make(buffer_slice(&joining->key), &joining->request, fault);
}

/* Tells once why it waits, and again when the reason is another. */
static void tell_waiting(struct joining *joining, const struct fault *fault) {
    if (strcmp(joining->told, fault->text) == 0) return;
    snprintf(joining->told, sizeof joining->told, "%s", fault->text);
    fprintf(stderr, "coord join: waiting: %s\n", fault->text);
}

static bool is_any(const char *bind) { return !bind || strcmp(bind, "0.0.0.0") == 0 || strcmp(bind, "::") == 0; }

static int ask_one(struct joining *joining, struct tls_context *context, const char *address, struct arena *arena,
                   Pb__EnrolAnswer **answer, struct fault *fault) {
    Pb__EnrolRequest request = PB__ENROL_REQUEST__INIT;
    request.request = message_bytes(buffer_slice(&joining->request));
    request.node = joining->name, request.server = joining->token.role == TLS_ROLE_SERVER;
    request.token_id = (ProtobufCBinaryData){JOIN_TOKEN_ID_SIZE, joining->token.id};
    request.token_secret = (ProtobufCBinaryData){JOIN_TOKEN_SECRET_SIZE, joining->token.secret};
    uint64_t now_ms = clock_mono_ms(), left_ms = joining->until_ms > now_ms ? joining->until_ms - now_ms : 1;
    struct enrol enrol = {.protocol = SECURITY_JOIN,
                          .pin = joining->token.pin,
                          .context = context,
                          .from = is_any(joining->bind) ? NULL : joining->bind,
                          .request = &request,
                          .timeout_ms = left_ms < ASK_MOST_MS ? left_ms : ASK_MOST_MS};
    return enrol_ask(&enrol, address, SERVER_PORT, arena, answer, fault);
}

/* Asks one server after the other, until one answers for good. */
static int ask(struct joining *joining, struct arena *arena, Pb__EnrolAnswer **answer, struct fault *fault) {
    struct tls_context_config nothing = {.only_tls13 = true};
    struct tls_context *context;
    int error = tls_context_make(&nothing, &context, fault);
    if (error) return error;
    for (size_t i = 0;; i++) {
        const char *address = joining->addresses[i];
        if (!address) {
            if (clock_mono_ms() + AGAIN_MS >= joining->until_ms) {
                fault_set(fault, CO_TIMEOUT, "no server answered in time; the last reason: %s", joining->told);
                error = CO_TIMEOUT;
                break;
            }
            usleep(AGAIN_MS * 1000);
            i = (size_t)-1;
            continue;
        }
        struct fault one = {0};
        error = ask_one(joining, context, address, arena, answer, &one);
        if (!error) break;
        if (!enrol_may_repeat(error)) {
            fault_set(fault, error, "%s", one.text);
            break;
        }
        tell_waiting(joining, &one);
    }
    tls_context_unref(context);
    return error;
}

/* -- keeping ------------------------------------------------------------------------------------------------------- */
static bool has_pin(struct slice pem, const uint8_t pin[TLS_PIN_SIZE]) {
    struct tls_certificate certificate;
    return tls_certificate_read(pem, &certificate, NULL) == CO_OK && memcmp(certificate.pin, pin, TLS_PIN_SIZE) == 0;
}

/* The handshake has proven the CA; the answer has to agree with it. */
static int check_answer(const struct joining *joining, const Pb__EnrolAnswer *answer, struct fault *fault) {
    bool pinned = false;
    for (size_t i = 0; i < answer->n_cas; i++)
        pinned = pinned || has_pin(slice_text(answer->cas[i]), joining->token.pin);
    if (!pinned) return fault_set(fault, CO_CORRUPT, "the server's answer does not have the CA of the token");
    if (!answer->datacenter[0] || answer->n_servers == 0)
        return fault_set(fault, CO_CORRUPT, "the server's answer does not say which cluster it is");
    if (joining->token.role == TLS_ROLE_SERVER && (!answer->ca_key.len || !answer->secret_key.len))
        return fault_set(fault, CO_CORRUPT, "the server's answer lacks the keys that a server needs");
    return tls_pair_check(buffer_slice(&joining->key), slice_text(answer->chain), fault);
}

static int keep(struct joining *joining, const Pb__EnrolAnswer *answer, struct fault *fault) {
    struct buffer cas = {0};
    int error = check_answer(joining, answer, fault);
    for (size_t i = 0; i < answer->n_cas; i++) buffer_append_text(&cas, answer->cas[i]);
    if (!error) error = tls_folder_write(joining->data_dir, TLS_FILE_CA, buffer_slice(&cas), fault);
    if (!error)
        error = tls_folder_write_pair(joining->data_dir, slice_text(answer->chain), buffer_slice(&joining->key), fault);
    if (!error && joining->token.role == TLS_ROLE_SERVER) {
        struct authority *authority = authority_new();
        struct tls_issuer issuer = {slice_text(answer->ca_certificate), message_slice(answer->ca_key)};
        error = authority_store(authority, joining->data_dir, &issuer, message_slice(answer->secret_key), fault);
        authority_free(authority);
    }
    buffer_free(&cas);
    struct joined joined = {.server = joining->token.role == TLS_ROLE_SERVER,
                            .node = joining->name,
                            .datacenter = answer->datacenter,
                            .bind = joining->bind,
                            .default_policy = answer->acl_default_policy[0] ? answer->acl_default_policy : NULL,
                            .servers = (const char *const *)answer->servers,
                            .server_count = answer->n_servers};
    return error ? error : joined_write(joining->data_dir, &joined, fault);
}

static int join(struct joining *joining, struct fault *fault) {
    struct arena arena = {0};
    Pb__EnrolAnswer *answer = NULL;
    int error = make_key(joining, fault);
    if (!error) error = ask(joining, &arena, &answer, fault);
    if (!error) error = keep(joining, answer, fault);
    if (!error)
        printf("joined datacenter %s as %s %s. Start it:\n    coord agent -data-dir %s\n", answer->datacenter,
               joining->token.role == TLS_ROLE_SERVER ? "server" : "client agent", joining->name, joining->data_dir);
    enrol_wipe(answer);
    arena_free(&arena);
    return error;
}

int cmd_join_cluster(int argc, char **argv) {
    struct joining joining = {.timeout = "60s"};
    const struct cmd_flag flags[] = {
        {"data-dir", CMD_TEXT, &joining.data_dir, "data folder of this host's agent; it is made"},
        {"bind", CMD_TEXT, &joining.bind, "IP address at which other hosts reach this one (default: all)"},
        {"node", CMD_TEXT, &joining.node, "name of this node (default: that of the host)"},
        {"token-file", CMD_TEXT, &joining.token_file,
         "file that has the token, instead of the first argument; -: stdin"},
        {"timeout", CMD_DURATION, &joining.timeout, "how long it waits for a server (default: 60s)"},
        {"start", CMD_BOOL, &joining.start, "starts the service coord of systemd afterwards"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), NULL, usage, &rest), lock = -1;
    if (code >= 0) return code;
    if (!joining.data_dir || !joining.data_dir[0]) return cmd_wrong(usage, "-data-dir is wanted");
    struct fault fault = {0};
    if (read_token(&joining, &rest, &fault) != CO_OK) {
        fprintf(stderr, "coord join: %s\n", fault.text);
        return CMD_EXIT_MISTAKE;
    }
    const char *wrong = complete(&joining, rest);
    if (wrong) return cmd_wrong(usage, wrong);
    int error = joining.start ? start_unit_check(&fault) : CO_OK;
    if (!error) error = identity_folder_make(joining.data_dir, &fault);
    if (!error) error = identity_lock(joining.data_dir, true, &lock, &fault);
    if (!error) error = joined_check(joining.data_dir, &fault);
    if (!error) error = join(&joining, &fault);
    tls_wipe(&joining.key);
    buffer_free(&joining.request);
    explicit_bzero(&joining.token, sizeof joining.token);
    if (lock >= 0) close(lock);
    if (!error && joining.start) error = start_unit(&fault);
    if (error) fprintf(stderr, "coord join: %s\n", fault.text);
    return error ? CMD_EXIT_REFUSED : 0;
}
