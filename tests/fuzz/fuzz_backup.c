/* Any bytes as a backup: the archive, its tar heads, and the state machine's copy inside; refused, or as it was. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tar.h"
#include "rpc/backup/archive.h"
#include "still_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file_of(const void *data, size_t size) {
    int fd = memfd_create("backup", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static void check_heads(const uint8_t *data, size_t size) {
    for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK) {
        struct tar_file file;
        char head[TAR_BLOCK], again[TAR_BLOCK];
        memcpy(head, data + at, TAR_BLOCK);
        if (tar_head_decode(head, &file) != CO_OK || file.size > TAR_SIZE_MAX) continue;
        struct tar_file second;
        tar_head_encode(&file, 0, again);
        CHECK(tar_head_decode(again, &second) == CO_OK && second.size == file.size &&
              strcmp(second.name, file.name) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct archive_meta meta;
    struct fault fault = {0};
    uint64_t index;
    int in = file_of(data, size), out = file_of("", 0);
    int rv = archive_read(in, out, 1 << 20, &meta, &fault);
    CHECK(rv == CO_OK || rv == CO_CORRUPT || rv == CO_TOOLARGE || rv == CO_UNSUPPORTED);
    CHECK(rv == CO_OK || fault.text[0]);
    fault = (struct fault){0};
    CHECK(lseek(in, 0, SEEK_SET) == 0);
    rv = machine_copy_check(still_machine(), in, size, &index, &fault);
    /* CO_INVALID: of a later cluster version */
    CHECK(rv == CO_OK || ((rv == CO_CORRUPT || rv == CO_UNSUPPORTED || rv == CO_INVALID) && fault.text[0]));
    check_heads(data, size);
    close(in);
    close(out);
    return 0;
}
