/* The key of tokens' secrets: its file, hashes, sealed secrets. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "acl/key.h"
#include "tests/lib/scratch.h"

#define BYTES "0123456789abcdef0123456789abcdef"
static struct acl_key *known(void) {
    struct acl_key *key;
    cr_assert_eq(acl_key_take(SLICE_LITERAL(BYTES), &key, NULL), CO_OK);
    return key;
}

Test(acl_key, drawn_keys_differ_and_know_their_id) {
    struct acl_key *a, *b, *again;
    cr_assert_eq(acl_key_make(&a, NULL), CO_OK);
    cr_assert_eq(acl_key_make(&b, NULL), CO_OK);
    cr_assert_eq(acl_key_take(acl_key_bytes(a), &again, NULL), CO_OK);
    cr_expect(acl_key_is(a, acl_key_id(again)) && !acl_key_is(a, acl_key_id(b)) && !acl_key_is(NULL, acl_key_id(a)));
    cr_expect_not(acl_key_is(a, slice_make(acl_key_id(a).data, ACL_KEY_ID_SIZE - 1)));
    cr_expect_null(memmem(acl_key_id(a).data, ACL_KEY_ID_SIZE, acl_key_bytes(a).data, 8), "the id tells nothing");
    acl_key_release(a), acl_key_release(b), acl_key_release(again);
}

Test(acl_key, wrong_sizes) {
    struct acl_key *key;
    struct fault fault = {0};
    cr_expect_eq(acl_key_take(SLICE_LITERAL("short"), &key, &fault), CO_INVALID);
    cr_expect(!key && strstr(fault.text, "32 bytes"));
}

/* Computed by Python (hmac, hashlib), from the RFCs: extract with the salt "coord acl", expand for each purpose. */
Test(acl_key, derived_as_the_rfcs_say) {
    static const uint8_t id[] = {0xc4, 0x5c, 0x8b, 0x75, 0x0e, 0x07, 0xe6, 0x04, 0x09, 0x02, 0x88,
                                 0x8d, 0xb2, 0x46, 0xca, 0x65, 0x0b, 0x46, 0xf5, 0x52, 0xbf, 0x19,
                                 0xb8, 0xfd, 0xd8, 0xcf, 0xc3, 0xa5, 0xd7, 0x28, 0xba, 0x03},
                         hash[] = {0x0a, 0xa5, 0x58, 0xfb, 0xce, 0x4a, 0x85, 0x88, 0xcd, 0x68, 0x78,
                                   0x0e, 0x5a, 0xd0, 0x55, 0x8f, 0x5d, 0xd6, 0x5a, 0x15, 0x92, 0xed,
                                   0x1f, 0x29, 0x05, 0x3d, 0xd9, 0x3f, 0xe1, 0x7a, 0xe1, 0x8a};
    uint8_t found[ACL_HASH_SIZE];
    struct acl_key *key = known();
    cr_expect_eq(memcmp(acl_key_id(key).data, id, sizeof id), 0);
    acl_key_hash(key, SLICE_LITERAL("a secret"), found);
    cr_expect_eq(memcmp(found, hash, sizeof hash), 0);
    acl_key_release(key);
}

Test(acl_key, a_sealed_secret_opens_for_its_token_alone) {
    struct acl_key *key = known(), *other;
    struct buffer sealed = {0}, again = {0}, secret = {0};
    struct slice accessor = SLICE_LITERAL("accessor-1"), another = SLICE_LITERAL("accessor-2");
    cr_assert_eq(acl_key_make(&other, NULL), CO_OK);
    acl_key_seal(key, accessor, SLICE_LITERAL("the secret"), &sealed);
    acl_key_seal(key, accessor, SLICE_LITERAL("the secret"), &again);
    cr_expect_eq(sealed.size, 10 + ACL_SEALED_MORE);
    cr_expect_not(slice_equal(buffer_slice(&sealed), buffer_slice(&again)), "each with its own nonce");
    cr_expect_null(memmem(sealed.data, sealed.size, "secret", 6));
    cr_assert_eq(acl_key_open(key, accessor, buffer_slice(&sealed), &secret), CO_OK);
    cr_expect(slice_is(buffer_slice(&secret), "the secret"));
    cr_expect_eq(acl_key_open(key, another, buffer_slice(&sealed), &secret), CO_CORRUPT);
    cr_expect_eq(acl_key_open(other, accessor, buffer_slice(&sealed), &secret), CO_CORRUPT);
    for (size_t i = 0; i < sealed.size; i++) {
        sealed.data[i] ^= 1;
        cr_expect_eq(acl_key_open(key, accessor, buffer_slice(&sealed), &secret), CO_CORRUPT, "%zu", i);
        sealed.data[i] ^= 1;
        cr_expect_eq(acl_key_open(key, accessor, slice_make(sealed.data, i), &secret), CO_CORRUPT, "%zu", i);
    }
    cr_expect(slice_is(buffer_slice(&secret), "the secret"), "nothing was added");
    buffer_free(&sealed), buffer_free(&again), buffer_free(&secret);
    acl_key_release(key), acl_key_release(other);
}

/* -- the file ----------------------------------------------------------------------------------------------------- */
Test(acl_key, a_file_that_only_its_owner_reads) {
    char folder[64], path[128];
    struct acl_key *key, *read;
    struct fault fault = {0};
    struct stat info;
    snprintf(folder, sizeof folder, "%s", scratch_folder());
    snprintf(path, sizeof path, "%s/acl/key", folder);
    cr_expect_eq(acl_key_load(folder, &read, &fault), CO_NOTFOUND);
    cr_expect(!read && !fault.text[0]);
    cr_assert_eq(acl_key_make(&key, NULL), CO_OK);
    cr_assert_eq(acl_key_store(key, folder, &fault), CO_OK, "%s", fault.text);
    cr_expect(stat(path, &info) == 0 && (info.st_mode & 07777) == 0600 && info.st_size == ACL_KEY_SIZE);
    cr_assert_eq(acl_key_load(folder, &read, &fault), CO_OK, "%s", fault.text);
    cr_expect(acl_key_is(read, acl_key_id(key)));
    acl_key_release(read);
    cr_assert_eq(chmod(path, 0640), 0);
    cr_expect_eq(acl_key_load(folder, &read, &fault), CO_INVALID);
    cr_expect(strstr(fault.text, "acl/key") && strstr(fault.text, "chmod 600"), "%s", fault.text);
    fault = (struct fault){0};
    cr_assert(chmod(path, 0600) == 0 && truncate(path, 31) == 0);
    cr_expect_eq(acl_key_load(folder, &read, &fault), CO_CORRUPT);
    cr_expect(strstr(fault.text, "31 bytes"), "%s", fault.text);
    fault = (struct fault){0};
    cr_assert_eq(acl_key_store(key, folder, &fault), CO_OK, "it is replaced");
    snprintf(path, sizeof path, "%s/acl", folder);
    cr_assert_eq(chmod(path, 0755), 0);
    cr_expect_eq(acl_key_store(key, folder, &fault), CO_INVALID, "the folder is for its owner, too");
    acl_key_release(key);
    scratch_remove(folder);
}

Test(acl_key, the_one_of_this_process) {
    struct acl_key *key = known(), *now;
    cr_expect_null(acl_key_used());
    acl_key_use(acl_key_keep(key));
    now = acl_key_used();
    cr_expect_eq(now, key);
    acl_key_release(now);
    acl_key_use(NULL);
    cr_expect_null(acl_key_used());
    acl_key_release(key);
}
