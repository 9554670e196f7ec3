/* What commands read of an agent's answers: JSON whose members may be missing. */
#ifndef COORD_AGENT_CMD_JSON_H
#define COORD_AGENT_CMD_JSON_H

#include "agent/client.h"
#include "base/json_in.h"

/* Of a GET whose answer is 200; json_object_put. NULL: a fault. */
struct json_object *cmd_json_get(const struct client *client, const char *path, struct fault *fault);
/* JSON that the user gave: `argument` is "FILE", "@FILE", "-" or the text itself, as the commands take it. NULL and a fault
 * with its place: "tx.json:3:14: JSON: ...". */
struct json_object *cmd_json_given(const char *argument, struct slice text, struct fault *fault);
/* A command that shows something: a GET whose answer is 200, which `print` prints; with `json` as it came. Frees the path,
 * which needs no NUL at its end. Returns the exit code. `doing`: what failed then, as "asking for the lock". */
int cmd_show(const struct client *client, struct buffer *path, bool json, const char *doing,
             void (*print)(const struct client *client, struct json_object *answer));
/* A command that shows a list: a GET whose answer is 200 and an array, which `print` prints; with `json` as it came. Returns
 * the exit code. `doing`: what failed then, as "listing the locks". */
int cmd_list(const struct client *client, const char *path, bool json, const char *doing,
             void (*print)(struct json_object *list));
/* A member; "" and 0 when there is none of that type. The text lives as long as the object. */
const char *cmd_json_text(struct json_object *object, const char *name);
uint64_t cmd_json_number(struct json_object *object, const char *name);
size_t cmd_json_length(struct json_object *list); /* NULL: 0 */
/* Anybody may have written the words: what could steer a terminal is not shown. */
void cmd_print_words(const char *before, const char *words, const char *after);

#endif
