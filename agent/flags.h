/* The flags of `coord agent`: every one of `consul agent` 1.8, as -flag or --flag, -flag=value or -flag value. */
#ifndef COORD_AGENT_FLAGS_H
#define COORD_AGENT_FLAGS_H

#include "agent/config.h"

/* Applies -dev, then what `coord init` or `coord join` left in the data folder (joined.h), then the files and folders named by flags in their order, then all other flags, to a config that
 * config_init made; config_finish is left to the caller. argv[0] is skipped. *help: -h was given, nothing else was
 * done. Faults name the flag, an unknown one also the nearest right one. */
int flags_parse(int argc, char *const *argv, struct config *config, bool *help, struct fault *fault);

/* The flag number `at`, for -h and the reference; false after the last. A flag without help has no effect. */
struct flag_shown {
    const char *name, *key, *help; /* key: NULL when it stands for none */
    bool value;                    /* it needs a value */
};
bool flags_see(size_t at, struct flag_shown *shown);

/* The text for -h. */
void flags_usage(struct buffer *out);

#endif
