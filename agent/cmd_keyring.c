/* coord keygen, coord keyring: a key for `encrypt`, and changing it on all agents, with the flags and lines of Consul's
 * commands. */
#include <stdio.h>
#include <string.h>

#include "agent/cmd.h"
#include "agent/cmd_json.h"
#include "agent/keyring.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/random.h"

int cmd_keygen(int argc, char **argv) {
    static const char usage[] = "coord keygen";
    struct keyring_key key = {.size = KEYRING_KEY_MAX};
    char text[KEYRING_TEXT], **rest;
    int code = cmd_flags(argc, argv, NULL, 0, NULL, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    random_bytes(key.bytes, key.size);
    keyring_key_text(&key, text);
    puts(text);
    explicit_bzero(&key, sizeof key);
    explicit_bzero(text, sizeof text);
    return 0;
}

static void print_ring(struct json_object *ring) {
    struct json_object *keys = json_get(ring, "Keys"), *nodes = json_get(ring, "NumNodes");
    printf("\n%s (LAN):\n", cmd_json_text(ring, "Datacenter"));
    if (!json_object_is_type(keys, json_type_object)) return;
    json_each(keys, key, count)
        printf("  %s [%s/%s]\n", key, json_object_get_string(count), json_object_get_string(nodes));
}

static int list(const struct client *client, struct fault *fault) {
    struct client_answer answer = {0};
    struct json_object *rings = NULL;
    int rv = client_want(client, "GET", "/v1/operator/keyring", NULL, false, &answer, fault);
    if (rv == CO_OK) rv = json_parse_value(buffer_slice(&answer.body), &rings, fault);
    size_t count = rings && json_object_is_type(rings, json_type_array) ? json_object_array_length(rings) : 0;
    for (size_t i = 0; i < count; i++) print_ring(json_object_array_get_idx(rings, i));
    if (rings) json_object_put(rings);
    client_answer_free(&answer);
    return rv;
}

static int change(const struct client *client, const char *method, const char *key, struct fault *fault) {
    struct client_answer answer = {0};
    struct json_object *body = json_object_new_object();
    json_object_object_add(body, "Key", json_object_new_string(key));
    struct slice text = slice_text(json_object_to_json_string(body));
    int rv = client_want(client, method, "/v1/operator/keyring", &text, false, &answer, fault);
    json_object_put(body);
    client_answer_free(&answer);
    return rv;
}

struct keyring_words {
    const char *install, *use, *remove;
    bool list, local;
};

static int run(const struct client *client, const struct keyring_words *words) {
    struct fault fault = {0};
    int rv;
    if (words->list) {
        puts("==> Gathering installed encryption keys...");
        rv = list(client, &fault);
    } else if (words->install) {
        puts("==> Installing new gossip encryption key...");
        rv = change(client, "POST", words->install, &fault);
    } else if (words->use) {
        puts("==> Changing primary gossip encryption key...");
        rv = change(client, "PUT", words->use, &fault);
    } else {
        puts("==> Removing gossip encryption key...");
        rv = change(client, "DELETE", words->remove, &fault);
    }
    if (rv == CO_OK) return 0;
    fflush(stdout);
    fprintf(stderr, "error: %s\n", fault.text);
    return cmd_exit_of(&fault);
}

int cmd_keyring(int argc, char **argv) {
    static const char usage[] = "coord keyring -list | -install=KEY | -use=KEY | -remove=KEY [FLAGS]";
    struct client client = {0};
    struct keyring_words words = {0};
    uint64_t relays = 0;
    const struct cmd_flag flags[] = {
        {"list", CMD_BOOL, &words.list, "print the keys that the agents have, and how many have each"},
        {"install", CMD_TEXT, &words.install, "have all agents accept this key, beside those that they have"},
        {"use", CMD_TEXT, &words.use, "have all agents use this key, which is installed, for new connections"},
        {"remove", CMD_TEXT, &words.remove, "have all agents forget this key, which is not in use"},
        {"relay-factor", CMD_U64, &relays, "accepted for Consul's scripts: nothing is relayed"},
        {"local-only", CMD_BOOL, &words.local, "with -list; the list is always that of this region"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    int actions = words.list + !!words.install + !!words.use + !!words.remove;
    if (actions > 1) return cmd_wrong(usage, "Only a single action is allowed");
    if (actions == 0) return cmd_wrong(usage, "one of -list, -install, -use and -remove is wanted");
    if (relays > 5) return cmd_wrong(usage, "-relay-factor: 0 to 5 is wanted");
    if (words.local && !words.list) return cmd_wrong(usage, "-local-only: only with -list");
    return run(&client, &words);
}
