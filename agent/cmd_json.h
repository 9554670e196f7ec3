/* Commands read an agent's answers with these: JSON whose members may be missing. */
#ifndef COORD_AGENT_CMD_JSON_H
#define COORD_AGENT_CMD_JSON_H

#include "agent/client.h"
#include "base/json_in.h"

/* The answer to a GET, which must be 200; the caller calls json_object_put. NULL: a fault. */
struct json_object *cmd_json_get(const struct client *client, const char *path, struct fault *fault);
/* Parses JSON that the user gave: `argument` is "FILE", "@FILE", "-" or the text itself, as the commands take it. NULL
 * and a fault with its place: "tx.json:3:14: JSON: ...". */
struct json_object *cmd_json_given(const char *argument, struct slice text, struct fault *fault);
/* Runs a command that shows something: sends a GET, and prints an answer of 200 by `print` or, with `json`, as it came.
 * Frees the path, which needs no NUL at its end. Returns the exit code. `doing` names the action when it fails: "asking
 * for the lock". */
int cmd_show(const struct client *client, struct buffer *path, bool json, const char *doing,
             void (*print)(const struct client *client, struct json_object *answer));
/* The same for a list: the answer has to be an array. `doing`: "listing the locks". */
int cmd_list(const struct client *client, const char *path, bool json, const char *doing,
             void (*print)(struct json_object *list));
/* A member; "" and 0 when there is none of that type. The text lives as long as the object. */
const char *cmd_json_text(struct json_object *object, const char *name);
uint64_t cmd_json_number(struct json_object *object, const char *name);
size_t cmd_json_length(struct json_object *list); /* NULL: 0 */
/* Prints words that anybody may have written, without characters that could steer a terminal. */
void cmd_print_words(const char *before, const char *words, const char *after);

#endif
