/* The tokens of an HCL text: for base/hcl.c. */
#ifndef COORD_BASE_HCL_INNER_H
#define COORD_BASE_HCL_INNER_H

#include "base/buffer.h"
#include "base/error.h"

enum hcl_token {
    HCL_END, /* of the text */
    HCL_NAME,
    HCL_QUOTED,
    HCL_HEREDOC,
    HCL_NUMBER,
    HCL_SIGN, /* one of { } [ ] , = */
    HCL_WRONG /* the fault is set: no more tokens */
};

struct hcl_reader {
    struct slice text; /* without NUL bytes */
    struct fault *fault;
    /* The token that was read last. */
    enum hcl_token token;
    size_t start, end;
    struct buffer string; /* of HCL_NAME, HCL_QUOTED, HCL_HEREDOC */
    size_t depth, values; /* of hcl.c */
};

void hcl_advance(struct hcl_reader *r); /* reads the next token */
struct slice hcl_token(const struct hcl_reader *r);
static inline bool hcl_is_sign(const struct hcl_reader *r, char sign) {
    return r->token == HCL_SIGN && r->text.data[r->start] == sign;
}

/* Faults: "HCL: WHAT at line 3, column 17", or `WHAT "WORD" at ...`. They return the code. */
int hcl_refuse(struct hcl_reader *r, size_t at, const char *what);
int hcl_refuse_for(struct hcl_reader *r, int code, size_t at, const char *what, struct slice word);
int hcl_refuse_token(struct hcl_reader *r, const char *what); /* the word is the present token */

#endif
