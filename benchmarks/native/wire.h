/* Shared by the load and the backend: the clock, sockets, bytes that can be checked, and frames.
 *
 * Every body is made of one pattern, so that its receiver can compare each byte with the expected
 * one, at the speed of memcmp. Wrong responses are never measured. */
#ifndef WIRE_H
#define WIRE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 65521, READ_BYTES = 1 << 18, MAX_PENDING = 1 << 17 };

static unsigned char pattern[PERIOD + READ_BYTES];
static unsigned char incoming[MAX_PENDING + READ_BYTES];

static inline void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void make_pattern(void) {
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(((uint32_t)(i % PERIOD) * 2654435761u) >> 24);
}

/* Whether *size* bytes are the pattern from offset *at* on; at most READ_BYTES at a time. */
static inline bool is_pattern(const unsigned char *data, size_t size, uint64_t at) {
    return size <= READ_BYTES && memcmp(data, pattern + at % PERIOD, size) == 0;
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void raise_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static inline void no_delay(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Bytes of a stream that are kept until more arrive, or until they can be sent. */
struct piece {
    unsigned char *data;
    size_t size;
};

static inline void keep(struct piece *piece, const unsigned char *data, size_t size) {
    unsigned char *fresh = size ? malloc(size) : NULL;
    if (size && !fresh)
        die("malloc");
    if (size)
        memcpy(fresh, data, size);
    free(piece->data);
    piece->data = fresh;
    piece->size = size;
}

/* Append what can be read now to the kept bytes; return -1 at the end, 0 when nothing is there. */
static inline ssize_t take(int fd, struct piece *kept, unsigned char **data) {
    size_t before = kept->size;
    if (before > MAX_PENDING)
        return -1;
    if (before)
        memcpy(incoming, kept->data, before);
    ssize_t got = recv(fd, incoming + before, READ_BYTES, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return -1;
    if (got < 0)
        return 0;
    keep(kept, NULL, 0);
    *data = incoming;
    return (ssize_t)before + got;
}

/* The length of the head in *data*, 0 while it is incomplete. */
static inline size_t head_end(const unsigned char *data, size_t size) {
    const unsigned char *end = memmem(data, size, "\r\n\r\n", 4);
    return end ? (size_t)(end - data) + 4 : 0;
}

/* The value of a field in a head, or NULL; the head ends with CRLF CRLF. */
static inline const char *field(const char *head, size_t size, const char *name) {
    size_t length = strlen(name);
    const char *end = head + size;
    for (const char *line = memchr(head, '\n', size); line && line + 3 < end;
         line = memchr(line + 1, '\n', (size_t)(end - line - 1))) {
        if ((size_t)(end - line) > length + 1 && line[length + 1] == ':' &&
            strncasecmp(line + 1, name, length) == 0) {
            const char *value = line + length + 2;
            while (*value == ' ')
                value++;
            return value;
        }
    }
    return NULL;
}

/* A WebSocket frame's header (RFC 6455, section 5.2). */
struct frame {
    size_t header;
    uint64_t length;
    unsigned opcode;
    const unsigned char *mask;
};

/* Read the header at *data*; false while it is incomplete. */
static inline bool read_frame(const unsigned char *data, size_t size, struct frame *frame) {
    if (size < 2)
        return false;
    size_t header = 2;
    uint64_t length = data[1] & 0x7f;
    unsigned extended = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (size < header + extended)
        return false;
    if (extended) {
        length = 0;
        for (unsigned i = 0; i < extended; i++)
            length = length << 8 | data[2 + i];
    }
    header += extended;
    frame->mask = data[1] & 0x80 ? data + header : NULL;
    frame->header = header + (frame->mask ? 4 : 0);
    frame->length = length;
    frame->opcode = data[0] & 0x0f;
    return size >= frame->header;
}

/* Write the header of a complete, unmasked frame; return its size. */
static inline size_t write_frame(unsigned char *out, unsigned opcode, uint64_t length) {
    out[0] = (unsigned char)(0x80 | opcode);
    if (length < 126) {
        out[1] = (unsigned char)length;
        return 2;
    }
    unsigned extended = length < 65536 ? 2 : 8;
    out[1] = extended == 2 ? 126 : 127;
    for (unsigned i = 0; i < extended; i++)
        out[2 + i] = (unsigned char)(length >> (8 * (extended - 1 - i)));
    return 2 + extended;
}

static inline void unmask(unsigned char *data, size_t size, const unsigned char *mask) {
    uint32_t word;
    memcpy(&word, mask, 4);
    size_t i = 0;
    for (; i + 4 <= size; i += 4) {
        uint32_t part;
        memcpy(&part, data + i, 4);
        part ^= word;
        memcpy(data + i, &part, 4);
    }
    for (; i < size; i++)
        data[i] ^= mask[i & 3];
}

/* A desktop's update: one raw rectangle of pixels of 4 bytes (RFC 6143, 7.6.1), a large one for
 * streams, and a small one after a move of the pointer. */
enum { UPDATE_HEADER = 16, LARGE_SIDE = 128, SMALL_SIDE = 16 };
#define UPDATE_BYTES(side) (UPDATE_HEADER + 4 * (side) * (side))

static inline unsigned char *make_update(unsigned char side) {
    const unsigned char header[UPDATE_HEADER] = {0, 0, 0, 1, 0, 0, 0, 0, 0, side, 0, side};
    unsigned char *update = malloc(UPDATE_BYTES((size_t)side));
    if (!update)
        die("malloc");
    memcpy(update, header, UPDATE_HEADER);
    memcpy(update + UPDATE_HEADER, pattern, 4 * (size_t)side * side);
    return update;
}

#define RFB_VERSION "RFB 003.008\n"
enum { SERVER_INIT_BYTES = 24 + 5 };

#endif
