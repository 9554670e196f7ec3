/* The examples of RFC 7515 (appendix A), RFC 7520 (section 4) and RFC 8037 (appendix A.4). */
#include <criterion/criterion.h>

#include "acl/jwt.h"
#include "base/check.h"

static struct jwt_keys *keys_of(const char *jwks) {
    struct fault fault = {0};
    struct jwt_keys *keys = jwt_keys_new();
    cr_assert_eq(jwt_keys_add_jwks(keys, slice_text(jwks), &fault), CO_OK, "%s", fault.text);
    return keys;
}

static int open_token(const struct jwt_keys *keys, const char *token) {
    struct buffer payload = {0};
    int rv = jwt_open(keys, 0, slice_text(token), &payload, NULL);
    buffer_free(&payload);
    return rv;
}

#define JOE "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
#define FRODO                                                                                                        \
    "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW" \
    "5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0" \
    "by4"
#define BILBO_RSA                                                                                                   \
    "{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"bilbo.baggins@hobbiton.example\",\"use\":\"sig\",\"e\":\"AQAB\",\"n\":"  \
    "\"n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRBSFKrKb"  \
    "2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD1NNLYD5lFHpPI9b" \
    "TwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_qixoR7jig3__kRhuaxwUkRz5" \
    "iaiQkqgc5gHdrNP5zw\"}]}"

static const char joe_payload[] = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
static const char frodo_payload[] =
    "It\xe2\x80\x99s a dangerous business, Frodo, going out your door. You step onto the road, and if you don't keep "
    "your feet, there\xe2\x80\x99s no knowing where you might be swept off to.";

static const struct {
    const char *name, *jwks, *token, *payload;
} examples[] = {
    {"RFC 7515, A.2 (RS256)",
     "{\"keys\":[{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":"
     "\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZ"
     "S-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2"
     "CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9g"
     "b54h4FRWyuXpoQ\"}]}",
     "eyJhbGciOiJSUzI1NiJ9." JOE
     ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CU"
     "Ar7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO-"
     "-xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_I"
     "oypGlUPQGe77Rw",
     joe_payload},
    {"RFC 7515, A.3 (ES256)",
     "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":"
     "\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}",
     "eyJhbGciOiJFUzI1NiJ9." JOE
     ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
     joe_payload},
    {"RFC 7515, A.4 (ES512)",
     "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-521\",\"x\":"
     "\"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk\",\"y\":"
     "\"ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2\"}]}",
     "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA."
     "AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJ"
     "ZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn",
     "Payload"},
    {"RFC 7520, 4.1 (RS256)", BILBO_RSA,
     "eyJhbGciOiJSUzI1NiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9." FRODO
     ".MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xuglII7PNDi84wnB-BDko"
     "BwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4QPocSadnHXFxnt8Is9UzpERV"
     "0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJushZ41Axf_fcIe8u9ipH84ogoree7v"
     "jbU5y18kDquDg",
     frodo_payload},
    {"RFC 7520, 4.2 (PS384)", BILBO_RSA,
     "eyJhbGciOiJQUzM4NCIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9." FRODO
     ".cu22eBqkYDKgIlTpzDXGvaFfz6WGoz7fUDcfT0kkOy42miAh2qyBzk1xEsnk2IpN6-tPid6VrklHkqsGqDqHCdP6O8TTB5dDDItllVo6_1OLP"
     "pcbUrhiUSMxbbXUvdvWXzg-UD8biiReQFlfz28zGWVsdiNAUf8ZnyPEgVFn442ZdNqiVJRmBqrYRXe8P_ijQ7p8Vdz0TTrxUeT3lm8d9shnr2l"
     "fJT8ImUjvAA2Xez2Mlp8cBE5awDzT0qI0n6uiP1aCN_2_jLAeQTlqRHtfa64QQSUmFAAjVKPbByi7xho0uTOcbH510a6GYmJUAfmWjwZ6oD4if"
     "Ko8DYM-X72Eaw",
     frodo_payload},
    {"RFC 7520, 4.3 (ES512)",
     "{\"keys\":[{\"kty\":\"EC\",\"kid\":\"bilbo.baggins@hobbiton.example\",\"use\":\"sig\",\"crv\":\"P-521\",\"x\":"
     "\"AHKZLLOsCOzz5cY97ewNUajB957y-C-U88c3v13nmGZx6sYl_oJXu9A5RkTKqjqvjyekWF-7ytDyRXYgCF5cj0Kt\",\"y\":"
     "\"AdymlHvOiLxXkEhayXQnNCvDX4h9htZaCJN34kfmC6pV5OhQHiraVySsUdaQkAgDPrwQrJmbnX9cwlGfP-HqHZR1\"}]}",
     "eyJhbGciOiJFUzUxMiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9." FRODO
     ".AE_R_YZCChjn4791jSQCrdPZCNYqHXCTZH0-JZGYNlaAjP2kqaluUIIUnC9qvbu9Plon7KRTzoNEuT4Va2cmL1eJAQy3mtPBu_u_sDDyYjnAM"
     "DxXPn7XrT0lw-kvAD890jl8e2puQens_IEKBpHABlsbEPX6sFY8OcGDqoRuBomu9xQ2",
     frodo_payload},
    {"RFC 8037, A.4 (Ed25519)",
     "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}",
     "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc."
     "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
     "Example of Ed25519 signing"},
};

Test(jwt_examples, examples_of_the_standards) {
    for (size_t i = 0; i < ARRAY_COUNT(examples); i++) {
        struct jwt_keys *keys = keys_of(examples[i].jwks);
        struct buffer payload = {0};
        struct fault fault = {0};
        cr_expect_eq(jwt_open(keys, 0, slice_text(examples[i].token), &payload, &fault), CO_OK, "%s: %s",
                     examples[i].name, fault.text);
        cr_expect(slice_is(buffer_slice(&payload), examples[i].payload), "%s", examples[i].name);
        buffer_free(&payload);
        jwt_keys_free(keys);
    }
}

/* Each character of a token replaced by another one, and by its neighbour in the alphabet, which differs in the last
 * bits; those are unused at the end of a part. */
Test(jwt_examples, changed_examples_are_refused) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < ARRAY_COUNT(examples); i++) {
        struct jwt_keys *keys = keys_of(examples[i].jwks);
        size_t size = strlen(examples[i].token);
        for (size_t at = 0; at < size; at++) {
            char token[2000];
            memcpy(token, examples[i].token, size + 1);
            const char *was = strchr(alphabet, token[at]);
            token[at] = was ? alphabet[(size_t)(was - alphabet) ^ 1] : '_';
            cr_expect_neq(open_token(keys, token), CO_OK, "%s: byte %zu", examples[i].name, at);
            token[at] = was ? alphabet[(size_t)(was - alphabet) ^ 32] : '-';
            cr_expect_neq(open_token(keys, token), CO_OK, "%s: byte %zu", examples[i].name, at);
        }
        jwt_keys_free(keys);
    }
}

/* HMACs and no signature at all: RFC 7515, A.1 and A.5, RFC 7520, 4.4, with the keys that these have. */
Test(jwt_examples, secrets_and_no_signature_are_never_taken) {
    static const char set[] =
        "{\"keys\":["
        "{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CA"
        "ow\"},"
        "{\"kty\":\"oct\",\"kid\":\"018c0ae5-4d9b-471b-bfd6-eef314bc7037\",\"use\":\"sig\",\"alg\":\"HS256\",\"k\":"
        "\"hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg\"},"
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":"
        "\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}";
    struct jwt_keys *keys = keys_of(set);
    cr_expect_eq(jwt_keys_count(keys), 1);
    cr_expect_eq(open_token(keys, "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." JOE
                                  ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
                 CO_DENIED);
    cr_expect_eq(
        open_token(keys, "eyJhbGciOiJIUzI1NiIsImtpZCI6IjAxOGMwYWU1LTRkOWItNDcxYi1iZmQ2LWVlZjMxNGJjNzAzNyJ9." FRODO
                         ".s0h6KThzkfBBBkLspW1h84VsJZFTsPPqMDA7g1Md7p0"),
        CO_DENIED);
    cr_expect_eq(open_token(keys, "eyJhbGciOiJub25lIn0." JOE "."), CO_INVALID);
    cr_expect_eq(open_token(keys, "eyJhbGciOiJub25lIn0." JOE ".AA"), CO_DENIED);
    jwt_keys_free(keys);
}
