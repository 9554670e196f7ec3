/* Files that only this user reads, replaced as a whole: after a crash there is the old content or the new one. */
#ifndef COORD_AGENT_PRIVATE_FILE_H
#define COORD_AGENT_PRIVATE_FILE_H

#include "base/buffer.h"
#include "base/error.h"

/* Writes FOLDER/NAME, and syncs both; blocks. */
int private_file_write(const char *folder, const char *name, struct slice content, struct fault *fault);

#endif
