/* gzip, for clients that take it. One deflate state a worker, made when first needed (it takes 256 KiB). */
#include <stdlib.h>
#include <zlib.h>

#include "http/impl.h"

#define LEVEL    1          /* twice as fast as the default; our JSON shrinks by 90 % either way */
#define WORTH_IT 160        /* below this size the frame costs more than is saved */
#define TOO_LONG (4u << 20) /* above this size it would delay other requests */

static z_stream *stream_ready(struct worker *worker) {
    z_stream *stream = worker->deflate;
    if (stream) return deflateReset(stream) == Z_OK ? stream : NULL;
    stream = mem_zalloc(sizeof *stream);
    if (deflateInit2(stream, LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(stream);
        return NULL;
    }
    worker->deflate = stream;
    return stream;
}

struct bytes *gzip_bytes(struct worker *worker, const struct bytes *plain) {
    if (plain->size < WORTH_IT || plain->size > TOO_LONG) return NULL;
    z_stream *stream = stream_ready(worker);
    if (!stream) return NULL;
    struct buffer *packed = &worker->packed;
    buffer_reset(packed);
    buffer_reserve(packed, deflateBound(stream, plain->size));
    stream->next_in = (Bytef *)plain->data;
    stream->avail_in = (uInt)plain->size;
    stream->next_out = (Bytef *)packed->data;
    stream->avail_out = (uInt)packed->capacity;
    if (deflate(stream, Z_FINISH) != Z_STREAM_END) return NULL;
    packed->size = packed->capacity - stream->avail_out;
    return packed->size < plain->size ? bytes_take(packed) : NULL;
}

void gzip_free(struct worker *worker) {
    if (!worker->deflate) return;
    deflateEnd(worker->deflate);
    free(worker->deflate);
}
