#include "agent/cmd.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/consul_words.h"
#include "base/suggest.h"
#include "base/text.h"

#define FLAGS_MAX 48
#define FILE_MAX  ((size_t)512 << 20)

/* -- flags -------------------------------------------------------------------------------------------------------- */
static size_t with_client(struct cmd_flag all[FLAGS_MAX], const struct cmd_flag *flags, size_t count,
                          struct client *client) {
    CHECK(count + 10 <= FLAGS_MAX);
    if (count) memcpy(all, flags, count * sizeof *flags);
    if (!client) return count;
    all[count++] = (struct cmd_flag){"http-addr", CMD_TEXT, &client->address,
                                     "address of the agent; $COORD_HTTP_ADDR, $CONSUL_HTTP_ADDR"};
    all[count++] =
        (struct cmd_flag){"token", CMD_TEXT, &client->token, "token to send; $COORD_HTTP_TOKEN, $CONSUL_HTTP_TOKEN"};
    all[count++] = (struct cmd_flag){"token-file", CMD_TEXT, &client->token_file,
                                     "file that has the token; $COORD_HTTP_TOKEN_FILE, $CONSUL_HTTP_TOKEN_FILE"};
    all[count++] = (struct cmd_flag){"datacenter", CMD_TEXT, &client->datacenter, "datacenter to ask"};
    all[count++] = (struct cmd_flag){"stale", CMD_BOOL, &client->stale, "any server may answer, perhaps with old data"};
    all[count++] = (struct cmd_flag){"ca-file", CMD_TEXT, &client->ca_file,
                                     "HTTPS: file of the CAs; $COORD_CACERT, $CONSUL_CACERT"};
    all[count++] = (struct cmd_flag){"ca-path", CMD_TEXT, &client->ca_path,
                                     "HTTPS: folder of the CAs; $COORD_CAPATH, $CONSUL_CAPATH"};
    all[count++] = (struct cmd_flag){"client-cert", CMD_TEXT, &client->certificate,
                                     "HTTPS: file of the certificate to show; $COORD_CLIENT_CERT, $CONSUL_CLIENT_CERT"};
    all[count++] = (struct cmd_flag){"client-key", CMD_TEXT, &client->key,
                                     "HTTPS: file of its key; $COORD_CLIENT_KEY, $CONSUL_CLIENT_KEY"};
    all[count++] = (struct cmd_flag){"tls-server-name", CMD_TEXT, &client->server_name,
                                     "HTTPS: name that the agent's certificate must have; $COORD_TLS_SERVER_NAME, "
                                     "$CONSUL_TLS_SERVER_NAME"};
    return count;
}

static int help(const struct cmd_flag *flags, size_t count, const char *usage) {
    printf("usage: %s\n\n", usage);
    for (size_t i = 0; i < count; i++)
        printf("  -%s%s\n      %s\n", flags[i].name, flags[i].type == CMD_BOOL ? "" : "=VALUE", flags[i].help);
    return 0;
}

/* "kv get" of "coord kv get [FLAGS] KEY": words, up to the first that is none. */
static struct slice command_of(const char *usage) {
    static const char program[] = "coord ";
    const char *from = strncmp(usage, program, sizeof program - 1) == 0 ? usage + sizeof program - 1 : usage;
    size_t size = 0;
    while (from[size] && !(from[size] == ' ' && !(from[size + 1] >= 'a' && from[size + 1] <= 'z'))) size++;
    return slice_make(from, size);
}

static const struct consul_word *consul_flag(struct slice name, const char *usage, bool client) {
    struct slice command = command_of(usage);
    struct buffer whole = {0};
    buffer_printf(&whole, "%.*s -%.*s", (int)command.size, command.data, (int)name.size, name.data);
    const struct consul_word *found = consul_word_find(CONSUL_COMMAND_FLAG, buffer_slice(&whole));
    if (!found && client) found = consul_word_find(CONSUL_CLIENT_FLAG, name);
    buffer_free(&whole);
    return found;
}

static int unknown_flag(const struct cmd_flag *flags, size_t count, struct slice name, const char *usage, bool client) {
    struct buffer said = {0};
    const struct consul_word *consul = consul_flag(name, usage, client);
    struct suggest suggest = suggest_for(name);
    for (size_t i = 0; i < count && !consul; i++) suggest_try(&suggest, slice_text(flags[i].name));
    if (consul) {
        consul_word_print(&said, consul);
    } else {
        buffer_printf(&said, "unknown flag -%.*s", (int)(name.size < 60 ? name.size : 60), name.data);
        if (suggest.count) buffer_append_text(&said, ", did you mean "), suggest_print_bare(&said, &suggest, "-");
        if (suggest.count) buffer_append_byte(&said, '?');
        else buffer_printf(&said, "\nusage: %s", usage);
    }
    fprintf(stderr, "coord: %.*s\n", (int)said.size, said.data);
    buffer_free(&said);
    return 2;
}

static int bad_value(const struct cmd_flag *flag, const char *value, const char *wanted) {
    fprintf(stderr, "coord: -%s: \"%.60s\" is not %s\n", flag->name, value, wanted);
    return 2;
}

static int set_flag(const struct cmd_flag *flag, const char *value) {
    int64_t duration;
    uint64_t number;
    switch (flag->type) {
        case CMD_BOOL: {
            bool yes = !value || strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
            if (!yes && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
                return bad_value(flag, value, "true or false");
            *(bool *)flag->value = yes;
            return -1;
        }
        case CMD_U64:
            return u64_parse(slice_text(value), UINT64_MAX, flag->value) == CO_OK ? -1
                                                                                  : bad_value(flag, value, "a number");
        case CMD_NUMBER:
            if (u64_parse(slice_text(value), UINT64_MAX, &number) != CO_OK) return bad_value(flag, value, "a number");
            break;
        case CMD_DURATION:
            if (duration_parse(slice_text(value), &duration) != CO_OK)
                return bad_value(flag, value, "a duration (10s, 200ms)");
            break;
        case CMD_LIST: {
            struct cmd_list *list = flag->value;
            if (list->count == CMD_LIST_MAX) return bad_value(flag, value, "one of at most 16");
            list->items[list->count++] = value;
            return -1;
        }
        case CMD_TEXT: break;
    }
    *(const char **)flag->value = value;
    return -1;
}

static const struct cmd_flag *find_flag(const struct cmd_flag *flags, size_t count, struct slice name) {
    for (size_t i = 0; i < count; i++)
        if (slice_is(name, flags[i].name)) return &flags[i];
    return NULL;
}

/* Sets the token that counts: of the flags, then of the environment. -1: go on; else the exit code. */
static int find_token(struct client *client) {
    static struct buffer content; /* of the file; it stays until the process ends */
    static const char *found;     /* by an earlier call, for flags before other arguments */
    struct fault fault = {0};
    if (client->token == found) client->token = NULL;
    bool given = client->token || client->token_file;
    if (client->token && client->token_file) {
        fputs("coord: -token and -token-file: one of both is wanted\n", stderr);
        return CMD_EXIT_MISTAKE;
    }
    if (!given) client->token = client_variable("HTTP_TOKEN");
    const char *path = given ? client->token_file : client->token ? NULL : client_variable("HTTP_TOKEN_FILE");
    if (!path) {
        if (!given) found = client->token;
        return -1;
    }
    buffer_reset(&content);
    if (cmd_read_file(path, &content, &fault) != CO_OK) return cmd_failed("reading the token", &fault);
    buffer_append_byte(&content, '\0');
    char *text = content.data + strspn(content.data, " \t\r\n");
    text[strcspn(text, " \t\r\n")] = '\0';
    client->token = found = text;
    return -1;
}

int cmd_flags(int argc, char **argv, const struct cmd_flag *flags, size_t count, struct client *client,
              const char *usage, char ***rest) {
    struct cmd_flag all[FLAGS_MAX];
    count = with_client(all, flags, count, client);
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        const char *text = argv[at] + 1 + (argv[at][1] == '-');
        if (!*text) {
            at++;
            break;
        } /* "--" */
        struct slice name = slice_make(text, strcspn(text, "="));
        if (slice_is(name, "h") || slice_is(name, "help")) return help(all, count, usage);
        const struct cmd_flag *flag = find_flag(all, count, name);
        if (!flag) return unknown_flag(all, count, name, usage, client);
        const char *value = text[name.size] ? text + name.size + 1 : NULL;
        if (!value && flag->type != CMD_BOOL && at + 1 < argc) value = argv[++at];
        if (!value && flag->type != CMD_BOOL) {
            fprintf(stderr, "coord: -%s wants a value\n", flag->name);
            return 2;
        }
        int code = set_flag(flag, value);
        if (code >= 0) return code;
    }
    *rest = argv + at;
    return client ? find_token(client) : -1;
}

int cmd_flags_and_one(int argc, char **argv, const struct cmd_flag *flags, size_t count, struct client *client,
                      const char *usage, const char *what, const char **argument) {
    char **rest, wrong[80];
    int code = cmd_flags(argc, argv, flags, count, client, usage, &rest);
    if (code >= 0) return code;
    snprintf(wrong, sizeof wrong, "one %s is wanted, and flags before it", what);
    if (!rest[0] || !rest[0][0] || rest[1]) return cmd_wrong(usage, wrong);
    *argument = rest[0];
    return -1;
}

/* -- sub-commands ------------------------------------------------------------------------------------------------- */
int cmd_sub(const struct cli_command *commands, size_t count, const char *name, int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "-h";
    bool asked = strcmp(wanted, "-h") == 0 || strcmp(wanted, "-help") == 0 || strcmp(wanted, "--help") == 0 ||
                 strcmp(wanted, "help") == 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(commands[i].name, wanted) == 0) return commands[i].run(argc - 1, argv + 1);
    if (!asked) return cli_unknown(commands, count, name, wanted);
    FILE *out = argc > 1 ? stdout : stderr;
    fprintf(out, "usage: coord %s COMMAND [ARGS]\n\n", name);
    for (size_t i = 0; i < count; i++) fprintf(out, "  %-16s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n`coord %s COMMAND -h` tells more.\n", name);
    return argc > 1 ? 0 : 2;
}

int cmd_exit_of(const struct fault *fault) {
    switch (fault->code) {
        case CO_NOLEADER:
        case CO_NOTLEADER:
        case CO_TIMEOUT:
        case CO_UNKNOWN_OUTCOME: return CMD_EXIT_NOBODY;
        case CO_INVALID:
        case CO_NOTFOUND:
        case CO_TOOLARGE:
        case CO_UNSUPPORTED:
        case CO_IO: return CMD_EXIT_MISTAKE; /* of a file that the user named */
        default: return CMD_EXIT_REFUSED;
    }
}

int cmd_failed(const char *what, const struct fault *fault) {
    fprintf(stderr, "Error %s: %s\n", what, fault->text[0] ? fault->text : co_strerror(fault->code));
    return cmd_exit_of(fault);
}

int cmd_wrong(const char *usage, const char *what) {
    fprintf(stderr, "coord: %s\nusage: %s\n", what, usage);
    return CMD_EXIT_MISTAKE;
}

/* -- tables ------------------------------------------------------------------------------------------------------- */
void cmd_cell(struct cmd_table *table, const char *text) {
    size_t at = table->cells.size;
    buffer_append(&table->cells, text, strlen(text) + 1);
    for (char *byte = table->cells.data + at; *byte; byte++)
        if ((unsigned char)*byte < ' ' || *byte == 0x7f) *byte = '?'; /* anybody may have written the text */
    table->count++;
}

void cmd_table_print(struct cmd_table *table) {
    size_t width[16] = {0}, i = 0;
    CHECK(table->columns <= ARRAY_COUNT(width));
    const char *at = table->cells.data;
    for (i = 0; i < table->count; i++, at += strlen(at) + 1)
        if (strlen(at) > width[i % table->columns]) width[i % table->columns] = strlen(at);
    at = table->cells.data;
    for (i = 0; i < table->count; i++, at += strlen(at) + 1) {
        bool last = i % table->columns == table->columns - 1;
        if (last) printf("%s\n", at);
        else printf("%-*s  ", (int)width[i % table->columns], at);
    }
    buffer_free(&table->cells);
}

/* -- values ------------------------------------------------------------------------------------------------------- */
int cmd_read_file(const char *path, struct buffer *out, struct fault *fault) {
    bool in = strcmp(path, "-") == 0;
    FILE *file = in ? stdin : fopen(path, "rb");
    if (!file) return fault_set(fault, CO_IO, "%s: %s", path, strerror(errno));
    size_t got = 1;
    while (got > 0 && out->size <= FILE_MAX) {
        buffer_reserve(out, 65536);
        got = fread(out->data + out->size, 1, 65536, file);
        out->size += got;
    }
    bool bad = ferror(file);
    if (!in) fclose(file);
    if (bad) return fault_set(fault, CO_IO, "%s: cannot be read", path);
    return out->size <= FILE_MAX ? CO_OK : fault_set(fault, CO_TOOLARGE, "%s: larger than 512 MiB", path);
}

int cmd_read_value(const char *argument, bool may_be_empty, struct buffer *out, struct fault *fault) {
    bool in = strcmp(argument, "-") == 0;
    if (!in && argument[0] != '@') {
        buffer_append_text(out, argument);
        return CO_OK;
    }
    const char *path = in ? argument : argument + 1;
    int rv = cmd_read_file(path, out, fault);
    if (rv != CO_OK || out->size || may_be_empty) return rv;
    return fault_set(fault, CO_INVALID,
                     "%s is empty, as it is after a command that failed: nothing was sent; an empty value is \"\"",
                     in ? "the input" : path);
}
