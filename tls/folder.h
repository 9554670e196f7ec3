/* The folder DATA/tls: what a process needs to prove who it is. Mode 0700; keys 0600, certificates 0644.
 *
 *     ca.pem       the CAs that are trusted, the newest first
 *     cert.pem     this node's chain
 *     key.pem      its key; made here, never sent
 *     ca.key       servers: the key that signs, of the first certificate of ca.pem
 *     secret.key   servers: 32 random bytes; the key of hashes of secrets that are replicated (join tokens)
 *     first        the first server, until it leads: what `coord init` brings into the replicated state
 *     ca-next.key  a server that makes a new CA, until the cluster trusts it
 *     ca-import.key  the key of a CA that an operator brings, until the server has taken it
 *     regions      other regions whose CAs are trusted between servers: pb.Trust, of which only these are used
 *     mode         while an open cluster is being closed: plain connections are taken, too
 *
 * A pair (key, certificate) is replaced as a whole: the new files are written and synced beside the old ones
 * (NAME.new), then renamed, the key first; a start that finds the pair half renamed finishes or undoes it. So a full
 * disk, a crash or a kill leaves the old pair or the new one. A key that others than its owner may read or write is
 * refused, in a line that names the file, its mode and the command that mends it. Files of the folder are no symbolic
 * links: a link would be replaced, and not the file that it names. A file that root writes belongs to the owner of the folder, so that
 * the agent can read it. Blocking. */
#ifndef COORD_TLS_FOLDER_H
#define COORD_TLS_FOLDER_H

#include "base/buffer.h"
#include "base/error.h"

#define TLS_SECRET_SIZE 32
enum tls_file {
    TLS_FILE_CA,
    TLS_FILE_CERT,
    TLS_FILE_KEY,
    TLS_FILE_CA_KEY,
    TLS_FILE_SECRET,
    TLS_FILE_FIRST,
    TLS_FILE_MODE,
    TLS_FILE_CA_NEXT,
    TLS_FILE_CA_IMPORT,
    TLS_FILE_REGIONS,
    TLS_FILES
};
const char *tls_file_name(enum tls_file file);

/* Makes DATA/tls where it is missing. Refuses one that others may read or write. */
int tls_folder_make(const char *data_dir, struct fault *fault);
/* The same for another folder of secrets, by its path. */
int tls_secret_folder_make(const char *path, struct fault *fault);
/* CO_NOTFOUND without a fault's text when there is no such file. Secrets are read into memory that tls_wipe frees. */
int tls_folder_read(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault);
/* Whole or not at all (CO_DISKFULL: the old file is still there). TLS_FILE_SECRET has TLS_SECRET_SIZE bytes. */
int tls_folder_write(const char *data_dir, enum tls_file file, struct slice content, struct fault *fault);
void tls_folder_remove(const char *data_dir, enum tls_file file); /* where it is there */
/* Certificate and key together; either both are new afterwards or none. Checks that they fit (tls_pair_check). */
int tls_folder_write_pair(const char *data_dir, struct slice chain, struct slice key, struct fault *fault);
/* Call it once at the start, before reading: finishes or undoes a pair that was half replaced. */
int tls_folder_recover(const char *data_dir, struct fault *fault);

/* The same rules for a key file that a configuration names. It may be a link: the mode of the file itself counts. */
int tls_key_file_read(const char *path, struct buffer *key, struct fault *fault);
/* Writes such a file, mode 0600, whole or not at all, as those of the folder are written. */
int tls_key_file_write(const char *path, struct slice content, struct fault *fault);

#endif
