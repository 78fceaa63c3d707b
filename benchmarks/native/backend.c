/* The app behind every proxy: one thread, one epoll, and no work beyond the response itself.
 *
 *   backend            prints "PORT RFB_PORT" and serves until its standard input ends
 *
 *   GET /bytes/N       N bytes of the pattern
 *   PUT /sink          takes a body and checks it; 200, or 400 when it is not the pattern
 *   GET /auth          200 without a body: the cheapest possible authoriser
 *   GET /echo          a WebSocket that returns each frame
 *   GET /frames/N      a WebSocket that sends frames of N bytes of the pattern for good
 *
 * The other port speaks RFB without a password. It answers each request for an update with the same
 * 64 KiB of pixels, and a small one (16 by 16 pixels) once the pointer has moved. */
#include "wire.h"

enum mode { HEAD, BODY, SINK, ECHO, CYCLE, RFB_VERSION_READ, RFB_SECURITY, RFB_INIT, RFB_SERVING };

struct conn {
    int fd;
    enum mode mode;
    uint64_t left; /* bytes still to send or to receive */
    uint64_t at;   /* the position in the pattern or in the cycle */
    const unsigned char *cycle;
    size_t period;
    bool good, waits, asked;
    struct piece in, out;
};

static int poller;
static unsigned char *frames, *update, *small_update;
static size_t frames_size;

/* SHA-1 (RFC 3174), for Sec-WebSocket-Accept. */

static uint32_t rotated(uint32_t value, int by) { return value << by | value >> (32 - by); }

static void sha1_block(uint32_t state[5], const unsigned char *block) {
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t next = rotated(a, 5) + f + e + w[i];
        e = d, d = c, c = rotated(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

/* The accept value for a key of 24 characters: the text is 60 bytes, so two blocks. */
static void accept_of(const char *key, char out[29]) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t state[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    unsigned char text[128] = {0}, digest[21] = {0};
    memcpy(text, key, 24);
    memcpy(text + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
    text[60] = 0x80, text[126] = 0x01, text[127] = 0xe0;
    sha1_block(state, text);
    sha1_block(state, text + 64);
    for (int i = 0; i < 20; i++)
        digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
    for (int i = 0; i < 7; i++) {
        uint32_t three = (uint32_t)digest[3 * i] << 16 | digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++)
            out[4 * i + j] = base64[three >> (18 - 6 * j) & 63];
    }
    out[27] = '=', out[28] = 0;
}

/* Sending */

static void close_conn(struct conn *c) {
    close(c->fd);
    keep(&c->in, NULL, 0);
    keep(&c->out, NULL, 0);
    free(c);
}

static void await_writable(struct conn *c, bool waits) {
    if (c->waits == waits)
        return;
    c->waits = waits;
    struct epoll_event event = {.events = EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static bool say(struct conn *c, const void *data, size_t size) {
    ssize_t sent = c->out.size ? 0 : send(c->fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return false;
    if (sent < 0)
        sent = 0;
    if ((size_t)sent < size) {
        size_t before = c->out.size, rest = size - (size_t)sent;
        unsigned char *whole = malloc(before + rest);
        if (!whole)
            die("malloc");
        if (before)
            memcpy(whole, c->out.data, before);
        memcpy(whole + before, (const char *)data + sent, rest);
        free(c->out.data);
        c->out.data = whole, c->out.size = before + rest;
        await_writable(c, true);
    }
    return true;
}

/* Send as much of the pattern or the cycle as the socket accepts now. */
static bool pump(struct conn *c) {
    for (int turns = 0; c->left && turns < 16; turns++) {
        const unsigned char *from = c->cycle ? c->cycle + c->at % c->period : pattern + c->at % PERIOD;
        size_t size = c->cycle ? c->period - c->at % c->period : READ_BYTES;
        if (size > c->left)
            size = c->left;
        ssize_t sent = send(c->fd, from, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent < 0)
            break;
        c->at += (uint64_t)sent, c->left -= (uint64_t)sent;
    }
    await_writable(c, c->left > 0);
    if (!c->left && c->mode == BODY)
        c->mode = HEAD;
    return true;
}

static bool writable(struct conn *c) {
    if (c->out.size) {
        struct piece out = c->out;
        c->out = (struct piece){0};
        await_writable(c, false);
        bool good = say(c, out.data, out.size);
        free(out.data);
        if (!good || c->out.size)
            return good;
    }
    return pump(c);
}

/* HTTP */

static bool switched(struct conn *c, const char *head, size_t size, const char *path) {
    const char *key = field(head, size, "Sec-WebSocket-Key");
    char accept[29], answer[256];
    if (!key)
        return false;
    accept_of(key, accept);
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                          accept);
    if (!say(c, answer, (size_t)length))
        return false;
    c->mode = ECHO;
    if (strncmp(path, "/frames/", 8) == 0) {
        c->mode = CYCLE, c->cycle = frames, c->period = frames_size, c->left = UINT64_MAX;
        return pump(c);
    }
    return true;
}

static bool answer_bytes(struct conn *c, uint64_t count) {
    char head[320];
    int size = snprintf(head, sizeof head,
                        "HTTP/1.1 200 OK\r\nServer: backend\r\nDate: Sat, 01 Aug 2026 00:00:00 GMT\r\n"
                        "Content-Type: application/octet-stream\r\nCache-Control: no-cache\r\n"
                        "ETag: \"5f3c-1\"\r\nContent-Length: %llu\r\n\r\n",
                        (unsigned long long)count);
    if (count <= 4096) {
        char whole[320 + 4096];
        memcpy(whole, head, (size_t)size);
        memcpy(whole + size, pattern, count);
        return say(c, whole, (size_t)size + count);
    }
    c->mode = BODY, c->cycle = NULL, c->at = 0, c->left = count;
    return say(c, head, (size_t)size) && (c->out.size || pump(c));
}

static bool answer_sink(struct conn *c) {
    static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    static const char bad[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad";
    c->mode = HEAD;
    return c->good ? say(c, good, sizeof good - 1) : say(c, bad, sizeof bad - 1);
}

/* Each step returns how much of *data* it consumed; 0 when it needs more, -1 to close. */

static ssize_t step_head(struct conn *c, unsigned char *data, size_t size) {
    size_t end = head_end(data, size);
    if (!end)
        return 0;
    const char *head = (const char *)data;
    const char *path = memchr(head, ' ', end);
    if (!path++)
        return -1;
    bool good;
    const char *length = field(head, end, "Content-Length");
    const char *upgrade = field(head, end, "Upgrade");
    if (upgrade && strncasecmp(upgrade, "websocket", 9) == 0) {
        good = switched(c, head, end, path);
    } else if (length && atoll(length) > 0) {
        c->mode = SINK, c->left = (uint64_t)atoll(length), c->at = 0, c->good = true;
        good = true;
    } else if (strncmp(path, "/bytes/", 7) == 0) {
        good = answer_bytes(c, strtoull(path + 7, NULL, 10));
    } else {
        static const char nothing[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        good = say(c, nothing, sizeof nothing - 1);
    }
    return good ? (ssize_t)end : -1;
}

static ssize_t step_sink(struct conn *c, unsigned char *data, size_t size) {
    if (size > c->left)
        size = c->left;
    for (size_t at = 0; at < size; at += READ_BYTES) {
        size_t part = size - at < READ_BYTES ? size - at : READ_BYTES;
        c->good = c->good && is_pattern(data + at, part, c->at + at);
    }
    c->at += size, c->left -= size;
    return c->left || answer_sink(c) ? (ssize_t)size : -1;
}

static ssize_t step_socket(struct conn *c, unsigned char *data, size_t size) {
    struct frame frame;
    if (!read_frame(data, size, &frame) || size < frame.header + frame.length)
        return 0;
    size_t whole = frame.header + frame.length;
    unsigned char *payload = data + frame.header, header[10];
    if (frame.mask)
        unmask(payload, frame.length, frame.mask);
    if (frame.opcode == 8)
        return -1;
    if (c->mode == CYCLE)
        return (ssize_t)whole;
    size_t shorter = write_frame(header, frame.opcode == 9 ? 10 : frame.opcode, frame.length);
    memmove(payload - shorter, header, shorter); /* it fits: the client's header had a mask */
    return say(c, payload - shorter, shorter + frame.length) ? (ssize_t)whole : -1;
}

/* RFB (RFC 6143) */

static ssize_t step_rfb_start(struct conn *c, size_t size) {
    static const unsigned char result[4] = {0};
    static const unsigned char init[SERVER_INIT_BYTES] = {
        4, 0, 3, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0, 0, 0, 0, 5,
        'b', 'e', 'n', 'c', 'h'};
    switch (c->mode) {
    case RFB_VERSION_READ:
        c->mode = RFB_SECURITY;
        return size < 12 ? (c->mode = RFB_VERSION_READ, 0) : say(c, "\1\1", 2) ? 12 : -1;
    case RFB_SECURITY:
        c->mode = RFB_INIT;
        return say(c, result, sizeof result) ? 1 : -1;
    default:
        c->mode = RFB_SERVING, c->cycle = update, c->period = UPDATE_BYTES(LARGE_SIDE);
        return say(c, init, sizeof init) ? 1 : -1;
    }
}

static ssize_t step_rfb(struct conn *c, unsigned char *data, size_t size) {
    if (c->mode != RFB_SERVING)
        return step_rfb_start(c, size);
    size_t message = data[0] == 3 ? 10 : data[0] == 4 ? 8 : data[0] == 5 ? 6 : 0;
    if (!message)
        return -1;
    if (size < message)
        return 0;
    bool small = data[0] == 3 && data[7] == SMALL_SIDE;
    if (data[0] == 3 && !small)
        c->left += UPDATE_BYTES(LARGE_SIDE);
    c->asked = c->asked || small;
    if (data[0] == 5 && c->asked) {
        c->asked = false;
        return say(c, small_update, UPDATE_BYTES(SMALL_SIDE)) ? (ssize_t)message : -1;
    }
    return c->out.size || pump(c) ? (ssize_t)message : -1;
}

static ssize_t step(struct conn *c, unsigned char *data, size_t size) {
    switch (c->mode) {
    case HEAD:
        return step_head(c, data, size);
    case BODY:
        return -1;
    case SINK:
        return step_sink(c, data, size);
    case ECHO:
    case CYCLE:
        return step_socket(c, data, size);
    default:
        return step_rfb(c, data, size);
    }
}

static bool readable(struct conn *c) {
    unsigned char *data;
    ssize_t size = take(c->fd, &c->in, &data);
    if (size <= 0)
        return size == 0;
    while (size > 0) {
        ssize_t taken = step(c, data, (size_t)size);
        if (taken < 0)
            return false;
        if (taken == 0)
            break;
        data += taken, size -= taken;
    }
    keep(&c->in, data, (size_t)size);
    return true;
}

static int listen_on(int *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 8192) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        die("listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static void accept_all(int listener, enum mode mode) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = calloc(1, sizeof *c);
        if (!c)
            die("calloc");
        c->fd = fd, c->mode = mode;
        no_delay(fd);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
        if (mode == RFB_VERSION_READ && !say(c, RFB_VERSION, 12))
            close_conn(c);
    }
}

int main(void) {
    raise_limits();
    make_pattern();
    frames = malloc(10 + 65536);
    size_t header = write_frame(frames, 2, 65536);
    memcpy(frames + header, pattern, 65536);
    frames_size = header + 65536;
    update = make_update(LARGE_SIDE), small_update = make_update(SMALL_SIDE);
    int port, rfb_port, web = listen_on(&port), rfb = listen_on(&rfb_port);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[256], in = {.events = EPOLLIN};
    int *sources[] = {&web, &rfb, &(int){0}};
    for (int i = 0; i < 3; i++) {
        in.data.ptr = sources[i];
        epoll_ctl(poller, EPOLL_CTL_ADD, *sources[i], &in);
    }
    printf("%d %d\n", port, rfb_port);
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) {
            void *who = events[i].data.ptr;
            if (who == sources[2])
                return 0;
            if (who == &web || who == &rfb) {
                accept_all(*(int *)who, who == &web ? HEAD : RFB_VERSION_READ);
                continue;
            }
            struct conn *c = who;
            bool good = !(events[i].events & EPOLLOUT) || writable(c);
            if (good && events[i].events & ~(uint32_t)EPOLLOUT)
                good = readable(c);
            if (!good)
                close_conn(c);
        }
    }
}
