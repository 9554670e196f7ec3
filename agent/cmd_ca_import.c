/* coord ca import: a CA that somebody brings signs for the cluster. The key goes into the data folder of the server on this
 * host, and over no connection but those between servers. */
#include <stdlib.h>
#include <string.h>

#include "agent/cmd.h"
#include "agent/cmd_ca.h"
#include "agent/cmd_json.h"
#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "tls/certificate.h"
#include "tls/folder.h"

static const char usage[] = "coord ca import -ca-cert=FILE -ca-key=FILE [-data-dir=DIR] [FLAGS]";

struct import {
    const char *certificate, *key, *data_dir;
    char *found_dir; /* of the agent that is asked */
    struct client client;
    struct buffer certificates, key_text;
};

/* The folder of the agent that the command talks to. */
static int find_folder(struct import *import, struct fault *fault) {
    if (import->data_dir) return CO_OK;
    struct json_object *self = cmd_json_get(&import->client, "/v1/agent/self", fault);
    if (!self) return fault->code;
    const char *folder = cmd_json_text(json_get_object(self, "DebugConfig", NULL), "DataDir");
    if (folder[0] == '/') import->data_dir = import->found_dir = mem_strdup(folder);
    else fault_set(fault, CO_INVALID, "the data folder of the server on this host is wanted (-data-dir)");
    json_object_put(self);
    return fault->code;
}

static int read_files(struct import *import, struct fault *fault) {
    int rv = cmd_read_file(import->certificate, &import->certificates, fault);
    if (rv == CO_OK) rv = tls_key_file_read(import->key, &import->key_text, fault);
    return rv == CO_OK ? tls_pair_check(buffer_slice(&import->key_text), buffer_slice(&import->certificates), fault)
                       : rv;
}

static void print_warnings(struct json_object *answer) {
    struct json_object *lines = json_get_array(answer, "Warnings", NULL);
    for (size_t i = 0; i < cmd_json_length(lines); i++)
        cmd_print_words("warning: ", json_object_get_string(json_object_array_get_idx(lines, i)), "\n");
}

int cmd_ca_change(const struct client *client, const char *path, const struct slice *body, const char *done,
                  struct fault *fault) {
    struct client_answer answer = {0};
    int rv = client_want(client, "PUT", path, body, false, &answer, fault);
    struct json_object *said = rv == CO_OK ? json_parse(buffer_slice(&answer.body), fault) : NULL;
    if (said) {
        print_warnings(said);
        puts(done);
    }
    json_object_put(said);
    client_answer_free(&answer);
    return fault->code;
}

static int ask(struct import *import, struct fault *fault) {
    struct buffer body = {0};
    struct json_out json;
    json_out_init(&json, &body, false);
    json_object(&json);
    json_key(&json, "Certificates"), json_slice(&json, buffer_slice(&import->certificates));
    json_object_end(&json);
    struct slice text = buffer_slice(&body);
    int rv = cmd_ca_change(&import->client, "/v1/ca/import", &text,
                           "this CA signs from now on, and all nodes renew; `coord ca status` shows how far they are",
                           fault);
    buffer_free(&body);
    return rv;
}

static int import_it(struct import *import, struct fault *fault) {
    int rv = read_files(import, fault);
    if (rv == CO_OK) rv = find_folder(import, fault);
    if (rv == CO_OK)
        rv = tls_folder_write(import->data_dir, TLS_FILE_CA_IMPORT, buffer_slice(&import->key_text), fault);
    if (rv != CO_OK) return rv;
    rv = ask(import, fault);
    tls_folder_remove(import->data_dir, TLS_FILE_CA_IMPORT); /* the server has taken it, or refused */
    return rv;
}

int cmd_ca_import(int argc, char **argv) {
    struct import import = {0};
    const struct cmd_flag flags[] = {
        {"ca-cert", CMD_TEXT, &import.certificate, "file with its certificate, then those of its issuers (PEM)"},
        {"ca-key", CMD_TEXT, &import.key, "file with its key (PEM), which others may not read"},
        {"data-dir", CMD_TEXT, &import.data_dir, "data folder of the server on this host (default: it is asked)"},
    };
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &import.client, usage, &rest);
    if (code >= 0) return code;
    if (!import.certificate || !import.key || rest[0])
        return cmd_wrong(usage, "-ca-cert and -ca-key are wanted, and no argument");
    struct fault fault = {0};
    int rv = import_it(&import, &fault);
    tls_wipe(&import.key_text);
    buffer_free(&import.certificates);
    free(import.found_dir);
    return rv == CO_OK ? 0 : cmd_failed("importing the CA", &fault);
}
