/* Shared by the files of `coord rollout` only. */
#ifndef COORD_AGENT_CMD_ROLLOUT_H
#define COORD_AGENT_CMD_ROLLOUT_H

#include "agent/cmd.h"
#include "agent/cmd_endpoint.h"

/* The caller that asks for a version. */
struct rollout_identity {
    const char *id, *node, *region;
    struct cmd_list tags;
};
/* "/v1/rollout/NAME" and the rest. */
void rollout_path(struct buffer *path, const char *name, const char *rest);
/* Appends "?id=...", which begins the query. */
void rollout_parameters(struct buffer *path, const struct rollout_identity *who);

/* The state of a rollout in the client's region. */
struct rollout_known {
    bool there;
    char current[256], staged[256]; /* "": no version is current; no stage is under way */
    uint64_t modify_index;
};
/* These return fault->code. */
int rollout_known_read(const struct client *client, const char *name, struct rollout_known *known, struct fault *fault);
int rollout_send(const struct client *client, const char *name, const char *rest, const struct buffer *body,
                 struct fault *fault);
int rollout_send_version(const struct client *client, const char *name, const char *version,
                         const struct buffer *document, struct fault *fault);
/* Gives the version to everybody, unless the rollout has changed since `index`. */
int rollout_send_current(const struct client *client, const char *name, const char *version, const char *comment,
                         uint64_t index, struct fault *fault);
/* Stages the version in each of the regions ("eu,us"), once its document is in all of them: `body` is that of
 * /v1/rollout/NAME/current; `part`: only some callers get the version. Reports each region. Returns the exit code. */
int rollout_stage_regions(const struct client *client, const char *regions, const char *name, const char *version,
                          const struct buffer *body, bool part);

/* Prints an answer of /v1/rollout/NAME/status, or of a change, as a page; `whole`: with the callers and their
 * versions. */
struct json_object;
void rollout_print(struct json_object *state, bool whole);

int cmd_rollout_create(int argc, char **argv);
int cmd_rollout_get(int argc, char **argv);
int cmd_rollout_diff(int argc, char **argv);
int cmd_rollout_follow(int argc, char **argv);

#endif
