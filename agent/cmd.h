/* Shared by the commands that talk to an agent: flags as Go has them, sub-commands, tables. */
#ifndef COORD_AGENT_CMD_H
#define COORD_AGENT_CMD_H

#include "agent/cli.h"
#include "agent/client.h"

struct cmd_flag {
    const char *name; /* without '-' */
    enum { CMD_BOOL, CMD_TEXT, CMD_U64, CMD_NUMBER, CMD_DURATION, CMD_LIST } type;
    void *value; /* bool, const char *, uint64_t; a number and a duration are checked, and stay text; struct cmd_list */
    const char *help;
};

/* A flag that may be given several times. */
#define CMD_LIST_MAX 16
struct cmd_list {
    const char *items[CMD_LIST_MAX];
    size_t count;
};

/* Takes flags up to the first argument that is no flag: -name, -name=value, -name value, with one or two dashes.
 * `client`: its flags too (NULL: none). *rest: the first argument that is left. Returns -1: go on; else the exit code
 * (0 after -h, 2 after a wrong one, with a line that names the nearest right one). `usage`: "coord kv get [FLAGS]
 * KEY" */
int cmd_flags(int argc, char **argv, const struct cmd_flag *flags, size_t count, struct client *client,
              const char *usage, char ***rest);

/* The same for a command that wants one argument, after its flags: "one NAME is wanted, and flags before it". */
int cmd_flags_and_one(int argc, char **argv, const struct cmd_flag *flags, size_t count, struct client *client,
                      const char *usage, const char *what, const char **argument);

/* Runs the sub-command that argv[1] names; `name`: the command of which it is part ("kv"). */
int cmd_sub(const struct cli_command *commands, size_t count, const char *name, int argc, char **argv);

/* Exit codes of all commands: 0, and these. (lock, elect and barrier have their own, agent/hold.h, because they often
 * return that of the command that they ran.) */
enum cmd_exit {
    CMD_EXIT_REFUSED = 1, /* the answer is no: refused, not there, not so */
    CMD_EXIT_MISTAKE = 2, /* wrong arguments, or a name that does not exist */
    CMD_EXIT_NOBODY = 3,  /* nobody could answer: no agent, or no leader */
};
int cmd_exit_of(const struct fault *fault);
/* "Error WHAT: ..." on stderr; returns cmd_exit_of. */
int cmd_failed(const char *what, const struct fault *fault);
/* Wrong arguments: a line on stderr, and CMD_EXIT_MISTAKE. */
int cmd_wrong(const char *usage, const char *what);

/* A table: cells of `columns` each, aligned, two blanks between. */
struct cmd_table {
    size_t columns;
    struct buffer cells;
    size_t count;
};
void cmd_cell(struct cmd_table *table, const char *text);
void cmd_table_print(struct cmd_table *table); /* and frees it */

/* Whole content of a file or of stdin ("-"), at most 512 MiB. */
int cmd_read_file(const char *path, struct buffer *out, struct fault *fault);
/* A value given on the command line: TEXT, @FILE, or - for stdin. An empty file or pipe is refused (CO_INVALID) unless
 * it is allowed, because a command that failed leaves one. `out` is empty. */
int cmd_read_value(const char *argument, bool may_be_empty, struct buffer *out, struct fault *fault);

/* The commands. */
int cmd_acl(int argc, char **argv);
int cmd_api(int argc, char **argv);
int cmd_barrier(int argc, char **argv);
int cmd_ca(int argc, char **argv);
int cmd_certificates(int argc, char **argv);
int cmd_elect(int argc, char **argv);
int cmd_elections(int argc, char **argv);
int cmd_event(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_force_leave(int argc, char **argv);
int cmd_join(int argc, char **argv);
int cmd_join_token(int argc, char **argv);
int cmd_leave(int argc, char **argv);
int cmd_lock(int argc, char **argv);
int cmd_locks(int argc, char **argv);
int cmd_regions(int argc, char **argv);
int cmd_login(int argc, char **argv);
int cmd_logout(int argc, char **argv);
int cmd_maint(int argc, char **argv);
int cmd_members(int argc, char **argv);
int cmd_monitor(int argc, char **argv);
int cmd_reload(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_keyring(int argc, char **argv);
int cmd_kv(int argc, char **argv);
#define CMD_KV_AT_HELP \
    "as it was then: an index, a time (2026-11-26T10:00:00Z), or how long ago (-5m), as far back as changes are kept"
int cmd_kv_restore(int argc, char **argv);
int cmd_kv_history(int argc, char **argv);
int cmd_operator(int argc, char **argv);
int cmd_recover(int argc, char **argv); /* operator recover */
int cmd_reference(int argc, char **argv);
int cmd_rtt(int argc, char **argv);
int cmd_secure(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_tls(int argc, char **argv);
int cmd_txn(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_watch_stream(int argc, char **argv); /* watch -stream */

#endif
