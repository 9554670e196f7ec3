#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"

#define CO_TEXT(code, text) [code] = (text),
static const char *const texts[CO_ERROR_COUNT] = {[CO_OK] = "ok", CO_ERRORS(CO_TEXT)};
#undef CO_TEXT

const char *co_strerror(int code) {
    if (code < 0 || code >= CO_ERROR_COUNT) return "unknown error";
    return texts[code];
}

int co_from_errno(int errnum) {
    switch (errnum) {
        case 0: return CO_OK;
        case ENOMEM: return CO_NOMEM;
        case ENOENT: return CO_NOTFOUND;
        case EEXIST: return CO_EXISTS;
        case ENOSPC:
        case EDQUOT:
        case EFBIG: return CO_DISKFULL;
        case EAGAIN: return CO_AGAIN;
        default: return CO_IO;
    }
}

int fault_set(struct fault *fault, int code, const char *format, ...) {
    CHECK(code != CO_OK);
    if (!fault || fault->code != CO_OK) return code;
    fault->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    for (char *at = fault->text; *at; at++) { /* text of a client that it quotes must not break the line */
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    }
    return code;
}
