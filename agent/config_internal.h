/* Between the files of the configuration: the table of keys, and how a value finds its field. */
#ifndef COORD_AGENT_CONFIG_INTERNAL_H
#define COORD_AGENT_CONFIG_INTERNAL_H

#include "agent/config.h"
#include "base/json_in.h"

#define KEY_PATH_MOST 128

enum key_kind {
    KEY_BOOL,     /* bool */
    KEY_NUMBER,   /* uint64_t, least..most */
    KEY_REAL,     /* a number with a fraction; none has an effect */
    KEY_PORT,     /* int64_t, -1..65535 */
    KEY_COUNT,    /* int64_t, -1 and above */
    KEY_DURATION, /* int64_t nanoseconds, least..most, never negative; text with a unit */
    KEY_TEXT,     /* const char *, judged and maybe rewritten by `accept` */
    KEY_TEXTS,    /* struct config_texts, appended to; each judged by `accept` */
    KEY_MAP,      /* struct config_pairs */
    KEY_TTLS,     /* service_ttl */
    KEY_BLOCK,    /* one object into a struct config_blocks */
    KEY_BLOCKS,   /* an array of objects into it */
    KEY_ANY,      /* an object or an array, whose content is not read; none has an effect */
};

#define NO_FIELD SIZE_MAX

/* Checks the text of a key: NULL when it is valid, else the mistake ("is not an IP address"). May rewrite *text. */
typedef const char *(*key_accept)(struct arena *arena, const char **text);

struct key {
    const char *path; /* "dns_config.node_ttl"; "segments.[].port" inside an array of objects */
    enum key_kind kind;
    size_t field; /* offset in struct config, or NO_FIELD: known, without effect yet */
    uint64_t least, most;
    key_accept accept;
    bool inert;             /* its value is kept, but nobody uses it yet */
    const char *guard;      /* the protection that it asks for and that is not there yet; NULL: none */
    const char *guard_text; /* any text but this and the empty one asks for it; NULL: any but the empty one */
    const char *help;       /* one line; for a key without effect, the reason */
};

extern const struct key config_keys[]; /* by topic; the last has no path */

static inline bool key_has_effect(const struct key *key) { return key->field != NO_FIELD && !key->inert; }

/* The key of this path, whatever its case; NULL when there is none. */
const struct key *key_find(const char *path);
/* Are there keys below this path, and are they those of an array's members? */
enum key_folder { FOLDER_NONE, FOLDER_OBJECT, FOLDER_ARRAY };
bool key_is_secret(const struct key *key); /* its value is in no message */
enum key_folder key_folder(const char *path);
/* The known key that `name` in `folder` ("" for the top, "dns_config." below it) most likely means: its full path.
 * False: none is like it. */
bool key_nearest(const char *folder, const char *name, char *nearest, size_t room);

/* Where a value comes from, and where its fault goes. */
struct origin {
    struct config *config;
    struct fault *fault;
    const char *source;               /* "web.json", "-http-port" */
    const char *path;                 /* the key as written; NULL for flags, whose name is the source */
    const struct config_source *from; /* of a file; NULL: of a flag */
    const struct json_step *step;     /* the place in its text */
};

/* One more error: "source:line:column: path: ...", and returns `code`. */
int origin_fault(const struct origin *origin, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

int key_set_json(const struct origin *origin, const struct key *key, struct json_object *value);
int key_set_text(const struct origin *origin, const struct key *key, struct slice text);
/* Append a value in the form in which it is written ("5m0s"; of bytes also "64 MiB"): that of the config, or one of the
 * key's bounds. Nothing is appended when the config has none, or for lists and objects. */
void key_value_print(const struct config *config, const struct key *key, struct buffer *out);
void key_bound_print(const struct key *key, uint64_t bound, struct buffer *out);

/* The end of a long path, which is its most useful part. */
const char *source_tail(const char *source);

/* Notes that the key was given, and whether it asks for its protection; the last source of a key counts. */
void key_guard(const struct origin *origin, const struct key *key, bool asked);

/* Appends "web.json:3:14", or the source alone when the line is not known. Finding the line reads the file's text
 * again. */
void origin_print(const struct origin *origin, struct buffer *out);
const char *origin_text(const struct origin *origin); /* the same, kept in the config's arena */

/* Writes the value, of lists and maps too, for comparing. */
void key_value_write(const struct config *config, const struct key *key, struct buffer *out);
void config_note_given(struct config *config);

/* Makes room for one more item than `count`. The array doubles when `count` is a power of two, so its capacity need not
 * be stored. */
void *items_grow(struct config *config, void *items, size_t count, size_t size);
/* Appends a copy. */
void texts_append(struct config *config, struct config_texts *texts, const char *text);

/* The checks that the table names (config_accept.c). For keys that may be left out an empty text means "not given", and
 * becomes NULL. */
const char *accept_ip(struct arena *arena, const char **text);
const char *accept_own_ip(struct arena *arena, const char **text);        /* one that others can connect to, or empty */
const char *accept_client_ips(struct arena *arena, const char **text);    /* several, blanks between */
const char *accept_no_client_ips(struct arena *arena, const char **text); /* or none */
/* As accept_no_client_ips, and "unix:///path" among them. */
const char *accept_no_http_addresses(struct arena *arena, const char **text);
const char *accept_mode(struct arena *arena, const char **text);        /* of a file: "0660"; or none */
const char *accept_shared_key(struct arena *arena, const char **text);  /* base64 of 16, 24 or 32 bytes; or none */
const char *accept_tls_version(struct arena *arena, const char **text); /* tls12, TLSv1_2; or none */
const char *accept_policy(struct arena *arena, const char **text);      /* allow, deny */
const char *accept_on_failure(struct arena *arena, const char **text);  /* continue, refuse */
int config_check_audit(struct config *config, struct fault *fault);     /* keys of audit that belong together */
const char *accept_down_policy(struct arena *arena, const char **text); /* and extend-cache, async-cache */
const char *accept_limits_mode(struct arena *arena, const char **text); /* disabled, permissive, enforcing */
const char *accept_token(struct arena *arena, const char **text);       /* a token's secret; or none */
const char *accept_datacenter(struct arena *arena, const char **text);
const char *accept_domain(struct arena *arena, const char **text);
const char *accept_no_domain(struct arena *arena, const char **text); /* or none */
const char *accept_node_name(struct arena *arena, const char **text); /* or none */
const char *accept_level(struct arena *arena, const char **text);
const char *accept_uuid(struct arena *arena, const char **text);     /* or none */
const char *accept_version(struct arena *arena, const char **text);  /* 1.8.7, 1.8.7-rc1, 1.8.7+ent */
const char *accept_any(struct arena *arena, const char **text);      /* or none */
const char *accept_facility(struct arena *arena, const char **text); /* one that syslog has */
const char *accept_not_empty(struct arena *arena, const char **text);
const char *accept_join(struct arena *arena, const char **text); /* the address of a server to join */
/* Checks a pair of node_meta: NULL, or the mistake. */
const char *accept_meta(const char *name, const char *value);

#endif
