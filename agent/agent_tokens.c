#include "agent/agent_tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/private_file.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/log.h"
#include "rpc/api/requester.h"

#define FILE_MOST 4096

static const char file_name[] = "agent-tokens.json";
static const char *const keys[] = {"default", "agent", "agent_master",
                                   NULL}; /* in the order of enum http_agent_token */

struct agent_tokens {
    struct agent_tokens_config config;
    char *folder; /* NULL: nothing is kept */
    pthread_mutex_t lock;
    char *now[HTTP_AGENT_TOKENS]; /* "": none */
    bool set[HTTP_AGENT_TOKENS];  /* while it runs, or in an earlier run */
};

static void secret_free(char *secret) {
    explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void replace(struct agent_tokens *tokens, enum http_agent_token token, struct slice secret) {
    secret_free(tokens->now[token]);
    tokens->now[token] = mem_strndup(secret.data, secret.size);
    tokens->set[token] = true;
}

static bool certified(const struct agent_tokens *tokens) {
    struct security_rules rules;
    security_get(tokens->config.security, &rules);
    return rules.kind == SECURITY_CLUSTER;
}

static void use(const struct agent_tokens *tokens, enum http_agent_token token) {
    const char *secret = tokens->now[token];
    bool fallback = token == HTTP_AGENT_TOKEN_AGENT && !*secret && !certified(tokens);
    tokens->config.use(tokens->config.data, token, fallback ? tokens->now[HTTP_AGENT_TOKEN_DEFAULT] : secret);
}

/* -- the file ----------------------------------------------------------------------------------------------------- */

static int keep(const struct agent_tokens *tokens, struct fault *fault) {
    struct buffer text = {0};
    struct json_out json;
    if (!tokens->folder) return CO_OK;
    if (mkdir(tokens->folder, 0700) != 0 && errno != EEXIST)
        return fault_set(fault, co_from_errno(errno), "%s: %s", tokens->folder, strerror(errno));
    json_out_init(&json, &text, true);
    json_object(&json);
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) {
        if (!tokens->set[i] || !*tokens->now[i]) continue;
        json_key_raw(&json, keys[i], strlen(keys[i]));
        json_string(&json, tokens->now[i]);
    }
    json_object_end(&json);
    buffer_append_byte(&text, '\n');
    int error = private_file_write(tokens->folder, file_name, buffer_slice(&text), fault);
    explicit_bzero(text.data, text.size);
    buffer_free(&text);
    return error;
}

/* The file's text; size 0: there is none. */
static int file_read(const char *path, char text[FILE_MOST], size_t *size, struct fault *fault) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *size = 0;
    if (fd < 0)
        return errno == ENOENT ? CO_OK : fault_set(fault, co_from_errno(errno), "%s: %s", path, strerror(errno));
    ssize_t got = read(fd, text, FILE_MOST);
    int error = got < 0 ? errno : 0;
    close(fd);
    if (error) return fault_set(fault, co_from_errno(error), "%s: %s", path, strerror(error));
    *size = (size_t)got;
    return CO_OK;
}

static int take(struct agent_tokens *tokens, struct json_object *json, const char *path, struct fault *fault) {
    struct slice secrets[HTTP_AGENT_TOKENS];
    struct fault wrong = {0};
    json_only_known(json, keys, &wrong);
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) {
        secrets[i] = slice_make("", 0);
        json_get_slice(json, keys[i], &secrets[i], &wrong);
        if (secrets[i].size > REQUESTER_TOKEN_MOST) fault_set(&wrong, CO_INVALID, "%s: too long", keys[i]);
    }
    if (wrong.code) return fault_set(fault, CO_CORRUPT, "%s: %s", path, wrong.text);
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) {
        if (!secrets[i].size) continue;
        if (*tokens->now[i] && !slice_is(secrets[i], tokens->now[i]))
            log_warn("acl",
                     "a token of this agent was set while it ran, and counts in place of the configuration's token=%s",
                     keys[i]);
        replace(tokens, (enum http_agent_token)i, secrets[i]);
    }
    return CO_OK;
}

static int load(struct agent_tokens *tokens, struct fault *fault) {
    char path[4096], text[FILE_MOST];
    size_t size;
    struct fault wrong = {0};
    snprintf(path, sizeof path, "%s/%s", tokens->folder, file_name);
    int error = file_read(path, text, &size, fault);
    if (error || !size) return error;
    struct json_object *json = json_parse(slice_make(text, size), &wrong);
    if (json) error = take(tokens, json, path, fault);
    else error = fault_set(fault, CO_CORRUPT, "%s: %s", path, wrong.text);
    json_object_put(json);
    explicit_bzero(text, sizeof text);
    return error;
}

/* -- life --------------------------------------------------------------------------------------------------------- */

int agent_tokens_start(const struct agent_tokens_config *config, struct agent_tokens **out, struct fault *fault) {
    const struct config *given = config->config;
    const char *const secrets[HTTP_AGENT_TOKENS] = {given->acl_token_default, given->acl_token_agent,
                                                    given->acl_token_agent_master};
    struct agent_tokens *tokens = mem_zalloc(sizeof *tokens);
    tokens->config = *config;
    CHECK(pthread_mutex_init(&tokens->lock, NULL) == 0);
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) tokens->now[i] = mem_strdup(secrets[i] ? secrets[i] : "");
    if (config->data_dir && given->acl_token_persistence) {
        struct buffer folder = {0};
        buffer_printf(&folder, "%s/acl", config->data_dir);
        buffer_append_byte(&folder, '\0');
        tokens->folder = buffer_take(&folder, NULL);
    }
    int error = tokens->folder ? load(tokens, fault) : CO_OK;
    if (error) {
        agent_tokens_free(tokens);
        return error;
    }
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) use(tokens, (enum http_agent_token)i);
    *out = tokens;
    return CO_OK;
}

int agent_tokens_set(void *data, enum http_agent_token token, struct slice secret, struct fault *fault) {
    struct agent_tokens *tokens = data;
    pthread_mutex_lock(&tokens->lock);
    replace(tokens, token, secret);
    use(tokens, token);
    if (token == HTTP_AGENT_TOKEN_DEFAULT) use(tokens, HTTP_AGENT_TOKEN_AGENT);
    int error = keep(tokens, fault);
    pthread_mutex_unlock(&tokens->lock);
    log_info("acl", "a token of this agent was %s token=%s", secret.size ? "set" : "taken back", keys[token]);
    return error;
}

const char *agent_tokens_own(void *data) {
    struct agent_tokens *tokens = data;
    pthread_mutex_lock(&tokens->lock);
    bool agent = *tokens->now[HTTP_AGENT_TOKEN_AGENT], other = *tokens->now[HTTP_AGENT_TOKEN_DEFAULT];
    bool set = tokens->set[agent ? HTTP_AGENT_TOKEN_AGENT : HTTP_AGENT_TOKEN_DEFAULT];
    pthread_mutex_unlock(&tokens->lock);
    if (tokens->config.config->server) return "a server needs no token";
    if (agent) return set ? "a token that was set while it ran (agent)" : "acl.tokens.agent";
    if (certified(tokens)) return "the certificate of this node";
    if (other) return set ? "a token that was set while it ran (default)" : "acl.tokens.default";
    return "none: it is anonymous";
}

void agent_tokens_free(struct agent_tokens *tokens) {
    if (!tokens) return;
    for (size_t i = 0; i < HTTP_AGENT_TOKENS; i++) secret_free(tokens->now[i]);
    pthread_mutex_destroy(&tokens->lock);
    free(tokens->folder), free(tokens);
}
