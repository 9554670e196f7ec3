#include "agent/first_token.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/text.h"
#include "rpc/api/requester.h"
#include "tls/certificate.h"
#include "tls/folder.h"

static const char blanks[] = " \t\r\n";

void first_token_path(const char *data_dir, char path[4096]) { snprintf(path, 4096, "%s/management.token", data_dir); }

int first_token_make(const char *data_dir, struct fault *fault) {
    char path[4096], text[UUID_TEXT_SIZE + 2];
    struct buffer present = {0};
    int error = first_token_read(data_dir, &present, fault);
    tls_wipe(&present);
    if (error != CO_NOTFOUND) return error;
    first_token_path(data_dir, path);
    random_uuid(text);
    text[UUID_TEXT_SIZE] = '\n';
    error = tls_key_file_write(path, slice_make(text, UUID_TEXT_SIZE + 1), fault);
    explicit_bzero(text, sizeof text);
    return error;
}

int first_token_read(const char *data_dir, struct buffer *secret, struct fault *fault) {
    char path[4096];
    struct buffer content = {0};
    struct fault why = {0};
    first_token_path(data_dir, path);
    int error = tls_key_file_read(path, &content, &why);
    if (error && error != CO_NOTFOUND) fault_set(fault, error, "%s", why.text);
    buffer_append_byte(&content, '\0');
    const char *text = content.data + strspn(content.data, blanks);
    size_t size = strcspn(text, blanks);
    bool alone = text + size + strspn(text + size, blanks) == content.data + content.size - 1;
    if (!error && (size == 0 || size > REQUESTER_TOKEN_MOST || !alone))
        error = fault_set(fault, CO_INVALID, "%s: the secret of one token is wanted, of at most %d bytes", path,
                          REQUESTER_TOKEN_MOST);
    if (!error) {
        buffer_reserve(secret, size + 1);
        buffer_append(secret, text, size);
        buffer_append_byte(secret, '\0');
    }
    tls_wipe(&content);
    return error;
}
