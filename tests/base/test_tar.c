/* Heads of tar archives. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/tar.h"

/* After a change by hand: the sum fits again. */
static void sum(char *head) {
    unsigned total = 0;
    memset(head + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++) total += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", total);
    head[155] = ' ';
}

static void good(char *head) {
    struct tar_file file = {.name = "state.bin", .size = 123456};
    tar_head_encode(&file, 1700000000, head);
}

Test(tar, what_is_written_is_read) {
    static const uint64_t sizes[] = {0, 1, 511, 512, 07777777, 077777777777, 077777777777 + 1, TAR_SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char head[TAR_BLOCK];
        struct tar_file file = {.size = sizes[i]}, again;
        memset(file.name, 'n', i % 2 ? TAR_NAME_MAX : 1);
        tar_head_encode(&file, 1700000000, head);
        cr_assert_eq(tar_head_decode(head, &again), CO_OK);
        cr_assert(again.size == file.size && strcmp(again.name, file.name) == 0);
        cr_assert_eq((file.size + tar_padding(file.size)) % TAR_BLOCK, 0);
        cr_assert_lt(tar_padding(file.size), TAR_BLOCK);
    }
}

Test(tar, zeros_are_the_end) {
    char head[TAR_BLOCK] = {0};
    struct tar_file file;
    cr_assert_eq(tar_head_decode(head, &file), CO_NOTFOUND);
}

Test(tar, a_changed_byte_is_noticed) {
    char head[TAR_BLOCK];
    struct tar_file file;
    for (int at = 0; at < TAR_BLOCK; at++) {
        good(head);
        head[at] ^= 1;
        if (at == 154 || at == 155) continue; /* what ends the number of the sum is not in the sum */
        cr_assert_neq(tar_head_decode(head, &file), CO_OK, "byte %d", at);
    }
}

Test(tar, bad_heads) {
    static const struct {
        int at;
        const char *bytes;
        size_t size;
        int wanted;
        const char *what;
    } table[] = {
        {156, "5", 1, CO_UNSUPPORTED, "a folder"},
        {156, "2", 1, CO_UNSUPPORTED, "a symbolic link"},
        {156, "L", 1, CO_UNSUPPORTED, "a long name"},
        {156, "x", 1, CO_UNSUPPORTED, "an extended head"},
        {257, "USTAR", 5, CO_UNSUPPORTED, "another format"},
        {0, "\0", 1, CO_CORRUPT, "no name"},
        {124, "\200\0\0\0\0\0\0\0\0\0\1\0", 12, CO_OK, "a size in base 256"},
        {124, "\200\0\0\0\0\0\20\0\0\0\0\1", 12, CO_UNSUPPORTED, "a size beyond all disks"},
        {124, "\200\0\0\1\0\0\0\0\0\0\0\0", 12, CO_UNSUPPORTED, "a size beyond 64 bits"},
        {124, "\377\377\377\377\377\377\377\377\377\377\377\0", 12, CO_UNSUPPORTED, "a negative size in base 256"},
        {124, "0000000000x\0", 12, CO_CORRUPT, "a size that is no number"},
        {124, "00000000008\0", 12, CO_CORRUPT, "a size with a digit that is none"},
        {124, "           \0", 12, CO_CORRUPT, "a size of blanks"},
        {124, "1 1        \0", 12, CO_CORRUPT, "two numbers"},
        {124, "-0000000001\0", 12, CO_CORRUPT, "a negative size"},
        {345, "folder", 6, CO_UNSUPPORTED, "a name with a folder before it"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char head[TAR_BLOCK];
        struct tar_file file;
        good(head);
        memcpy(head + table[i].at, table[i].bytes, table[i].size);
        sum(head);
        cr_assert_eq(tar_head_decode(head, &file), table[i].wanted, "%s", table[i].what);
    }
}

Test(tar, sizes_of_all_digits_are_bounded) {
    char head[TAR_BLOCK];
    struct tar_file file;
    good(head);
    memcpy(head + 124, "777777777777", 12);
    sum(head);
    cr_assert_eq(tar_head_decode(head, &file), CO_OK);
    cr_assert_eq(file.size, 0777777777777ull); /* whoever reads on bounds it */
}
