/* No word of the list of things that only Consul has is in one of coord's tables. Add one of these to coord, and take
 * it from the list. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>

#include "agent/cli.h"
#include "agent/config_internal.h"
#include "agent/flags.h"
#include "base/check.h"
#include "base/consul_words.h"
#include "http/http.h"

static bool is_command(const char *name) {
    struct cli_command all[CLI_COMMANDS_MOST];
    struct arena names = {0};
    size_t count = cli_commands(all, &names);
    bool found = false;
    for (size_t i = 0; i < count; i++) found = found || strcmp(all[i].name, name) == 0;
    arena_free(&names);
    return found;
}

static bool is_agent_flag(const char *name) {
    struct flag_shown flag;
    for (size_t i = 0; flags_see(i, &flag); i++)
        if (strcmp(flag.name, name) == 0) return true;
    return false;
}

/* Runs a command with this flag alone (NULL: none). */
static int run(const char *command, const char *flag) {
    char words[64], given[64], *argv[8] = {(char *)(uintptr_t) "coord"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", command);
    for (char *at = strtok(words, " "); at; at = strtok(NULL, " ")) argv[argc++] = at;
    if (flag) {
        snprintf(given, sizeof given, "-%s=x", flag);
        argv[argc++] = given;
    }
    return cli_main(argc, argv);
}

static bool is_path(const char *path) {
    size_t size = strlen(path);
    for (const struct http_topic *topic = http_topics; topic->title; topic++)
        for (const struct http_route *route = topic->rows; route->path; route++)
            if (strncmp(route->path, path, size) == 0 && (!route->path[size] || route->path[size] == '/')) return true;
    return false;
}

static bool is_key(const char *path) { return key_find(path) || key_folder(path) != FOLDER_NONE; }

Test(consul_words, are_in_none_of_the_tables) {
    unsigned counts[CONSUL_PATH + 1] = {0};
    for (const struct consul_word *word = consul_words; word->word; word++) {
        counts[word->kind]++;
        cr_expect(word->instead && word->instead[0], "%s", word->word);
        switch (word->kind) {
            case CONSUL_COMMAND: cr_expect_not(is_command(word->word), "command %s", word->word); break;
            case CONSUL_AGENT_FLAG: cr_expect_not(is_agent_flag(word->word), "flag -%s", word->word); break;
            case CONSUL_KEY: cr_expect_not(is_key(word->word), "key %s", word->word); break;
            case CONSUL_PATH: cr_expect_not(is_path(word->word), "path %s", word->word); break;
            case CONSUL_CLIENT_FLAG:
            case CONSUL_COMMAND_FLAG: break; /* below */
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) cr_expect_gt(counts[i], 1u, "kind %zu", i);
}

/* Each in one line, which says that it is Consul's, and exit code 2. */
Test(consul_words, commands_and_their_flags_are_refused_by_name) {
    unsigned asked = 0, lines = 0;
    cr_redirect_stderr();
    for (const struct consul_word *word = consul_words; word->word; word++) {
        const char *flag = word->kind == CONSUL_COMMAND_FLAG ? strstr(word->word, " -") : NULL;
        char command[48] = "";
        int code = 2;
        if (flag) snprintf(command, sizeof command, "%.*s", (int)(flag - word->word), word->word);
        if (flag) code = run(command, flag + 2);
        else if (word->kind == CONSUL_COMMAND) code = run(word->word, NULL);
        else if (word->kind == CONSUL_CLIENT_FLAG) code = run("kv get", word->word);
        else continue;
        cr_expect(code == 2 || (code == 1 && flag), "%s", word->word); /* 1: `coord lock`, whose 2 is its command's */
        asked++;
    }
    fflush(stderr);
    for (char line[512]; fgets(line, sizeof line, cr_get_redirected_stderr()); lines++)
        cr_expect_eq(strncmp(line, "coord: Consul's `", 17), 0, "%s", line);
    cr_expect_eq(lines, asked);
    cr_expect_gt(asked, 30u);
}

Test(consul_words, each_once) {
    for (const struct consul_word *word = consul_words; word->word; word++)
        cr_expect(consul_word_find(word->kind, slice_text(word->word)) == word, "%s stands before, or a folder of it",
                  word->word);
}

Test(consul_words, paths_and_keys_below_are_found) {
    cr_expect_not_null(consul_word_find(CONSUL_PATH, SLICE_LITERAL("/v1/query/abc/execute")));
    cr_expect_not_null(consul_word_find(CONSUL_PATH, SLICE_LITERAL("/v1/connect/ca/roots")));
    cr_expect_null(consul_word_find(CONSUL_PATH, SLICE_LITERAL("/v1/queryx")));
    cr_expect_null(consul_word_find(CONSUL_PATH, SLICE_LITERAL("/v1")));
    cr_expect_not_null(consul_word_find(CONSUL_KEY, SLICE_LITERAL("ui_config.enabled")));
    cr_expect_not_null(consul_word_find(CONSUL_KEY, SLICE_LITERAL("telemetry.disable_compat_1.9")));
    cr_expect_null(consul_word_find(CONSUL_KEY, SLICE_LITERAL("tls_min_version")));
    cr_expect_not_null(consul_word_find(CONSUL_COMMAND, SLICE_LITERAL("intention")));
    cr_expect_null(consul_word_find(CONSUL_COMMAND, SLICE_LITERAL("intentions")));
}
