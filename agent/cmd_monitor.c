/* coord monitor */
#include "agent/cmd.h"
#include "base/check.h"
#include "base/log.h"

int cmd_monitor(int argc, char **argv) {
    static const char usage[] = "coord monitor [FLAGS]";
    struct client client = {0};
    const char *level = "info";
    bool json = false;
    const struct cmd_flag flags[] = {{"log-level", CMD_TEXT, &level, "trace, debug, info, warn or err; info"},
                                     {"log-json", CMD_BOOL, &json, "each line is a JSON object"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, ARRAY_COUNT(flags), &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/agent/monitor");
    client_parameter(&path, "loglevel", level);
    if (json) client_parameter(&path, "logjson", NULL);
    buffer_append_byte(&path, '\0');
    setvbuf(stdout, NULL, _IOLBF, 0);
    int rv = client_ask(&client, "GET", path.data, NULL, NULL, stdout, &answer, &fault);
    if (rv == CO_OK && answer.status != 200) rv = client_refused(&answer, &fault);
    client_answer_free(&answer);
    buffer_free(&path);
    return rv == CO_OK ? 0 : cmd_failed("starting monitor", &fault);
}
