/* coord monitor */
#include "agent/cmd.h"
#include "base/log.h"

int cmd_monitor(int argc, char **argv) {
    static const char usage[] = "coord monitor [FLAGS]";
    struct client client = {0};
    const char *level = "info";
    const struct cmd_flag flags[] = {{"log-level", CMD_TEXT, &level, "trace, debug, info, warn or err; info"}};
    char **rest;
    int code = cmd_flags(argc, argv, flags, 1, &client, usage, &rest);
    if (code >= 0) return code;
    if (*rest) return cmd_wrong(usage, "no argument is wanted");
    struct buffer path = {0};
    struct client_answer answer = {0};
    struct fault fault = {0};
    buffer_append_text(&path, "/v1/agent/monitor");
    client_parameter(&path, "loglevel", level);
    buffer_append_byte(&path, '\0');
    setvbuf(stdout, NULL, _IOLBF, 0);
    int rv = client_ask(&client, "GET", path.data, NULL, NULL, stdout, &answer, &fault);
    if (rv == CO_OK && answer.status != 200)
        rv =
            fault_set(&fault, client_answer_code(&answer), "Unexpected response code: %ld (%.*s)", answer.status,
                      (int)(answer.body.size < 180 ? answer.body.size : 180), answer.body.size ? answer.body.data : "");
    client_answer_free(&answer);
    buffer_free(&path);
    return rv == CO_OK ? 0 : cmd_failed("starting monitor", &fault);
}
